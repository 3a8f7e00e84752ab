"""What OffsetCommit and TxnOffsetCommit share: every partition of the request has its own answer.

Asked in Kafka's order: is the partition there, may this member commit, is the metadata short enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from levada.engine.port import At, Committed, TopicInfo
from levada.errors import LevadaError, OffsetMetadataTooLarge, UnknownPartition
from levada.fronts.kafka.call import Call
from levada.wire.message import Message


class Entry(NamedTuple):
    """One partition of the request: where it goes, or why it cannot go anywhere."""

    at: At | None
    committed: Committed
    error: LevadaError | None = None


def entries(partitions: Iterable[Message], info: TopicInfo | None, unknown: LevadaError) -> Iterator[Entry]:
    """One topic's partitions. `unknown` says that the topic is not there."""
    for partition in partitions:
        metadata = partition.committed_metadata or ""
        committed = Committed(partition.committed_offset, partition.committed_leader_epoch, metadata)
        if info is None:
            yield Entry(None, committed, unknown)
        elif not 0 <= partition.partition_index < info.partitions:
            yield Entry(None, committed, _no_partition(info, partition.partition_index))
        else:
            yield Entry(At(info.name, partition.partition_index), committed)


def short_enough(entries: Sequence[Entry], call: Call) -> list[Entry]:
    """Refuse what is longer than offset.metadata.max.bytes."""
    metadata_max = call.node.settings.number("offset.metadata.max.bytes")
    return [entry._replace(error=entry.error or _too_long(entry, metadata_max)) for entry in entries]


def all_with(error: LevadaError | None, entries: Sequence[Entry]) -> list[Entry]:
    """What was not refused yet is refused with this error, if there is one."""
    return [entry._replace(error=entry.error or error) for entry in entries]


def storable(entries: Sequence[Entry]) -> dict[At, Committed]:
    """What nothing was found against."""
    return {entry.at: entry.committed for entry in entries if entry.at is not None and entry.error is None}


def _no_partition(info: TopicInfo, index: int) -> LevadaError:
    return UnknownPartition(f"topic {info.name!r} has partitions 0 to {info.partitions - 1}, not {index}")


def _too_long(entry: Entry, metadata_max: int) -> LevadaError | None:
    length = len(entry.committed.metadata)
    if length <= metadata_max:
        return None
    return OffsetMetadataTooLarge(f"metadata of {length} characters: offset.metadata.max.bytes is {metadata_max}")
