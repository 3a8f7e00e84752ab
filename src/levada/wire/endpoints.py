"""Where the new leader is (KIP-951): the tagged fields that Produce and Fetch answers share."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from levada.wire.primitives import read_length, read_text, skip_tags, text, uvarint

_TWO_INTS: Final = Struct(">ii")
_INT: Final = Struct(">i")


class Endpoint(NamedTuple):
    """A node and its address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def leader_tag(tag: int, leader: tuple[int, int] | None) -> bytes:
    """All tagged fields of a partition: (node, leader epoch) under this tag, or none."""
    return b"\0" if leader is None or leader == (-1, -1) else b"\1" + one_tag(tag, _TWO_INTS.pack(*leader) + b"\0")


def endpoint_tag(endpoints: Sequence[Endpoint]) -> bytes:
    """All tagged fields of the whole answer: the endpoints under tag 0, or none."""
    if not endpoints:
        return b"\0"
    held = b"".join(
        _INT.pack(node) + text(host, True) + _INT.pack(port) + text(rack, True) + b"\0"
        for node, host, port, rack in endpoints
    )
    return b"\1" + one_tag(0, uvarint(len(endpoints) + 1) + held)


def one_tag(tag: int, value: bytes) -> bytes:
    return uvarint(tag) + uvarint(len(value)) + value


def read_endpoints(value: memoryview) -> list[Endpoint]:
    """The endpoints in the value of their tag."""
    count, position = read_length(value, 0, True)
    endpoints = []
    for _ in range(count):
        (node_id,) = _INT.unpack_from(value, position)
        host, position = read_text(value, position + 4, True)
        (port,) = _INT.unpack_from(value, position)
        rack, position = read_text(value, position + 4, True)
        position = skip_tags(value, position)
        endpoints.append(Endpoint(node_id, host or "", port, rack))
    return endpoints
