"""A consumer's subscription: what it owns, where each partition goes on, and what the broker tells about that."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from levada.client.channel import Channel
from levada.client.chunk import Chunk
from levada.client.commits import Commits
from levada.client.complaints import complain
from levada.client.feed import Feed
from levada.client.inbox import Inbox
from levada.client.records import At
from levada.client.tasks import end, is_told_to_end, start
from levada.client.track import Track
from levada.client.wanted import OnChange, Wanted
from levada.client.workers import Workers, is_async
from levada.errors import IllegalGeneration, LevadaError, OffsetOutOfRange, UnknownMember
from levada.v1 import stream_pb2 as pb

#: Signs of life in one session.
_ALIVE: Final = 4
#: Part of the time that others wait, so that the last commit is there within it.
_IN_TIME: Final = 0.8

#: Start and end of each partition of a topic.
Bounds = Callable[[str], Awaitable[Mapping[int, tuple[int, int]]]]


class Subscription:
    """Keeps the inbox filled. `failure` is why the broker refuses to go on, once it does."""

    def __init__(self, channel: Channel, wanted: Wanted, inbox: Inbox, bounds: Bounds) -> None:
        self._wanted = wanted
        self._inbox = inbox
        self._bounds = bounds
        self._client_id = channel.client_id
        self._news = asyncio.Event()
        self._changes: asyncio.Queue[tuple[OnChange, list[At], asyncio.Event]] = asyncio.Queue()
        #: Without a group: all that is read.
        self._chosen: list[At] = []
        #: What was asked for on a new connection may not be there any more.
        self._resuming = False
        self._feed = Feed(channel, self, alive_every_s=wanted.session_timeout_ms / 1000 / _ALIVE)
        self.commits = Commits(self._feed, inbox, channel.timeout_s)
        self.first_assigned = asyncio.Event()
        self.failure: LevadaError | None = None
        self._settled = asyncio.Event()
        self._handing_over: set[asyncio.Task[None]] = set()
        self.workers: Workers | None = None
        work = [self._begin(), self._tell_changes()]
        if wanted.group and wanted.auto_commit:
            work.append(self.commits.store_often(wanted.auto_commit_ms))
        self._tasks = [start(each, name="levada-subscription", died=self.ended) for each in work]

    async def _begin(self) -> None:
        try:
            if not self._wanted.group:
                self._chosen = await self._choose()
        except LevadaError as error:
            self.ended(error)
        else:
            self._feed.start()

    async def _choose(self) -> list[At]:
        topics, partitions = self._wanted.topics, self._wanted.partitions
        if partitions is not None:
            return [At(topic, partition) for topic in topics for partition in partitions]
        return [At(topic, partition) for topic in topics for partition in await self._bounds(topic)]

    async def close(self) -> None:
        await end(*self._tasks, *self._handing_over)
        await self._feed.close()
        self.first_assigned.set()
        self.tell()

    async def news(self) -> None:
        """Until something has come or changed."""
        await self._news.wait()
        self._news.clear()

    def tell(self) -> None:
        self._news.set()

    # What the consumer wants

    def grant(self, records: int, connection: int) -> None:
        self._feed.grant(records, connection)

    def seek(self, track: Track, offset: int) -> None:
        track.seek(offset)
        self._feed.seek({track.at: offset})

    def pause(self, ats: Iterable[At]) -> None:
        self._feed.pause(paused=ats)

    def resume(self, ats: Iterable[At]) -> None:
        self._feed.pause(resumed=ats)
        self.tell()

    def hold(self, at: At) -> None:
        """Its worker does not keep up."""
        self._feed.pause(paused=[at])

    def let_go(self, at: At) -> None:
        """It does again; what the user has paused stays so."""
        track = self._inbox.tracks.get(at)
        if track is not None and not track.paused:
            self._feed.pause(resumed=[at])

    # What the broker says

    def opening(self) -> pb.SubscribeRequest.Open:
        tracks = self._inbox.tracks
        offsets = {at: tracks[at].received if at in tracks else -1 for at in self._chosen}
        return self._wanted.opening(offsets, self._client_id)

    def assigned(self, told: pb.SubscribeResponse.Assigned, *, first: bool) -> None:
        before = self.commits.begin(told.generation)
        now = {At(each.topic, each.partition): each.offset for each in told.partitions}
        tracks = self._inbox.tracks
        gone = sorted(at for at in tracks if at not in now)
        come = sorted(at for at in now if at not in tracks)
        told_user = asyncio.Event()
        if first:
            self._inbox.drop(gone)
            self._leave_at_once()
            self.commits.read_in.clear()
        elif gone:
            self._inbox.leave(gone)
            self.commits.read_in.update(dict.fromkeys(gone, before))
            task = asyncio.ensure_future(self._hand_over([self._inbox.leaving[at] for at in gone], told_user))
            self._handing_over.add(task)
            task.add_done_callback(self._handing_over.discard)
        if self.workers is not None:
            self.workers.revoke(gone)
        if self._wanted.on_revoked is None:
            told_user.set()
        resumed: dict[At, int] = {}
        for at, offset in now.items():
            if at not in tracks:
                tracks[at] = Track(at, offset)
            elif not first:
                tracks[at].assigned(offset, moved=told.generation != before)
            elif tracks[at].reconnected(offset, begins_late=self._wanted.start == "latest"):
                resumed[at] = tracks[at].received
        if first:
            self._go_on(resumed)
        self.first_assigned.set()
        self.tell()
        for callback, ats in ((self._wanted.on_revoked, gone), (self._wanted.on_assigned, come)):
            if callback is not None and ats:
                self._changes.put_nowait((callback, ats, told_user))

    def settled(self) -> None:
        """The user may be done with something that is being handed over."""
        happened, self._settled = self._settled, asyncio.Event()
        happened.set()

    async def _hand_over(self, tracks: list[Track], told_user: asyncio.Event) -> None:
        """Let the user finish what is in hand, commit it, and let their new owners begin; within the time those wait."""
        inbox, commits = self._inbox, self.commits

        def still() -> list[At]:
            """Without what has come back meanwhile, and goes again."""
            return [track.at for track in tracks if inbox.leaving.get(track.at) is track]

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._wanted.hand_over_ms / 1000 * _IN_TIME):
                await told_user.wait()
                while any(map(self._is_in_hand, still())):
                    await self._settled.wait()
        if not (ats := still()):
            return
        commits.lost.update(at for at in ats if self._is_in_hand(at))
        found = inbox.finished() if self._wanted.auto_commit else {}
        inbox.gone(ats)
        await commits.hand_over(ats, {at: offset for at, offset in found.items() if at in ats})

    def _leave_at_once(self) -> None:
        """What was being handed over on an older connection is somebody else's already."""
        for task in self._handing_over:
            task.cancel()
        leaving = list(self._inbox.leaving)
        self.commits.lost.update(at for at in leaving if self._is_in_hand(at))
        self._inbox.gone(leaving)

    def _is_in_hand(self, at: At) -> bool:
        if self.workers is not None and self.workers.is_at(at):
            return True
        if self._wanted.auto_commit:
            return self._inbox.is_in_hand(at)
        # Whoever commits himself is done with it when he has done that.
        track = self._inbox.leaving[at]
        return track.committed is not None and (self._inbox.is_in_hand(at) or track.finished != track.committed)

    def _go_on(self, resumed: Mapping[At, int]) -> None:
        """A new connection knows nothing of what was said on the old one."""
        self._resuming = bool(resumed)
        if resumed:
            self._feed.seek(resumed)
        if paused := [at for at, track in self._inbox.tracks.items() if track.paused]:
            self._feed.pause(paused=paused)

    def arrived(self, batches: pb.SubscribeResponse.Batches, connection: int) -> None:
        track = self._inbox.tracks.get(At(batches.topic, batches.partition))
        if track is None or track.is_seeking:
            self._feed.grant(batches.count, connection)
            return
        track.received = batches.to
        aborted = [(each.producer_id, each.first_offset) for each in batches.aborted]
        # `from` is a word of Python's.
        begin = getattr(batches, "from")
        self._inbox.put(Chunk(track, batches.data, begin, batches.to, aborted, batches.count, connection))
        self.tell()

    def partition_failed(self, at: At, error: LevadaError) -> None:
        """It cannot be read on. The user is told when he has had all that came before; the others go on."""
        track = self._inbox.tracks.get(at)
        if track is None or track.is_seeking:
            return
        error.add_note(f"while reading {at}; the other partitions can be read on, and seeking tries this one again")
        self._inbox.put(Chunk.of_failure(track, error, self._feed.connection))
        self.tell()

    def goes_on_after(self, error: LevadaError) -> bool:
        if isinstance(error, OffsetOutOfRange) and self._resuming:
            # What we had come to is not there any more: the consumer's policy decides.
            self._inbox.drop(list(self._inbox.tracks))
            return True
        # Where the group has gone on without this member, it comes in again as a new one.
        return isinstance(error, UnknownMember | IllegalGeneration) and self._wanted.consumer is None

    def ended(self, error: LevadaError) -> None:
        self.failure = error
        self.first_assigned.set()
        self.tell()

    async def _tell_changes(self) -> None:
        """One after the other, and never on the loop's own time."""
        while True:
            callback, ats, told = await self._changes.get()
            try:
                outcome = callback(ats) if is_async(callback) else await asyncio.to_thread(callback, ats)
                if inspect.isawaitable(outcome):
                    await outcome
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and is_told_to_end():
                    raise
                complain("callback failed", error, callback=repr(callback))
            told.set()
