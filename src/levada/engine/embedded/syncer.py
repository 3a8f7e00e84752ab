"""Group commit: many appends, one fdatasync, never on the event loop.

Of each log at most one sync is in flight. What is appended meanwhile rides on the next, which starts as soon as the
first returns, so a busy log is synced back to back and an idle one at once. Different logs sync side by side in a few
threads, which the file system folds into few journal commits: with 64 dirty files on ext4, 8 threads need a fifth of
the time of one, and more threads gain nothing.

Nothing runs while nothing is dirty: threads wait on a queue, and there is one timer only while interval logs are due.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from queue import SimpleQueue
from time import perf_counter_ns
from typing import Final, Protocol

from levada.engine.histogram import Histogram

THREADS_MAX: Final = 8


class Syncable(Protocol):
    """One log, as the syncer sees it."""

    def sync(self) -> int:
        """Called in a worker thread. Make what is written durable; return the end offset that now is."""
        ...

    def synced(self, offset: int) -> None:
        """Called on the loop: everything below `offset` is durable."""
        ...

    def sync_failed(self, error: Exception) -> None:
        """Called on the loop. The log must take no more writes: after a failed fsync the kernel may have dropped the pages."""
        ...


#: A log and the offset up to which it is durable now, or why its sync failed.
_Outcome = tuple[Syncable, "int | Exception"]


class Syncer:
    """Owns the sync threads. All methods are called on the loop."""

    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads_max = threads_max
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[Syncable | None] = SimpleQueue()
        self._dirty: dict[Syncable, None] = {}
        self._in_flight: set[Syncable] = set()
        self._again: set[Syncable] = set()
        self._done: list[_Outcome] = []
        self._lock = threading.Lock()
        #: How long each sync took, for measuring.
        self.latency = Histogram()
        self._quiet: dict[Syncable, list[asyncio.Future[None]]] = {}
        self._due: list[tuple[float, int, Syncable]] = []
        self._scheduled: set[Syncable] = set()
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def soon(self, log: Syncable) -> None:
        """Sync this log; at the end of the loop's turn, so that all the turn brings is covered by one sync."""
        if log in self._in_flight:
            if log not in self._dirty:
                self._again.add(log)
            return
        self._in_flight.add(log)
        if not self._dirty:
            self._loop.call_soon(self._start)
        self._dirty[log] = None

    def within(self, log: Syncable, interval_ms: int) -> None:
        """Sync this log when the interval has passed; calls until then ride on it."""
        if log in self._scheduled:
            return
        self._scheduled.add(log)
        entry = (self._loop.time() + interval_ms / 1000, next(self._order), log)
        heapq.heappush(self._due, entry)
        if self._due[0] is entry:
            self._set_timer()

    async def quiet(self, log: Syncable) -> None:
        """Wait until no sync of this log is in flight or asked for. Nobody may be appending to it."""
        self._scheduled.discard(log)
        while log in self._in_flight:
            waiting = self._loop.create_future()
            self._quiet.setdefault(log, []).append(waiting)
            await waiting

    async def close(self) -> None:
        """Finish the syncs that are in flight and end the threads."""
        if self._timer is not None:
            self._timer.cancel()
        for log in list(self._in_flight):
            await self.quiet(log)
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        dirty, self._dirty = self._dirty, {}
        while len(self._threads) < min(len(self._in_flight), self._threads_max):
            thread = threading.Thread(target=self._work, name=f"levada-sync-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        for log in dirty:
            self._queue.put(log)

    def _work(self) -> None:
        while (log := self._queue.get()) is not None:
            began_ns = perf_counter_ns()
            try:
                outcome: _Outcome = (log, log.sync())
            except Exception as error:
                outcome = (log, error)
            took_ns = perf_counter_ns() - began_ns
            with self._lock:
                self.latency.observe(took_ns)
                first = not self._done
                self._done.append(outcome)
            if first:  # one wake-up serves all that is done by the time the loop comes round
                self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        with self._lock:
            done, self._done = self._done, []
        for log, result in done:
            self._in_flight.discard(log)
            try:
                self._tell(log, result)
            except Exception as error:  # one log's reader must not keep the others from being told
                self._loop.call_exception_handler({"message": "after a sync", "exception": error})
            if log not in self._in_flight:
                for waiting in self._quiet.pop(log, ()):
                    if not waiting.done():
                        waiting.set_result(None)

    def _tell(self, log: Syncable, result: int | Exception) -> None:
        again = log in self._again
        self._again.discard(log)
        if isinstance(result, Exception):
            log.sync_failed(result)
            return
        if again:
            self.soon(log)
        log.synced(result)

    def _set_timer(self) -> None:
        """Ring for the log that is due first."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due[0][0], self._interval_passed) if self._due else None

    def _interval_passed(self) -> None:
        now = self._loop.time()
        while self._due and self._due[0][0] <= now:
            _, _, log = heapq.heappop(self._due)
            if log in self._scheduled:
                self._scheduled.discard(log)
                self.soon(log)
        self._set_timer()
