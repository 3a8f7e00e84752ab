"""What topics a consumer asks for, read from what it tells its group's leader.

ConsumerProtocolSubscription: int16 version | int32 n | n × (int16 length, UTF-8) topics | … Later versions only add
fields at the end, so the beginning is read and the rest left alone.
"""

from __future__ import annotations

import struct
from typing import Final

#: The protocol type of Kafka's consumers; other types (connect …) mean something else by the same bytes.
CONSUMER: Final = "consumer"
#: The protocol types of groups that do not speak Kafka's protocol begin with this.
OWN_PROTOCOLS: Final = "levada-"


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """The topics of one subscription; None for bytes that are not one."""
    try:
        _, count = struct.unpack_from(">hi", metadata)
        position = 6
        topics = set()
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            end = position + 2 + length
            if length < 0 or end > len(metadata):
                return None
            topics.add(metadata[position + 2 : end].decode())
            position = end
        return frozenset(topics)
    except (struct.error, UnicodeDecodeError):
        return None
