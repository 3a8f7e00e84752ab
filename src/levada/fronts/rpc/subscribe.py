"""Subscribe: a subscription of broker/delivery over one call.

- The first request opens it. Whatever the client says after that is a sign of life; grants and pauses are taken at once,
  commits one after the other beside them, each answered by its id.
- A client that closes its side says nothing more: it gets all as fast as it reads.
- A refusal of what it says ends the call, but for single offsets of a commit, which are named in its answer.
- A client that reads slowly holds back its own deliveries and nobody else's: each is awaited before the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, Final

from levada.broker.delivery import Assigned, Batches, Delivery, Failed, Records, Start, Subscription, Wanted
from levada.broker.delivery.wanted import BYTES_MAX, RECORDS_MAX, SESSION_TIMEOUT_MS
from levada.broker.native import Native
from levada.engine.port import At, Isolation
from levada.errors import InvalidRequest
from levada.fronts.rpc.call import Call
from levada.fronts.rpc.limits import NAMED_MAX, check_count
from levada.fronts.rpc.offsets import committed, partition_errors
from levada.fronts.rpc.records import stored_records
from levada.fronts.rpc.status import error_message
from levada.v1 import stream_pb2 as pb

#: Most commits of one subscription that wait to be durable; beyond, nothing more is read from the client.
COMMITS_MAX: Final = 100

_Commits = asyncio.Queue[pb.SubscribeRequest.CommitOffsets]

_START: Final = {pb.EARLIEST: Start.EARLIEST, pb.LATEST: Start.LATEST, pb.NONE: Start.NONE}


async def subscribe(native: Native, call: Call) -> None:
    call.when_closing(call.cut)
    first = await call.read()
    if first is None or first.WhichOneof("kind") != "open":
        raise InvalidRequest("the first request of a subscription is `open`")
    outbox = _Outbox(call)
    commits: _Commits = asyncio.Queue(COMMITS_MAX)
    wanted = _wanted(first.open, call)
    for topic in wanted.topics:
        native.topics.get(topic)
    subscription = await native.subscriptions.open(wanted, outbox.deliver)
    try:
        await _until_one_fails(
            subscription.wait(),
            _requests(subscription, call, commits),
            _commit_each(subscription, call, commits, outbox),
        )
    finally:
        await subscription.close()


async def _until_one_fails(over: Coroutine[Any, Any, None], *beside: Coroutine[Any, Any, None]) -> None:
    """Until the first is over or one of them fails; then none of them goes on."""
    tasks = [asyncio.ensure_future(each) for each in (over, *beside)]
    waiting = set(tasks)
    try:
        while not tasks[0].done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


class _Outbox:
    """What is told to the client: one message at a time, whoever tells it."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._turn = asyncio.Lock()

    async def deliver(self, delivery: Delivery) -> None:
        await self.put(_message(delivery))

    async def put(self, message: pb.SubscribeResponse) -> None:
        async with self._turn:
            await self._call.context.write(message)


async def _requests(subscription: Subscription, call: Call, commits: _Commits) -> None:
    """Do what the client says, until it has said its last."""
    while (request := await call.read()) is not None:
        if request.HasField("commit"):
            await commits.put(request.commit)
        else:
            await _do(subscription, request)
    subscription.let_run()


async def _do(subscription: Subscription, request: pb.SubscribeRequest) -> None:
    subscription.alive()
    match request.WhichOneof("kind"):
        case "grant":
            subscription.grant(request.grant.records)
        case "alive":
            pass
        case "pause":
            subscription.pause(_ats(request.pause.paused))
            subscription.resume(_ats(request.pause.resumed))
        case "seek":
            offsets = committed(request.seek.offsets)
            await subscription.seek({at: each.offset for at, each in offsets.items()})
        case _:
            raise InvalidRequest("a subscription is opened once; after that come grant, commit, seek, pause or alive")


async def _commit_each(subscription: Subscription, call: Call, commits: _Commits, outbox: _Outbox) -> None:
    while True:
        request = await commits.get()
        errors = await subscription.commit(committed(request.offsets), request.generation)
        if request.handed_over:
            subscription.hand_over(_ats(request.handed_over))
        answer = pb.SubscribeResponse.Committed(id=request.id, errors=partition_errors(errors, call))
        await outbox.put(pb.SubscribeResponse(committed=answer))


def _wanted(request: pb.SubscribeRequest.Open, call: Call) -> Wanted:
    start = _START.get(request.start)
    if start is None:
        raise InvalidRequest(f"start {request.start}: must be EARLIEST, LATEST or NONE (0 to 2)")
    check_count(request.topics, NAMED_MAX, "topics")
    return Wanted(
        topics=tuple(request.topics),
        group=request.group,
        partitions=tuple(_ats(request.partitions)),
        consumer=request.consumer if request.HasField("consumer") else None,
        generation=request.generation,
        start=start,
        offsets={at: each.offset for at, each in committed(request.offsets).items()},
        records_max=request.records_max or RECORDS_MAX,
        bytes_max=request.bytes_max or BYTES_MAX,
        session_timeout_ms=request.session_timeout_ms or SESSION_TIMEOUT_MS,
        isolation=Isolation.READ_COMMITTED if request.read_committed else Isolation.READ_UNCOMMITTED,
        raw=request.raw,
        client_id=request.client_id or call.client_id,
        host=call.host,
        hand_over_ms=request.hand_over_ms,
    )


def _ats(partitions: Collection[pb.TopicPartition]) -> list[At]:
    check_count(partitions, NAMED_MAX, "partitions")
    return [At(each.topic, each.partition) for each in partitions]


def _message(delivery: Delivery) -> pb.SubscribeResponse:
    if isinstance(delivery, Batches):
        return pb.SubscribeResponse(batches=_batches(delivery))
    if isinstance(delivery, Records):
        return pb.SubscribeResponse(records=_records(delivery))
    if isinstance(delivery, Failed):
        at, error = delivery
        return pb.SubscribeResponse(
            failed=pb.PartitionError(topic=at.topic, partition=at.partition, error=error_message(error))
        )
    return pb.SubscribeResponse(assigned=_assigned(delivery))


def _batches(delivery: Batches) -> pb.SubscribeResponse.Batches:
    message = pb.SubscribeResponse.Batches(
        topic=delivery.at.topic,
        partition=delivery.at.partition,
        data=bytes(delivery.data),
        to=delivery.to_offset,
        end=delivery.end,
        aborted=[
            pb.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in delivery.aborted
        ],
        count=delivery.record_count,
    )
    setattr(message, "from", delivery.from_offset)  # a keyword of Python's
    return message


def _records(delivery: Records) -> pb.SubscribeResponse.Records:
    return pb.SubscribeResponse.Records(
        topic=delivery.at.topic,
        partition=delivery.at.partition,
        records=stored_records(delivery.records),
        end=delivery.end,
        next_offset=delivery.next_offset,
    )


def _assigned(delivery: Assigned) -> pb.SubscribeResponse.Assigned:
    return pb.SubscribeResponse.Assigned(
        member_id=delivery.member_id,
        generation=delivery.generation,
        partitions=[
            pb.PartitionOffset(topic=at.topic, partition=at.partition, offset=offset)
            for at, offset in delivery.partitions.items()
        ],
    )
