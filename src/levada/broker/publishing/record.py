"""What a native publisher brings, and where it landed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Headers = Sequence[tuple[str, bytes | None]]


class NewRecord(NamedTuple):
    """A record to be published. An empty key is no key; without a timestamp it gets the broker's."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    #: Where it must go; None leaves it to the topic's rules.
    partition: int | None = None
    #: For topics with levada.dedup=id; stored as the header `message_id`.
    message_id: str | None = None


class Repeat(NamedTuple):
    """A record of a batch that was stored before: its place in the batch, and where the first copy lies."""

    place: int
    partition: int
    offset: int


class Position(NamedTuple):
    """Where a record, or the first record of a batch, lies. `duplicate`: it was there already."""

    partition: int
    offset: int
    duplicate: bool = False
    duplicates: Sequence[Repeat] = ()
