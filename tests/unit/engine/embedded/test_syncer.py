from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from levada.engine.embedded.syncer import Syncer


class FakeLog:
    """A log whose syncs take as long as the test says."""

    def __init__(self) -> None:
        self.end = 0
        self.durable = 0
        self.syncs = 0
        self.failure: Exception | None = None
        self.failed: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Event()
        self.told = asyncio.Event()
        self.threads: set[str] = set()

    def sync(self) -> int:
        end = self.end
        self.syncs += 1
        self.threads.add(threading.current_thread().name)
        self.started.set()
        assert self.gate.wait(30)
        if self.failure is not None:
            raise self.failure
        return end

    def synced(self, offset: int) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.durable = offset
        self.told.set()

    def sync_failed(self, error: Exception) -> None:
        self.failed = error


@pytest.fixture
async def syncer() -> AsyncIterator[Syncer]:
    syncer = Syncer(threads_max=4)
    yield syncer
    await syncer.close()


async def test_appends_of_one_turn_share_one_sync(syncer: Syncer) -> None:
    log = FakeLog()
    for _ in range(100):
        log.end += 1
        syncer.soon(log)
    await syncer.quiet(log)
    assert (log.durable, log.syncs) == (100, 1)


async def test_what_is_appended_during_a_sync_rides_on_the_next(syncer: Syncer) -> None:
    log = FakeLog()
    log.gate.clear()
    log.end = 1
    syncer.soon(log)
    await asyncio.to_thread(log.started.wait, 5)
    for _ in range(50):
        log.end += 1
        syncer.soon(log)
    log.gate.set()
    await syncer.quiet(log)
    assert (log.durable, log.syncs) == (51, 2)


async def test_a_log_never_syncs_twice_at_once_and_others_do_not_wait_for_it(syncer: Syncer) -> None:
    slow, quick = FakeLog(), FakeLog()
    slow.gate.clear()
    slow.end = quick.end = 7
    syncer.soon(slow)
    await asyncio.to_thread(slow.started.wait, 5)
    syncer.soon(slow)
    syncer.soon(quick)
    await syncer.quiet(quick)
    assert (quick.durable, slow.durable, slow.syncs) == (7, 0, 1)
    slow.gate.set()


async def test_a_sync_runs_in_a_worker_thread(syncer: Syncer) -> None:
    logs = [FakeLog() for _ in range(10)]
    for log in logs:
        syncer.soon(log)
    for log in logs:
        await syncer.quiet(log)
    threads = set[str]().union(*(log.threads for log in logs))
    assert threads <= {f"levada-sync-{number}" for number in range(4)}


async def test_a_failed_sync_is_told_and_not_tried_again(syncer: Syncer) -> None:
    log = FakeLog()
    log.failure = OSError(5, "Input/output error")
    log.gate.clear()
    syncer.soon(log)
    await asyncio.to_thread(log.started.wait, 5)
    syncer.soon(log)
    log.gate.set()
    await syncer.quiet(log)
    assert log.failed is log.failure
    assert log.syncs == 1


async def test_interval_logs_are_synced_once_per_interval(syncer: Syncer) -> None:
    slow, quick = FakeLog(), FakeLog()
    slow.end = quick.end = 3
    syncer.within(slow, 10_000)
    for _ in range(5):
        syncer.within(quick, 5)
    async with asyncio.timeout(30):
        await quick.told.wait()
    assert (quick.syncs, slow.syncs) == (1, 0)


async def test_a_log_that_was_quieted_is_not_synced_by_its_timer(syncer: Syncer) -> None:
    log = FakeLog()
    syncer.within(log, 1)
    await syncer.quiet(log)
    await asyncio.sleep(0.02)
    assert log.syncs == 0


async def test_a_reader_that_fails_does_not_keep_other_logs_waiting(syncer: Syncer) -> None:
    class Broken(FakeLog):
        def synced(self, offset: int) -> None:
            raise RuntimeError("a reader's bug")

    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
    broken, sound = Broken(), FakeLog()
    sound.end = 1
    syncer.soon(broken)
    syncer.soon(sound)
    await syncer.quiet(broken)
    await syncer.quiet(sound)
    assert sound.durable == 1
    assert [str(error) for error in reported] == ["a reader's bug"]


async def test_closing_waits_for_what_is_in_flight() -> None:
    syncer = Syncer()
    log = FakeLog()
    log.end = 9
    syncer.soon(log)
    await syncer.close()
    assert log.durable == 9
