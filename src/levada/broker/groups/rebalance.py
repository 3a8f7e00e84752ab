"""How a group gets from one generation to the next.

prepare: everyone is asked to join again, by REBALANCE_IN_PROGRESS in the answer to its heartbeat. complete: all joined,
or the longest rebalance timeout is over, and those who came are the next generation; the leader is sent their
metadata. assign: the leader's SyncGroup brought an assignment, and every SyncGroup is answered with its part. Who joins
and then never syncs is put out after the same timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from levada.broker.groups import notice
from levada.broker.groups.calls import Joined, Synced
from levada.broker.groups.config import GroupConfig
from levada.broker.groups.group import Group
from levada.broker.groups.member import Member
from levada.broker.groups.snapshot import snapshot
from levada.broker.groups.state import State
from levada.broker.groups.timers import Timer, Timers
from levada.config import SECOND_MS
from levada.engine.embedded.group_snapshot import GroupSnapshot
from levada.errors import CoordinatorUnavailable, LevadaError, RebalanceInProgress, StorageError, UnknownMember

#: Shortest wait between two looks at a group in which nobody joined again.
_RETRY_MS_MIN = SECOND_MS


class Rebalancer:
    """Moves groups between states, keeps their timers and saves every generation before it is told to anyone."""

    def __init__(
        self,
        config: GroupConfig,
        timers: Timers,
        save: Callable[[GroupSnapshot], int],
        forget: Callable[[str], int],
    ) -> None:
        self.config = config
        self._timers = timers
        self._save = save
        self._forget = forget
        #: Called when an empty group waits for nobody any more.
        self.on_deserted: Callable[[Group], None] = lambda group: None

    # -- joining -------------------------------------------------------------------------------------------------

    def prepare(self, group: Group, now_ms: int, reason: str) -> None:
        """Ask everyone to join again. An empty group waits a moment for more members than the first."""
        if group.state is State.COMPLETING:
            group.assign({})
            self._fail_syncs(group, RebalanceInProgress(), now_ms)
        self._stop_waiting_for_syncs(group)
        is_initial = group.state is State.EMPTY
        group.move(State.PREPARING, now_ms)
        notice.rebalances(group, reason)
        if is_initial:
            group.grew = False
            wait_ms = self.config.initial_delay_ms
            left_ms = max(0, group.rebalance_timeout_ms - wait_ms)
            self._run_join_timer(group, now_ms + wait_ms, partial(self._initial_wait_over, group, wait_ms, left_ms))
        elif group.all_joined:
            self.complete(group, now_ms)
        else:
            deadline_ms = now_ms + max(0, group.rebalance_timeout_ms)
            self._run_join_timer(group, deadline_ms, partial(self.complete, group))

    def prepare_or_complete(self, group: Group, now_ms: int, reason: str) -> None:
        """Somebody came, went or changed: start a rebalance, or see whether the running one has all it waits for."""
        if group.state is not State.PREPARING:
            self.prepare(group, now_ms, reason)
        elif group.all_joined and not group.is_initial:
            self.complete(group, now_ms)

    def complete(self, group: Group, now_ms: int) -> None:
        """Make a generation of those who joined. Static members stay in it until their session ends."""
        self._cancel(group.join_timer)
        for member in [m for m in group.members.values() if not m.awaits_join and not m.is_static]:
            self._take_out(group, member)
        if group.members and not group.elect_joined_leader():
            deadline_ms = now_ms + max(_RETRY_MS_MIN, group.rebalance_timeout_ms)
            self._run_join_timer(group, deadline_ms, partial(self.complete, group))
            return
        group.next_generation(now_ms)
        group.assign({})
        self._try_save(group)
        notice.generation(group)
        if group.members:
            self._tell_joined(group, now_ms)

    def _tell_joined(self, group: Group, now_ms: int) -> None:
        for member in group.members.values():
            group.answer_join(member, group.joined(member))
            member.is_new = False
            group.unsynced.add(member.id)
            self.touch(group, member, now_ms)
        if group.sync_timer is None:
            group.sync_timer = Timer(partial(self._sync_wait_over, group))
        self._timers.at(group.sync_timer, now_ms + max(_RETRY_MS_MIN, group.rebalance_timeout_ms))

    def _initial_wait_over(self, group: Group, waited_ms: int, left_ms: int, now_ms: int) -> None:
        if not group.grew or left_ms == 0:
            self.complete(group, now_ms)
            return
        group.grew = False
        wait_ms = min(self.config.initial_delay_ms, left_ms)
        left_ms = max(0, left_ms - waited_ms)
        self._run_join_timer(group, now_ms + wait_ms, partial(self._initial_wait_over, group, wait_ms, left_ms))

    # -- syncing -------------------------------------------------------------------------------------------------

    def assign(self, group: Group, assignments: Mapping[str, bytes], now_ms: int) -> None:
        """The leader brought the assignment: keep it, then tell it. One that cannot be kept is told to nobody."""
        group.assign(assignments)
        try:
            self.save(group)
        except StorageError as reason:
            notice.not_saved(group, "assignment", reason)
            group.assign({})
            self._fail_syncs(group, CoordinatorUnavailable(str(reason)), now_ms)
            self.prepare(group, now_ms, "the assignment could not be saved")
            return
        group.move(State.STABLE, now_ms)
        for member in group.members.values():
            if group.answer_sync(member, group.synced(member)):
                self.touch(group, member, now_ms)

    def has_synced(self, group: Group, member: Member) -> None:
        group.unsynced.discard(member.id)
        if not group.unsynced:
            self._cancel(group.sync_timer)

    def _sync_wait_over(self, group: Group, now_ms: int) -> None:
        late = [group.members[member_id] for member_id in sorted(group.unsynced)]
        for member in late:
            self._take_out(group, member)
        if late:
            self.prepare(group, now_ms, f"never synced: {', '.join(member.id for member in late)}")

    def _stop_waiting_for_syncs(self, group: Group) -> None:
        group.unsynced.clear()
        self._cancel(group.sync_timer)

    def _fail_syncs(self, group: Group, error: LevadaError, now_ms: int) -> None:
        for member in group.members.values():
            if group.answer_sync(member, Synced(error=error)):
                self.touch(group, member, now_ms)

    # -- sessions ------------------------------------------------------------------------------------------------

    def touch(self, group: Group, member: Member, now_ms: int) -> None:
        """The member gave a sign of life: its session begins anew."""
        self.expire_at(group, member, now_ms + member.session_timeout_ms)

    def expire_at(self, group: Group, member: Member, deadline_ms: int) -> None:
        if member.session is None:
            member.session = Timer(partial(self._session_over, group, member))
        self._timers.at(member.session, deadline_ms)

    def _session_over(self, group: Group, member: Member, now_ms: int) -> None:
        if not member.is_excused:
            self.remove(group, member)
            self.after_removal(group, now_ms, f"session of member {member.id} ended")

    def remove(self, group: Group, member: Member) -> None:
        """Take a member out and tell it, should it still wait, to start over. Then call after_removal."""
        error = UnknownMember(f"member {member.id} is no longer in group {group.id}")
        group.answer_join(member, Joined(member_id="", error=error))
        group.answer_sync(member, Synced(error=error))
        self._take_out(group, member)

    def after_removal(self, group: Group, now_ms: int, reason: str) -> None:
        if group.state is not State.EMPTY:
            self.prepare_or_complete(group, now_ms, reason)

    def retire(self, member: Member) -> None:
        """This member's session is nobody's any more."""
        self._cancel(member.session)

    def _take_out(self, group: Group, member: Member) -> None:
        self.retire(member)
        group.remove(member)

    # -- pending members -----------------------------------------------------------------------------------------

    def add_pending(self, group: Group, member_id: str, deadline_ms: int) -> None:
        """Hold a seat for a client that was told its member id; the next generation waits for it until the deadline."""
        timer = Timer(partial(self._pending_over, group, member_id))
        group.pending[member_id] = timer
        self._timers.at(timer, deadline_ms)

    def drop_pending(self, group: Group, member_id: str) -> None:
        self._cancel(group.pending.pop(member_id))

    def after_pending_removal(self, group: Group, now_ms: int) -> None:
        """One less to wait for."""
        if group.state is State.PREPARING:
            self.prepare_or_complete(group, now_ms, "a pending member is gone")
        elif group.state is State.EMPTY:
            self.on_deserted(group)

    def _pending_over(self, group: Group, member_id: str, now_ms: int) -> None:
        group.pending.pop(member_id, None)
        self.after_pending_removal(group, now_ms)

    # -- the end -------------------------------------------------------------------------------------------------

    def bury(self, group: Group, now_ms: int) -> None:
        """The group is deleted or the coordinator closes: whoever waits is told to look again, and no timer is left."""
        for member in list(group.members.values()):
            error = CoordinatorUnavailable(f"the coordinator of group {group.id} is closing")
            group.answer_join(member, Joined(member_id=member.id, error=error))
            group.answer_sync(member, Synced(error=error))
            self.retire(member)
        for member_id in list(group.pending):
            self.drop_pending(group, member_id)
        self._cancel(group.join_timer)
        self._cancel(group.sync_timer)
        group.move(State.DEAD, now_ms)

    def save(self, group: Group) -> None:
        """StorageError when the group cannot be kept as it is."""
        group.receipt = self._save(snapshot(group))

    def forget(self, group: Group) -> int:
        """Keep nothing of the group, and return a receipt. StorageError when that cannot be done."""
        return self._forget(group.id)

    def _try_save(self, group: Group) -> None:
        """A new generation goes on even when it cannot be saved: at worst a crash gives its number out again."""
        try:
            self.save(group)
        except StorageError as reason:
            notice.not_saved(group, "generation", reason)

    def _run_join_timer(self, group: Group, deadline_ms: int, action: Callable[[int], None]) -> None:
        self._cancel(group.join_timer)
        group.join_timer = Timer(action)
        self._timers.at(group.join_timer, deadline_ms)

    def _cancel(self, timer: Timer | None) -> None:
        if timer is not None:
            self._timers.cancel(timer)
