"""Message dedup: a message that was seen within the window is not stored again.

By topic: `levada.dedup` says whether and by what a message is told, `levada.dedup.scope` whether a copy counts in the same topic or
in any topic of the broker that has it so. What is new is remembered in the same turn of the loop in which it is appended,
so of any number of concurrent copies one is stored, and the others are answered with its position once it is durable.

The memory is derived from the log. It is loaded when a topic is first used, in pieces and with what needs numba in a worker
thread; publishers of that topic wait until then. A broker without such topics never loads any of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import structlog

from levada.broker.dedup.stored import Partition, Stored
from levada.broker.dedup.topic import OFF, SHARED, Counts, Topic
from levada.config import TopicConfig
from levada.engine.names import is_internal
from levada.engine.port import Acks, Appended, At, Engine, TopicView
from levada.errors import LevadaError, Overloaded
from levada.records.batch import Batch

if TYPE_CHECKING:
    from levada.broker.dedup.keeper import Keeper
    from levada.broker.dedup.memory import Memory
    from levada.broker.dedup.places import Place
    from levada.broker.dedup.screening import First, Screening
    from levada.broker.dedup.shelf import Shelf

T = TypeVar("T")
#: Between two looks at a topic whose settings were others again once its memory was at hand.
_PAUSES_S: Final = (0.0, 0.0, 0.01, 0.1, 1.0)
_RETRY_AFTER_MS: Final = 1000
_log = structlog.get_logger("levada.dedup")


class Workers(Protocol):
    """Runs something in a worker thread."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class Dedup:
    """Screens what is published to topics that want it, for all fronts."""

    def __init__(
        self,
        engine: Engine,
        view: TopicView,
        *,
        partition_of: Callable[[At], Partition],
        config_of: Callable[[str], TopicConfig],
        shelf: Shelf,
        in_thread: Workers,
        now_ms: Callable[[], int],
    ) -> None:
        self._engine = engine
        self.view = view
        self.partition_of = partition_of
        self._config_of = config_of
        self.shelf = shelf
        self.in_thread = in_thread
        self.now_ms = now_ms
        self.topics: dict[str, Topic] = {}
        self._keeper: Keeper | None = None
        self._starting: asyncio.Task[Keeper] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        #: Messages that were not stored again, by topic.
        self.drops: Counter[str] = Counter()

    # For measuring

    def counts(self) -> list[Counts]:
        """Of each topic; what topics share is counted for SHARED."""
        rows, shared = [], {}
        for name, topic in self.topics.items():
            own = topic.key.topic_id is not None
            rows.append(Counts(name, self.drops[name], *_figures([topic.memory] if own else ())))
            if not own:
                shared[topic.key] = topic.memory
        if shared:
            rows.append(Counts(SHARED, 0, *_figures(shared.values())))
        return rows

    # Which topics

    def active(self, topic: str) -> bool:
        """Whether messages of the topic are remembered."""
        return self.view.get(topic) is not None and not is_internal(topic) and self._config_of(topic).dedup != OFF

    def applies(self, partition: Partition) -> bool:
        """The same of a partition: what the broker keeps for itself is never screened."""
        return partition.config.dedup != OFF and not is_internal(partition.at.topic)

    def ready(self, partition: Partition) -> bool:
        """Whether `append` may be called: its topic's memory is at hand, as its settings are now."""
        topic = self.topics.get(partition.at.topic)
        if topic is None or not topic.ready or topic.topic_id != partition.topic_id:
            return False
        config = partition.config
        if topic.config is not config:
            # Settings are parsed anew now and then: equal ones are the same.
            if topic.config != config:
                return False
            topic.config = config
        return True

    def start(self) -> None:
        """Begin to load the memories of all topics that want one; nobody need wait for it."""
        if any(self.active(info.name) for info in self.view.all()):
            self._in_background(self._open_all())

    async def _open_all(self) -> None:
        for info in self.view.all():
            try:
                if self.active(info.name):
                    await self.open(info.name)
            except LevadaError as reason:
                # Whoever publishes to it will be told; or it is gone.
                _log.warning("messages not remembered yet", topic=info.name, reason=str(reason))

    def settings_changed(self) -> None:
        """The broker's defaults are others: some topics may want a memory now, and others none any more."""
        if self._keeper is not None:
            self._keeper.forget_unwanted()

    async def open(self, topic: str) -> None:
        """Have the topic's memory at hand. Cheap when it is. UnknownTopic."""
        keeper = self._keeper
        if keeper is None:
            if self._starting is None:
                self._starting = self._in_background(self._load())
            keeper = await asyncio.shield(self._starting)
        await keeper.open(topic)

    async def at_hand(self, at: At) -> Partition:
        """The partition, `ready` in this turn of the loop unless it wants no memory. Costs little when it is.

        UnknownTopic, UnknownPartition; Overloaded where its settings do not come to rest.
        """
        partition = self.partition_of(at)
        if not self.applies(partition) or self.ready(partition):
            return partition
        for pause_s in _PAUSES_S:
            await self.open(at.topic)
            partition = self.partition_of(at)
            if not self.applies(partition) or self.ready(partition):
                return partition
            await asyncio.sleep(pause_s)
        raise Overloaded(
            f"the settings of topic {at.topic} change before its messages are brought to mind",
            retry_after_ms=_RETRY_AFTER_MS,
        )

    async def _load(self) -> Keeper:
        keeper = await self.in_thread(self._import)
        self._keeper = keeper
        await keeper.start()
        return keeper

    def _import(self) -> Keeper:
        """In a worker thread: importing numba and loading what it compiled takes half a second, compiling several."""
        from levada.broker.dedup.keeper import Keeper

        return Keeper(self, self._engine, self._config_of)

    def _in_background(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Put the memories down. Nothing may be published any more."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._keeper is not None:
            await self._keeper.close()
        self.topics.clear()

    # Publishing

    def append(self, partition: Partition, batch: Batch, *, dense: bool = False, keep_empty: bool = True) -> Stored:
        """Append what is new in a batch: now, in this turn of the loop. The topic must be `ready`.

        The records keep their offsets within the batch, so that base + i stays true for whoever counts on it, and a batch of
        nothing but repeats is kept empty; without `keep_empty` nothing is stored then. With `dense` the records follow
        one another. All refusals of an append; InvalidRecord where the records cannot be read.
        """
        topic = self.topics[partition.at.topic]
        place = topic.places.get(partition.at.partition) or self.add_place(topic, partition)
        screening: Screening | None = None

        def screen(admitted: Batch, base_offset: int) -> Batch | None:
            nonlocal screening
            screening = topic.memory.screen(
                place,
                admitted,
                base_offset,
                self.now_ms(),
                topic.config.dedup_window_ms,
                dense=dense,
                unpacked_bytes_max=topic.unpacked_bytes_max,
            )
            if not screening.repeats:
                return admitted
            if screening.all_repeats and not keep_empty:
                return None
            return screening.dense() if dense else screening.with_holes()

        try:
            appended = partition.append_screened(batch, screen)
        except BaseException:
            if screening is not None:
                screening.forget()
            raise
        if screening is None:
            return Stored(appended, self._first_copies(topic, place, batch, appended), batch.record_count, dense)
        repeats = screening.repeats
        if repeats:
            self.drops[topic.name] += len(repeats)
        return Stored(appended, repeats, batch.record_count, dense)

    def _first_copies(self, topic: Topic, place: Place, batch: Batch, appended: Appended | None) -> Mapping[int, First]:
        """Which records of a producer's repeat were not stored with its first copy either, and where those lie instead."""
        assert appended is not None and appended.duplicate, "only a repeat is not screened"
        if batch.is_transactional:
            return {}  # Kafka's clients know offsets of batches alone
        screening = topic.memory.screen(
            place,
            batch,
            appended.base_offset,
            self.now_ms(),
            topic.config.dedup_window_ms,
            unpacked_bytes_max=topic.unpacked_bytes_max,
        )
        screening.forget()  # it was asked, not told
        own = {index: (place.at, appended.base_offset + index) for index in screening.repeats}
        return {index: first for index, first in screening.repeats.items() if first != own[index]}

    def waits(self, stored: Stored) -> list[asyncio.Future[None]]:
        """What must be done before a repeat may be answered: its first copy may not be durable yet. Refusals of its partition."""
        ends: dict[At, int] = {}
        for at, offset in stored.repeats.values():
            ends[at] = max(ends.get(at, 0), offset + 1)
        waits = [self.partition_of(at).when_durable(end) for at, end in ends.items()]
        return [wait for wait in waits if wait is not None]

    async def publish(self, at: At, batch: Batch, acks: Acks, *, dense: bool) -> Stored:
        """Append what is new in a batch, and wait until all of it, first copies included, is as durable as its topic says."""
        partition = await self.at_hand(at)
        if self.applies(partition):
            stored = self.append(partition, batch, dense=dense, keep_empty=batch.has_producer)
        else:
            # The setting has changed since somebody looked.
            stored = Stored(partition.append(batch), {}, batch.record_count, dense)
        if acks == Acks.NONE:
            return stored
        waits = self.waits(stored)
        if stored.appended is not None:
            own = partition.when_durable(stored.appended.last_offset + 1)
            waits += [own] if own is not None else []
        for wait in waits:
            await wait
        return stored

    def add_place(self, topic: Topic, partition: Partition) -> Place:
        """A partition that the topic's memory has not met."""
        assert self._keeper is not None
        return self._keeper.add_place(topic, partition)


def _figures(memories: Iterable[Memory]) -> tuple[int, int, int]:
    """Swept, remembered and evicted, in all of them."""
    kept = list(memories)
    return sum(each.swept for each in kept), sum(map(len, kept)), sum(each.table.evicted for each in kept)
