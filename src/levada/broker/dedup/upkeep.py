"""What memories need from time to time: swept, the time noted, put down. Imported only where dedup is on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from levada.broker.dedup import saving
from levada.config import MINUTE_MS
from levada.errors import LevadaError

if TYPE_CHECKING:
    from levada.broker.dedup.dedup import Dedup
    from levada.broker.dedup.keeper import Keeper
    from levada.broker.dedup.memory import Memory
    from levada.broker.dedup.places import Place
    from levada.broker.dedup.stored import Partition
    from levada.broker.dedup.topic import Key, Topic

#: So many new messages, and this part of all, are put down in between.
SNAPSHOT_FROM: Final = 1_000_000
SNAPSHOT_PART: Final = 0.25

_log = structlog.get_logger("levada.dedup")


class Upkeep:
    """Looks after the memories that a keeper has."""

    def __init__(self, dedup: Dedup, keeper: Keeper) -> None:
        self._dedup = dedup
        self._keeper = keeper
        self._changed = asyncio.Event()
        #: How many messages a memory had taken when it was last put down.
        self._saved: dict[Key, int] = {}
        self._warned: set[Key] = set()

    async def run(self) -> None:
        """Sweep for ever."""
        while True:
            await self._pause()
            try:
                await self.sweep()
            except LevadaError as reason:
                _log.warning("dedup memory not swept", reason=str(reason))

    async def _pause(self) -> None:
        """Until the next sweep is due; a topic that comes meanwhile may want it sooner."""
        began = asyncio.get_running_loop().time()
        while True:
            self._changed.clear()
            pauses = [topic.config.dedup_sweep_ms for topic in self._dedup.topics.values()]
            try:
                async with asyncio.timeout_at(began + min(pauses, default=MINUTE_MS) / 1000):
                    await self._changed.wait()
            except TimeoutError:
                return

    def topics_changed(self) -> None:
        self._changed.set()

    async def sweep(self) -> None:
        """Forget what is past the window, note the time, and put down what has grown much."""
        self._keeper.forget_unwanted()
        for key, memory in list(self._keeper.memories.items()):
            if window_ms := self._window_ms(memory):
                for _ in memory.sweep(self._dedup.now_ms(), window_ms):
                    await asyncio.sleep(0)
                self._warn_of_evictions(key, memory, window_ms)
            grown = memory.table.arrivals - self._saved.get(key, 0)
            if grown >= max(SNAPSHOT_FROM, SNAPSHOT_PART * len(memory)):
                await self._save(key)
        for topic in list(self._dedup.topics.values()):
            await self.note(topic)

    def _warn_of_evictions(self, key: Key, memory: Memory, window_ms: int) -> None:
        """Once for each memory: the metric has the rest."""
        if memory.table.evicted and key not in self._warned:
            self._warned.add(key)
            _log.warning(
                "messages are forgotten before their window has passed: more came than levada.dedup.entries.max",
                topics=sorted(topic.name for topic in self._users(memory)),
                entries_max=memory.table.limit,
                window_ms=window_ms,
                remembered_ms=self._dedup.now_ms() - memory.table.floor_ms,
            )

    def _window_ms(self, memory: Memory) -> int:
        """The longest of those who use it; 0 where nobody does."""
        return max((topic.config.dedup_window_ms for topic in self._users(memory)), default=0)

    def _users(self, memory: Memory) -> list[Topic]:
        return [topic for topic in self._dedup.topics.values() if topic.memory is memory]

    # Putting down

    def recalled(self, key: Key, memory: Memory) -> None:
        """It is as it was put down."""
        self._saved[key] = memory.table.arrivals

    async def put_all_down(self) -> None:
        for topic in list(self._dedup.topics.values()):
            await self.note(topic)
        for key in list(self._keeper.memories):
            await self._save(key)

    async def note(self, topic: Topic) -> None:
        """How far the topic's partitions have come by now, put down once so much of them is on disk.

        A note of more than that would speak of other records after a power cut, as soon as the log has grown so far again.
        """
        now_ms = self._dedup.now_ms()
        ends = await self._synced(topic.places.values(), lambda partition: partition.log_end)
        marks = self._keeper.marks.get(topic.name)
        if marks is None or self._dedup.view.by_id(topic.topic_id) is None:
            return  # it was deleted meanwhile
        for place, end in ends.items():
            marks.note(place.at.partition, end, now_ms)
        marks.forget_before(now_ms - topic.config.dedup_window_ms)
        save = partial(saving.save_marks, self._dedup.shelf, topic.topic_id, marks.encode())
        await self.on_shelf(save, topic.name)

    async def on_shelf(self, work: Callable[[], None], what: str) -> None:
        """In a worker thread. Where the disk will not have it, the next start takes longer, and nothing else."""
        try:
            await self._dedup.in_thread(work)
        except OSError as reason:
            _log.warning("dedup memory not put down", of=what, reason=str(reason))

    async def _synced(self, places: Iterable[Place], end_of: Callable[[Partition], int]) -> dict[Place, int]:
        """Have the places on disk up to these ends; those whose partitions refuse are left out."""
        ends: dict[Place, int] = {}
        waits: list[tuple[Place, Awaitable[None]]] = []
        for place in places:
            try:
                partition = self._dedup.partition_of(place.at)
                ends[place] = end_of(partition)
                if (wait := partition.when_synced(ends[place])) is not None:
                    waits.append((place, wait))
            except LevadaError:
                ends.pop(place, None)  # damaged, or gone: nothing of it is covered
        for place, waiting in waits:
            try:
                await waiting
            except LevadaError:
                ends.pop(place, None)
        return ends

    async def _save(self, key: Key) -> None:
        """Put a memory down. Where its transactions are open, the snapshot covers its log up to there.

        What it covers is on disk before it is, whatever the topic's durability: else a log that lost its end and grew again would
        be taken for the one that was covered.
        """
        memory = self._keeper.memories.get(key)
        if memory is None or not (window_ms := self._window_ms(memory)):
            return
        arrivals = memory.table.arrivals
        places = [place for topic in self._users(memory) for place in topic.places.values()]
        covered = await self._synced(places, lambda partition: partition.stable_end)
        try:
            if await saving.save(self._dedup.shelf, key, memory, covered, window_ms, self._dedup.in_thread):
                self._saved[key] = arrivals
        except OSError as reason:
            _log.warning("dedup memory not put down", of=saving.snapshot_name(key), reason=str(reason))
