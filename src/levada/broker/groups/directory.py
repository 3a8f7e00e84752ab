"""The groups of this broker, and what an administrator asks about them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from levada.broker.groups.calls import Described, DescribedMember, Listed
from levada.broker.groups.group import Group
from levada.broker.groups.member import Member
from levada.broker.groups.neighbour import Neighbour, NoNeighbour
from levada.broker.groups.rebalance import Rebalancer
from levada.broker.groups.state import Kind, State
from levada.broker.groups.subscription import CONSUMER
from levada.engine.names import KEYLESS_GROUP
from levada.errors import CoordinatorUnavailable, GroupNotEmpty, InvalidGroupId, UnknownGroup


class Directory:
    """Group id → group.

    `kept` names all groups that something is kept of. Those that hold offsets exist, as empty ones, even where no
    member ever came, but for the one the broker keeps its own counters in. A group that never had a generation and holds no offsets does not exist. Groups of other kinds are
    the neighbour's; administrators are shown both.
    """

    def __init__(self, rebalancer: Rebalancer, kept: Callable[[], Collection[str]]) -> None:
        self._rebalancer = rebalancer
        self._rebalancer.on_deserted = self._forget_if_blank
        self._all_kept = kept
        self.neighbour: Neighbour = NoNeighbour()
        self._groups: dict[str, Group] = {}
        self._is_closed = False

    def _kept(self) -> list[str]:
        return [group_id for group_id in self._all_kept() if group_id != KEYLESS_GROUP]

    def kind(self, group_id: str) -> Kind | None:
        """Which protocol rules this group id; None while it is free, or the neighbour's."""
        group = self._groups.get(group_id)
        if group is not None:
            return group.kind
        if self.neighbour.knows(group_id):
            return None
        return Kind.CLASSIC if group_id in self._kept() else None

    def list(self, states: Collection[str] = (), kinds: Collection[str] = ()) -> list[Listed]:
        """Groups in one of these states and of one of these kinds, by Kafka's names in any case; empty means all."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_kinds = {kind.strip().lower() for kind in kinds}
        listed = [Listed(g.id, g.protocol_type or "", g.state, g.kind) for g in self._groups.values()]
        listed += self.neighbour.list()
        known = {group.group_id for group in listed}
        listed += [
            Listed(group_id, "", State.EMPTY, Kind.CLASSIC) for group_id in self._kept() if group_id not in known
        ]
        return [
            group
            for group in listed
            if (not wanted_states or group.state.value.lower() in wanted_states)
            and (not wanted_kinds or group.kind.value in wanted_kinds)
        ]

    def describe(self, group_id: str) -> Described:
        """UnknownGroup when there is none."""
        self._check_open()
        group = self._groups.get(group_id)
        if group is None and self.neighbour.knows(group_id):
            return self.neighbour.describe(group_id)
        if group is None:
            self._check_exists(group_id)
            return Described(group_id, Kind.CLASSIC, State.EMPTY, 0, "", "", ())
        shown = group.protocol_name if group.state is State.STABLE else None
        return Described(
            group_id,
            group.kind,
            group.state,
            group.generation,
            group.protocol_type or "",
            shown or "",
            [_describe_member(member, shown) for member in group.members.values()],
        )

    def delete(self, group_id: str, now_ms: int) -> int:
        """Forget the group and return a receipt; its offsets are the caller's to delete. GroupNotEmpty, UnknownGroup."""
        self._check_open()
        group = self._groups.get(group_id)
        if group is None and self.neighbour.knows(group_id):
            return self.neighbour.delete(group_id, now_ms)
        if group is None:
            self._check_exists(group_id)
            return -1
        if group.state is not State.EMPTY:
            raise GroupNotEmpty(f"group {group_id} has {len(group.members)} members")
        receipt = self._rebalancer.forget(group)
        self._rebalancer.bury(group, now_ms)
        del self._groups[group_id]
        return receipt

    def check_offset_delete(self, group_id: str) -> None:
        """UnknownGroup; GroupNotEmpty for a group with members whose topics cannot be told."""
        self._check(group_id)
        group = self._groups.get(group_id)
        if group is None:
            if not self.neighbour.knows(group_id):
                self._check_exists(group_id)
        elif group.state is not State.EMPTY and group.protocol_type != CONSUMER:
            raise GroupNotEmpty(f"group {group_id} has members and is not a consumer group")

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        """Whether members of the group read this topic, as far as is known; when in doubt, they do."""
        group = self._groups.get(group_id)
        if group is None:
            return self.neighbour.is_subscribed(group_id, topic)
        return bool(group.members) and group.is_subscribed(topic)

    # -- groups of other kinds -----------------------------------------------------------------------------------

    def holds(self, group_id: str) -> bool:
        """Whether the id cannot be had by another kind of group: members are there, or about to be."""
        group = self._groups.get(group_id)
        return group is not None and (group.state is not State.EMPTY or bool(group.pending))

    def give_up(self, group_id: str, now_ms: int) -> int:
        """Leave a group id that is not held to another kind; return the last generation. Offsets stay."""
        assert not self.holds(group_id)
        group = self._groups.pop(group_id, None)
        if group is None:
            return 0
        self._rebalancer.bury(group, now_ms)
        return group.generation

    # -- offsets that expire -------------------------------------------------------------------------------------

    def may_read(self, group_id: str, topic: str) -> bool:
        """Whether members read this topic or may be about to: then its offsets do not expire, however old they are.

        An empty group's offsets are kept for a time after its last member left; its snapshot says when that was.
        """
        group = self._groups.get(group_id)
        if group is None or group.state is State.EMPTY:
            return False
        return group.state is not State.STABLE or group.protocol_type != CONSUMER or group.is_subscribed(topic)

    def sweep(self, has_offsets: Callable[[str], bool], now_ms: int) -> Sequence[str]:
        """Forget empty groups that hold no offsets any more, and name them."""
        swept = [
            group.id
            for group in self._groups.values()
            if group.state is State.EMPTY and not group.pending and not has_offsets(group.id)
        ]
        for group_id in swept:
            self.delete(group_id, now_ms)
        return swept

    def _forget_if_blank(self, group: Group) -> None:
        """A group id that was only tried leaves nothing behind."""
        if group.state is State.EMPTY and not group.pending and not group.generation:
            self._groups.pop(group.id, None)

    # -- checks --------------------------------------------------------------------------------------------------

    def _check(self, group_id: str) -> None:
        self._check_open()
        if not group_id:
            raise InvalidGroupId("the group id is empty")
        self._check_own(group_id)

    @staticmethod
    def _check_own(group_id: str) -> None:
        if group_id == KEYLESS_GROUP:
            raise InvalidGroupId(f"group {group_id} is the broker's own bookkeeping")

    def _check_open(self) -> None:
        if self._is_closed:
            raise CoordinatorUnavailable("the broker is closing")

    def _check_exists(self, group_id: str) -> None:
        if self.kind(group_id) is None:
            raise UnknownGroup(f"there is no group {group_id}")


def _describe_member(member: Member, protocol: str | None) -> DescribedMember:
    return DescribedMember(
        member.id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.metadata(protocol) if protocol is not None else b"",
        member.assignment,
    )
