"""What a subscription hands to its consumer, in this order and no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from levada.engine.port import Aborted, At
from levada.errors import LevadaError
from levada.records.read import Record


class Assigned(NamedTuple):
    """What the consumer owns from now on, all of it, and where reading goes on in each.

    The first delivery; and again when partitions come or go, and when reading goes on elsewhere than where it stopped:
    after a seek, or where retention passed the reader. Nothing of a partition that is not in it follows.
    """

    member_id: str
    generation: int
    partitions: Mapping[At, int]


class Records(NamedTuple):
    """Records of one partition, in order. There may be none: then only `next_offset` moved, past what is not for readers."""

    at: At
    records: Sequence[Record]
    #: Where reading goes on: beyond the last record, transaction markers and what compaction left out.
    next_offset: int
    #: The end of what this consumer could read then: lag = end − next_offset.
    end: int


class Batches(NamedTuple):
    """Whole batches of one partition, as they are stored. The first may begin below `from_offset`: those records do not count."""

    at: At
    data: bytes | bytearray | memoryview
    from_offset: int
    #: Where reading goes on.
    to_offset: int
    end: int
    #: With read_committed: the transactions among them that were aborted.
    aborted: Sequence[Aborted]
    #: How many of the granted records this is.
    record_count: int


class Failed(NamedTuple):
    """The partition cannot be read on, and why: it is damaged. Nothing more of it comes; the others go on."""

    at: At
    error: LevadaError


Delivery = Assigned | Records | Batches | Failed
