"""One partition over a real log, with a syncer that the test runs by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import UUID

import pytest

from levada.config import HOUR_MS, topic_config
from levada.engine.embedded.partition import Partition
from levada.engine.embedded.syncer import Syncer
from levada.engine.port import Aborted, At, Bounds, Isolation
from levada.errors import OffsetOutOfRange, RecordTooLarge, StorageFailed, UnknownTopic
from levada.log.disk import Disk
from levada.log.log import Log
from levada.records.batch import Batch
from support.batches import make_batch

NOW_MS = 1_700_000_000_000
COMMITTED = Isolation.READ_COMMITTED
T = TypeVar("T")


class ByHand:
    """A syncer that syncs when it is told to."""

    def __init__(self) -> None:
        self.dirty: list[Partition] = []
        self.intervals: list[int] = []

    def soon(self, log: Partition) -> None:
        self.dirty.append(log)

    def within(self, log: Partition, interval_ms: int) -> None:
        self.intervals.append(interval_ms)

    def run(self) -> None:
        dirty, self.dirty = self.dirty, []
        for partition in dirty:
            partition.synced(partition.sync())


class Listener:
    def __init__(self) -> None:
        self.heard: list[int] = []

    def advanced(self, partition: Partition, bytes_added: int) -> None:
        self.heard.append(bytes_added)


def at_once(work: Callable[[], T]) -> Awaitable[T]:
    async def run() -> T:
        return work()

    return run()


@pytest.fixture
def syncer() -> ByHand:
    return ByHand()


Make = Callable[..., Partition]


@pytest.fixture
def make(tmp_path: Path, syncer: ByHand) -> Make:
    def make(settle: Callable[[], None] | None = None, **settings: str) -> Partition:
        config = topic_config({name.replace("_", "."): value for name, value in settings.items()})
        log = Log.open(str(tmp_path / "t-0"), config, Disk(), now_ms=NOW_MS)
        return Partition(
            At("t", 0),
            UUID(int=1),
            log,
            leader_epoch=3,
            syncer=cast(Syncer, syncer),
            workers=cast(Any, at_once),
            now_ms=lambda: NOW_MS,
            settle=settle,
        )

    return make


def append(partition: Partition, count: int = 1, **fields: Any) -> int:
    """Append a batch and return the end offset."""
    return partition.append(make_batch(count, **fields)).last_offset + 1


# Visibility and durability


def test_with_fsync_a_record_is_visible_once_it_is_synced(make: Make, syncer: ByHand) -> None:
    partition = make()
    append(partition, 2)
    assert (partition.end, partition.log_end) == (0, 2)
    assert bytes(partition.read(0, 1000).batches) == b""
    assert bytes(partition.read(1, 1000).batches) == b""
    syncer.run()
    assert partition.bounds == Bounds(0, 2, 2)
    assert Batch(memoryview(partition.read(0, 1000).batches)).record_count == 2


@pytest.mark.parametrize("durability", ["os", "interval:50"])
def test_without_fsync_a_record_is_visible_at_once(make: Make, syncer: ByHand, durability: str) -> None:
    partition = make(levada_durability=durability)
    end = append(partition)
    assert partition.end == end
    assert partition.when_durable(end) is None
    assert syncer.dirty == []
    assert syncer.intervals == ([50] if durability == "interval:50" else [])


def test_os_durability_syncs_a_segment_that_is_full(make: Make, syncer: ByHand) -> None:
    partition = make(levada_durability="os", segment_bytes="200")
    append(partition, 5)
    assert syncer.dirty == []
    append(partition, 5)
    assert syncer.dirty == [partition]
    syncer.run()
    assert partition.log.synced_offset == 10


async def test_whoever_waits_for_durability_is_told_when_it_is_reached(make: Make, syncer: ByHand) -> None:
    partition = make()
    first = partition.when_durable(append(partition))
    syncer.run()
    assert first is not None and first.done()
    second = partition.when_durable(append(partition))
    assert second is not None and not second.done()
    syncer.run()
    assert second.done()
    assert partition.when_durable(2) is None


@pytest.mark.parametrize("durability", ["os", "interval:50", "fsync"])
async def test_whoever_must_have_it_on_disk_gets_it_whatever_the_policy(
    make: Make, syncer: ByHand, durability: str
) -> None:
    partition = make(levada_durability=durability)
    end = append(partition)
    waiting = partition.when_synced(end)
    assert waiting is not None and not waiting.done()
    syncer.run()
    assert waiting.done()
    assert partition.log.synced_offset == end
    assert partition.when_synced(end) is None


async def test_whoever_gave_up_waiting_is_no_hindrance(make: Make, syncer: ByHand) -> None:
    partition = make()
    gone, there = partition.when_durable(append(partition)), partition.when_durable(append(partition))
    assert gone is not None and there is not None
    gone.cancel()
    syncer.run()
    assert there.done() and not there.cancelled()


def test_what_must_be_durable_first_is_settled_before_the_first_sync(make: Make, syncer: ByHand) -> None:
    settled: list[int] = []
    partition = make(settle=lambda: settled.append(1))
    append(partition)
    assert settled == []
    syncer.run()
    append(partition)
    syncer.run()
    assert settled == [1]


async def test_a_failed_sync_refuses_writes_and_keeps_serving_what_is_durable(make: Make, syncer: ByHand) -> None:
    partition = make()
    append(partition)
    syncer.run()
    waiting = partition.when_durable(append(partition))
    partition.sync_failed(OSError(5, "Input/output error"))
    assert waiting is not None
    with pytest.raises(StorageFailed, match="Input/output error"):
        await waiting
    with pytest.raises(StorageFailed, match="until the broker restarts"):
        append(partition)
    with pytest.raises(StorageFailed):
        partition.when_durable(2)
    assert partition.end == 1
    assert Batch(memoryview(partition.read(0, 1000).batches)).record_count == 1


def test_another_durability_holds_from_the_next_turn_on(make: Make, syncer: ByHand) -> None:
    partition = make()
    append(partition)
    assert partition.end == 0
    partition.alter(topic_config({"levada.durability": "os"}))
    assert partition.end == 1
    append(partition)
    assert partition.end == 2
    partition.alter(topic_config({}))
    assert partition.end == 2
    append(partition)
    assert partition.end == 2
    syncer.run()
    assert partition.end == 3


# Writing


def test_batches_are_stamped_with_offset_and_epoch(make: Make, syncer: ByHand) -> None:
    partition = make()
    append(partition, 3)
    batch = make_batch(2, base_offset=77, leader_epoch=9)
    partition.append(batch)
    assert (batch.base_offset, batch.leader_epoch) == (3, 3)


def test_a_refused_batch_is_not_there(make: Make, syncer: ByHand) -> None:
    partition = make(max_message_bytes="100")
    with pytest.raises(RecordTooLarge):
        append(partition, 10)
    assert (partition.log_end, syncer.dirty) == (0, [])


def test_the_brokers_own_batches_are_under_no_rule(make: Make) -> None:
    partition = make(max_message_bytes="100", cleanup_policy="compact")
    partition.append(make_batch(10, key=None), internal=True)
    assert partition.log_end == 10


def test_a_repeat_writes_nothing_and_wakes_nobody(make: Make, syncer: ByHand) -> None:
    partition = make()
    append(partition, 2, producer_id=5)
    syncer.run()
    listener = Listener()
    partition.watch(listener)
    again = partition.append(make_batch(2, producer_id=5))
    assert (again.duplicate, again.base_offset, again.last_offset) == (True, 0, 1)
    assert (partition.log_end, syncer.dirty, listener.heard) == (2, [], [])


# Transactions


def test_an_open_transaction_holds_the_stable_end(make: Make, syncer: ByHand) -> None:
    partition = make()
    append(partition)
    append(partition, 2, producer_id=5, transactional=True)
    append(partition)
    syncer.run()
    assert partition.bounds == Bounds(0, 1, 4)
    assert Batch(memoryview(partition.read(0, 1, COMMITTED).batches)).next_offset == 1
    assert bytes(partition.read(1, 1000, COMMITTED).batches) == b""
    partition.append_marker(5, 0, commit=True, coordinator_epoch=0)
    assert partition.stable_end == 1, "the marker is not durable yet"
    syncer.run()
    assert partition.bounds == Bounds(0, 5, 5)


def test_aborted_transactions_are_named_to_committed_readers_alone(make: Make, syncer: ByHand) -> None:
    partition = make()
    append(partition, 2, producer_id=5, transactional=True)
    append(partition, 1)
    partition.append_marker(5, 0, commit=False, coordinator_epoch=0)
    append(partition, 1, producer_id=6, transactional=True)
    partition.append_marker(6, 0, commit=False, coordinator_epoch=0)
    syncer.run()
    assert list(partition.read(0, 10_000, COMMITTED).aborted) == [Aborted(5, 0), Aborted(6, 4)]
    assert list(partition.read(0, 1, COMMITTED).aborted) == [Aborted(5, 0)]
    assert list(partition.read(0, 10_000).aborted) == []
    assert partition.stable_end == 6


# Waiting


def test_readers_are_woken_when_the_visible_end_moves_and_told_by_how_much(make: Make, syncer: ByHand) -> None:
    partition = make()
    listener = Listener()
    partition.watch(listener)
    sizes = [make_batch(count).size for count in (1, 2)]
    append(partition, 1)
    append(partition, 2)
    assert listener.heard == []
    syncer.run()
    assert listener.heard == [sum(sizes)]
    partition.unwatch(listener)
    append(partition, 1)
    syncer.run()
    assert listener.heard == [sum(sizes)]


def test_the_end_of_a_transaction_counts_what_it_held_back(make: Make, syncer: ByHand) -> None:
    partition = make(levada_durability="os")
    listener = Listener()
    partition.watch(listener)
    size = make_batch(3, producer_id=5, transactional=True).size
    append(partition, 3, producer_id=5, transactional=True)
    partition.append_marker(5, 0, commit=True, coordinator_epoch=0)
    assert listener.heard[0] == size
    assert listener.heard[1] > size


def test_a_reader_may_stop_watching_while_it_is_told(make: Make) -> None:
    class Once(Listener):
        def advanced(self, partition: Partition, bytes_added: int) -> None:
            super().advanced(partition, bytes_added)
            partition.unwatch(self)

    partition = make(levada_durability="os")
    listeners = [Once(), Once()]
    for listener in listeners:
        partition.watch(listener)
    append(partition)
    append(partition)
    assert [len(listener.heard) for listener in listeners] == [1, 1]


async def test_everybody_is_told_when_the_topic_goes(make: Make) -> None:
    partition = make()
    listener = Listener()
    partition.watch(listener)
    waiting = partition.when_durable(append(partition))
    partition.retire(lambda: UnknownTopic("t was deleted"))
    assert listener.heard == [0]
    assert waiting is not None
    with pytest.raises(UnknownTopic):
        await waiting
    for call in (lambda: append(partition), lambda: partition.read(0, 1000), lambda: partition.when_durable(9)):
        with pytest.raises(UnknownTopic, match="t was deleted"):
            call()
    with pytest.raises(UnknownTopic):
        await partition.read_cold(0, 1000)


# Reading


async def test_a_cold_read_gives_the_same(make: Make, syncer: ByHand) -> None:
    partition = make()
    append(partition, 2, producer_id=5, transactional=True)
    partition.append_marker(5, 0, commit=False, coordinator_epoch=0)
    append(partition)
    syncer.run()
    for isolation in Isolation:
        for max_bytes in (1, 10_000):
            warm = partition.read(0, max_bytes, isolation)
            assert await partition.read_cold(0, max_bytes, isolation) == warm
    assert bytes((await partition.read_cold(4, 1000)).batches) == b""


async def test_a_cold_read_names_what_was_aborted_though_it_is_deleted_by_then(make: Make, syncer: ByHand) -> None:
    partition = make(retention_ms="1000")
    append(partition, producer_id=5, transactional=True)
    partition.append_marker(5, 0, commit=False, coordinator_epoch=0)
    partition.log.roll(NOW_MS)
    append(partition, timestamp_ms=NOW_MS + HOUR_MS)
    syncer.run()
    real = partition._workers

    async def retaining(work: Callable[[], T]) -> T:
        # The worker has read; before the reader goes on, the log becomes shorter.
        result = await real(work)
        partition._workers = real
        assert await partition.shrinker.retain(NOW_MS + HOUR_MS, None)
        return result

    partition._workers = cast(Any, retaining)
    found = await partition.read_cold(0, 10_000, COMMITTED)
    assert bytes(found.batches) and found.aborted == [(5, 0)]


async def test_an_offset_outside_is_refused_with_the_range(make: Make, syncer: ByHand) -> None:
    partition = make()
    for _ in range(4):
        append(partition)
    syncer.run()
    assert await partition.trim(2) == 2
    for offset in (1, 5, -1):
        for read in (lambda: partition.read(offset, 100), lambda: partition.read_cold(offset, 100)):  # noqa: B023
            with pytest.raises(OffsetOutOfRange) as refused:
                result = read()
                await cast(Any, result)
            assert (refused.value.start, refused.value.end) == (2, 4)


async def test_trimming_wakes_readers_and_never_goes_back(make: Make, syncer: ByHand) -> None:
    partition = make()
    for _ in range(4):
        append(partition)
    listener = Listener()
    partition.watch(listener)
    with pytest.raises(OffsetOutOfRange, match="it holds 0 to 0"):
        await partition.trim(1)
    syncer.run()
    assert await partition.trim(3) == 3
    assert await partition.trim(1) == 3
    assert listener.heard[-1] == 0
    assert partition.start_offset == 3


async def test_lookups_by_time_see_what_is_visible(make: Make, syncer: ByHand) -> None:
    partition = make()
    append(partition, 1, timestamp_ms=1000)
    syncer.run()
    append(partition, 1, timestamp_ms=2000)
    found = await partition.offset_at(0)
    assert found is not None and found.offset == 0
    assert await partition.offset_at(1500) is None
    syncer.run()
    found = await partition.offset_at(1500)
    assert found is not None and found.offset == 1


async def test_the_latest_timestamp_is_told_once_its_record_is_visible(make: Make, syncer: ByHand) -> None:
    partition = make()
    assert await partition.max_timestamp() is None
    append(partition, 1, timestamp_ms=1000)
    asking = asyncio.create_task(partition.max_timestamp())
    await asyncio.sleep(0.01)
    assert not asking.done()
    syncer.run()
    found = await asking
    assert found is not None and (found.offset, found.timestamp_ms) == (0, 1000)
