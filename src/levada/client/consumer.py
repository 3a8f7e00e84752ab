"""The consumer: reads as a member of a group or partitions of its own choice, and remembers how far the user has come."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Final, Self

from levada.client.channel import STREAM, Channel
from levada.client.chunk import Chunk, Opener
from levada.client.feed import Feed
from levada.client.forks import FORKED
from levada.client.records import At, Record
from levada.client.refusals import is_passing
from levada.client.track import Track
from levada.client.wanted import OnChange, Wanted
from levada.client.workers import Handler, Workers
from levada.errors import (
    IllegalGeneration,
    InvalidRequest,
    LevadaError,
    OffsetOutOfRange,
    TimedOut,
    UnknownMember,
    UnknownPartition,
)
from levada.v1 import stream_pb2 as pb

#: Signs of life in one session.
_ALIVE: Final = 4


class AsyncConsumer:
    """Reads records. Made by `client.consumer(…)`.

        async with client.consumer("orders", group="billing", value=levada.JSON) as consumer:
            async for record in consumer:
                print(record.partition, record.offset, record.value)

    Records of a partition come in order. With `auto_commit`, what the user is done with is committed every `auto_commit_ms` and at
    the end: a record is done with when the next one is asked for, or when a handler has returned. So after a crash the record that
    was being worked on comes again, and none is left out. Signs of life go out by themselves, however long a record takes.
    """

    def __init__(self, channel: Channel, wanted: Wanted) -> None:
        wanted.check()
        self._channel = channel
        self._wanted = wanted
        self._opener = Opener(wanted.key, wanted.value, committed_only=wanted.read_committed)
        self._tracks: dict[At, Track] = {}
        #: Without a group: all partitions.
        self._chosen: list[At] = []
        self._arrived: deque[Chunk] = deque()
        self._current: Chunk | None = None
        #: What the last poll handed out of each partition.
        self._polled: dict[Track, tuple[int, int]] = {}
        self._workers: Workers | None = None
        self._news = asyncio.Event()
        self._first_assigned = asyncio.Event()
        self._failure: LevadaError | None = None
        self._generation = 0
        self._resuming = False
        self._stopped = False
        self._closed: str | None = None
        self._changes: asyncio.Queue[tuple[OnChange, list[At]]] = asyncio.Queue()
        self._feed: Feed | None = None
        self._loop = asyncio.get_running_loop()
        self._tasks = [self._loop.create_task(self._begin(), name="levada-consumer")]

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
        records = self.poll_now(max_records)
        if not records and timeout_ms > 0 and await self.until_arrived(timeout_ms / 1000):
            deadline = time.monotonic() + timeout_ms / 1000
            while not (records := self.poll_now(max_records)) and time.monotonic() < deadline:
                if not await self.until_arrived(deadline - time.monotonic()):
                    break
        return records

    def poll_now(self, max_records: int) -> list[Record]:
        """What there is already, from any one thread, without waiting."""
        if max_records < 1:
            raise InvalidRequest(f"max_records is {max_records}; it must be at least 1")
        taken: list[Record] = []
        self._settle()
        while len(taken) < max_records and (chunk := self.take_chunk(polled=bool(taken))) is not None:
            taken += chunk.take(max_records - len(taken))
            self._polled[chunk.track] = (chunk.handed, chunk.turn)
        return taken

    def take_chunk(self, *, polled: bool = False) -> Chunk | None:
        """Records that are there already, opened, to be handed out by the caller. From any one thread, without waiting.

        `polled`: there are others in hand already; they are not done with, and are not kept back by an error of the next one.
        """
        self._check_usable()
        if not polled:
            self._settle()
        while True:
            chunk = self._current
            if chunk is not None and chunk.track.paused and not chunk.is_stale:
                chunk.track.held.appendleft(chunk)
                chunk = self._current = None
            if chunk is None or chunk.is_stale or chunk.is_used_up:
                if chunk is not None:
                    self._current = None
                    self._give_back(chunk)
                chunk = self._current = self._next()
                if chunk is None:
                    return None
                chunk.open(self._opener)
            if chunk.error is not None:
                if polled:
                    return None
                raise chunk.error
            if not chunk.is_used_up:
                return chunk
            if not polled:
                chunk.settle()

    def _next(self) -> Chunk | None:
        """The next chunk of a partition that is not paused."""
        while self._arrived:
            chunk = self._arrived.popleft()
            if chunk.is_stale:
                self._give_back(chunk)
            elif chunk.track.paused:
                chunk.track.held.append(chunk)
            else:
                return chunk
        return None

    def _settle(self) -> None:
        """Whoever asks for more is done with what he had."""
        for track, (offset, turn) in self._polled.items():
            track.done(offset, turn)
        self._polled.clear()
        if self._current is not None:
            self._current.settle()

    def _give_back(self, chunk: Chunk) -> None:
        """The broker may send as many more."""
        if self._feed is not None:
            self._loop.call_soon_threadsafe(self._feed.grant, chunk.count, chunk.connection)

    async def until_arrived(self, timeout_s: float | None = None) -> bool:
        """Until there is something to read. False when there will not be: the time is up, or somebody called stop()."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._arrived:
                    self._check_usable()
                    if self._stopped:
                        return False
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return not self._stopped

    # Handlers

    async def run(self, handler: Handler, *, workers: int = 8) -> None:
        """Call `handler(record)` for every record until stop() is called; partitions beside one another, each in order.

            def handler(record):
                print(record.value)

        A coroutine function runs on the loop, a plain one in one of `workers` threads. What a handler has returned from is
        committed (with auto_commit). If it raises, the others finish what they are at, and run raises the same; the record comes
        again.
        """
        self._check_usable()
        self._settle()
        self._workers = pool = Workers(handler, workers, self._opener, pause=self._hold, resume=self._let_go)
        try:
            while not pool.is_broken and await self._until_more(pool):
                while (chunk := self._next()) is not None:
                    pool.add(chunk)
                    self._give_back(chunk)
        finally:
            await pool.close()
            self._workers = None
            self._stopped = False
            if self._wanted.group and self._wanted.auto_commit and self._failure is None:
                with contextlib.suppress(LevadaError):
                    await self._commit(self._finished(), retry=False)
        pool.check()

    async def _until_more(self, pool: Workers) -> bool:
        pool.when_broken(self._news.set)
        while not self._arrived and not pool.is_broken:
            self._check_usable()
            if self._stopped:
                return False
            self._news.clear()
            await self._news.wait()
        return not self._stopped

    def _hold(self, at: At) -> None:
        if self._feed is not None:
            self._feed.pause(paused=[at])

    def _let_go(self, at: At) -> None:
        track = self._tracks.get(at)
        if self._feed is not None and track is not None and not track.paused:
            self._feed.pause(resumed=[at])

    def stop(self) -> None:
        """End iteration or `run` in order, from anywhere: a handler, another thread, a signal handler."""
        self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self._stopped = True
        self._news.set()

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
        if offsets is None:
            if self._workers is None:
                self._settle()
            wanted = self._finished()
        else:
            wanted = {At(*at): offset for at, offset in offsets.items()}
        if wait:
            for at, error in (await self._commit(wanted, retry=True)).items():
                error.add_note(f"while committing {at}")
                raise error
        else:
            task = self._loop.create_task(self._commit_quietly(wanted))
            self._tasks.append(task)
            task.add_done_callback(self._tasks.remove)

    def _finished(self) -> dict[At, int]:
        """What is done with and not committed yet."""
        chunk = self._current
        found = {}
        for at, track in self._tracks.items():
            offset = track.finished
            if chunk is not None and chunk.track is track and not chunk.is_stale and track not in self._polled:
                offset = max(offset, chunk.in_hand)
            if offset != track.committed and (track.committed is not None or offset != track.begun):
                found[at] = offset
        return found

    async def _commit(self, offsets: Mapping[At, int], *, retry: bool) -> Mapping[At, LevadaError]:
        if not offsets or self._feed is None:
            return {}
        deadline = time.monotonic() + self._channel.timeout_s
        while True:
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    errors = await self._feed.commit(offsets, self._generation)
                break
            except TimeoutError:
                raise TimedOut(f"offsets were not committed within {self._channel.timeout_s:g} s") from None
            except LevadaError as error:
                if not retry or not is_passing(error):
                    raise
        for at, offset in offsets.items():
            track = self._tracks.get(at)
            if track is not None and at not in errors:
                track.committed = offset
        return errors

    async def _commit_quietly(self, offsets: Mapping[At, int]) -> None:
        """What is refused here is committed by whoever owns the partition now."""
        with contextlib.suppress(LevadaError):
            await self._commit(offsets, retry=False)

    async def _commit_often(self) -> None:
        while True:
            await asyncio.sleep(self._wanted.auto_commit_ms / 1000)
            await self._commit_quietly(self._finished())

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """Read on from this offset. OffsetOutOfRange with the range there is; UnknownPartition if it is not this consumer's."""
        track = self._track(At(topic, partition))
        start, end = (await self._bounds(topic))[partition]
        if not start <= offset <= end:
            raise OffsetOutOfRange(f"{track.at}: offset {offset} is not within {start} to {end}", start=start, end=end)
        self._settle()
        track.seek(offset)
        assert self._feed is not None
        self._feed.seek({track.at: offset})

    async def pause(self, topic: str, *partitions: int) -> None:
        """Hand out nothing of these partitions, or of all of the topic's, until they are resumed."""
        ats = self._owned(topic, partitions)
        for at in ats:
            self._tracks[at].paused = True
        assert self._feed is not None
        self._feed.pause(paused=ats)

    async def resume(self, topic: str, *partitions: int) -> None:
        """Go on with them, from where they were."""
        ats = self._owned(topic, partitions)
        for at in ats:
            track = self._tracks[at]
            track.paused = False
            self._arrived.extendleft(reversed(track.held))
            track.held.clear()
        assert self._feed is not None
        self._feed.pause(resumed=ats)
        self._news.set()

    async def assignment(self) -> list[At]:
        """The partitions this consumer owns now. Waits for the first assignment."""
        await self.ready()
        return sorted(self._tracks)

    async def position(self, topic: str, partition: int) -> int:
        """The next offset that will be handed out."""
        track = self._track(At(topic, partition))
        chunk = self._current
        return chunk.handed if chunk is not None and chunk.track is track and not chunk.is_stale else track.handed

    async def lag(self) -> dict[At, int]:
        """How many offsets each partition is ahead of what was handed out."""
        await self.ready()
        found: dict[At, int] = {}
        for topic in sorted({at.topic for at in self._tracks}):
            bounds = await self._bounds(topic)
            for at in self._tracks:
                if at.topic == topic and at.partition in bounds:
                    found[at] = max(0, bounds[at.partition][1] - await self.position(*at))
        return found

    async def ready(self) -> None:
        """Until the broker has said what this consumer owns. Raises why it refuses to; Unreachable, TimedOut."""
        if not self._first_assigned.is_set():
            try:
                async with asyncio.timeout(self._channel.timeout_s):
                    await self._first_assigned.wait()
            except TimeoutError:
                await self._channel.ready()
                raise TimedOut(f"the broker assigned nothing within {self._channel.timeout_s:g} s") from None
        self._check_usable()

    # The end

    async def close(self) -> None:
        """Commit what was handed out (with auto_commit), leave the group, and stop. A second call does nothing."""
        await self._close(all_done=True)

    async def _close(self, *, all_done: bool) -> None:
        if self._closed is not None:
            return
        finished: dict[At, int] = {}
        if self._wanted.group and self._wanted.auto_commit and self._failure is None and self._feed is not None:
            if all_done and self._workers is None:
                self._settle()
            finished = self._finished()
        self._closed = "the consumer is closed"
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError, LevadaError):
                await task
        try:
            await self._commit_quietly(finished)
        finally:
            if self._feed is not None:
                await self._feed.close()
            self._news.set()
            self._first_assigned.set()

    def forked(self) -> None:
        self._closed = FORKED

    async def __aenter__(self) -> Self:
        try:
            await self.ready()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(all_done=kind is None)

    async def leave(self, *, all_done: bool) -> None:
        """close(); with all_done=False the record that is in hand comes again."""
        await self._close(all_done=all_done)

    # What the broker says

    async def _begin(self) -> None:
        try:
            if not self._wanted.group:
                self._chosen = await self._choose()
            self._feed = Feed(self._channel, self, alive_every_s=self._wanted.session_timeout_ms / 1000 / _ALIVE)
            if self._wanted.on_assigned is not None or self._wanted.on_revoked is not None:
                self._tasks.append(self._loop.create_task(self._tell_changes(), name="levada-changes"))
            if self._wanted.group and self._wanted.auto_commit:
                self._tasks.append(self._loop.create_task(self._commit_often(), name="levada-auto-commit"))
        except LevadaError as error:
            self.ended(error)

    async def _choose(self) -> list[At]:
        if self._wanted.partitions is not None:
            return [At(topic, partition) for topic in self._wanted.topics for partition in self._wanted.partitions]
        return [At(topic, partition) for topic in self._wanted.topics for partition in await self._bounds(topic)]

    async def _bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """Start and end of each partition."""
        answer = await self._channel.call(
            f"{STREAM}/DescribeTopic", pb.DescribeTopicRequest(name=topic), pb.DescribeTopicResponse
        )
        return {each.index: (each.start, each.end) for each in answer.partitions}

    def opening(self) -> pb.SubscribeRequest.Open:
        offsets = {at: self._tracks[at].received if at in self._tracks else -1 for at in self._chosen}
        return self._wanted.opening(offsets, self._channel.client_id)

    def assigned(self, told: pb.SubscribeResponse.Assigned, *, first: bool) -> None:
        self._generation = told.generation
        now = {At(each.topic, each.partition): each.offset for each in told.partitions}
        gone = [at for at in self._tracks if at not in now]
        for at in gone:
            self._tracks.pop(at).gone()
        come = [at for at in now if at not in self._tracks]
        resumed: dict[At, int] = {}
        for at, offset in now.items():
            track = self._tracks.get(at)
            if track is None:
                self._tracks[at] = Track(at, offset)
            elif first:
                track.reconnected()
                wanted = track.resume_at(offset, begins_late=self._wanted.start == "latest")
                if wanted == track.received != offset:
                    resumed[at] = wanted
                    track.resuming()
                else:
                    track.assigned(wanted)
            else:
                track.assigned(offset)
        self._resuming = bool(resumed)
        assert self._feed is not None
        if resumed:
            self._feed.seek(resumed)
        paused = [at for at, track in self._tracks.items() if track.paused]
        if first and paused:
            self._feed.pause(paused=paused)
        if self._workers is not None:
            self._workers.revoke(gone)
        self._first_assigned.set()
        self._news.set()
        for callback, ats in ((self._wanted.on_revoked, gone), (self._wanted.on_assigned, come)):
            if callback is not None and ats:
                self._changes.put_nowait((callback, sorted(ats)))

    def arrived(self, batches: pb.SubscribeResponse.Batches, connection: int) -> None:
        track = self._tracks.get(At(batches.topic, batches.partition))
        assert self._feed is not None
        if track is None or track.is_seeking:
            self._feed.grant(batches.count, connection)
            return
        track.received = batches.to
        track.end = batches.end
        aborted = [(each.producer_id, each.first_offset) for each in batches.aborted]
        # `from` is a word of Python's.
        begin = getattr(batches, "from")
        self._arrived.append(Chunk(track, batches.data, begin, batches.to, aborted, batches.count, connection))
        self._news.set()

    def partition_failed(self, at: At, error: LevadaError) -> None:
        error.add_note(f"while reading {at}")
        self.ended(error)

    def goes_on_after(self, error: LevadaError) -> bool:
        if isinstance(error, OffsetOutOfRange) and self._resuming:
            # What we had come to is not there any more: the broker's policy decides.
            for track in self._tracks.values():
                track.gone()
            self._tracks.clear()
            return True
        # Where the group has gone on without this member, it comes in again as a new one.
        return isinstance(error, UnknownMember | IllegalGeneration) and self._wanted.consumer is None

    def ended(self, error: LevadaError) -> None:
        self._failure = error
        self._first_assigned.set()
        self._news.set()

    async def _tell_changes(self) -> None:
        """One after the other, and never on the loop's own time."""
        while True:
            callback, ats = await self._changes.get()
            try:
                if inspect.iscoroutinefunction(callback):
                    await callback(ats)
                else:
                    await asyncio.to_thread(callback, ats)
            except Exception:
                import structlog

                structlog.get_logger("levada.client").exception("callback failed", callback=repr(callback))

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed is not None:
            raise InvalidRequest(self._closed)

    def _track(self, at: At) -> Track:
        self._check_usable()
        track = self._tracks.get(at)
        if track is None:
            owned = ", ".join(map(str, sorted(self._tracks))) or "none"
            raise UnknownPartition(f"{at} is not this consumer's: it owns {owned}")
        return track

    def _owned(self, topic: str, partitions: Iterable[int]) -> list[At]:
        chosen = [At(topic, partition) for partition in partitions] or [at for at in self._tracks if at.topic == topic]
        for at in chosen:
            self._track(at)
        return chosen
