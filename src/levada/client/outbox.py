"""What a producer has to send: collected from the accumulator, placed, handed to the sender, and waited for.

Everything here is on the loop's thread, but for `_wake`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import Final

from levada.client.accumulator import Accumulator
from levada.client.channel import Channel
from levada.client.draft import Draft
from levada.client.lanes import Lanes
from levada.client.parcel import parcels_of, spread_out
from levada.client.route import SPREAD
from levada.client.routes import Routes
from levada.client.sender import Sender, Talk
from levada.client.shortcut import PUBLISH_STREAM, Conversation, Shortcut
from levada.client.spreader import Spreader
from levada.errors import LevadaError, TimedOut
from levada.v1 import stream_pb2 as pb

#: So many refusals that nobody has asked about are kept for the next flush.
_REFUSALS_KEPT: Final = 100


class Outbox:
    """The accumulator, and the way from there to the broker."""

    def __init__(
        self,
        channel: Channel,
        routes: Routes,
        shortcut: Shortcut,
        *,
        linger_ms: float,
        batch_bytes: int,
        acks: pb.Acks,
        codec: int,
        buffer_bytes: int,
        delivery_timeout_ms: int,
        request_timeout_ms: int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._routes = routes
        self._linger_s = linger_ms / 1000
        self._delivery_timeout_s = delivery_timeout_ms / 1000
        self._codec = codec
        self._woken = False
        self.accumulator = Accumulator(
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            delivery_timeout_ms=delivery_timeout_ms,
            linger=linger_ms > 0,
            wake=self._wake,
            loop_thread=threading.get_ident(),
        )

        def converse() -> Talk:
            if acks == pb.ACKS_NONE:
                return channel.stream(PUBLISH_STREAM, pb.PublishRequest, pb.PublishResponse)
            return Conversation(channel, routes, shortcut, request_timeout_ms / 1000)

        lanes = Lanes(
            acks=acks,
            settled=self._settled,
            answered=self._answered,
            doubted=routes.doubt,
            grown=routes.has_partitions,
        )
        self._sender = Sender(
            channel,
            converse,
            lanes,
            identified=acks != pb.ACKS_NONE,
            request_timeout_s=request_timeout_ms / 1000,
        )
        self._spreader = Spreader(channel, placed=self._placed, failed=self._unplaced)
        #: Collected and not yet done.
        self._unsettled: dict[Draft, None] = {}
        self._refused: deque[Draft] = deque(maxlen=_REFUSALS_KEPT)
        self._room: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def until_room(self, until: float) -> bool:
        """Until there is room again in the accumulator. False where there was none by then."""
        if self.accumulator.has_room:
            return True
        future: asyncio.Future[None] = self._loop.create_future()
        self._room.append(future)
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await future
        except TimeoutError:
            return False
        finally:
            if future in self._room:
                self._room.remove(future)
        return True

    async def flush(self, timeout: float | None) -> None:
        """Send all there is now and wait until it is answered. TimedOut; the first refusal that nobody was told of."""
        self._linger_none()
        try:
            async with asyncio.timeout(timeout):
                for draft in list(self._unsettled):
                    await draft.future()
        except TimeoutError:
            raise TimedOut(f"{len(self._unsettled)} batches were not answered within {timeout} s") from None
        refused = [draft.error for draft in self._refused if draft.error is not None and not draft.told]
        self._refused.clear()
        if refused:
            raise refused[0]

    async def close(self) -> None:
        """Stop. What is not answered yet fails with ConnectionLost."""
        self._linger_none()
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self._spreader.close()
        finally:
            await self._sender.close()
            self._answered(0)

    # From the accumulator to the sender

    def _wake(self) -> None:
        """Under the accumulator's lock."""
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._pump)

    def _pump(self) -> None:
        self._woken = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        born_before = time.monotonic() + self._delivery_timeout_s - self._linger_s
        for draft in self.accumulator.collect(lingered=lambda draft: draft.deadline <= born_before):
            self._unsettled[draft] = None
            self._routes.keep_fresh(draft.topic)
            if draft.partition == SPREAD:
                route = self._routes.known(draft.topic)
                sticky = route is not None and route.keyless == "sticky"
                self._spreader.add(draft, 1 if sticky else len(draft))
            else:
                self._sender.add(parcels_of(draft, self._codec))
        if (oldest := self.accumulator.oldest) is not None:
            lingers_s = oldest - self._delivery_timeout_s + self._linger_s - time.monotonic()
            self._timer = self._loop.call_later(max(0.0, lingers_s), self._pump)

    def _placed(self, draft: Draft, first: int, partitions: int) -> None:
        """The broker has said where a draft goes."""
        self._routes.has_partitions(draft.topic, partitions)
        route = self._routes.known(draft.topic)
        if route is not None and route.keyless == "sticky":
            draft.partition = first % partitions
            self._sender.add(parcels_of(draft, self._codec))
        else:
            self._sender.add(spread_out(draft, first, partitions, self._codec))

    def _unplaced(self, draft: Draft, error: LevadaError) -> None:
        self._routes.doubt(draft.topic)
        draft.fail(error)
        self._answered(draft.size)
        self._settled(draft)

    def _settled(self, draft: Draft) -> None:
        self._unsettled.pop(draft, None)
        if draft.error is not None:
            self._refused.append(draft)
        draft.records = []

    def _answered(self, size: int) -> None:
        self.accumulator.release(size)
        while self._room:
            future = self._room.popleft()
            if not future.done():
                future.set_result(None)

    def _linger_none(self) -> None:
        linger_s, self._linger_s = self._linger_s, 0.0
        self._pump()
        self._linger_s = linger_s
