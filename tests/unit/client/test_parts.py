"""How a request to publish becomes messages."""

from __future__ import annotations

import pytest

from levada.client.parts import PART_BYTES, messages
from levada.v1 import stream_pb2 as pb


def request_of(*sizes: int) -> pb.PublishRequest:
    return pb.PublishRequest(topic="t", batches=[pb.Batch(data=bytes(size)) for size in sizes], id=7)


@pytest.mark.parametrize("sizes", [(10,), (PART_BYTES,), (10_000,) * 100])
def test_what_fits_into_a_message_is_sent_as_it_is(sizes: tuple[int, ...]) -> None:
    request = request_of(*sizes)
    assert list(messages(request, sum(sizes))) == [request]


@pytest.mark.parametrize("sizes", [(2 * PART_BYTES,), (5 * PART_BYTES + 3, 10), (61,) * 30_000])
def test_what_does_not_is_cut_and_can_be_put_together_again(sizes: tuple[int, ...]) -> None:
    request = request_of(*sizes)
    parts = [message.part for message in messages(request, sum(sizes))]
    assert len(parts) > 1
    whole = b"".join(part.data for part in parts)
    assert [part.size for part in parts] == [len(whole), *[0] * (len(parts) - 1)]
    assert max(len(part.data) for part in parts) == PART_BYTES
    assert pb.PublishRequest.FromString(whole) == request
