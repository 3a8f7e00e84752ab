"""A request to publish, as the messages that carry it: the broker takes small ones alone, so a large request goes in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from levada.v1 import stream_pb2 as pb

#: Of one message. The broker takes four times as much; of a stream that waits for room it then holds as little as that.
PART_BYTES: Final = 1024 * 1024
#: What a request has besides its batches, for each of them: a tag, a partition, a length.
_ENVELOPE: Final = 32


def messages(request: pb.PublishRequest, data_bytes: int) -> Iterator[pb.PublishRequest]:
    """The request itself or, where its batches have so many bytes that it is too large for a message, its parts in their order."""
    if data_bytes + _ENVELOPE * len(request.batches) <= 2 * PART_BYTES:
        yield request
        return
    whole = memoryview(request.SerializeToString())
    for start in range(0, len(whole), PART_BYTES):
        size = 0 if start else len(whole)
        yield pb.PublishRequest(part=pb.Part(size=size, data=bytes(whole[start : start + PART_BYTES])))
