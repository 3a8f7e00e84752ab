"""Read: some records of one partition, once, outside of any group."""

from __future__ import annotations

from typing import Final

from levada.broker.delivery import OutOfRange, read_once
from levada.broker.delivery.reading import BYTES_MAX, LIMIT, size_of
from levada.broker.native import Native
from levada.engine.port import At, Isolation
from levada.errors import InvalidRequest
from levada.fronts.rpc.call import Call
from levada.fronts.rpc.records import stored_records
from levada.v1 import stream_pb2 as pb

_POLICY: Final = {
    pb.FAIL: OutOfRange.FAIL,
    pb.TO_EARLIEST: OutOfRange.TO_EARLIEST,
    pb.TO_LATEST: OutOfRange.TO_LATEST,
}


async def read(native: Native, request: pb.ReadRequest, call: Call) -> pb.ReadResponse:
    policy = _POLICY.get(request.out_of_range)
    if policy is None:
        raise InvalidRequest(f"out_of_range {request.out_of_range}: must be FAIL, TO_EARLIEST or TO_LATEST (0 to 2)")
    if request.wait_ms:
        call.when_closing(call.cut)
    at = At(request.topic, request.partition)
    found = await read_once(
        native.engine,
        at,
        request.offset,
        limit=request.limit or LIMIT,
        bytes_max=request.bytes_max or BYTES_MAX,
        wait_ms=request.wait_ms,
        isolation=Isolation.READ_COMMITTED if request.read_committed else Isolation.READ_UNCOMMITTED,
        out_of_range=policy,
        now_ms=native.now_ms,
        opener=native.subscriptions.opener,
    )
    native.count_out(at, len(found.records), sum(map(size_of, found.records)))
    return pb.ReadResponse(
        records=stored_records(found.records), start=found.start, end=found.end, next_offset=found.next_offset
    )
