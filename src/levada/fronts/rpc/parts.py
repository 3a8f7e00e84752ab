"""A request to publish that is larger than a message may be: it comes in parts, the first of which says how large it is.

gRPC takes a message in before anybody can refuse it, on every stream that is waited on. So messages are small, and of a large
request only the first part is read before there is room for all of it: the rest stays with the client, by HTTP/2's flow control.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from levada.config import MiB
from levada.errors import InvalidRequest, RecordTooLarge, TimedOut
from levada.fronts.rpc.call import Call
from levada.fronts.rpc.memory import READ_TIMEOUT_S, stalled
from levada.v1 import stream_pb2 as pb

#: Of a whole request.
REQUEST_BYTES_MAX: Final = 64 * MiB


async def whole(call: Call, first: pb.Part) -> tuple[Any, int]:
    """The request that begins with this part, and its size, which is held from now on: the caller gives it back.

    RecordTooLarge, InvalidRequest, TimedOut: then nothing is held. What follows could not be told from the rest of it, so they end the
    call.
    """
    size = first.size
    if not size:
        raise InvalidRequest("the first part of a request says how many bytes the request has")
    if size > REQUEST_BYTES_MAX:
        await _pass_over(call, size - len(first.data))
        raise RecordTooLarge(f"a request of {size} bytes; at most {REQUEST_BYTES_MAX} are taken")
    memory = call.calls.memory
    await memory.reserve(size)
    try:
        joined = bytearray(first.data)
        while len(joined) < size:
            joined += await _next(call)
        if len(joined) > size:
            raise InvalidRequest(f"the parts of a request of {size} bytes have {len(joined)}")
        return call.parse(joined), size
    except BaseException:
        memory.give(size)
        raise


async def _next(call: Call) -> bytes:
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            message, _ = await call.read_sized()
    except TimeoutError:
        raise stalled() from None
    if message is None:
        raise InvalidRequest("the stream ended within a request")
    if not message.part.data:
        raise InvalidRequest("within a request that comes in parts there is something else")
    data: bytes = message.part.data
    return data


async def _pass_over(call: Call, size: int) -> None:
    """Read the rest of a request and let go of it: gRPC's clients do not hear why a call has ended while they write."""
    with contextlib.suppress(InvalidRequest, TimedOut):
        while size > 0:
            size -= len(await _next(call))
