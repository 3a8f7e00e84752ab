"""What is asked of a group, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from levada.broker.groups.state import Kind, State
from levada.errors import LevadaError

#: Protocols a member supports, best first: (name, what the member tells the leader under it).
Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True, kw_only=True)
class Join:
    """A member asks to be in the group's next generation."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    reason: str = ""
    #: The client understands MemberIdRequired, so a new member gets its id before it waits.
    knows_member_id_required: bool = True
    #: The client, when it is the leader, understands that it need not assign again.
    knows_skip_assignment: bool = True


class JoinedMember(NamedTuple):
    """A member as its leader is shown it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(slots=True, kw_only=True)
class Joined:
    """The answer to Join: the new generation, or why not. Only the leader is given the members."""

    member_id: str
    error: LevadaError | None = None
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    members: Sequence[JoinedMember] = ()
    #: The leader keeps the assignment as it is.
    skip_assignment: bool = False
    #: What save() returned for this generation; the answer may be sent once that much is durable.
    receipt: int = -1


@dataclass(slots=True, kw_only=True)
class Sync:
    """A member asks for its assignment; the leader brings everyone's."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Synced:
    """The answer to Sync."""

    error: LevadaError | None = None
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None
    #: As in Joined.
    receipt: int = -1


class Leaving(NamedTuple):
    """Who is to leave: a member by its id, or with no id whoever holds the instance id."""

    member_id: str = ""
    instance_id: str | None = None
    reason: str = ""


class Left(NamedTuple):
    """What became of one Leaving."""

    member_id: str
    instance_id: str | None
    error: LevadaError | None = None


class Listed(NamedTuple):
    """A group in a list."""

    group_id: str
    protocol_type: str
    state: State
    kind: Kind


class DescribedMember(NamedTuple):
    """A member as an administrator sees it. `metadata` is shown only while the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Described(NamedTuple):
    """A group as an administrator sees it."""

    group_id: str
    kind: Kind
    state: State
    generation: int
    protocol_type: str
    protocol_name: str
    members: Sequence[DescribedMember]


JoinReply = Callable[[Joined], None]
SyncReply = Callable[[Synced], None]
