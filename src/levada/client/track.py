"""One partition as a consumer follows it: what has come, what was handed out, what is done with."""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING

from levada.client.records import At

if TYPE_CHECKING:
    from levada.client.chunk import Chunk


class Track:
    """All offsets are of the next record. `finished` ≤ `handed` ≤ `received`."""

    def __init__(self, at: At, offset: int) -> None:
        self.at = at
        #: Behind the last record that came from the broker.
        self.received = offset
        #: Behind the last record that was given to the user.
        self.handed = offset
        #: Behind the last record that the user is done with.
        self.finished = offset
        #: Where it began.
        self.begun = offset
        #: As stored for the group, where this consumer knows.
        self.committed: int | None = None
        self.paused = False
        #: It is being handed over to somebody else: nothing more is handed out, and what is in hand still counts.
        self.is_leaving = False
        #: What came while it was paused.
        self.held: deque[Chunk] = deque()
        #: It was moved or taken away: chunks of an older turn are not for the user any more.
        self.turn = 0
        self._seeks: list[int] = []
        #: What the user is done with is noted on his thread, and moved on the loop's.
        self._lock = Lock()

    @property
    def is_seeking(self) -> bool:
        """True while what comes is from before a seek."""
        return bool(self._seeks)

    @property
    def stored(self) -> int:
        """What the group goes on from, as far as this consumer knows."""
        return self.begun if self.committed is None else self.committed

    def seek(self, offset: int) -> None:
        """Forget what has come; the broker is being asked for what comes from there on."""
        self._move(offset)
        self._seeks.append(offset)

    def done(self, offset: int, turn: int) -> None:
        """The user is done with what comes before this offset, unless it was moved meanwhile."""
        with self._lock:
            if turn == self.turn:
                self.handed = self.finished = offset

    def assigned(self, offset: int, *, moved: bool = False) -> None:
        """The broker says that it goes on reading there. Where `moved`, another place than we know of is somebody's seek."""
        if self._seeks:
            if offset in self._seeks:
                del self._seeks[: self._seeks.index(offset) + 1]
            return
        if offset < self.received or (moved and offset != self.received):
            self._move(offset)
        # Ahead of us: retention has passed over records. What came before that is still good.
        self.received = offset

    def gone(self) -> None:
        """It belongs to somebody else now."""
        with self._lock:
            self.turn += 1
            self.held.clear()

    def reconnected(self, offset: int, *, begins_late: bool) -> bool:
        """On a new connection the broker would begin at `offset`: the group's, or by policy. True where it has to be asked to
        go on behind what came already.

        That need not come again, unless the group's offset was moved back meanwhile; and others may have read on from there. What is
        stored as we know it tells of nobody else: whoever seeks back is behind it until he commits.
        Where reading begins late, with what is new, an offset ahead of us is that policy's and would pass over records.
        """
        self._seeks.clear()
        moved_back = self.committed is not None and offset < self.committed
        read_on = offset > self.received and offset != self.stored and not (begins_late and self.committed is None)
        if moved_back or read_on or offset == self.received:
            self.assigned(offset)
            return False
        self._seeks.append(self.received)
        return True

    def _move(self, offset: int) -> None:
        with self._lock:
            self.turn += 1
            self.held.clear()
            self.received = self.handed = self.finished = offset
