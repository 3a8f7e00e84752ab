"""The native groups of this broker, and what is asked about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from levada.broker.groups.config import GroupConfig
from levada.broker.streams.generations import Generations
from levada.broker.streams.group import FixedGroup, Group
from levada.broker.streams.kinds import Kind, Rival
from levada.broker.streams.snapshot import NATIVE, restore
from levada.broker.streams.views import Described, Listed
from levada.engine.embedded.group_snapshot import GroupSnapshot
from levada.engine.port import At
from levada.errors import (
    CoordinatorUnavailable,
    GroupKindMismatch,
    GroupNotEmpty,
    InvalidGroupId,
    InvalidSessionTimeout,
    UnknownGroup,
)

#: Groups of the broker itself begin with this.
OWN_PREFIX: Final = "__levada."
#: As much as Kafka's records of offsets can hold.
GROUP_ID_BYTES_MAX: Final = 32_767


class Directory:
    """Group id → native group. `rival` rules the groups of other kinds."""

    def __init__(self, generations: Generations, config: GroupConfig, rival: Rival) -> None:
        self.config = config
        self.rival = rival
        self._generations = generations
        self._groups: dict[str, Group] = {}
        self._is_closed = False

    def load(self, snapshots: Iterable[GroupSnapshot], now_ms: int) -> None:
        """Go on where the groups were: their generations and registrations. Others' groups are passed over."""
        for kept in snapshots:
            if kept.protocol_type in NATIVE:
                group = self._groups[kept.group_id] = restore(kept, now_ms)
                if isinstance(group, FixedGroup):
                    group.seen = self._generations.look(group.topics)

    # What there is

    def kind(self, group_id: str) -> Kind | None:
        """None for a group that is not a native one."""
        group = self._shown(group_id)
        return None if group is None else group.kind

    def list(self) -> list[Listed]:
        shown = [one for one in self._groups.values() if not one.is_remnant]
        return [Listed(one.id, one.kind, one.state, len(one.members)) for one in shown]

    def describe(self, group_id: str) -> Described:
        """UnknownGroup."""
        return self._existing(group_id).describe()

    def owners(self, group_id: str) -> Mapping[At, str]:
        """Who reads each partition now; nothing for a group that is not there."""
        group = self._groups.get(group_id)
        return {} if group is None else {at: member.id for at, member in group.owners().items()}

    def topics(self, group_id: str) -> Sequence[str]:
        """What the group reads, or is registered for; nothing for a group that is not there."""
        group = self._groups.get(group_id)
        return () if group is None else sorted(group.topics)

    def has_members(self, group_id: str) -> bool:
        group = self._groups.get(group_id)
        return group is not None and bool(group.members)

    def reads(self, group_id: str, topic: str, now_ms: int) -> bool:
        """Whether members read this topic or may be about to: then its offsets do not expire, however old they are."""
        group = self._groups.get(group_id)
        return group is not None and group.reads(topic, now_ms)

    # The end

    def delete(self, group_id: str, now_ms: int) -> int:
        """Forget the group and return a receipt; its offsets are the caller's to delete. GroupNotEmpty, UnknownGroup."""
        group = self._existing(group_id)
        if group.members:
            raise GroupNotEmpty(f"group {group_id} has {len(group.members)} members")
        return self._drop(group_id)

    def _drop(self, group_id: str) -> int:
        receipt = self._generations.forget(group_id)
        del self._groups[group_id]
        return receipt

    def sweep(self, has_offsets: Callable[[str], bool], now_ms: int) -> Sequence[str]:
        """Forget groups without members, offsets or a registration, and name them."""
        swept = [
            group.id
            for group in self._groups.values()
            if group.kind is Kind.DYNAMIC
            and not group.members
            and now_ms >= group.expected_until_ms
            and not has_offsets(group.id)
        ]
        for group_id in swept:
            self._drop(group_id)
        return swept

    # Kinds

    def holds(self, group_id: str) -> bool:
        """Whether the id cannot be had by another kind of group: members are there, or it is registered."""
        group = self._groups.get(group_id)
        return group is not None and (bool(group.members) or group.kind is Kind.FIXED)

    def give_up(self, group_id: str, now_ms: int) -> int:
        """See Rival."""
        assert not self.holds(group_id)
        group = self._groups.pop(group_id, None)
        return 0 if group is None else group.generation

    # Checks

    def _shown(self, group_id: str) -> Group | None:
        group = self._groups.get(group_id)
        return None if group is None or group.is_remnant else group

    def _existing(self, group_id: str) -> Group:
        self._check_open()
        group = self._shown(group_id)
        if group is None:
            raise UnknownGroup(f"there is no group {group_id}")
        return group

    def _check_open(self) -> None:
        if self._is_closed:
            raise CoordinatorUnavailable("the broker is closing")

    def _check_id(self, group_id: str) -> None:
        self._check_open()
        if not group_id:
            raise InvalidGroupId("the group id is empty")
        if group_id.startswith(OWN_PREFIX):
            raise InvalidGroupId(f"group {group_id}: ids that begin with {OWN_PREFIX} are the broker's own")
        if len(group_id.encode()) > GROUP_ID_BYTES_MAX:
            raise InvalidGroupId(f"the group id is longer than {GROUP_ID_BYTES_MAX} bytes")

    def _check_rival(self, group_id: str) -> None:
        if self.rival.holds(group_id):
            raise GroupKindMismatch(f"group {group_id} has members that speak Kafka's protocol: it is theirs")

    def _check_session(self, session_timeout_ms: int) -> None:
        low, high = self.config.session_ms_min, self.config.session_ms_max
        if not low <= session_timeout_ms <= high:
            raise InvalidSessionTimeout(f"session timeout {session_timeout_ms} ms: must be from {low} to {high}")
