"""What the coordinator is told."""

from __future__ import annotations

from dataclasses import dataclass

from levada.config import INT32_MAX, MINUTE_MS, SECOND_MS
from levada.engine.settings import LiveSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Limits and delays of every group; Kafka's names with `group.` and the unit moved to the end."""

    session_ms_min: int = 6 * SECOND_MS
    session_ms_max: int = 30 * MINUTE_MS
    #: Most members of a group.
    size_max: int = INT32_MAX
    #: How long an empty group waits for more members after the first.
    initial_delay_ms: int = 0
    #: How long a JoinGroup of a member that has no session yet may wait; a client that went away is forgotten after this.
    new_member_join_ms: int = 5 * MINUTE_MS

    @classmethod
    def of(cls, settings: LiveSettings) -> GroupConfig:
        return cls(
            session_ms_min=settings.number("group.min.session.timeout.ms"),
            session_ms_max=settings.number("group.max.session.timeout.ms"),
            size_max=settings.number("group.max.size"),
            initial_delay_ms=settings.number("group.initial.rebalance.delay.ms"),
        )
