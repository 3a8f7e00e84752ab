"""GetOffset, Commit, Seek: where groups stand, and being moved."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from levada.broker.native import Native
from levada.broker.streams import Committer, Edge, Place, Shift, Target, ToOffset, ToTime
from levada.engine.port import At, Committed
from levada.errors import InvalidRequest, LevadaError
from levada.fronts.rpc import notice
from levada.fronts.rpc.call import Call
from levada.fronts.rpc.limits import NAMED_MAX, check_count
from levada.fronts.rpc.status import error_message
from levada.v1 import stream_pb2 as pb

_EDGE: Final = {pb.EARLIEST: Edge.EARLIEST, pb.LATEST: Edge.LATEST}


async def get_offset(native: Native, request: pb.GetOffsetRequest, call: Call) -> pb.GetOffsetResponse:
    places = await native.positions.committed(request.group, request.topic or None)
    return pb.GetOffsetResponse(offsets=[group_offset(place) for place in places])


async def commit(native: Native, request: pb.CommitRequest, call: Call) -> pb.CommitResponse:
    by = Committer(request.member_id, request.generation, request.consumer if request.HasField("consumer") else None)
    errors = await native.positions.commit(request.group, committed(request.offsets), by, native.now_ms())
    return pb.CommitResponse(errors=partition_errors(errors, call))


async def seek(native: Native, request: pb.SeekRequest, call: Call) -> pb.SeekResponse:
    check_count(request.partitions, NAMED_MAX, "partitions")
    offsets = await native.positions.seek(
        request.group,
        request.topic,
        list(request.partitions),
        _target(request),
        now_ms=native.now_ms(),
        dry_run=request.dry_run,
    )
    return pb.SeekResponse(
        offsets=[pb.PartitionOffset(topic=at.topic, partition=at.partition, offset=to) for at, to in offsets.items()]
    )


def _target(request: pb.SeekRequest) -> Target:
    match request.WhichOneof("to"):
        case "offset":
            return ToOffset(request.offset)
        case "timestamp_ms":
            return ToTime(request.timestamp_ms)
        case "shift":
            return Shift(request.shift)
        case "start" if request.start in _EDGE:
            return _EDGE[request.start]
        case _:
            raise InvalidRequest("a seek goes to an offset, a timestamp_ms, a shift, or the start EARLIEST or LATEST")


def committed(offsets: Collection[pb.PartitionOffset]) -> dict[At, Committed]:
    """InvalidRequest where a partition is named twice, or too many are."""
    check_count(offsets, NAMED_MAX, "offsets")
    found: dict[At, Committed] = {}
    for each in offsets:
        at = At(each.topic, each.partition)
        if at in found:
            raise InvalidRequest(f"{at} stands more than once in the request")
        found[at] = Committed(each.offset, metadata=each.metadata)
    return found


def partition_errors(errors: Mapping[At, LevadaError], call: Call) -> list[pb.PartitionError]:
    """Each refusal by its partition, and one log line for all of them."""
    if errors:
        notice.refused(call, "; ".join(dict.fromkeys(str(error) for error in errors.values())))
    return [
        pb.PartitionError(topic=at.topic, partition=at.partition, error=error_message(error))
        for at, error in errors.items()
    ]


def group_offset(place: Place) -> pb.GroupOffset:
    return pb.GroupOffset(
        topic=place.at.topic,
        partition=place.at.partition,
        committed=place.committed,
        start=place.start,
        end=place.end,
        lag=place.lag,
        metadata=place.metadata,
        member_id=place.member_id,
    )
