"""The fixed form: a number of consumers, each of whom always has the same partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from levada.engine.port import At


class Registered(NamedTuple):
    """The answer to a registration."""

    generation: int
    #: It was registered so already.
    same: bool
    #: Kept for good once StreamGroups.durable(receipt) returns.
    receipt: int = -1


def owned_by(consumer: int, consumers: int, topics: Iterable[str], partitions: Mapping[str, int]) -> frozenset[At]:
    """What consumer i of so many has of these topics: every partition with partition % consumers == i."""
    return frozenset(
        At(topic, partition) for topic in topics for partition in range(consumer, partitions.get(topic, 0), consumers)
    )
