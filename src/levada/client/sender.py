"""Sends a producer's parcels, several requests at once, and sends again what was refused for now or cut off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from levada.client.channel import STREAM, Backoff, Channel
from levada.client.lane import NOBODY, Identity
from levada.client.lanes import Lanes
from levada.client.parcel import Parcel
from levada.client.parts import messages
from levada.client.tasks import end, is_told_to_end, start
from levada.errors import ConnectionLost, LevadaError, RecordTooLarge
from levada.v1 import stream_pb2 as pb


class Talk(Protocol):
    """Requests and their answers, in one order."""

    async def write(self, request: pb.PublishRequest) -> None: ...
    async def read(self) -> pb.PublishResponse | None: ...
    def cancel(self) -> None: ...


class Sender:
    """The conversation with the broker about what is in the lanes: begun with the first parcel, and again whenever it was cut."""

    def __init__(
        self,
        channel: Channel,
        open_: Callable[[], Talk],
        lanes: Lanes,
        *,
        identified: bool,
        request_timeout_s: float,
    ) -> None:
        """Unless `identified`, batches go without sequences."""
        self._channel = channel
        self._open = open_
        self._lanes = lanes
        self._request_timeout_s = request_timeout_s
        self._identity: Identity | None = None if identified else NOBODY
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._backoff = Backoff()

    def add(self, parcels: list[Parcel]) -> None:
        self._lanes.add(parcels)
        self._work.set()
        if self._task is None:
            self._task = start(self._run(), name="levada-sender", died=self._died)

    async def close(self) -> None:
        """Stop. What is not answered yet fails with ConnectionLost."""
        task, self._task = self._task, None
        try:
            if task is not None:
                await end(task)
        finally:
            self._lanes.fail_all(
                ConnectionLost(
                    "the producer was closed before the broker had answered: the record may be stored or not"
                )
            )

    def _died(self, error: LevadaError) -> None:
        """What comes next begins anew."""
        self._task = None
        said = ConnectionLost(f"{error}: the record may be stored or not")
        said.__cause__ = error
        self._lanes.fail_all(said)

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            error = await self._cut_off()
            if isinstance(error, RecordTooLarge):
                # Said of a request that was not read to its end: sent again, it would end every conversation.
                self._lanes.fail_largest(error)
            else:
                self._lanes.cut()
            self._lanes.expire(error)
            if not self._lanes.has_waiting:
                self._work.clear()
            await asyncio.sleep(self._backoff.after(error))

    async def _cut_off(self) -> LevadaError:
        """A conversation, until it fails: why."""
        try:
            return await self._converse()
        except LevadaError as error:
            return error
        except asyncio.CancelledError as error:
            if is_told_to_end():
                raise
            return ConnectionLost(f"something that was waited for is over: {error!r}")

    async def _converse(self) -> LevadaError:
        """Send and hear until the broker ends it or the connection fails. Returns or raises why."""
        if self._identity is None:
            self._identity = await self._new_identity()
        stream = self._open()
        hearing = asyncio.ensure_future(self._hear(stream))
        hearing.add_done_callback(lambda _: self._work.set())
        try:
            while not hearing.done():
                self._work.clear()
                for lane in self._lanes.without_identity:
                    # The first of a lane is the producer's own; one that lost track of its sequences begins anew.
                    lane.begin(self._identity if lane.is_new else await self._new_identity())
                while (made := self._lanes.next(self._later)) is not None:
                    request, whole = made
                    for message in messages(whole, request.size):
                        await stream.write(message)
                        request.since = time.monotonic()
                await self._work.wait()
            hearing.result()
            return ConnectionLost(f"the broker at {self._channel.address} ended the conversation")
        except LevadaError:
            if hearing.done():
                # It is over because of what was heard; a write can only say that it is.
                hearing.result()
            raise
        finally:
            stream.cancel()
            await end(hearing)

    def _later(self, delay_s: float) -> None:
        asyncio.get_running_loop().call_later(delay_s, self._work.set)

    async def _new_identity(self) -> Identity:
        answer = await self._channel.call(f"{STREAM}/InitProducer", pb.InitProducerRequest(), pb.InitProducerResponse)
        return answer.producer_id, answer.epoch

    async def _hear(self, stream: Talk) -> None:
        watch = asyncio.ensure_future(self._watch(stream))
        try:
            while (answer := await stream.read()) is not None:
                self._lanes.take(answer)
                if self._lanes.has_waiting:
                    self._work.set()
                self._backoff.reset()
        finally:
            watch.cancel()
            # Who waits to write would wait for an answer that nobody reads any more.
            stream.cancel()

    async def _watch(self, stream: Talk) -> None:
        """End the conversation when an answer is overdue. (A read cannot be given a time limit: it ends the call.)"""
        while True:
            await asyncio.sleep(self._request_timeout_s / 4)
            oldest = self._lanes.oldest
            if oldest is not None and time.monotonic() - oldest.since >= self._request_timeout_s:
                stream.cancel()
