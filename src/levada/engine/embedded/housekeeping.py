"""What a broker does by itself, and when.

One task a job, asleep until it is due; one that fails is reported and comes again. No partition has a timer of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog

from levada.config import MINUTE_MS, SECOND_MS
from levada.engine.embedded.offsets import OffsetStore
from levada.engine.embedded.partitions import Partitions
from levada.engine.embedded.transactions import Transactions
from levada.engine.embedded.upkeep import Upkeep
from levada.engine.settings import LiveSettings

#: Between a wish to hurry and the job: whatever else is wished for meanwhile is served by the same run.
HURRY_S: Final = 1.0
CHECKPOINT_MS: Final = MINUTE_MS
PURGE_MS: Final = 10 * SECOND_MS
PRODUCER_EXPIRY_MS: Final = 10 * MINUTE_MS

_log = structlog.get_logger("levada.housekeeping")


class Job:
    """Something that is done every so often, and sooner when `hurry` is called. `replan` when the pause is another."""

    def __init__(self, name: str, pause_ms: Callable[[], int], run: Callable[[], Awaitable[None]]) -> None:
        self.name = name
        self._pause_ms = pause_ms
        self._run = run
        self._wake = asyncio.Event()
        self._hurrying = False
        self._stopping = False

    def hurry(self) -> None:
        """Do it in a moment; asking again until then changes nothing."""
        if not self._hurrying:
            self._hurrying = True
            self._wake.set()

    def replan(self) -> None:
        """The pause may be another: it counts from when it began."""
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    async def repeat(self) -> None:
        """Until it is stopped. A failure is reported, and the job comes again."""
        while True:
            await self._pause()
            if self._stopping:
                return
            try:
                await self._run()
            except Exception as error:
                _log.error("job failed", job=self.name, reason=str(error), kind=type(error).__name__)

    async def _pause(self) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        while not self._stopping and await self._woken_before(began + self._pause_ms() / 1000):
            self._wake.clear()
            if self._hurrying and not self._stopping:
                await self._woken_before(clock() + HURRY_S)
                break
        self._hurrying = False
        self._wake.clear()

    async def _woken_before(self, when: float) -> bool:
        try:
            async with asyncio.timeout_at(when):
                return await self._wake.wait()
        except TimeoutError:
            return False


class Timetable:
    """Runs jobs when they are due, side by side, each never beside itself."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, name: str, pause_ms: Callable[[], int], run: Callable[[], Awaitable[None]]) -> Job:
        job = Job(name, pause_ms, run)
        self._jobs.append(job)
        return job

    def start(self) -> None:
        self._tasks = [asyncio.create_task(job.repeat(), name=f"levada-{job.name}") for job in self._jobs]

    def replan(self) -> None:
        """The pauses may be others."""
        for job in self._jobs:
            job.replan()

    async def stop(self) -> None:
        """Start no more jobs, and wait for those that run."""
        for job in self._jobs:
            job.stop()
        await asyncio.gather(*self._tasks)


class Housekeeping:
    """Which job runs when. `reads_topic(group, topic)`: may members of the group still read the topic?"""

    def __init__(
        self,
        settings: LiveSettings,
        *,
        upkeep: Upkeep,
        partitions: Partitions,
        offsets: OffsetStore,
        transactions: Transactions,
        reads_topic: Callable[[str, str], bool],
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._upkeep = upkeep
        self._offsets = offsets
        self._transactions = transactions
        self._reads_topic = reads_topic
        self._now_ms = now_ms
        self._timetable = Timetable()
        self._plan()
        self._checkpoint = self._timetable.add("checkpoint", lambda: CHECKPOINT_MS, partitions.checkpoint)

    def _plan(self) -> None:
        setting, add, upkeep = partial(partial, self._settings.number), self._timetable.add, self._upkeep
        add("retention", setting("log.retention.check.interval.ms"), upkeep.retain)
        add("compaction", setting("log.cleaner.backoff.ms"), upkeep.compact)
        add("purge", lambda: PURGE_MS, upkeep.purge)
        add("producers", lambda: PRODUCER_EXPIRY_MS, upkeep.expire_producers)
        add("offsets", setting("offsets.retention.check.interval.ms"), self.expire_offsets)
        timeouts = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        add("transactions", setting(timeouts), self.end_transactions)

    def start(self) -> None:
        self._timetable.start()

    def replan(self) -> None:
        """Settings have changed."""
        self._timetable.replan()

    async def stop(self) -> None:
        """Start no more jobs, cut short what takes long, and wait for the rest."""
        await self._upkeep.stop()
        await self._timetable.stop()

    def checkpoint_soon(self) -> None:
        """A segment was closed: a crash before the next checkpoint would have it verified again."""
        self._checkpoint.hurry()

    async def expire_offsets(self) -> None:
        retention_ms = self._settings.number("offsets.retention.minutes") * MINUTE_MS
        expired = self._offsets.expire(self._now_ms(), retention_ms, self._reads_topic)
        if expired.offsets:
            _log.info("offsets expired", offsets=expired.offsets, groups=expired.groups)

    async def end_transactions(self) -> None:
        self._transactions.tick(self._now_ms())
