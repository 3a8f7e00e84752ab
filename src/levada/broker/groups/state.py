"""The states of a classic group, as a table.

    Empty ──────────────► PreparingRebalance ◄──────────────── Stable
      ▲                     │        ▲   │                        ▲
      │   nobody joined     │        │   │ all joined, or time up │
      └─────────────────────┘        │   ▼                        │ the leader's assignment came
                                     CompletingRebalance ─────────┘

Any of them may become Dead, which is for ever: the group was deleted.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class State(enum.Enum):
    """Where a group stands between two generations. The value is Kafka's name, which clients are shown."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: Where a group may go from each state.
NEXT: Final[Mapping[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING, State.DEAD}),
    State.PREPARING: frozenset({State.COMPLETING, State.EMPTY, State.DEAD}),
    State.COMPLETING: frozenset({State.STABLE, State.PREPARING, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING, State.DEAD}),
    State.DEAD: frozenset(),
}


class Kind(enum.Enum):
    """Which protocol rules a group id. A group id has one kind at a time. The value is Kafka's name of the type."""

    CLASSIC = "classic"
