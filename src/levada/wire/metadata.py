"""The answer to Metadata, versions 0–13, by hand: clients ask often, and for every partition of every topic.

Per partition: int16 error | int32 index | int32 leader | int32 leader epoch (7+) | replicas | in-sync ones | offline ones (5+).
From version 9 the bytes are compact. A partition whose only replica is in sync, the usual one here, is packed in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, pack
from typing import Final, NamedTuple
from uuid import UUID

from levada.wire.endpoints import Endpoint
from levada.wire.primitives import length, text
from levada.wire.schema import ZERO_UUID

FLEXIBLE: Final = 9
#: Stands for "was not asked for".
NO_OPERATIONS: Final = -(2**31)

_INT: Final = Struct(">i")
_SHORT: Final = Struct(">h")
_ALONE_0: Final = Struct(">hiiiiii")
_ALONE_5: Final = Struct(">hiiiiiii")
_ALONE_7: Final = Struct(">hiiiiiiii")
_ALONE_9: Final = Struct(">hiiiBiBiBx")


class PartitionMetadata(NamedTuple):
    """One partition and who leads it. A plain tuple in this order does as well."""

    partition: int
    leader_id: int
    leader_epoch: int = -1
    replicas: Sequence[int] = ()
    isr: Sequence[int] = ()
    offline: Sequence[int] = ()
    error_code: int = 0


class TopicMetadata(NamedTuple):
    """One topic. Its name is null (12+) only where it was asked for by an id that nobody knows."""

    name: str | None
    partitions: Sequence[PartitionMetadata] = ()
    topic_id: UUID = ZERO_UUID
    is_internal: bool = False
    error_code: int = 0
    authorized_operations: int = NO_OPERATIONS


def write_response(
    version: int,
    brokers: Sequence[Endpoint],
    topics: Sequence[TopicMetadata],
    *,
    cluster_id: str | None = None,
    controller_id: int = -1,
    error_code: int = 0,
    throttle_ms: int = 0,
    cluster_authorized_operations: int = NO_OPERATIONS,
) -> bytes:
    """The body of a response."""
    flexible = version >= FLEXIBLE
    tags = b"\0" if flexible else b""
    parts = [_INT.pack(throttle_ms)] if version >= 3 else []
    parts.append(length(len(brokers), flexible))
    for node_id, host, port, rack in brokers:
        parts += (_INT.pack(node_id), text(host, flexible), _INT.pack(port))
        parts += (text(rack, flexible) if version >= 1 else b"", tags)
    if version >= 2:
        parts.append(text(cluster_id, flexible))
    if version >= 1:
        parts.append(_INT.pack(controller_id))
    parts.append(length(len(topics), flexible))
    for topic in topics:
        parts += _topic(version, flexible, *topic)
    if 8 <= version <= 10:
        parts.append(_INT.pack(cluster_authorized_operations))
    if version >= 13:
        parts.append(_SHORT.pack(error_code))
    parts.append(tags)
    return b"".join(parts)


def _topic(
    version: int,
    flexible: bool,
    name: str | None,
    partitions: Sequence[PartitionMetadata] = (),
    topic_id: UUID = ZERO_UUID,
    is_internal: bool = False,
    error_code: int = 0,
    authorized_operations: int = NO_OPERATIONS,
) -> list[bytes]:
    # Before version 12 an unknown id has no name to be told by; an empty one is what Kafka sends.
    parts = [_SHORT.pack(error_code), text(name if version >= 12 else name or "", flexible)]
    if version >= 10:
        parts.append(topic_id.bytes)
    if version >= 1:
        parts.append(b"\1" if is_internal else b"\0")
    parts.append(length(len(partitions), flexible))
    write_partition = _PARTITION[version]
    parts += [write_partition(*partition) for partition in partitions]
    if version >= 8:
        parts.append(_INT.pack(authorized_operations))
    if flexible:
        parts.append(b"\0")
    return parts


def _compact_partition(
    partition: int,
    leader_id: int,
    leader_epoch: int = -1,
    replicas: Sequence[int] = (),
    isr: Sequence[int] = (),
    offline: Sequence[int] = (),
    error_code: int = 0,
) -> bytes:
    if len(replicas) == 1 == len(isr) and not offline:
        return _ALONE_9.pack(error_code, partition, leader_id, leader_epoch, 2, replicas[0], 2, isr[0], 1)
    head = pack(">hiii", error_code, partition, leader_id, leader_epoch)
    return head + _nodes(replicas, True) + _nodes(isr, True) + _nodes(offline, True) + b"\0"


def _partition_from_7(
    partition: int,
    leader_id: int,
    leader_epoch: int = -1,
    replicas: Sequence[int] = (),
    isr: Sequence[int] = (),
    offline: Sequence[int] = (),
    error_code: int = 0,
) -> bytes:
    if len(replicas) == 1 == len(isr) and not offline:
        return _ALONE_7.pack(error_code, partition, leader_id, leader_epoch, 1, replicas[0], 1, isr[0], 0)
    head = pack(">hiii", error_code, partition, leader_id, leader_epoch)
    return head + _nodes(replicas, False) + _nodes(isr, False) + _nodes(offline, False)


def _partition_from_5(
    partition: int,
    leader_id: int,
    _leader_epoch: int = -1,
    replicas: Sequence[int] = (),
    isr: Sequence[int] = (),
    offline: Sequence[int] = (),
    error_code: int = 0,
) -> bytes:
    if len(replicas) == 1 == len(isr) and not offline:
        return _ALONE_5.pack(error_code, partition, leader_id, 1, replicas[0], 1, isr[0], 0)
    head = pack(">hii", error_code, partition, leader_id)
    return head + _nodes(replicas, False) + _nodes(isr, False) + _nodes(offline, False)


def _partition_from_0(
    partition: int,
    leader_id: int,
    _leader_epoch: int = -1,
    replicas: Sequence[int] = (),
    isr: Sequence[int] = (),
    _offline: Sequence[int] = (),
    error_code: int = 0,
) -> bytes:
    if len(replicas) == 1 == len(isr):
        return _ALONE_0.pack(error_code, partition, leader_id, 1, replicas[0], 1, isr[0])
    return pack(">hii", error_code, partition, leader_id) + _nodes(replicas, False) + _nodes(isr, False)


def _nodes(nodes: Sequence[int], flexible: bool) -> bytes:
    return length(len(nodes), flexible) + pack(f">{len(nodes)}i", *nodes)


_PARTITION: Final[tuple[Callable[..., bytes], ...]] = (
    *[_partition_from_0] * 5,
    *[_partition_from_5] * 2,
    *[_partition_from_7] * 2,
    *[_compact_partition] * 5,
)
