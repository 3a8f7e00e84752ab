"""The group coordinator: every classic group of this broker.

Pure: no I/O and no clock of its own. Time comes as `now_ms` (levada.broker.groups.clock), answers that have to wait
leave by callback, and tick() is due at next_deadline(). What must survive is handed to `save`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from levada.broker.groups.calls import Join, Joined, JoinReply, Leaving, Left, Sync, Synced, SyncReply
from levada.broker.groups.config import GroupConfig
from levada.broker.groups.directory import Directory
from levada.broker.groups.group import Group
from levada.broker.groups.joining import Joining
from levada.broker.groups.member import Member
from levada.broker.groups.rebalance import Rebalancer
from levada.broker.groups.snapshot import is_unassigned, restore
from levada.broker.groups.state import State
from levada.broker.groups.subscription import OWN_PROTOCOLS
from levada.broker.groups.timers import Timers
from levada.engine.embedded.group_snapshot import GroupSnapshot
from levada.errors import (
    GroupKindMismatch,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidSessionTimeout,
    LevadaError,
    RebalanceInProgress,
    UnknownGroup,
    UnknownMember,
)


class GroupCoordinator(Directory):
    """Joins, syncs, heartbeats and leaves of classic groups.

    A reply is called exactly once, at once or later, and must not call back into the coordinator. `save` keeps a
    snapshot, `forget` drops it, and both return a receipt: what an answer tells is kept for good once its receipt is
    durable. `kept` names all groups of which a snapshot or an offset is kept.
    """

    def __init__(
        self,
        config: GroupConfig,
        save: Callable[[GroupSnapshot], int],
        forget: Callable[[str], int],
        kept: Callable[[], Collection[str]],
    ) -> None:
        self._timers = Timers()
        super().__init__(Rebalancer(config, self._timers, save, forget), kept)
        self._joining = Joining(self._rebalancer)

    @property
    def config(self) -> GroupConfig:
        return self._rebalancer.config

    @config.setter
    def config(self, config: GroupConfig) -> None:
        """Holds for whoever joins from now on."""
        self._rebalancer.config = config

    # -- life ----------------------------------------------------------------------------------------------------

    def load(self, snapshots: Iterable[GroupSnapshot], now_ms: int) -> None:
        """Go on where the groups were. Each member has one session timeout to give a sign of life.

        Groups of other kinds, by the protocol types of Levada's own, are passed over.
        """
        for kept in snapshots:
            if kept.protocol_type is not None and kept.protocol_type.startswith(OWN_PROTOCOLS):
                continue
            group = restore(kept)
            self._groups[group.id] = group
            for member in group.members.values():
                self._rebalancer.touch(group, member, now_ms)
            if is_unassigned(group):
                self._rebalancer.prepare(group, now_ms, "it was rebalancing when the broker stopped")
            elif len(group.members) > self.config.size_max:
                self._rebalancer.prepare(group, now_ms, f"it is larger than group.max.size={self.config.size_max}")

    def close(self, now_ms: int) -> None:
        """Answer everything that waits, and refuse whatever comes. The groups stay as they were saved."""
        self._is_closed = True
        for group in self._groups.values():
            self._rebalancer.bury(group, now_ms)
        self._groups.clear()

    def next_deadline(self) -> int | None:
        """When tick() is due; None while nothing waits."""
        return self._timers.next_deadline()

    def tick(self, now_ms: int) -> None:
        """Do what is due: end sessions and waits."""
        self._timers.tick(now_ms)

    def on_earlier_deadline(self, wake: Callable[[], None] | None) -> None:
        """Call `wake` whenever next_deadline() moves forward."""
        self._timers.on_earlier = wake

    # -- members -------------------------------------------------------------------------------------------------

    def join(self, request: Join, now_ms: int, reply: JoinReply) -> None:
        """Join the next generation. Answered when it begins; at once when refused or when nothing changes."""
        try:
            self._check_join(request)
            group = self._group_to_join(request, now_ms)
        except LevadaError as error:
            reply(Joined(member_id=request.member_id, error=error))
            return
        self._joining.join(group, request, now_ms, reply)
        self._forget_if_blank(group)

    def sync(self, request: Sync, now_ms: int, reply: SyncReply) -> None:
        """Ask for the assignment of this generation. Answered when the leader has brought it."""
        try:
            group = self._group_with_members(request.group_id)
            member = self._check_sync(group, request)
        except LevadaError as error:
            reply(Synced(error=error))
            return
        self._rebalancer.has_synced(group, member)
        if group.state is State.STABLE:
            self._rebalancer.touch(group, member, now_ms)
            reply(group.synced(member))
            return
        group.answer_sync(member, Synced(error=RebalanceInProgress()))  # asked again before it was answered
        member.sync_reply = reply
        if group.leader_id == member.id:
            self._rebalancer.assign(group, request.assignments, now_ms)

    def heartbeat(
        self, group_id: str, member_id: str, generation: int, instance_id: str | None = None, *, now_ms: int
    ) -> None:
        """Keep the session alive. RebalanceInProgress asks the member to join again, and keeps it alive as well."""
        group = self._group_with_members(group_id)
        member = group.check_member(member_id, instance_id)
        _check_generation(group, generation)
        self._rebalancer.touch(group, member, now_ms)
        if group.state is State.PREPARING:
            raise RebalanceInProgress(f"group {group_id} rebalances")

    def leave(self, group_id: str, leaving: Sequence[Leaving], now_ms: int) -> list[Left]:
        """Let members go. Each has its own answer; the group rebalances once."""
        self._check(group_id)
        group = self._groups.get(group_id)
        if group is None:
            error = UnknownMember(f"there is no group {group_id}")
            return [Left(who.member_id, who.instance_id, error) for who in leaving]
        members_before, pending_before = len(group.members), len(group.pending)
        answers = [self._leave_one(group, who) for who in leaving]
        if len(group.members) < members_before:
            gone = ", ".join(left.member_id or str(left.instance_id) for left in answers if left.error is None)
            self._rebalancer.after_removal(group, now_ms, f"left: {gone}")
        elif len(group.pending) < pending_before:
            self._rebalancer.after_pending_removal(group, now_ms)
        return answers

    def check_commit(
        self,
        group_id: str,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        *,
        transactional: bool = False,
        now_ms: int | None = None,
    ) -> None:
        """Whether this commit of offsets is the group's own.

        Without a generation it comes from an administrator or a consumer that manages itself, and is taken while the
        group is empty. UnknownMember, FencedInstance, IllegalGeneration, RebalanceInProgress; UnknownGroup when a
        generation is named of a group that is not there. With `now_ms` a commit is also a sign of life.
        """
        self._check_open()
        self._check_own(group_id)
        group = self._groups.get(group_id)
        if group is None and self.neighbour.has_members(group_id):
            raise UnknownMember(f"group {group_id} has native members; only they may commit")
        if group is None or group.state is State.EMPTY:
            if generation >= 0:
                self._refuse_commit(group_id, member_id, generation, transactional)
            return
        if generation < 0 and not member_id and instance_id is None:
            if transactional:
                return  # clients before TxnOffsetCommit 3 cannot name their member
            raise UnknownMember(f"group {group_id} has members; only they may commit")
        member = group.check_member(member_id, instance_id)
        _check_generation(group, generation)
        if group.state is State.COMPLETING and not transactional:
            raise RebalanceInProgress(f"group {group_id} rebalances")
        if now_ms is not None and not transactional:
            self._rebalancer.touch(group, member, now_ms)

    # -- checks --------------------------------------------------------------------------------------------------

    def _check_join(self, request: Join) -> None:
        self._check(request.group_id)
        low, high = self.config.session_ms_min, self.config.session_ms_max
        if not low <= request.session_timeout_ms <= high:
            raise InvalidSessionTimeout(
                f"session timeout {request.session_timeout_ms} ms: must be from {low} to {high}"
            )

    def _group_to_join(self, request: Join, now_ms: int) -> Group:
        """The group; a new one for a new member. A member that knows its id knows a group that must be there."""
        group = self._groups.get(request.group_id)
        if group is None:
            if self.neighbour.holds(request.group_id):
                raise GroupKindMismatch(f"group {request.group_id} is a native group: Kafka's clients cannot join it")
            if request.member_id:
                raise UnknownMember(f"there is no group {request.group_id}")
            group = self._groups[request.group_id] = Group(request.group_id, now_ms)
            group.generation = self.neighbour.give_up(request.group_id, now_ms)
        return group

    def _group_with_members(self, group_id: str) -> Group:
        self._check(group_id)
        group = self._groups.get(group_id)
        if group is None or not group.members:
            raise UnknownMember(f"group {group_id} has no members")
        return group

    @staticmethod
    def _check_sync(group: Group, request: Sync) -> Member:
        member = group.check_member(request.member_id, request.instance_id)
        _check_generation(group, request.generation)
        for given, agreed in (request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name):
            if given is not None and agreed is not None and given != agreed:
                raise InconsistentProtocol(f"group {group.id} works by {agreed}, not by {given}")
        if group.state is State.PREPARING:
            raise RebalanceInProgress(f"group {group.id} rebalances")
        return member

    def _leave_one(self, group: Group, who: Leaving) -> Left:
        try:
            member_id = who.member_id
            if not member_id and who.instance_id is not None:
                member_id = group.instances.get(who.instance_id, "")
            if member_id in group.pending:
                self._rebalancer.drop_pending(group, member_id)
            else:
                self._rebalancer.remove(group, group.check_member(member_id, who.instance_id))
        except LevadaError as error:
            return Left(who.member_id, who.instance_id, error)
        return Left(who.member_id, who.instance_id)

    def _refuse_commit(self, group_id: str, member_id: str, generation: int, transactional: bool) -> None:
        if self.kind(group_id) is not None or self.neighbour.knows(group_id):
            raise UnknownMember(f"group {group_id} is empty; it has no member {member_id!r}")
        if transactional:
            raise IllegalGeneration(f"there is no group {group_id}, so no generation {generation} of it")
        raise UnknownGroup(f"there is no group {group_id}")


def _check_generation(group: Group, generation: int) -> None:
    if generation != group.generation:
        raise IllegalGeneration(f"group {group.id} is in generation {group.generation}, not {generation}")
