"""Publish, PublishStream.

- A stream's requests are begun in their order, the next before the one before is durable; answers come in the same order.
- A refused request of a stream is answered with `error`, and the stream goes on.
- A request that is too large for a message comes in parts, on a stream alone.
- A caller that goes away takes nothing back: what was begun is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from levada.broker.native import Native
from levada.broker.publishing import Position
from levada.broker.publishing.started import Started
from levada.engine.port import Acks
from levada.errors import InvalidRequest, LevadaError, ShuttingDown
from levada.fronts.rpc import notice, parts
from levada.fronts.rpc.call import Call
from levada.fronts.rpc.limits import check_count
from levada.fronts.rpc.memory import READ_TIMEOUT_S, stalled
from levada.fronts.rpc.records import new_record
from levada.fronts.rpc.status import error_message
from levada.v1 import stream_pb2 as pb

#: Most records of one request; most batches, of which small ones go to many partitions.
RECORDS_MAX: Final = 10_000
BATCHES_MAX: Final = 20_000
#: Most requests of one stream that are begun and not answered.
IN_FLIGHT_MAX: Final = 128

_ACKS: Final = {pb.ACKS_ALL: Acks.ALL, pb.ACKS_NONE: Acks.NONE}


class _Begun(NamedTuple):
    """A request in its turn: its id and size, and what has become of it so far."""

    id: int
    size: int
    outcome: Started | LevadaError


async def publish(native: Native, call: Call) -> pb.PublishResponse:
    """One request; read here and not by gRPC, so that it is not read while too much is held."""
    memory = call.calls.memory
    await memory.begin_read(native.enqueue_timeout_ms())
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            request, size = await call.read_sized()
    except TimeoutError:
        raise stalled() from None
    finally:
        memory.end_read()
    if request is None:
        raise InvalidRequest("there is no request")
    memory.take(size)
    try:
        number, starting = request.id, _start(native, request)
        del request  # while it waits, there is one copy of what it brought
        return await _answer(number, await starting)
    finally:
        memory.give(size)


async def publish_stream(native: Native, call: Call) -> None:
    begun: asyncio.Queue[_Begun | None] = asyncio.Queue()
    room = asyncio.Semaphore(IN_FLIGHT_MAX)
    reading = asyncio.ensure_future(_read(native, call, begun.put_nowait, room))
    call.when_closing(reading.cancel)
    memory = call.calls.memory
    held = 0
    try:
        while (each := await begun.get()) is not None:
            held = each.size
            await call.context.write(await _answered(each, call))
            memory.give(held)
            held = 0
            room.release()
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        memory.give(held + _left(begun))
    if call.calls.closing:
        raise ShuttingDown


def _left(begun: asyncio.Queue[_Begun | None]) -> int:
    """Bytes of requests that nobody waits for any more."""
    size = 0
    while not begun.empty():
        each = begun.get_nowait()
        size += each.size if each is not None else 0
    return size


async def _read(native: Native, call: Call, put: Callable[[_Begun | None], None], room: asyncio.Semaphore) -> None:
    """Begin one request after the other, until the client has sent its last or the broker closes."""
    memory = call.calls.memory
    try:
        while True:
            await room.acquire()
            await memory.room()
            request, size = await call.read_sized()
            if request is None:
                return
            if request.HasField("part"):
                request, size = await parts.whole(call, request.part)
            else:
                memory.take(size)
            number = request.id
            try:
                starting = _start(native, request)
                del request  # while it waits, there is one copy of what it brought
                # Begun or not, and nothing in between: whoever is begun is answered, whatever is cancelled.
                put(_Begun(number, size, await starting))
            except LevadaError as refusal:
                put(_Begun(number, size, refusal))
            except BaseException:
                memory.give(size)
                raise
    finally:
        put(None)


def _start(native: Native, request: pb.PublishRequest) -> Awaitable[Started]:
    acks = _ACKS.get(request.acks)
    if acks is None:
        raise InvalidRequest(f"acks {request.acks}: must be ACKS_ALL (0) or ACKS_NONE (1)")
    if request.HasField("part"):
        raise InvalidRequest("a request in parts is sent over PublishStream, and cut once")
    check_count(request.records, RECORDS_MAX, "records")
    check_count(request.batches, BATCHES_MAX, "batches")
    if not request.batches:
        return native.publisher.start(request.topic, [new_record(each) for each in request.records], acks)
    if request.records:
        raise InvalidRequest("a request has records or batches, not both")
    return native.publisher.start_batches(
        request.topic, [(each.partition, each.data) for each in request.batches], acks
    )


async def _answered(begun: _Begun, call: Call) -> pb.PublishResponse:
    number, _, outcome = begun
    try:
        if isinstance(outcome, LevadaError):
            raise outcome
        return await _answer(number, outcome)
    except LevadaError as refusal:
        notice.refused(call, refusal)
        return pb.PublishResponse(id=number, error=error_message(refusal))


async def _answer(number: int, started: Started) -> pb.PublishResponse:
    positions = [_position(each) for each in await started.positions()]
    return pb.PublishResponse(id=number, positions=positions, partitions=started.partitions)


def _position(position: Position) -> pb.Position:
    partition, offset, duplicate, duplicates = position
    if not duplicates:
        return pb.Position(partition=partition, offset=offset, duplicate=duplicate)
    return pb.Position(
        partition=partition,
        offset=offset,
        duplicate=duplicate,
        duplicates=[
            pb.Duplicate(index=each.place, partition=each.partition, offset=each.offset) for each in duplicates
        ],
    )
