"""One member of a native group, and what it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from levada.broker.groups.timers import Timer
from levada.engine.port import At
from levada.errors import LevadaError


class Assignment(NamedTuple):
    """What a member owns from now on: all of it, sorted."""

    member_id: str
    generation: int
    partitions: Sequence[At] = ()
    #: Partitions that somebody moved: read on from these offsets, whatever was read before.
    moved: Mapping[At, int] = {}
    #: Why it is no member any more. Then it owns nothing, and everything it asks for is refused.
    fenced: LevadaError | None = None
    #: What save() returned for this generation. It is kept for good once StreamGroups.durable(receipt) returns.
    receipt: int = -1


#: Told at every change, once, before the call that made the change returns. It must not call back into the groups.
Changed = Callable[[Assignment], None]


class Member:
    """A consumer's seat in a group. The groups keep it up to date; everybody else only reads it."""

    __slots__ = (
        "changed",
        "client_id",
        "consumer",
        "generation",
        "group_id",
        "hand_over",
        "hand_over_ms",
        "host",
        "id",
        "leaving",
        "owned",
        "receipt",
        "session",
        "session_timeout_ms",
        "share",
        "since",
        "topics",
    )

    def __init__(
        self,
        member_id: str,
        group_id: str,
        *,
        topics: Sequence[str],
        client_id: str,
        host: str,
        session_timeout_ms: int,
        changed: Changed,
        consumer: int | None = None,
        hand_over_ms: int = 0,
    ) -> None:
        self.id = member_id
        self.group_id = group_id
        #: What it reads, each once. None of a fixed group: all that the group is registered for.
        self.topics = tuple(dict.fromkeys(topics))
        self.client_id = client_id
        self.host = host
        self.session_timeout_ms = session_timeout_ms
        self.changed = changed
        #: Of a fixed group: which one it is.
        self.consumer = consumer
        self.generation = 0
        #: What it may read.
        self.owned: frozenset[At] = frozenset()
        #: What is to be its own: more than `owned` while others have not handed it over.
        self.share: frozenset[At] = frozenset()
        #: The generation since which it has read each of `owned` without a break.
        self.since: dict[At, int] = {}
        #: How long others wait for what it hands over; none of it while this is 0.
        self.hand_over_ms = hand_over_ms
        #: What it is to hand over, and the first and last generation in which it has read that.
        self.leaving: dict[At, tuple[int, int]] = {}
        #: Runs out when they have waited long enough.
        self.hand_over: Timer | None = None
        self.receipt = -1
        #: Runs out when the session does.
        self.session: Timer | None = None

    @property
    def partitions(self) -> list[At]:
        """What it owns, sorted."""
        return sorted(self.owned)

    @property
    def assignment(self) -> Assignment:
        """What it owns, as it is told."""
        return Assignment(self.id, self.generation, self.partitions, receipt=self.receipt)

    def tell(self, moved: Mapping[At, int] | None = None) -> None:
        self.changed(self.assignment._replace(moved=moved or {}))

    def fence(self, reason: LevadaError, generation: int) -> None:
        """It is no member any more, and hears why."""
        self.owned = frozenset()
        self.changed(Assignment(self.id, generation, fenced=reason))
