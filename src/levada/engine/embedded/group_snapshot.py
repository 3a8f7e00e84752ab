"""A group as it is kept in `__consumer_offsets`, so that its members outlive the broker without a rebalance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from levada.engine.embedded.internal_records import GROUP_METADATA_VALUE, read, write

_VERSION: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSnapshot:
    """One member of a stable group: its subscription under the chosen protocol, and its share."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    session_timeout_ms: int = 0
    subscription: bytes = b""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """One generation of a group. Without members it is empty, and `since_ms` says since when."""

    group_id: str
    protocol_type: str | None = None
    generation: int = 0
    protocol_name: str | None = None
    leader_id: str | None = None
    since_ms: int = -1
    members: Sequence[MemberSnapshot] = ()

    def value(self) -> bytes:
        """As Kafka's GroupMetadataValue."""
        return write(
            GROUP_METADATA_VALUE,
            _VERSION,
            {
                "protocol_type": self.protocol_type or "",
                "generation": self.generation,
                "protocol": self.protocol_name,
                "leader": self.leader_id,
                "current_state_timestamp": self.since_ms,
                "members": [_member_fields(member) for member in self.members],
            },
        )

    @classmethod
    def of(cls, group_id: str, value: bytes) -> GroupSnapshot:
        """From Kafka's GroupMetadataValue. CorruptBatch; Unknown."""
        fields = read(GROUP_METADATA_VALUE, value)
        return cls(
            group_id=group_id,
            protocol_type=fields["protocol_type"] or None,
            generation=fields["generation"],
            protocol_name=fields["protocol"],
            leader_id=fields["leader"],
            since_ms=fields["current_state_timestamp"],
            members=tuple(_member(member) for member in fields["members"]),
        )


def _member(fields: Mapping[str, Any]) -> MemberSnapshot:
    session_timeout_ms = fields["session_timeout"]
    rebalance_timeout_ms = fields["rebalance_timeout"]
    return MemberSnapshot(
        member_id=fields["member_id"],
        instance_id=fields["group_instance_id"],
        client_id=fields["client_id"],
        client_host=fields["client_host"],
        # Version 0 had none of its own: the session's time was all a member got.
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=fields["subscription"],
        assignment=fields["assignment"],
    )


def _member_fields(member: MemberSnapshot) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout": member.rebalance_timeout_ms,
        "session_timeout": member.session_timeout_ms,
        "subscription": member.subscription,
        "assignment": member.assignment,
    }
