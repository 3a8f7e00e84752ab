"""The answer to ListOffsets, versions 1–11, by hand.

Per partition: int32 index | int16 error | int64 timestamp | int64 offset | int32 leader epoch (4+). Compact from version 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from levada.wire.primitives import length, topic

FLEXIBLE: Final = 6

_INT: Final = Struct(">i")
_PLACE_1: Final = Struct(">ihqq")
_PLACE_4: Final = Struct(">ihqqi")
_PLACE_6: Final = Struct(">ihqqix")


class ListedOffset(NamedTuple):
    """The answer for one partition; offset and timestamp are −1 where there is no such record."""

    partition: int
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


def write_response(
    version: int, topics: Sequence[tuple[str, Sequence[ListedOffset]]], *, throttle_ms: int = 0
) -> bytes:
    """The body of a response. A plain tuple of all five does as well as a ListedOffset."""
    flexible = version >= FLEXIBLE
    parts = [_INT.pack(throttle_ms)] if version >= 2 else []
    parts.append(length(len(topics), flexible))
    place = (_PLACE_6 if flexible else _PLACE_4).pack
    for name, partitions in topics:
        parts += (topic(name, flexible), length(len(partitions), flexible))
        if version >= 4:
            parts += [place(*partition) for partition in partitions]
        else:
            parts += [_PLACE_1.pack(*partition[:4]) for partition in partitions]
        if flexible:
            parts.append(b"\0")
    if flexible:
        parts.append(b"\0")
    return b"".join(parts)
