"""Groups as an administrator sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from levada.broker.groups.state import State
from levada.broker.streams.kinds import Kind
from levada.engine.port import At


class Listed(NamedTuple):
    """A group in a list."""

    group_id: str
    kind: Kind
    state: State
    members: int


class DescribedMember(NamedTuple):
    """One member. `consumer` is which one it is of a fixed group."""

    member_id: str
    client_id: str
    host: str
    partitions: Sequence[At]
    consumer: int | None = None
    topics: Sequence[str] = ()


class Described(NamedTuple):
    """One group. A fixed one has its topics and number of consumers also while none of them is there."""

    group_id: str
    kind: Kind
    state: State
    generation: int
    members: Sequence[DescribedMember]
    topics: Sequence[str] = ()
    consumers: int | None = None
