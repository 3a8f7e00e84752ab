"""Topics and partitions in the bytes that Kafka's consumers tell one another, so that Kafka's tools can show them.

ConsumerProtocolSubscription 0: int16 version | int32 n | n × string topic | nullable bytes user data
ConsumerProtocolAssignment 0:   int16 version | int32 n | n × (string topic | int32 m | m × int32) | nullable bytes user data
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from levada.engine.port import At

_VERSION: Final = struct.pack(">h", 0)
_NO_USER_DATA: Final = struct.pack(">i", -1)


def subscription(topics: Sequence[str]) -> bytes:
    names = b"".join(_string(topic) for topic in topics)
    return _VERSION + struct.pack(">i", len(topics)) + names + _NO_USER_DATA


def assignment(partitions: Iterable[At]) -> bytes:
    parts = []
    for topic, of_topic in groupby(sorted(partitions), key=lambda at: at.topic):
        indexes = [at.partition for at in of_topic]
        parts.append(_string(topic) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes))
    return _VERSION + struct.pack(">i", len(parts)) + b"".join(parts) + _NO_USER_DATA


def assigned(data: bytes) -> list[At]:
    """What such bytes assign; nothing for bytes that are not such. Later versions only add at the end."""
    ats: list[At] = []
    try:
        _, count = struct.unpack_from(">hi", data)
        position = 6
        for _ in range(count):
            (length,) = struct.unpack_from(">h", data, position)
            if length < 0:
                return []
            topic = bytes(data[position + 2 : position + 2 + length]).decode()
            position += 2 + length
            (partitions,) = struct.unpack_from(">i", data, position)
            ats += [At(topic, index) for index in struct.unpack_from(f">{partitions}i", data, position + 4)]
            position += 4 + 4 * partitions
    except (struct.error, UnicodeDecodeError):
        return []
    return ats


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
