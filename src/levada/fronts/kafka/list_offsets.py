"""ListOffsets, versions 1–11.

- −1 latest (under read_committed the last stable offset), −2 earliest, −3 the record with the largest timestamp, −4 the
  earliest on this disk, which is the earliest; −5 and −6 ask about tiered storage, which there is none of: offset −1.
- Any other: the first record at or after that time, with its own timestamp and leader epoch; offset −1 where there is none.
- A marker that the request's version does not know, or nobody does, is UNSUPPORTED_VERSION; a partition that is asked for
  twice INVALID_REQUEST.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from levada.engine.embedded.partition import Partition
from levada.engine.port import Isolation
from levada.errors import InvalidRequest, LevadaError, UnsupportedVersion
from levada.fronts.kafka import notice
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import NONE, code_of
from levada.fronts.kafka.leader_epoch import check_epoch
from levada.wire.list_offsets import ListedOffset, write_response

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_EARLIEST_PENDING_UPLOAD: Final = -6

#: Marker → the first version that knows it.
_KNOWN_FROM: Final[Mapping[int, int]] = {
    _LATEST: 1,
    _EARLIEST: 1,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}

#: timestamp, offset, leader epoch
Place = tuple[int, int, int]
_NOWHERE: Final = (-1, -1, -1)


async def handle(request: Any, call: Call) -> bytes:
    asked = Counter((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    twice = {at for at, times in asked.items() if times > 1}
    isolation = Isolation(request.isolation_level == Isolation.READ_COMMITTED)
    topics = []
    for topic in request.topics:
        rows = [await _row(topic.name, each, isolation, twice, call) for each in topic.partitions]
        topics.append((topic.name, rows))
    return write_response(call.version, topics)


async def _row(topic: str, asked: Any, isolation: Isolation, twice: set[tuple[str, int]], call: Call) -> ListedOffset:
    index = asked.partition_index
    try:
        if (topic, index) in twice:
            raise InvalidRequest(f"{topic}-{index} stands more than once in the request")
        if asked.timestamp < 0 and call.version < _KNOWN_FROM.get(asked.timestamp, call.version + 1):
            raise UnsupportedVersion(f"timestamp {asked.timestamp} is not known in version {call.version}")
        partition = call.node.engine.partition(topic, index)
        check_epoch(partition, asked.current_leader_epoch)
        return ListedOffset(index, NONE, *await _place(partition, asked.timestamp, isolation))
    except LevadaError as error:
        notice.refused(call, "ListOffsets", f"{topic}-{index}: {error}")
        return ListedOffset(index, code_of(error))


async def _place(partition: Partition, timestamp: int, isolation: Isolation) -> Place:
    end = partition.stable_end if isolation == Isolation.READ_COMMITTED else partition.end
    if timestamp == _LATEST:
        return -1, end, partition.leader_epoch
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        start = partition.start_offset
        return -1, start, partition.log.epochs.epoch_at(start)
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _NOWHERE
    found = await (partition.max_timestamp() if timestamp == _MAX_TIMESTAMP else partition.offset_at(timestamp))
    if found is None or found.offset >= end:
        return _NOWHERE
    return found.timestamp_ms, found.offset, found.leader_epoch
