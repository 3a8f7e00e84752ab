"""Changes to topics: written to `__levada.topics` first, true once that is durable, then carried out.

Until its record is durable a new topic is not seen, so no record can be acknowledged into a topic that a crash would undo.
Changes of one name follow one another; those of different names share a sync.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import lru_cache
from uuid import uuid4

from levada.config import TopicConfig, check_change, topic_config
from levada.engine.embedded import registry as records
from levada.engine.embedded.journal import Journal
from levada.engine.embedded.partitions import Partitions
from levada.engine.embedded.registry import Registry
from levada.engine.names import KEPT_TOPICS, TOPICS, check_name, check_partitions, is_internal
from levada.engine.port import At, Placement, TopicInfo, TopicSpec
from levada.errors import PartitionsCannotShrink, PolicyViolation, TopicExists, UnknownPartition, UnknownTopic


class Configs:
    """The typed settings of topics: their own over the broker's defaults. Topics set alike share one object."""

    def __init__(self, defaults: Callable[[], Mapping[str, str]]) -> None:
        self._parse = lru_cache(maxsize=1024)(lambda settings: topic_config(dict(settings), defaults()))

    def defaults_changed(self) -> None:
        self._parse.cache_clear()

    def of(self, settings: Mapping[str, str]) -> TopicConfig:
        """InvalidConfig."""
        return self._parse(tuple(sorted(settings.items())))


class Topics:
    """Creates, changes and deletes topics. `deleted` is awaited with the name of a topic whose files are gone."""

    def __init__(
        self,
        registry: Registry,
        journal: Journal,
        partitions: Partitions,
        configs: Configs,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._journal = journal
        self._partitions = partitions
        self._configs = configs
        self._now_ms = now_ms
        self._changing: dict[str, asyncio.Event] = {}
        self.deleted: Callable[[str], Awaitable[None]] | None = None
        #: Plans where the partitions of a topic are to lie: the topic as it was, if it was, partitions and copies.
        self.place: Callable[[TopicInfo | None, int, int], Placement] = lambda before, partitions, copies: ()

    def load(self) -> None:
        """Read the registry."""
        self._registry.load(self._records())

    def _records(self) -> Iterator[tuple[bytes, bytes | None]]:
        for batch, batch_records in self._journal.replay():
            if not batch.is_control:
                for record in batch_records:
                    yield record.key or b"", record.value

    async def create(self, spec: TopicSpec) -> TopicInfo:
        check_name(spec.name)
        check_partitions(spec.name, spec.partitions)
        self._configs.of(spec.settings)
        check_change({}, spec.settings)
        async with self._change(spec.name):
            if self._registry.get(spec.name) is not None:
                raise TopicExists(f"topic {spec.name} already exists")
            if spec.name in KEPT_TOPICS:
                raise PolicyViolation(f"topic {spec.name} is kept by the broker, which makes it when it is needed")
            self._partitions.check_free(spec.name)
            info = TopicInfo(
                name=spec.name,
                id=uuid4(),
                partitions=spec.partitions,
                settings=dict(spec.settings),
                internal=is_internal(spec.name),
                placement=self.place(None, spec.partitions, spec.replication_factor),
            )
            await self._put(info, self._now_ms())
        return info

    async def expand(self, name: str, partitions: int) -> TopicInfo:
        check_partitions(name, partitions)
        async with self._change(name):
            info = self.existing(name)
            if partitions < info.partitions:
                raise PartitionsCannotShrink(
                    f"topic {name} has {info.partitions} partitions; it cannot be made to have {partitions}"
                )
            if partitions == info.partitions:
                return info
            if name in KEPT_TOPICS:
                raise PolicyViolation(f"topic {name} is kept by the broker; it has one partition")
            copies = len(info.placement[0]) if info.placement else 1
            info = replace(info, partitions=partitions, placement=self.place(info, partitions, copies))
            await self._put(info, self._registry.created_ms(name))
        return info

    async def alter(self, name: str, settings: Mapping[str, str | None]) -> TopicInfo:
        async with self._change(name):
            info = self.existing(name)
            if name == TOPICS:
                raise PolicyViolation(f"topic {name} holds all others; its settings are fixed")
            changed = records.with_settings(info, settings)
            fixed = records.fixed_settings(name)
            if not fixed.items() <= changed.settings.items():
                raise PolicyViolation(f"topic {name} is kept by the broker; {', '.join(fixed)} is fixed")
            config = self._configs.of(changed.settings)
            check_change(info.settings, changed.settings)
            if changed.settings != info.settings:
                await self._put(changed, self._registry.created_ms(name))
                for partition in self._partitions.of_topic(changed):
                    partition.alter(config)
        return changed

    async def delete(self, name: str) -> None:
        async with self._change(name):
            info = self.existing(name)
            if name in KEPT_TOPICS:
                raise PolicyViolation(f"topic {name} is kept by the broker; it cannot be deleted")
            await self._journal.durable(self._journal.append([records.tombstone(name)]))
            self._registry.remove(name)
            await self._partitions.drop(info)
            if self.deleted is not None:
                await self.deleted(name)

    def ensure_internal(self, name: str) -> tuple[TopicInfo, int]:
        """An internal topic, made if need be: with the end offset up to which the registry must be durable for it to stay.

        Seen at once, because only its keeper writes to it, and waits for that offset.
        """
        info = self._registry.get(name)
        if info is not None:
            return info, 0
        info = TopicInfo(name=name, id=uuid4(), partitions=1, settings=records.internal_settings(name), internal=True)
        created_ms = self._now_ms()
        end = self._journal.append([records.encode(info, created_ms)])
        self._registry.put(info, created_ms)
        return info, end

    def existing(self, name: str) -> TopicInfo:
        info = self._registry.get(name)
        if info is None:
            raise UnknownTopic(f"there is no topic {name}")
        return info

    def check_partition(self, at: At) -> None:
        """UnknownTopic, UnknownPartition."""
        info = self.existing(at.topic)
        if not 0 <= at.partition < info.partitions:
            raise UnknownPartition(f"topic {at.topic} has partitions 0 to {info.partitions - 1}, not {at.partition}")

    async def _put(self, info: TopicInfo, created_ms: int) -> None:
        await self._journal.durable(self._journal.append([records.encode(info, created_ms)]))
        self._registry.put(info, created_ms)

    @asynccontextmanager
    async def _change(self, name: str) -> AsyncIterator[None]:
        while (other := self._changing.get(name)) is not None:
            await other.wait()
        done = self._changing[name] = asyncio.Event()
        try:
            yield
        finally:
            del self._changing[name]
            done.set()
