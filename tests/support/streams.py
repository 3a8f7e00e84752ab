"""Native groups with a clock that stands still, topics that are a dict, and members that are one line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from levada.broker.groups import GroupConfig
from levada.broker.streams import Assignment, Member, Registered, StreamGroups
from levada.engine.embedded.group_snapshot import GroupSnapshot
from levada.engine.port import At, TopicInfo
from levada.errors import LevadaError, StorageFull

SESSION_MS = 10_000


class Topics:
    """Which topics there are."""

    def __init__(self) -> None:
        self._infos: dict[str, TopicInfo] = {}

    def get(self, name: str) -> TopicInfo | None:
        return self._infos.get(name)

    def put(self, name: str, partitions: int) -> None:
        """Make or expand it."""
        known = self._infos.get(name)
        topic_id: UUID = uuid4() if known is None else known.id
        self._infos[name] = TopicInfo(name=name, id=topic_id, partitions=partitions, settings={})

    def drop(self, name: str) -> None:
        del self._infos[name]

    def partitions(self) -> dict[str, int]:
        return {name: info.partitions for name, info in self._infos.items()}


@dataclass
class Consumer:
    """A member as its client knows it: what it was told, last thing last."""

    told: list[Assignment] = field(default_factory=list)
    member: Member | None = None

    def __call__(self, assignment: Assignment) -> None:
        self.told.append(assignment)

    @property
    def id(self) -> str:
        assert self.member is not None
        return self.member.id

    @property
    def now(self) -> Assignment:
        """What it was told last."""
        return self.told[-1]

    @property
    def owned(self) -> list[int]:
        """The numbers of its partitions, whatever their topic."""
        return [at.partition for at in self.now.partitions]

    @property
    def generation(self) -> int:
        return self.now.generation

    @property
    def fenced(self) -> type[LevadaError] | None:
        return None if self.now.fenced is None else type(self.now.fenced)


class Streams:
    """The groups under test."""

    def __init__(self, *, topics: dict[str, int] | None = None, **config: int) -> None:
        self.now_ms = 1_000_000
        self.topics = Topics()
        for name, partitions in ({"t": 6} if topics is None else topics).items():
            self.topics.put(name, partitions)
        self.kept: dict[str, GroupSnapshot] = {}
        self.saves = 0
        self.disk_is_full = False
        self.held_by_kafka: set[str] = set()
        self.kafka_generations: dict[str, int] = {}
        self.config = GroupConfig(**config)
        self.groups = self._groups()

    def _groups(self) -> StreamGroups:
        return StreamGroups(self.topics, self._save, self._forget, self, self.config)

    def _save(self, snapshot: GroupSnapshot) -> int:
        if self.disk_is_full:
            raise StorageFull
        # Through its bytes, as it will be read after a restart.
        self.kept[snapshot.group_id] = GroupSnapshot.of(snapshot.group_id, snapshot.value())
        self.saves += 1
        return self.saves

    def _forget(self, group_id: str) -> int:
        self.kept.pop(group_id, None)
        self.saves += 1
        return self.saves

    # The rival

    def holds(self, group_id: str) -> bool:
        return group_id in self.held_by_kafka

    def give_up(self, group_id: str, now_ms: int) -> int:
        return self.kafka_generations.pop(group_id, 0)

    # What happens

    def restart(self) -> None:
        """The broker is killed and starts again."""
        self.groups = self._groups()
        self.groups.load(self.kept.values(), self.now_ms)

    def after(self, ms: int) -> None:
        """Let time pass, stopping at every deadline."""
        until_ms = self.now_ms + ms
        while (deadline_ms := self.groups.next_deadline()) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.groups.tick(self.now_ms)
        self.now_ms = until_ms

    def expand(self, name: str = "t", partitions: int = 8) -> None:
        self.topics.put(name, partitions)
        self.groups.topics_changed(self.now_ms)

    def drop(self, name: str = "t") -> None:
        self.topics.drop(name)
        self.groups.topics_changed(self.now_ms)

    def join(self, *topics: str, group: str = "g", session_ms: int = SESSION_MS, client_id: str = "c") -> Consumer:
        consumer = Consumer()
        consumer.member = self.groups.join(
            group,
            topics or ("t",),
            client_id=client_id,
            host="127.0.0.1",
            session_timeout_ms=session_ms,
            now_ms=self.now_ms,
            changed=consumer,
        )
        consumer.told.append(consumer.member.assignment)
        return consumer

    def attach(
        self,
        number: int,
        generation: int = 0,
        *,
        group: str = "g",
        topics: Sequence[str] = (),
        session_ms: int = SESSION_MS,
    ) -> Consumer:
        consumer = Consumer()
        consumer.member = self.groups.attach(
            group,
            number,
            generation,
            topics=topics,
            client_id="c",
            host="127.0.0.1",
            session_timeout_ms=session_ms,
            now_ms=self.now_ms,
            changed=consumer,
        )
        consumer.told.append(consumer.member.assignment)
        return consumer

    def register(self, consumers: int, topic: str = "t", group: str = "g") -> Registered:
        return self.groups.register(topic, group, consumers, self.now_ms)

    def leave(self, consumer: Consumer, group: str = "g") -> None:
        self.groups.leave(group, consumer.id, self.now_ms)

    def alive(self, consumer: Consumer, group: str = "g") -> None:
        self.groups.alive(group, consumer.id, self.now_ms)

    def check_commit(
        self, consumer: Consumer, partition: int, topic: str = "t", generation: int | None = None, group: str = "g"
    ) -> None:
        self.groups.check_commit(
            group, consumer.id, consumer.generation if generation is None else generation, At(topic, partition)
        )
