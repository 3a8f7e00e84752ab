"""The Subscribe call: opened, kept alive, and opened again when the connection was lost.

Everything the consumer says goes out in order through one writer; what is granted goes out in one piece.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Protocol

from levada.client.channel import STREAM, Backoff, Channel, Stream
from levada.client.records import At
from levada.client.refusals import is_passing, of_message
from levada.client.tasks import end, start
from levada.errors import ConnectionLost, LevadaError
from levada.v1 import stream_pb2 as pb


class Listener(Protocol):
    """Whoever hears what the broker says."""

    def opening(self) -> pb.SubscribeRequest.Open: ...
    def assigned(self, told: pb.SubscribeResponse.Assigned, *, first: bool) -> None: ...
    def arrived(self, batches: pb.SubscribeResponse.Batches, connection: int) -> None: ...
    def partition_failed(self, at: At, error: LevadaError) -> None: ...
    def goes_on_after(self, error: LevadaError) -> bool:
        """Whether to open the subscription again."""
        ...

    def ended(self, error: LevadaError) -> None:
        """For good: the broker refuses the subscription, or the feed has failed."""
        ...


class Feed:
    """Runs in a task of its own until it is closed or refused."""

    def __init__(self, channel: Channel, listener: Listener, *, alive_every_s: float) -> None:
        self._channel = channel
        self._listener = listener
        self._alive_every_s = alive_every_s
        #: Which connection this is: what was granted on an older one is of no account.
        self.connection = 0
        self._out: deque[pb.SubscribeRequest] = deque()
        self._granted = 0
        self._work = asyncio.Event()
        self._commits: dict[int, asyncio.Future[Mapping[At, LevadaError]]] = {}
        self._numbers = 0
        self._connected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = start(self._run(), name="levada-feed", died=self._listener.ended)

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set()

    # What the consumer says

    def grant(self, records: int, connection: int) -> None:
        if connection == self.connection and records:
            self._granted += records
            self._work.set()

    def seek(self, offsets: Mapping[At, int]) -> None:
        self._say(pb.SubscribeRequest(seek=pb.SubscribeRequest.SeekTo(offsets=_offsets(offsets))))

    def pause(self, paused: Iterable[At] = (), resumed: Iterable[At] = ()) -> None:
        request = pb.SubscribeRequest.Pause(paused=_partitions(paused), resumed=_partitions(resumed))
        self._say(pb.SubscribeRequest(pause=request))

    async def commit(
        self, offsets: Mapping[At, int], generation: int, handed_over: Iterable[At] = ()
    ) -> Mapping[At, LevadaError]:
        """What was refused. With it, `handed_over` go to their new owners. ConnectionLost: it may be stored or not, and can be asked for again."""
        await self._connected.wait()
        self._numbers += 1
        number = self._numbers
        answer: asyncio.Future[Mapping[At, LevadaError]] = asyncio.get_running_loop().create_future()
        self._commits[number] = answer
        request = pb.SubscribeRequest.CommitOffsets(
            id=number, offsets=_offsets(offsets), generation=generation, handed_over=_partitions(handed_over)
        )
        self._say(pb.SubscribeRequest(commit=request))
        try:
            return await answer
        finally:
            self._commits.pop(number, None)

    def _say(self, request: pb.SubscribeRequest) -> None:
        if self.connection and self._connected.is_set():
            self._out.append(request)
            self._work.set()

    async def close(self) -> None:
        """Leave. The broker hears of it at once."""
        if self._task is not None:
            await end(self._task)

    # The conversation

    async def _run(self) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._converse(backoff)
                error: LevadaError = ConnectionLost(f"the broker at {self._channel.address} ended the subscription")
            except LevadaError as reason:
                error = reason
            finally:
                self._disconnected()
            if not is_passing(error) and not self._listener.goes_on_after(error):
                self._listener.ended(error)
                return
            await asyncio.sleep(backoff.after(error))

    async def _converse(self, backoff: Backoff) -> None:
        stream = self._channel.stream(f"{STREAM}/Subscribe", pb.SubscribeRequest, pb.SubscribeResponse)
        writing: asyncio.Task[None] | None = None
        try:
            await stream.write(pb.SubscribeRequest(open=self._listener.opening()))
            first = True
            while (answer := await stream.read()) is not None:
                if first:
                    self.connection += 1
                    self._connected.set()
                    backoff.reset()
                    writing = asyncio.ensure_future(self._write(stream))
                    # Without a writer there is no more to hear: the broker would take this consumer for gone.
                    writing.add_done_callback(lambda _: stream.cancel())
                self._hear(answer, first=first)
                first = False
        finally:
            stream.cancel()
            if writing is not None:
                await end(writing)

    def _hear(self, answer: pb.SubscribeResponse, *, first: bool) -> None:
        kind = answer.WhichOneof("kind")
        if kind == "batches":
            self._listener.arrived(answer.batches, self.connection)
        elif kind == "assigned":
            self._listener.assigned(answer.assigned, first=first)
        elif kind == "committed":
            waiting = self._commits.get(answer.committed.id)
            if waiting is not None and not waiting.done():
                errors = answer.committed.errors
                waiting.set_result({At(each.topic, each.partition): of_message(each.error) for each in errors})
        elif kind == "failed":
            at = At(answer.failed.topic, answer.failed.partition)
            self._listener.partition_failed(at, of_message(answer.failed.error))

    async def _write(self, stream: Stream) -> None:
        """Say what there is to say, and otherwise, from time to time, that we are alive."""
        while True:
            try:
                async with asyncio.timeout(self._alive_every_s):
                    await self._work.wait()
            except TimeoutError:
                await stream.write(pb.SubscribeRequest(alive=pb.SubscribeRequest.SignOfLife()))
                continue
            self._work.clear()
            while self._out:
                await stream.write(self._out.popleft())
            if self._granted:
                granted, self._granted = self._granted, 0
                await stream.write(pb.SubscribeRequest(grant=pb.SubscribeRequest.Grant(records=granted)))

    def _disconnected(self) -> None:
        self._connected.clear()
        self._out.clear()
        self._granted = 0
        commits, self._commits = self._commits, {}
        for waiting in commits.values():
            if not waiting.done():
                waiting.set_exception(ConnectionLost("the connection was lost while offsets were being committed"))


def _offsets(offsets: Mapping[At, int]) -> list[pb.PartitionOffset]:
    return [pb.PartitionOffset(topic=at.topic, partition=at.partition, offset=offset) for at, offset in offsets.items()]


def _partitions(ats: Iterable[At]) -> list[pb.TopicPartition]:
    return [pb.TopicPartition(topic=at.topic, partition=at.partition) for at in ats]
