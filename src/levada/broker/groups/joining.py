"""Who may join a group, and what a JoinGroup sets off.

A new member of a client that understands it is first given an id and asked to come back with it, so that a client which
lost the answer does not leave a seat behind for each try. A member with an instance id takes over the seat of its
predecessor: while the group is stable and what it reads is the same, nobody else notices.
"""

from __future__ import annotations

import uuid

from levada.broker.groups import notice
from levada.broker.groups.calls import Join, Joined, JoinReply, Synced
from levada.broker.groups.group import Group
from levada.broker.groups.member import Member
from levada.broker.groups.rebalance import Rebalancer
from levada.broker.groups.state import State
from levada.broker.groups.subscription import topics_of
from levada.errors import (
    CoordinatorUnavailable,
    FencedInstance,
    GroupFull,
    InvalidRequest,
    LevadaError,
    MemberIdRequired,
    RebalanceInProgress,
    StorageError,
)


class Joining:
    """The rules of JoinGroup."""

    def __init__(self, rebalancer: Rebalancer) -> None:
        self._rebalancer = rebalancer

    def join(self, group: Group, request: Join, now_ms: int, reply: JoinReply) -> None:
        """Answer now, or keep the reply until the next generation begins."""
        try:
            self._check_room(group, request, now_ms)
            group.check_protocols(request.protocol_type, [name for name, _ in request.protocols])
            if request.member_id:
                self._join_known(group, request, now_ms, reply)
            elif request.instance_id is not None:
                self._join_static(group, request, request.instance_id, now_ms, reply)
            elif request.knows_member_id_required:
                self._hand_out_id(group, request, now_ms, reply)
            else:
                self._add(group, request, _new_member_id(request), now_ms, reply)
        except LevadaError as error:
            reply(Joined(member_id="" if isinstance(error, GroupFull) else request.member_id, error=error))

    def _check_room(self, group: Group, request: Join, now_ms: int) -> None:
        """GroupFull. While members join again, the last to come are put out should the limit have been lowered."""
        size_max = self._rebalancer.config.size_max
        member_id = request.member_id or group.instances.get(request.instance_id or "", "")
        member = group.members.get(member_id)
        if group.state is State.PREPARING:
            has_room = (member is not None and member.awaits_join) or group.awaiting_join < size_max
        else:
            has_room = member is not None or len(group.members) < size_max
        if has_room:
            return
        if member is not None:
            self._rebalancer.remove(group, member)
            self._rebalancer.after_removal(group, now_ms, f"no room for member {member_id}")
        elif member_id in group.pending:
            self._rebalancer.drop_pending(group, member_id)
            self._rebalancer.after_pending_removal(group, now_ms)
        raise GroupFull(f"group {group.id} has {size_max} members, which is group.max.size")

    # -- new members ---------------------------------------------------------------------------------------------

    def _hand_out_id(self, group: Group, request: Join, now_ms: int, reply: JoinReply) -> None:
        member_id = _new_member_id(request)
        self._rebalancer.add_pending(group, member_id, now_ms + request.session_timeout_ms)
        reply(Joined(member_id=member_id, error=MemberIdRequired()))

    def _add(self, group: Group, request: Join, member_id: str, now_ms: int, reply: JoinReply) -> None:
        member = _seat(request, member_id)
        member.is_new = True
        group.grew = group.grew or group.is_initial
        group.add(member, request.protocol_type)
        group.await_join(member, reply)
        # Its client may be gone, which nobody would notice: it has no session and sends no heartbeat while it waits.
        self._rebalancer.expire_at(group, member, now_ms + self._rebalancer.config.new_member_join_ms)
        self._rebalancer.prepare_or_complete(group, now_ms, _reason(f"member {member_id} is new", request))

    def _join_static(self, group: Group, request: Join, instance_id: str, now_ms: int, reply: JoinReply) -> None:
        holder = group.instances.get(instance_id)
        if holder is None:
            self._add(group, request, _new_member_id(request), now_ms, reply)
        else:
            self._succeed(group, request, group.members[holder], now_ms, reply)

    def _succeed(self, group: Group, request: Join, old: Member, now_ms: int, reply: JoinReply) -> None:
        """A static member is back under a new id; the old one, should it live on, is fenced."""
        new = _seat(request, _new_member_id(request))
        new.assignment = old.assignment
        topics_changed = _topics_changed(old, new, group.protocol_name)
        self._fence(group, old)
        group.replace(old, new)
        self._rebalancer.retire(old)
        self._rebalancer.touch(group, new, now_ms)
        if group.state is State.STABLE and not topics_changed and group.select_protocol() == group.protocol_name:
            self._take_over(group, request, old, new, now_ms, reply)
            return
        group.await_join(new, reply)
        self._rebalancer.prepare_or_complete(
            group, now_ms, _reason(f"static member {new.instance_id} is back as {new.id}", request)
        )

    def _take_over(self, group: Group, request: Join, old: Member, new: Member, now_ms: int, reply: JoinReply) -> None:
        """The seat is handed over without a rebalance, and only if that is kept: a restart must not fence the new one."""
        leader_before = old.id if group.leader_id == new.id else group.leader_id
        try:
            self._rebalancer.save(group)
        except StorageError as reason:
            notice.not_saved(group, "successor", reason)
            group.replace(new, old)
            self._rebalancer.retire(new)
            self._rebalancer.touch(group, old, now_ms)
            raise CoordinatorUnavailable(str(reason)) from reason
        answer = group.joined(new, skip_assignment=True)
        if not request.knows_skip_assignment:
            # A leader that cannot skip would assign again, and only for itself: let it take itself for a follower.
            answer.leader_id = leader_before or ""
            answer.members = ()
            answer.skip_assignment = False
        reply(answer)

    @staticmethod
    def _fence(group: Group, old: Member) -> None:
        error = FencedInstance(f"group.instance.id {old.instance_id} of group {group.id} has a new holder")
        group.answer_join(old, Joined(member_id=old.id, error=error))
        group.answer_sync(old, Synced(error=error))

    # -- members that come back ----------------------------------------------------------------------------------

    def _join_known(self, group: Group, request: Join, now_ms: int, reply: JoinReply) -> None:
        if request.member_id in group.pending:
            if request.instance_id is not None:
                raise InvalidRequest(f"member {request.member_id} was given its id without a group.instance.id")
            self._rebalancer.drop_pending(group, request.member_id)
            self._add(group, request, request.member_id, now_ms, reply)
            return
        member = group.check_member(request.member_id, request.instance_id)
        changed = member.protocols != request.protocols
        # The leader may come back to have topics looked at again; a follower with nothing new lost an answer.
        leads_stable = group.state is State.STABLE and group.leader_id == member.id
        if group.state is State.PREPARING or changed or leads_stable:
            self._rejoin(group, request, member, now_ms, reply)
        else:
            reply(group.joined(member))

    def _rejoin(self, group: Group, request: Join, member: Member, now_ms: int, reply: JoinReply) -> None:
        # A JoinGroup that is asked again before it was answered: the first answer is waited for by nobody,
        # but what follows it on its connection is.
        group.answer_join(member, Joined(member_id=member.id, error=RebalanceInProgress()))
        group.update(member, request.protocols, request.session_timeout_ms, request.rebalance_timeout_ms)
        group.await_join(member, reply)
        self._rebalancer.prepare_or_complete(group, now_ms, _reason(f"member {member.id} joins again", request))


def _seat(request: Join, member_id: str) -> Member:
    return Member(
        member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
    )


def _new_member_id(request: Join) -> str:
    return f"{request.instance_id or request.client_id}-{uuid.uuid4()}"


def _topics_changed(old: Member, new: Member, protocol: str | None) -> bool:
    """Whether the successor reads other topics. Kafka overlooks it; then nobody reads the new ones until a rebalance."""
    known = dict(old.protocols).get(protocol or "", b""), dict(new.protocols).get(protocol or "", b"")
    before, after = (topics_of(metadata) for metadata in known)
    return before is not None and after is not None and before != after


def _reason(cause: str, request: Join) -> str:
    return f"{cause}: {request.reason}" if request.reason else cause
