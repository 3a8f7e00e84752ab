"""Deadlines in a heap, so that ten thousand idle groups cost nothing."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Timer:
    """Something to do at a time, with at most one deadline. It is made once and moved as often as its owner likes."""

    __slots__ = ("action", "deadline_ms", "queued_ms")

    def __init__(self, action: Callable[[int], None]) -> None:
        self.action = action
        self.deadline_ms: int | None = None
        #: When the earliest entry of this timer in the heap comes up; entries may lie, the deadline does not.
        self.queued_ms: int | None = None


class Timers:
    """All deadlines of the coordinator.

    A deadline that moves later leaves its heap entry where it is and is looked at again when that comes up, so a
    heartbeat is an assignment and the heap holds about one entry per timer. `on_earlier` is called when the first
    deadline moves forward: the driver sleeps until then and must be told.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._ticket = itertools.count()
        self._cancelled = 0
        self.on_earlier: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, timer: Timer, deadline_ms: int) -> None:
        """Run the timer's action at the deadline; an earlier agreement is forgotten."""
        if timer.deadline_ms is None and timer.queued_ms is not None:
            self._cancelled -= 1
        timer.deadline_ms = deadline_ms
        if timer.queued_ms is None or deadline_ms < timer.queued_ms:
            first = not self._heap or deadline_ms < self._heap[0][0]
            self._push(timer, deadline_ms)
            if first and self.on_earlier is not None:
                self.on_earlier()

    def cancel(self, timer: Timer) -> None:
        if timer.deadline_ms is None:
            return
        timer.deadline_ms = None
        if timer.queued_ms is not None:
            self._cancelled += 1
            self._shrink()

    def next_deadline(self) -> int | None:
        """When tick() is due next; None while nothing waits."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def tick(self, now_ms: int) -> None:
        """Run what is due, earliest first. What an action puts off to `now_ms` or before runs in the same tick."""
        while True:
            self._settle()
            if not self._heap or self._heap[0][0] > now_ms:
                return
            _, _, timer = heapq.heappop(self._heap)
            timer.queued_ms = timer.deadline_ms = None
            timer.action(now_ms)

    def _push(self, timer: Timer, deadline_ms: int) -> None:
        timer.queued_ms = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, next(self._ticket), timer))

    def _settle(self) -> None:
        """Drop or move the entries on top until the first one tells the truth."""
        while self._heap:
            queued_ms, _, timer = self._heap[0]
            if queued_ms != timer.queued_ms:  # a later entry of a timer that was moved forward
                heapq.heappop(self._heap)
            elif timer.deadline_ms is None:
                heapq.heappop(self._heap)
                timer.queued_ms = None
                self._cancelled -= 1
            elif timer.deadline_ms > queued_ms:
                heapq.heappop(self._heap)
                self._push(timer, timer.deadline_ms)
            else:
                return

    def _shrink(self) -> None:
        """Members that come and go must not fill the heap until their sessions would have ended."""
        if self._cancelled < 64 or self._cancelled * 2 < len(self._heap):
            return
        kept: list[tuple[int, int, Timer]] = []
        for entry in self._heap:
            queued_ms, _, timer = entry
            if queued_ms != timer.queued_ms:
                continue
            if timer.deadline_ms is None:
                timer.queued_ms = None
            else:
                kept.append(entry)
        heapq.heapify(kept)
        self._heap = kept
        self._cancelled = 0
