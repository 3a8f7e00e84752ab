"""Where published records gather until they leave: one open draft for each partition, and one for what is to be spread.

Any thread may publish; the loop's thread collects. Everything is bounded by `buffer_bytes`, counted from publishing to the
broker's answer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from levada.client.draft import Draft, deadline_in
from levada.client.route import SPREAD, Route
from levada.records.batch import HEADER_SIZE
from levada.records.pack import ROW_OVERHEAD, Row

#: A draft that is spread over many partitions may hold as much as a batch for each of so many.
_SPREAD_MAX: Final = 16


class Accumulator:
    """`wake` is called, from any thread, when there is something to collect or a first draft begins to linger."""

    def __init__(
        self,
        *,
        batch_bytes: int,
        buffer_bytes: int,
        delivery_timeout_ms: int,
        linger: bool,
        wake: Callable[[], None],
        loop_thread: int = 0,
    ) -> None:
        self.lock = threading.Lock()
        self.buffer_bytes = buffer_bytes
        self.buffered = 0
        self._closed = False
        #: The size of what there was no room for.
        self._refused = 0
        self._batch_bytes = batch_bytes
        self._delivery_timeout_ms = delivery_timeout_ms
        self._linger = linger
        self._wake = wake
        self._loop_thread = loop_thread
        self._open: dict[tuple[str, int], Draft] = {}
        self._full: deque[Draft] = deque()

    @property
    def oldest(self) -> float | None:
        """The deadline of the draft that has been open for longest."""
        with self.lock:
            return min((draft.deadline for draft in self._open.values()), default=None)

    @property
    def has_room(self) -> bool:
        """True where what was refused last would be taken: what is larger than all the room there is goes when it is alone."""
        return self.buffered + self._refused <= self.buffer_bytes or not self.buffered

    def add(self, route: Route, partition: int, row: Row, size: int) -> tuple[Draft, int] | None:
        """Put a record with the others of its partition: its draft and place. None where there is no room now."""
        with self.lock:
            if self._closed:
                return None
            if self.buffered + size > self.buffer_bytes and self.buffered:
                self._refused = size
                return None
            draft = self._open.get((route.topic, partition))
            if draft is None or draft.size + size > draft.limit:
                draft = self._new_draft(route, partition)
            records = draft.records
            index = len(records)
            records.append(row)
            draft.size = filled = draft.size + size
            self.buffered += size
            if filled >= draft.limit:
                self._close((route.topic, partition))
        return draft, index

    def add_values(
        self, route: Route, partition: int, values: Sequence[bytes | None], start: int, timestamp_ms: int
    ) -> tuple[Draft, int, int] | None:
        """Add values from `start` on, as many as one draft takes: it, the first one's place, and how many. None: no room now.

        Whoever calls has made sure that each of the values fits into a batch.
        """
        with self.lock:
            if self._closed:
                return None
            room = self.buffer_bytes - self.buffered
            if room <= 0:
                self._refused = 1
                return None
            value = values[start]
            needed = ROW_OVERHEAD + (len(value) if value is not None else 0)
            draft = self._open.get((route.topic, partition))
            if draft is None or draft.size + needed > draft.limit:
                draft = self._new_draft(route, partition)
            limit = draft.limit
            records, size = draft.records, draft.size
            first, most = len(records), size + room
            append = records.append
            # No draft takes more than if they were all empty.
            for value in values[start : start + limit // ROW_OVERHEAD + 1]:
                needed = ROW_OVERHEAD + (len(value) if value is not None else 0)
                if size + needed > limit and records:
                    size = max(size, limit)
                    break
                append((timestamp_ms, None, value, _NO_HEADERS))
                size += needed
                if size >= most:
                    break
            self.buffered += size - draft.size
            draft.size = size
            if size >= limit:
                self._close((route.topic, partition))
        return draft, first, len(records) - first

    def _new_draft(self, route: Route, partition: int) -> Draft:
        """Begin one; the one before it, if there is one, is full."""
        where = (route.topic, partition)
        if where in self._open:
            self._close(where)
        draft = Draft(route.topic, partition, deadline_in(self._delivery_timeout_ms), self.lock, self.hurry)
        draft.limit = self._limit(route, partition)
        draft.loop_thread = self._loop_thread
        draft.size = HEADER_SIZE
        self.buffered += HEADER_SIZE
        is_first = not self._open
        self._open[where] = draft
        if not self._linger:
            draft.hurried = True
            self._wake()
        elif is_first:
            self._wake()
        return draft

    def _limit(self, route: Route, partition: int) -> int:
        limit = self._batch_bytes
        if partition == SPREAD and route.keyless != "sticky":
            limit *= min(route.partitions, _SPREAD_MAX)
        # Also where the largest records of what is spread out come together in one partition.
        return min(limit, route.batch_bytes_max)

    def _close(self, where: tuple[str, int]) -> None:
        self._full.append(self._open.pop(where))
        self._wake()

    def hurry(self, draft: Draft) -> None:
        """Somebody waits for it: no more lingering."""
        with self.lock:
            where = (draft.topic, draft.partition)
            if self._open.get(where) is draft:
                self._close(where)

    def collect(self, *, lingered: Callable[[Draft], bool]) -> list[Draft]:
        """What is to leave now, in order within each partition: full ones, and open ones that have lingered."""
        with self.lock:
            for where, draft in list(self._open.items()):
                if draft.records and (draft.hurried or lingered(draft)):
                    self._full.append(self._open.pop(where))
            full, self._full = self._full, deque()
        return list(full)

    def close(self) -> None:
        """Take nothing more. What was taken can still be collected."""
        with self.lock:
            self._closed = True

    def release(self, size: int) -> None:
        """The broker has answered for so many bytes."""
        with self.lock:
            self.buffered -= size


_NO_HEADERS: Final[list[tuple[str, bytes | None]]] = []
