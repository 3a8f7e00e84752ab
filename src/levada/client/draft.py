"""Records that were published together, and the promise to say what became of them.

One promise is shared by all records of a draft: a delivery is a draft and a place in it, so a record costs no future of its own.
A draft becomes one parcel, or one for each partition where its records are spread out: record i is then in parcel i % n.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from levada.client import forks
from levada.client.complaints import complain
from levada.client.records import Position
from levada.errors import InvalidRequest, LevadaError, TimedOut
from levada.records.pack import Row

if TYPE_CHECKING:
    from levada.client.delivery import Delivery


class Landed:
    """Where a parcel's records lie: the first one's offset, and those that were there already."""

    __slots__ = ("duplicate", "duplicates", "offset", "partition")

    def __init__(
        self,
        partition: int,
        offset: int,
        *,
        duplicate: bool = False,
        duplicates: dict[int, tuple[int, int]] | None = None,
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.duplicate = duplicate
        #: Place in the parcel → partition and offset of the first copy.
        self.duplicates = duplicates


class Draft:
    """Filled by whoever publishes, under the accumulator's lock; settled on the loop's thread."""

    __slots__ = (
        "_born",
        "_callbacks",
        "_futures",
        "_hurry",
        "_latch",
        "_left",
        "_lock",
        "deadline",
        "done",
        "error",
        "hurried",
        "limit",
        "loop_thread",
        "outcomes",
        "partition",
        "records",
        "size",
        "told",
        "topic",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, deadline: float, lock: threading.Lock, hurry: Callable[[Draft], None]
    ) -> None:
        self.topic = topic
        #: Where all of it goes; −1 until the broker has said.
        self.partition = partition
        self.deadline = deadline
        self.records: list[Row] = []
        self.size = 0
        #: It leaves when it is so large.
        self.limit = 0
        #: Of the loop that sends it: whoever blocks there would wait for himself.
        self.loop_thread = 0
        self.done = False
        #: Somebody waits for it: it does not linger.
        self.hurried = False
        #: Somebody was told of its error.
        self.told = False
        self.error: LevadaError | None = None
        self.outcomes: Sequence[Landed | LevadaError | None] = ()
        self._left = 1
        self._lock = lock
        self._hurry = hurry
        #: Held until it is done. An Event would do the same in Python, at 20 µs a wait.
        self._latch: threading.Lock | None = None
        self._futures: list[asyncio.Future[None]] | None = None
        self._callbacks: list[tuple[Delivery | None, Callable[[Any], object]]] | None = None
        self._born = forks.count

    def __len__(self) -> int:
        return len(self.records)

    # What becomes of it

    def split(self, parcels: int) -> None:
        """It leaves in so many parcels."""
        self.outcomes = [None] * parcels
        self._left = parcels

    def settle(self, parcel: int, outcome: Landed | LevadaError) -> bool:
        """Parcel i of it has landed or failed; True when it was the last."""
        outcomes = self.outcomes
        assert isinstance(outcomes, list) and outcomes[parcel] is None, "a parcel is settled once"
        outcomes[parcel] = outcome
        if isinstance(outcome, LevadaError) and self.error is None:
            self.error = outcome
        self._left -= 1
        if self._left:
            return False
        self._finish()
        return True

    def fail(self, error: LevadaError) -> None:
        """Nothing of it was sent."""
        self.outcomes = (error,)
        self.error = error
        self._finish()

    def _finish(self) -> None:
        with self._lock:
            self.done = True
            latch, futures, callbacks = self._latch, self._futures, self._callbacks
            self._latch = self._futures = self._callbacks = None
        if latch is not None:
            latch.release()
        for future in futures or ():
            _release(future)
        for delivery, callback in callbacks or ():
            call(callback, delivery)

    def position(self, index: int) -> Position:
        """Where record `index` lies, once all is done. Raises why it does not."""
        outcomes = self.outcomes
        outcome = outcomes[index % len(outcomes)]
        if isinstance(outcome, LevadaError):
            self.told = True
            raise outcome
        assert outcome is not None
        place = index // len(outcomes)
        if outcome.duplicates is not None and place in outcome.duplicates:
            return Position(self.topic, *outcome.duplicates[place], True)
        offset = outcome.offset if outcome.offset < 0 else outcome.offset + place
        return Position(self.topic, outcome.partition, offset, outcome.duplicate)

    # Waiting for it

    def wait(self, timeout: float | None) -> None:
        """Block until it is done, and have it sent now. TimedOut; InvalidRequest on the thread that would have to send it."""
        if self.done:
            return
        if self._born != forks.count:
            raise InvalidRequest(forks.FORKED)
        if threading.get_ident() == self.loop_thread:
            raise InvalidRequest(
                "result() would block the event loop that sends the record: await the delivery instead"
            )
        with self._lock:
            if self.done:
                return
            latch = self._latch
            if latch is None:
                latch = self._latch = threading.Lock()
                latch.acquire()
        self.hurry()
        if not latch.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            raise TimedOut(f"topic {self.topic}: no answer within {timeout} s; the record is still on its way")
        # Others may wait, too.
        latch.release()

    def future(self) -> asyncio.Future[None]:
        """Done when the draft is. For whoever awaits, on the loop that sends it or on another."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if self.done:
            future.set_result(None)
            return future
        if threading.get_ident() != self.loop_thread:
            self.tell(None, lambda _: loop.call_soon_threadsafe(_release, future))
            return future
        if self._futures is None:
            self._futures = []
        self._futures.append(future)
        return future

    def hurry(self) -> None:
        """Send it now."""
        if not self.hurried:
            self.hurried = True
            self._hurry(self)

    def tell(self, delivery: Delivery | None, callback: Callable[[Any], object]) -> None:
        """Call back when it is done, on the loop's thread; at once if it is."""
        with self._lock:
            if not self.done:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append((delivery, callback))
                return
        call(callback, delivery)


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def call(callback: Callable[..., object], *arguments: Any) -> None:
    """A user's callback must not stop the producer: what it raises is logged."""
    try:
        callback(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit would end the thread of all clients, a CancelledError the task that sends
        complain("callback failed", error, callback=repr(callback))


def deadline_in(timeout_ms: int) -> float:
    return time.monotonic() + timeout_ms / 1000
