"""One native group: its members, its generation, and what they have. It keeps itself consistent and decides nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from levada.broker.groups.state import State
from levada.broker.streams.assignor import assign
from levada.broker.streams.kinds import Kind
from levada.broker.streams.member import Member
from levada.broker.streams.registration import owned_by
from levada.broker.streams.views import Described, DescribedMember
from levada.engine.port import At
from levada.errors import IllegalGeneration, UnknownMember


class Seen(NamedTuple):
    """A topic as the group last saw it."""

    id: UUID
    partitions: int


class Group(ABC):
    """Members under one group id.

    Promises: a partition has at most one owner; the generation only grows; whoever is in `members` has a session, and
    nobody else does.
    """

    kind: Kind
    #: Nothing is left of it but its generation, for whoever takes the id up: nobody is shown it.
    is_remnant = False

    def __init__(self, group_id: str, generation: int, now_ms: int) -> None:
        self.id = group_id
        self.generation = generation
        self.members: dict[str, Member] = {}
        #: When it became empty, or stopped being so.
        self.since_ms = now_ms
        #: The topics its members read, those that exist.
        self.seen: dict[str, Seen] = {}
        #: Members of before a restart may come back until then: so long it counts as read.
        self.expected_until_ms = 0
        #: The topics that those read.
        self.expected_topics: frozenset[str] = frozenset()
        #: What save() returned last.
        self.receipt = -1

    @property
    def state(self) -> State:
        return State.STABLE if self.members else State.EMPTY

    @property
    @abstractmethod
    def topics(self) -> set[str]:
        """All that its members read, whether it exists or not."""

    @property
    def partitions(self) -> dict[str, int]:
        return {topic: seen.partitions for topic, seen in self.seen.items()}

    def replaced(self, seen: Mapping[str, Seen]) -> set[str]:
        """Topics that were deleted and made again since the group last looked."""
        return {topic for topic, before in self.seen.items() if topic in seen and seen[topic].id != before.id}

    @abstractmethod
    def share(self) -> None:
        """Say anew who has what, in the generation that it is."""

    def add(self, member: Member, now_ms: int) -> None:
        if not self.members:
            self.since_ms = now_ms
        self.members[member.id] = member

    def remove(self, member: Member, now_ms: int) -> None:
        del self.members[member.id]
        if not self.members:
            self.since_ms = now_ms

    def member(self, member_id: str) -> Member:
        """UnknownMember."""
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"group {self.id} has no member {member_id!r}")
        return member

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(f"group {self.id} is in generation {self.generation}, not {generation}")

    def withheld(self) -> set[At]:
        """What nobody may read until it is handed over."""
        return {at for member in self.members.values() for at in member.leaving}

    def owners(self) -> dict[At, Member]:
        return {at: member for member in self.members.values() for at in member.owned}

    def reads(self, topic: str, now_ms: int) -> bool:
        """Whether members read this topic or may be about to come back to it."""
        if self.members:
            return topic in self.topics
        return now_ms < self.expected_until_ms and topic in self.expected_topics

    def describe(self) -> Described:
        members = [
            DescribedMember(
                one.id, one.client_id, one.host, one.partitions, one.consumer, one.topics or sorted(self.topics)
            )
            for one in self.members.values()
        ]
        return Described(self.id, self.kind, self.state, self.generation, members, sorted(self.topics))

    def _give(self, member: Member, owned: Iterable[At]) -> None:
        member.generation = self.generation
        member.share = member.owned = frozenset(owned)


class DynamicGroup(Group):
    """Members come and go, and share the partitions evenly."""

    kind = Kind.DYNAMIC

    def __init__(self, group_id: str, generation: int, now_ms: int, *, is_remnant: bool = False) -> None:
        super().__init__(group_id, generation, now_ms)
        self.is_remnant = is_remnant

    def add(self, member: Member, now_ms: int) -> None:
        super().add(member, now_ms)
        self.is_remnant = False

    @property
    def topics(self) -> set[str]:
        return {topic for member in self.members.values() for topic in member.topics}

    def share(self) -> None:
        """As evenly as can be, with as few moves as can be."""
        subscriptions = {member.id: member.topics for member in self.members.values()}
        owned = {member.id: member.share for member in self.members.values()}
        for member_id, share in assign(subscriptions, self.partitions, owned).items():
            self._give(self.members[member_id], share)


class FixedGroup(Group):
    """A registered number of consumers. Each has its partitions by number, also while others are not there."""

    kind = Kind.FIXED

    def __init__(
        self,
        group_id: str,
        generation: int,
        now_ms: int,
        consumers: int,
        topics: Iterable[str],
        registered_in: int | None = None,
    ) -> None:
        super().__init__(group_id, generation, now_ms)
        self.consumers = consumers
        #: The generation it was registered in. Those that follow it moved its offsets: who owns what is the same in all of them.
        self.registered_in = generation if registered_in is None else registered_in
        self.registered = set(topics)
        self.seats: dict[int, Member] = {}

    @property
    def topics(self) -> set[str]:
        return self.registered

    def share(self) -> None:
        for member in self.members.values():
            assert member.consumer is not None
            topics = self.registered.intersection(member.topics) if member.topics else self.registered
            self._give(member, owned_by(member.consumer, self.consumers, topics, self.partitions))

    def add(self, member: Member, now_ms: int) -> None:
        super().add(member, now_ms)
        assert member.consumer is not None and member.consumer not in self.seats
        self.seats[member.consumer] = member

    def remove(self, member: Member, now_ms: int) -> None:
        super().remove(member, now_ms)
        assert member.consumer is not None
        del self.seats[member.consumer]

    def reads(self, topic: str, now_ms: int) -> bool:
        """A registration says so, also while no consumer is there."""
        return topic in self.registered

    def check_registration(self, generation: int) -> None:
        """Whether this is a generation of the registration that holds, whatever was moved since. IllegalGeneration."""
        if not self.registered_in <= generation <= self.generation:
            self.check_generation(generation)

    def owner_of(self, at: At) -> int | None:
        """Which consumer has this partition; None where the group is not registered for it."""
        exists = at.topic in self.registered and 0 <= at.partition < self.partitions.get(at.topic, 0)
        return at.partition % self.consumers if exists else None

    def describe(self) -> Described:
        return super().describe()._replace(consumers=self.consumers)
