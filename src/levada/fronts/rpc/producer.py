"""Spread, InitProducer: what clients need that make batches themselves."""

from __future__ import annotations

from typing import Final

from levada.broker.native import Native
from levada.errors import InvalidRequest
from levada.fronts.rpc.call import Call
from levada.v1 import stream_pb2 as pb

#: As many as one call hands out: more than any batch holds.
COUNT_MAX: Final = 10_000_000


async def spread(native: Native, request: pb.SpreadRequest, call: Call) -> pb.SpreadResponse:
    if not 1 <= request.count <= COUNT_MAX:
        raise InvalidRequest(f"count {request.count}: must be from 1 to {COUNT_MAX}")
    first = await native.spread.take(request.topic, request.count)
    return pb.SpreadResponse(first=first, partitions=native.topics.get(request.topic).partitions)


async def init_producer(native: Native, request: pb.InitProducerRequest, call: Call) -> pb.InitProducerResponse:
    producer_id, epoch = await native.new_producer()
    return pb.InitProducerResponse(producer_id=producer_id, epoch=epoch)
