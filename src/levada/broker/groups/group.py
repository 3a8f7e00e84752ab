"""One classic group: its members, its generation and its state. It keeps itself consistent and decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from levada.broker.groups.calls import Joined, JoinedMember, JoinReply, Protocols, Synced
from levada.broker.groups.member import Member
from levada.broker.groups.state import NEXT, Kind, State
from levada.broker.groups.subscription import CONSUMER, topics_of
from levada.broker.groups.timers import Timer
from levada.errors import FencedInstance, InconsistentProtocol, UnknownMember


class Group:
    """Members under one group id.

    Promises: the leader is a member, or there is none; every instance id has one holder; a pending member (it was
    given an id and has not come back) is not a member; the generation only grows; a reply is called once.
    """

    kind = Kind.CLASSIC

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.id = group_id
        self.state = State.EMPTY
        self.previous = State.DEAD
        #: When the group came into its state: an empty group's offsets expire from here.
        self.since_ms = now_ms
        self.generation = 0
        #: None until the first member came: then it is a plain holder of offsets.
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        #: instance id → the member that holds it
        self.instances: dict[str, str] = {}
        #: ids handed out and not used yet, each with the timer that takes it back
        self.pending: dict[str, Timer] = {}
        #: members of this generation that did not ask for their assignment yet
        self.unsynced: set[str] = set()
        #: topics all members together subscribe to; None when that cannot be told
        self.topics: frozenset[str] | None = None
        #: somebody came while the first members were still being waited for
        self.grew = False
        #: what save() returned last
        self.receipt = -1
        self.join_timer: Timer | None = None
        self.sync_timer: Timer | None = None
        self._awaiting_join = 0
        self._supporters: Counter[str] = Counter()

    # -- state ---------------------------------------------------------------------------------------------------

    def move(self, state: State, now_ms: int) -> None:
        if state not in NEXT[self.state]:
            raise AssertionError(f"group {self.id}: {self.state.value} does not become {state.value}")
        self.previous, self.state = self.state, state
        self.since_ms = now_ms

    @property
    def is_initial(self) -> bool:
        """Preparing its first generation since it was empty."""
        return self.state is State.PREPARING and self.previous is State.EMPTY

    @property
    def all_joined(self) -> bool:
        return self._awaiting_join == len(self.members) and not self.pending

    @property
    def awaiting_join(self) -> int:
        return self._awaiting_join

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member of now asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def next_generation(self, now_ms: int) -> None:
        """Those who are in it now are the next generation."""
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.topics = self._subscribed()
        self.unsynced.clear()
        self.move(State.COMPLETING if self.members else State.EMPTY, now_ms)

    # -- members -------------------------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member of this id. UnknownMember; FencedInstance when its instance id has a newer holder."""
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is None:
                raise UnknownMember(f"group {self.id} has no member with group.instance.id {instance_id}")
            if holder != member_id:
                raise FencedInstance(f"group.instance.id {instance_id} of group {self.id} is held by member {holder}")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"group {self.id} has no member {member_id!r}")
        return member

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.id
        if self.leader_id is None:
            self.leader_id = member.id
        self.members[member.id] = member
        self._supporters.update(name for name, _ in member.protocols)

    def remove(self, member: Member) -> None:
        """Take a member out. What it waited for was answered before."""
        del self.members[member.id]
        self._forget_support(member)
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        if self.leader_id == member.id:
            self.leader_id = next(iter(self.members), None)
        self.unsynced.discard(member.id)

    def replace(self, old: Member, new: Member) -> None:
        """Give a static member's seat to its successor, who waits for nothing yet; the old one was answered before."""
        instance_id = old.instance_id
        assert instance_id is not None and instance_id == new.instance_id
        was_leader, was_unsynced = self.leader_id == old.id, old.id in self.unsynced
        self.remove(old)
        self.members[new.id] = new
        self.instances[instance_id] = new.id
        self._supporters.update(name for name, _ in new.protocols)
        if was_leader:
            self.leader_id = new.id
        if was_unsynced:
            self.unsynced.add(new.id)

    def update(self, member: Member, protocols: Protocols, session_timeout_ms: int, rebalance_timeout_ms: int) -> None:
        self._forget_support(member)
        member.protocols = protocols
        self._supporters.update(name for name, _ in protocols)
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms

    def elect_joined_leader(self) -> bool:
        """Make sure the leader is among those who joined. False when nobody did."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.awaits_join:
            return True
        joined = next((member.id for member in self.members.values() if member.awaits_join), None)
        if joined is None:
            return False
        self.leader_id = joined
        return True

    # -- replies -------------------------------------------------------------------------------------------------

    def await_join(self, member: Member, reply: JoinReply) -> None:
        self._awaiting_join += not member.awaits_join
        member.join_reply = reply

    def answer_join(self, member: Member, answer: Joined) -> bool:
        """Answer the member's JoinGroup if it waits for one."""
        reply, member.join_reply = member.join_reply, None
        if reply is None:
            return False
        self._awaiting_join -= 1
        reply(answer)
        return True

    def answer_sync(self, member: Member, answer: Synced) -> bool:
        """Answer the member's SyncGroup if it waits for one."""
        reply, member.sync_reply = member.sync_reply, None
        if reply is None:
            return False
        reply(answer)
        return True

    def joined(self, member: Member, *, skip_assignment: bool = False) -> Joined:
        """What a member of this generation is told."""
        leads = member.id == self.leader_id
        return Joined(
            member_id=member.id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader_id=self.leader_id or "",
            members=self.joined_members() if leads else (),
            skip_assignment=skip_assignment and leads,
            receipt=self.receipt,
        )

    def joined_members(self) -> list[JoinedMember]:
        return [
            JoinedMember(member.id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        ]

    def synced(self, member: Member) -> Synced:
        return Synced(
            assignment=member.assignment,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            receipt=self.receipt,
        )

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Give everyone its share; who was left out gets nothing."""
        for member in self.members.values():
            member.assignment = assignments.get(member.id, b"")

    # -- protocols -----------------------------------------------------------------------------------------------

    def check_protocols(self, protocol_type: str, names: Iterable[str]) -> None:
        """InconsistentProtocol unless a member with these would leave one protocol that all support."""
        names = list(names)
        if not protocol_type or not names:
            raise InconsistentProtocol("a member needs a protocol type and at least one protocol")
        if not self.members:
            return
        if protocol_type != self.protocol_type:
            raise InconsistentProtocol(f"group {self.id} is of type {self.protocol_type!r}, not {protocol_type!r}")
        if not any(self._supporters[name] == len(self.members) for name in names):
            known = ", ".join(sorted(self._candidates()))
            raise InconsistentProtocol(f"group {self.id} works by one of {known}; the member knows {', '.join(names)}")

    def select_protocol(self) -> str:
        """The protocol most members like best among those that all support; the eldest's choice when it is a tie."""
        candidates = self._candidates()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def is_subscribed(self, topic: str) -> bool:
        """Whether members read this topic; when that cannot be told of a consumer group, it is taken for granted."""
        return self.protocol_type == CONSUMER if self.topics is None else topic in self.topics

    def _forget_support(self, member: Member) -> None:
        for name, _ in member.protocols:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]

    def _candidates(self) -> set[str]:
        return {name for name, supporters in self._supporters.items() if supporters == len(self.members)}

    def _subscribed(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        each = [topics_of(member.metadata(self.protocol_name)) for member in self.members.values()]
        known = [topics for topics in each if topics is not None]
        return frozenset().union(*known) if len(known) == len(each) else None

    def read_subscriptions(self) -> None:
        """Know the topics of members that were loaded and not joined."""
        self.topics = self._subscribed()
