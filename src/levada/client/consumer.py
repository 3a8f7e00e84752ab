"""The consumer: reads as a member of a group or partitions of its own choice, and remembers how far the user has come."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

from levada.client.channel import STREAM, Channel
from levada.client.chunk import Chunk, Opener
from levada.client.forks import FORKED
from levada.client.inbox import Inbox
from levada.client.records import At, Record
from levada.client.subscription import Subscription
from levada.client.tasks import end
from levada.client.wanted import Wanted
from levada.client.workers import Handler, Workers
from levada.errors import IllegalGeneration, InvalidRequest, LevadaError, OffsetOutOfRange, TimedOut
from levada.v1 import stream_pb2 as pb


class AsyncConsumer:
    """Reads records. Made by `client.consumer(…)`.

        async with client.consumer("orders", group="billing", value=levada.JSON) as consumer:
            async for record in consumer:
                print(record.partition, record.offset, record.value)

    Records of a partition come in order. With `auto_commit`, what the user is done with is committed every `auto_commit_ms` and at
    the end: a record is done with when the next one is asked for, or when a handler has returned. So after a crash the record that
    was being worked on comes again, and none is left out. Signs of life go out by themselves, however long a record takes.

    When another member joins, partitions are handed over: what is in hand may be finished within 5 s (at most the session's time)
    and is committed before the new owner begins, so that nothing comes twice. What takes longer comes again there, and
    `commit()` says so.

    A partition whose log is damaged is read up to there; then reading raises DamagedLog, once. Whoever reads on gets the others.
    """

    def __init__(self, channel: Channel, wanted: Wanted, *, gone: Callable[[AsyncConsumer], None]) -> None:
        """`gone` is called when it is closed."""
        wanted.check()
        self._gone = gone
        self._channel = channel
        self._wanted = wanted
        self._opener = Opener(wanted.key, wanted.value, committed_only=wanted.read_committed)
        self._inbox = Inbox(self._opener, self._give_back, self._settled)
        self._loop = asyncio.get_running_loop()
        self._subscription = Subscription(channel, wanted, self._inbox, self._bounds)
        self._workers: Workers | None = None
        self._stopped = False
        self._closed: str | None = None
        self._over = asyncio.Event()
        #: Commits that nobody waits for.
        self._commits: set[asyncio.Task[None]] = set()

    # Reading

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Record]:
        while True:
            chunk = self.take_chunk()
            if chunk is not None:
                for record in chunk:
                    yield record
            elif not await self.until_arrived():
                return

    async def poll(self, max_records: int = 500, timeout_ms: int = 1_000) -> list[Record]:
        """Up to `max_records` records, as soon as there are any; none after `timeout_ms`.

        What the last poll returned counts as done with.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        while not (records := self.poll_now(max_records)) and (left := deadline - time.monotonic()) > 0:
            if not await self.until_arrived(left):
                break
        return records

    def poll_now(self, max_records: int) -> list[Record]:
        """What there is already, from any one thread, without waiting."""
        self._check_usable()
        return self._inbox.poll(max_records)

    def take_chunk(self) -> Chunk | None:
        """Records that are there already, for the caller to hand out. From any one thread, without waiting."""
        self._check_usable()
        return None if self._stopped else self._inbox.take()

    async def until_arrived(self, timeout_s: float | None = None) -> bool:
        """Until there is something to read. False when there will not be: the time is up, or somebody called stop()."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._inbox.has_arrived and not self._stopped:
                    self._check_usable()
                    await self._subscription.news()
        except TimeoutError:
            return False
        stopped, self._stopped = self._stopped, False
        return not stopped

    def _give_back(self, chunk: Chunk) -> None:
        """From the user's thread."""
        self._loop.call_soon_threadsafe(self._subscription.grant, chunk.count, chunk.connection)

    def _settled(self) -> None:
        """From the user's thread."""
        self._loop.call_soon_threadsafe(self._subscription.settled)

    # Handlers

    async def run(self, handler: Handler, *, workers: int = 8) -> None:
        """Call `handler(record)` for every record until stop() is called; partitions beside one another, each in order.

            def handler(record):
                print(record.value)

        A coroutine function runs on the loop, a plain one in one of `workers` threads. What a handler has returned from is
        committed (with auto_commit). If it raises, the others finish what they are at, and run raises the same; the record comes
        again. What was not handled is there for whoever reads on with this consumer: by `run`, iteration or `poll`. close()
        ends it too.
        """
        self._check_usable()
        self._inbox.let_go()
        subscription = self._subscription
        self._workers = subscription.workers = pool = Workers(
            handler,
            workers,
            self._opener,
            pause=subscription.hold,
            resume=subscription.let_go,
            broken=subscription.tell,
            idle=subscription.settled,
        )
        try:
            while not pool.is_broken and not self._stopped:
                self._check_usable()
                while (chunk := self._inbox.next()) is not None:
                    pool.add(chunk)
                    subscription.grant(chunk.take_credit(), chunk.connection)
                await subscription.news()
        finally:
            try:
                await pool.close()
            finally:
                # Also where this is cancelled once more: what no handler has had is there for whoever reads on.
                self._inbox.put_back(pool.left)
                self._workers = subscription.workers = None
                self._stopped = False
                if self._closed is not None:
                    await self._end()
            if self._closed is None and self._commits_by_itself:
                await subscription.commits.store_quietly(self._inbox.finished())
        pool.check()

    def stop(self) -> None:
        """End iteration or `run` in order, from anywhere: a handler, another thread, a signal handler."""
        self._stopped = True
        self._inbox.interrupt()
        if (pool := self._workers) is not None:
            pool.stop()
        self._loop.call_soon_threadsafe(self._subscription.tell)

    # Progress

    async def commit(self, offsets: Mapping[tuple[str, int], int] | None = None, *, wait: bool = True) -> None:
        """Store how far the group has come: all that was handed out, or the given next offsets.

            await consumer.commit()
            await consumer.commit({("orders", 0): record.offset + 1})

        With wait=False it goes out without waiting for the answer. IllegalGeneration where a partition is not this consumer's any
        more; all others are stored.
        """
        self._check_usable()
        if not self._wanted.group:
            raise InvalidRequest(
                "without a group there is nothing to commit to: name one in client.consumer(…, group=…)"
            )
        await self.ready()
        if offsets is None:
            if self._workers is None:
                self._inbox.settle()
            found = self._inbox.finished()
        else:
            found = {At(*at): offset for at, offset in offsets.items()}
        if wait:
            for at, error in (await self._subscription.commits.store(found)).items():
                error.add_note(f"while committing {at}")
                raise error
            self._subscription.settled()
            if offsets is None:
                self._check_lost()
        else:
            task = self._loop.create_task(self._subscription.commits.store_quietly(found))
            self._commits.add(task)
            task.add_done_callback(self._commits.discard)

    def _check_lost(self) -> None:
        lost, self._subscription.commits.lost = self._subscription.commits.lost, set()
        if lost:
            names = ", ".join(map(str, sorted(lost)))
            raise IllegalGeneration(
                f"{names}: not this consumer's any more; what was handed out and not committed in time comes to the new owner"
            )

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """Read on from this offset. OffsetOutOfRange with the range there is; UnknownPartition if it is not this consumer's."""
        await self.ready()
        track = self._inbox.track(At(topic, partition))
        start, end = (await self._bounds(topic))[partition]
        if not start <= offset <= end:
            raise OffsetOutOfRange(f"{track.at}: offset {offset} is not within {start} to {end}", start=start, end=end)
        self._inbox.settle()
        self._subscription.seek(track, offset)

    async def pause(self, topic: str, *partitions: int) -> None:
        """Hand out nothing of these partitions, or of all of the topic's, until they are resumed."""
        ats = await self._owned(topic, partitions)
        for at in ats:
            self._inbox.tracks[at].paused = True
        self._subscription.pause(ats)

    async def resume(self, topic: str, *partitions: int) -> None:
        """Go on with them, from where they were."""
        ats = await self._owned(topic, partitions)
        self._inbox.resume(ats)
        self._subscription.resume(ats)

    async def assignment(self) -> list[At]:
        """The partitions this consumer owns now. Waits for the first assignment."""
        await self.ready()
        return sorted(self._inbox.tracks)

    async def position(self, topic: str, partition: int) -> int:
        """The next offset that will be handed out."""
        await self.ready()
        return self._inbox.position(At(topic, partition))

    async def lag(self) -> dict[At, int]:
        """How many offsets each partition is ahead of what was handed out."""
        await self.ready()
        found: dict[At, int] = {}
        for topic in sorted({at.topic for at in self._inbox.tracks}):
            bounds = await self._bounds(topic)
            for at in [at for at in self._inbox.tracks if at.topic == topic and at.partition in bounds]:
                found[at] = max(0, bounds[at.partition][1] - self._inbox.position(at))
        return found

    async def ready(self) -> None:
        """Until the broker has said what this consumer owns. Raises why it refuses to; Unreachable, TimedOut."""
        self._check_usable()
        try:
            async with asyncio.timeout(self._channel.timeout_s):
                await self._subscription.first_assigned.wait()
        except TimeoutError:
            await self._channel.ready()
            raise TimedOut(f"the broker assigned nothing within {self._channel.timeout_s:g} s") from None
        self._check_usable()

    async def _bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """Start and end of each partition."""
        request = pb.DescribeTopicRequest(name=topic)
        answer = await self._channel.call(f"{STREAM}/DescribeTopic", request, pb.DescribeTopicResponse)
        return {each.index: (each.start, each.end) for each in answer.partitions}

    async def _owned(self, topic: str, partitions: Iterable[int]) -> list[At]:
        await self.ready()
        chosen = [At(topic, partition) for partition in partitions]
        for at in chosen:
            self._inbox.track(at)
        return chosen or [at for at in self._inbox.tracks if at.topic == topic]

    # The end

    async def close(self, *, all_done: bool = True) -> None:
        """Commit what was handed out (with auto_commit), leave the group, and stop. A second call waits for the first.

        With all_done=False the record that is in hand is not done with, and comes again. A `run` is ended in order: close waits
        for that, unless a handler has called it.
        """
        pool = self._workers
        if self._closed is not None:
            if pool is None or not pool.is_asked_from_a_handler:
                await self._over.wait()
            return
        if all_done and pool is None:
            self._inbox.settle()
        self._closed = "the consumer is closed"
        if pool is None:
            await self._end()
            return
        self.stop()
        if not pool.is_asked_from_a_handler:
            await self._over.wait()

    async def _end(self) -> None:
        commits = self._subscription.commits
        async with contextlib.AsyncExitStack() as last:
            last.callback(self._gone, self)
            last.callback(self._over.set)
            last.push_async_callback(self._subscription.close)
            last.push_async_callback(lambda: end(*self._commits))
            if self._commits:
                await asyncio.wait(self._commits, timeout=commits.patience_s)
            if self._commits_by_itself:
                await commits.store_quietly(self._inbox.finished(), timeout_s=commits.patience_s)

    @property
    def _commits_by_itself(self) -> bool:
        subscription = self._subscription
        is_open = subscription.first_assigned.is_set() and subscription.failure is None
        return bool(self._wanted.group) and self._wanted.auto_commit and is_open

    def forked(self) -> None:
        self._closed = FORKED
        self._over.set()

    async def __aenter__(self) -> Self:
        try:
            await self.ready()
        except BaseException:
            with contextlib.suppress(LevadaError):
                await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(all_done=kind is None)

    def _check_usable(self) -> None:
        if self._subscription.failure is not None:
            raise self._subscription.failure
        if self._closed is not None:
            raise InvalidRequest(self._closed)
