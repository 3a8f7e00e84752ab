"""One member of a classic group."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from levada.broker.groups.calls import JoinReply, Protocols, SyncReply

if TYPE_CHECKING:
    from levada.broker.groups.timers import Timer


class Member:
    """A client's seat in a group: who it is, what it can do, what it was assigned, and what it waits for."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "id",
        "instance_id",
        "is_new",
        "join_reply",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
        is_new: bool = False,
    ) -> None:
        self.id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        #: In no generation yet. Such a member can be expired while it waits: it has no session to keep alive.
        self.is_new = is_new
        self.join_reply: JoinReply | None = None
        self.sync_reply: SyncReply | None = None
        #: Runs out when the session does.
        self.session: Timer | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def awaits_join(self) -> bool:
        return self.join_reply is not None

    @property
    def awaits_sync(self) -> bool:
        return self.sync_reply is not None

    @property
    def is_excused(self) -> bool:
        """A member that waits for us cannot send heartbeats, so its session does not run out meanwhile."""
        return not self.is_new and (self.awaits_join or self.awaits_sync)

    def metadata(self, protocol: str | None) -> bytes:
        """What the member says under this protocol, which it supports."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise LookupError(f"member {self.id} does not support {protocol}")

    def vote(self, candidates: Collection[str]) -> str:
        """The member's best among protocols that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)
