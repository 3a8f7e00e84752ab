"""Keeps the memories: which there are, how they are loaded and read back, when they are forgotten. Imported only where dedup is on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import structlog

from levada.broker.dedup import saving
from levada.broker.dedup.marks import Marks
from levada.broker.dedup.memory import Memory
from levada.broker.dedup.places import Place
from levada.broker.dedup.rebuild import rebuild
from levada.broker.dedup.topic import Key, Topic
from levada.broker.dedup.upkeep import Upkeep
from levada.broker.dedup.warm import warm_up
from levada.config import TopicConfig
from levada.engine.port import At, Engine, TopicInfo
from levada.errors import LevadaError, UnknownTopic

if TYPE_CHECKING:
    from levada.broker.dedup.dedup import Dedup
    from levada.broker.dedup.stored import Partition
    from levada.records.batch import Batch

_log = structlog.get_logger("levada.dedup")


class Keeper:
    """All memories of a broker. Everything but what is handed to a worker thread happens on the loop."""

    def __init__(self, dedup: Dedup, engine: Engine, config_of: Callable[[str], TopicConfig]) -> None:
        """In a worker thread."""
        self._dedup = dedup
        self._engine = engine
        self._config_of = config_of
        self.memories: dict[Key, Memory] = {}
        #: How far a snapshot covers a partition.
        self._covered: dict[Place, int] = {}
        #: Of each topic, when it had come how far.
        self.marks: dict[str, Marks] = {}
        self._loading: dict[str, asyncio.Task[Topic]] = {}
        self._recalling: dict[Key, asyncio.Task[Memory]] = {}
        self.upkeep = Upkeep(dedup, self)
        self._jobs: list[asyncio.Task[None]] = []
        self._removing: set[asyncio.Task[None]] = set()
        warm_up()

    async def start(self) -> None:
        await self._clear_shelf()
        self._jobs = [
            asyncio.create_task(self._watch(), name="levada-dedup-topics"),
            asyncio.create_task(self.upkeep.run(), name="levada-dedup-sweep"),
        ]

    async def close(self) -> None:
        tasks = [*self._jobs, *self._loading.values(), *self._recalling.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.forget_unwanted()
        await self.upkeep.put_all_down()
        await self._removed()

    async def _removed(self) -> None:
        """Wait until nothing is taken off the shelf any more."""
        if self._removing:
            await asyncio.wait(self._removing)

    # Opening

    async def open(self, name: str) -> None:
        """Have the topic read, and all that share its memory. UnknownTopic."""
        info = self._info(name)
        key = Key.of(info.id, self._config(info))
        for other in [info, *(peer for peer in self._peers(key) if peer.name != name)]:
            await self._open(other)
        topic = self._dedup.topics.get(name)
        if topic is not None and topic.key == key:
            topic.ready = True

    def _peers(self, key: Key) -> list[TopicInfo]:
        """The topics that use this memory."""
        if key.topic_id is not None:
            return []
        return [info for info in self._dedup.view.all() if self._key(info) == key]

    def _key(self, info: TopicInfo) -> Key | None:
        return Key.of(info.id, self._config(info)) if self._dedup.active(info.name) else None

    def _config(self, info: TopicInfo) -> TopicConfig:
        return self._config_of(info.name)

    def _info(self, name: str) -> TopicInfo:
        info = self._dedup.view.get(name)
        if info is None:
            raise UnknownTopic(f"there is no topic {name}")
        return info

    async def _open(self, info: TopicInfo) -> None:
        config = self._config(info)
        topic = self._dedup.topics.get(info.name)
        if topic is not None and topic.key == Key.of(info.id, config):
            if topic.config == config:
                return
            if config.dedup_window_ms <= topic.config.dedup_window_ms:
                topic.take(config)
                self._limit(topic.memory)
                return
            # What was too old for the window it had must be read again, snapshot or not.
            for place in topic.places.values():
                self._covered.pop(place, None)
        elif topic is not None:
            self._forget(topic)
        loading = self._loading.get(info.name)
        if loading is None:
            loading = self._loading[info.name] = asyncio.ensure_future(self._load(info, config))
            loading.add_done_callback(lambda _: self._loading.pop(info.name, None))
        await asyncio.shield(loading)

    async def _load(self, info: TopicInfo, config: TopicConfig) -> Topic:
        """Bring a topic's messages to mind."""
        await self._removed()
        key = Key.of(info.id, config)
        memory = await self._recall(key, config)
        self._limit(memory, config)
        topic = Topic(info.name, info.id, config, memory)
        marks = self.marks[info.name] = await self._dedup.in_thread(
            partial(saving.load_marks, self._dedup.shelf, info.id)
        )
        now_ms = self._dedup.now_ms()
        read = 0
        for index in range(info.partitions):
            partition = self._dedup.partition_of(At(info.name, index))
            place = self.add_place(topic, partition)
            read += await rebuild(
                self._engine, memory, place, partition, marks,
                covered=self._covered.get(place, 0), now_ms=now_ms, window_ms=config.dedup_window_ms,
            )  # fmt: skip
        await self.upkeep.note(topic)
        self._dedup.topics[info.name] = topic
        self.forget_unwanted()  # it may have changed meanwhile
        if self._dedup.view.by_id(info.id) is None:
            raise UnknownTopic(f"topic {info.name} was deleted")
        self.upkeep.topics_changed()
        _log.info("messages remembered", topic=info.name, batches_read=read, entries=len(memory))
        return topic

    async def _recall(self, key: Key, config: TopicConfig) -> Memory:
        """The memory, from its snapshot where there is one."""
        memory = self.memories.get(key)
        if memory is not None:
            return memory
        recalling = self._recalling.get(key)
        if recalling is None:
            recalling = self._recalling[key] = asyncio.ensure_future(self._from_shelf(key, config))
            recalling.add_done_callback(lambda _: self._recalling.pop(key, None))
        return await asyncio.shield(recalling)

    async def _from_shelf(self, key: Key, config: TopicConfig) -> Memory:
        ends = {}
        for info in self._dedup.view.all():
            if self._key(info) == key:
                for index in range(info.partitions):
                    at = At(info.name, index)
                    ends[Place(info.id, at)] = self._dedup.partition_of(at).log_end
        window_ms = max([config.dedup_window_ms, *(self._config(peer).dedup_window_ms for peer in self._peers(key))])
        now_ms = self._dedup.now_ms()
        load = partial(saving.load, self._dedup.shelf, key, ends=ends, now_ms=now_ms, window_ms=window_ms)
        memory, covered = await self._dedup.in_thread(load)
        self._covered.update(covered)
        self.memories[key] = memory
        self.upkeep.recalled(key, memory)
        return memory

    def _limit(self, memory: Memory, *more: TopicConfig) -> None:
        """As large as the largest of those who use it allows, and of one that is about to."""
        configs = [topic.config for topic in self._dedup.topics.values() if topic.memory is memory]
        memory.table.limit = max(config.dedup_entries_max for config in (*configs, *more))

    def add_place(self, topic: Topic, partition: Partition) -> Place:
        place = topic.places[partition.at.partition] = Place(topic.topic_id, partition.at)

        def observe(batch: Batch) -> None:
            topic.memory.observe(place, batch, self._dedup.now_ms(), topic.config.dedup_window_ms)

        partition.observer = observe
        return place

    # Forgetting

    async def _watch(self) -> None:
        version = -1
        while True:
            version = await self._dedup.view.changed(version) if version >= 0 else self._dedup.view.version
            self.forget_unwanted()

    def forget_unwanted(self) -> None:
        """Topics that were deleted, or want no memory any more, or another."""
        for topic in list(self._dedup.topics.values()):
            info = self._dedup.view.get(topic.name)
            if info is None or info.id != topic.topic_id or self._key(info) != topic.key:
                self._forget(topic)
        self._await_peers()

    def _await_peers(self) -> None:
        """Topics that share a memory are not ready while one of them has not been read: it may have come to share it just now."""
        topics = self._dedup.topics
        shared = [topic for topic in topics.values() if topic.ready and topic.key.topic_id is None]
        if not shared:
            return
        missing = {self._key(info) for info in self._dedup.view.all() if info.name not in topics}
        for topic in shared:
            topic.ready = topic.key not in missing

    def _forget(self, topic: Topic) -> None:
        if self._dedup.topics.get(topic.name) is topic:
            del self._dedup.topics[topic.name]
            self.marks.pop(topic.name, None)
        for index, place in topic.places.items():
            self._covered.pop(place, None)
            self._stop_observing(topic, At(topic.name, index))
        topic.memory.forget_topic(topic.topic_id)
        if topic.key.topic_id is not None:
            self.memories.pop(topic.key, None)
        names = saving.names(topic.topic_id, topic.key)
        removing = asyncio.ensure_future(
            self.upkeep.on_shelf(partial(saving.remove, self._dedup.shelf, names), topic.name)
        )
        self._removing.add(removing)
        removing.add_done_callback(self._removing.discard)

    def _stop_observing(self, topic: Topic, at: At) -> None:
        try:
            partition = self._dedup.partition_of(at)
        except LevadaError:
            return
        if partition.topic_id == topic.topic_id:
            partition.observer = None

    async def _clear_shelf(self) -> None:
        wanted = {
            name for info in self._dedup.view.all() if (key := self._key(info)) for name in saving.names(info.id, key)
        }
        wanted |= {saving.snapshot_name(Key(None, by_id)) for by_id in (True, False)}
        await self.upkeep.on_shelf(partial(saving.clear, self._dedup.shelf, wanted), "deleted topics")
