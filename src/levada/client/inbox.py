"""What has come for the user of a consumer, and how far he has got with it. Plain state: no loop, no connection.

The loop's thread puts chunks in, the user's takes them out; each end of the line is one thread's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock

from levada.client.chunk import Chunk, Opener
from levada.client.records import At, Record
from levada.client.track import Track
from levada.errors import InvalidRequest, UnknownPartition


class Inbox:
    """`give_back` is called for each chunk that is used up or not wanted any more: the broker may send as many records again."""

    def __init__(
        self, opener: Opener, give_back: Callable[[Chunk], None], settled: Callable[[], None] = lambda: None
    ) -> None:
        self.tracks: dict[At, Track] = {}
        #: What is being handed over to others. `settled` is called, from the user's thread, when he may be done with it.
        self.leaving: dict[At, Track] = {}
        self._settled = settled
        self._opener = opener
        self._give_back = give_back
        self._arrived: deque[Chunk] = deque()
        #: The one that is being handed out.
        self._current: Chunk | None = None
        #: Behind what the last poll handed out of each partition, and the turn it was.
        self._polled: dict[Track, tuple[int, int]] = {}
        #: What is handed out is noted in two places, and the loop's thread may look at any moment.
        self._lock = Lock()

    # The loop's end

    def put(self, chunk: Chunk) -> None:
        self._arrived.append(chunk)

    @property
    def has_arrived(self) -> bool:
        return bool(self._arrived)

    def track(self, at: At) -> Track:
        """UnknownPartition, naming those there are."""
        found = self.tracks.get(at)
        if found is None:
            owned = ", ".join(map(str, sorted(self.tracks))) or "none"
            raise UnknownPartition(f"{at} is not this consumer's: it owns {owned}")
        return found

    def leave(self, ats: Iterable[At]) -> None:
        """These are to be somebody else's: hand out no more of them."""
        for at in ats:
            if at in self.leaving:  # it came back while it was still being handed over
                self.leaving[at].gone()
            track = self.leaving[at] = self.tracks.pop(at)
            track.is_leaving = True

    def gone(self, ats: Iterable[At]) -> None:
        """They are somebody else's now."""
        for at in ats:
            self.leaving.pop(at).gone()

    def is_in_hand(self, at: At) -> bool:
        """Whether the user may still be at work on something of this partition, which is leaving."""
        with self._lock:
            track, chunk = self.leaving[at], self._current
            return track in self._polled or (
                chunk is not None and chunk.track is track and chunk.index > 0 and chunk.handed > track.finished
            )

    def drop(self, ats: Iterable[At]) -> None:
        """These belong to somebody else now."""
        for at in ats:
            self.tracks.pop(at).gone()

    def resume(self, ats: Iterable[At]) -> None:
        """Hand out again what was kept back while they were paused."""
        for at in ats:
            track = self.tracks[at]
            track.paused = False
            self._arrived.extendleft(reversed(track.held))
            track.held.clear()

    def put_back(self, chunks: Sequence[Chunk]) -> None:
        """Taken with `next` and not used up: there for the next who asks, before all that came later."""
        for chunk in reversed(chunks):
            if chunk.is_stale:
                self._give_back(chunk)
            elif chunk.track.paused:
                chunk.track.held.appendleft(chunk)
            else:
                self._arrived.appendleft(chunk)

    def let_go(self) -> None:
        """Whoever had records in hand is done with them; what is left of their chunk is there for the next who asks."""
        self.settle()
        chunk, self._current = self._current, None
        if chunk is None:
            return
        if chunk.is_used_up:
            self._give_back(chunk)
        else:
            self.put_back([chunk])

    # The user's end

    def take(self, *, polled: bool = False) -> Chunk | None:
        """Records that are there, opened, for the caller to hand out. InvalidRecord where the next one cannot be read; once, why a
        partition cannot be read on.

        `polled`: there are others in hand already; they are not done with, and are not kept back by an error of the next one.
        """
        if not polled:
            self.settle()
        while True:
            chunk = self._current
            if chunk is not None and chunk.track.paused and not chunk.is_stale:
                chunk.track.held.appendleft(chunk)
                chunk = self._current = None
            if chunk is None or chunk.is_stale or chunk.is_used_up:
                if chunk is not None:
                    self._current = None
                    self._give_back(chunk)
                chunk = self._current = self.next()
                if chunk is None:
                    return None
                chunk.open(self._opener)
            if chunk.error is not None:
                if polled:
                    return None
                if chunk.is_failure:
                    self._current = None
                raise chunk.error
            if not chunk.is_used_up:
                return chunk
            # Nothing in it is for readers: it is passed, with what is in hand where something is.
            if polled:
                with self._lock:
                    self._polled[chunk.track] = (chunk.handed, chunk.turn)
            else:
                chunk.settle()

    def next(self) -> Chunk | None:
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

    def poll(self, max_records: int) -> list[Record]:
        """Up to so many records that are there. What was polled before counts as done with."""
        if max_records < 1:
            raise InvalidRequest(f"max_records is {max_records}; it must be at least 1")
        taken: list[Record] = []
        while len(taken) < max_records and (chunk := self.take(polled=bool(taken))) is not None:
            with self._lock:
                taken += chunk.take(max_records - len(taken))
                self._polled[chunk.track] = (chunk.handed, chunk.turn)
        return taken

    def interrupt(self) -> None:
        """Hand out no more of the chunk that is being handed out; what is left of it is there for the next who asks."""
        if self._current is not None:
            self._current.is_interrupted = True

    def settle(self) -> None:
        """Whoever asks for more is done with what he had."""
        with self._lock:
            for track, (offset, turn) in self._polled.items():
                track.done(offset, turn)
            self._polled.clear()
            if self._current is not None:
                self._current.settle()
        if self.leaving:
            self._settled()

    # How far the user has got

    def position(self, at: At) -> int:
        """The next offset to be handed out."""
        track, chunk = self.track(at), self._current
        if chunk is not None and chunk.track is track and not chunk.is_stale:
            return chunk.handed
        offset, turn = self._polled.get(track, (track.handed, track.turn))
        return offset if turn == track.turn else track.handed

    def finished(self) -> Mapping[At, int]:
        """What is done with and not committed yet. Of records handed out one by one, the last may still be worked on."""
        with self._lock:
            tracks = [*self.leaving.items(), *self.tracks.items()]
            return {at: offset for at, track in tracks if (offset := self._done(track)) != track.stored}

    def _done(self, track: Track) -> int:
        chunk = self._current
        if chunk is None or chunk.track is not track or chunk.turn != track.turn or track in self._polled:
            return track.finished
        return max(track.finished, chunk.in_hand)
