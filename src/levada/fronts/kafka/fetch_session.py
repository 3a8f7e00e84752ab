"""Fetch sessions (KIP-227): a consumer names its partitions once, then only what changes.

Of a session's partitions only those are looked at where something happened since the last answer, and only those are told
of where there are records, an error, or a new high watermark or log start. So a consumer of ten thousand quiet
partitions costs as little as one of ten.

A request is within a session when it names its id and next epoch; epoch 0 asks for a new one, −1 for none. A session ends
when its client closes it, when its connection goes in the middle of a Fetch, or when nothing was asked of it for two
minutes: a client that comes back is told so and makes a new one. Between Fetches a session holds no records, and while
its connection is gone it watches nothing; when its client is back, it looks at everything once.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol
from uuid import UUID

from levada.config import INT32_MAX
from levada.engine.embedded.partition import Partition
from levada.fronts.kafka.call import Peer
from levada.fronts.kafka.reading import Row
from levada.wire.fetch import FetchRequest

#: As Kafka's max.incremental.fetch.session.cache.slots and min.incremental.fetch.session.eviction.ms.
SESSIONS_MAX: Final = 1000
IDLE_S: Final = 120.0

NEW_EPOCH: Final = 0
NO_EPOCH: Final = -1

NOT_FOUND: Final = 70
INVALID_EPOCH: Final = 71
TOPIC_ID_MIX: Final = 106


class Waiter(Protocol):
    """A Fetch that waits."""

    def moved(self, row: Row, bytes_added: int) -> None:
        """Something happened in a partition that it waits for."""
        ...

    def hurry(self) -> None: ...


class Interest:
    """The partitions of a Fetch without a session: all are read, and all are told of."""

    id = 0

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = list(rows)
        self._watched: dict[Partition, Row] = {}
        self._waiter: Waiter | None = None

    def due(self) -> Sequence[Row]:
        """What is to be read now."""
        return self._rows

    def to_tell(self, rows: Iterable[Row]) -> Iterable[Row]:
        """Which of the rows that were read the answer has. To be asked once, when it is given."""
        return rows

    def watch(self, waiter: Waiter) -> None:
        """Tell the waiter what moves, until `unwatch`."""
        self._waiter = waiter
        for row in self._rows:
            if row.partition is not None:
                self._watched[row.partition] = row
                row.partition.watch(self)

    def advanced(self, partition: Partition, bytes_added: int) -> None:
        if self._waiter is not None:
            self._waiter.moved(self._watched[partition], bytes_added)

    def unwatch(self) -> None:
        self._waiter = None
        for partition in self._watched:
            partition.unwatch(self)
        self._watched = {}

    def abandon(self) -> None:
        """The connection went in the middle of the Fetch."""
        self.unwatch()

    def enter(self, peer: Peer | None) -> None:
        """A Fetch came over this connection."""


class Session(Interest):
    """The partitions of a consumer, from one Fetch to the next. They are watched all the time."""

    def __init__(self, number: int, forget: Callable[[Session], None], *, by_id: bool) -> None:
        super().__init__(())
        self.id = number
        self.epoch = 1
        self.by_id = by_id
        self.used_s = 0.0
        self._peer: Peer | None = None
        self._forget = forget
        self._known: dict[tuple[str | UUID, int], Row] = {}
        self._followed: dict[Row, Partition] = {}
        #: What has to be looked at; partitions that just gave records come last.
        self._due: dict[Row, None] = {}

    def __len__(self) -> int:
        return len(self._known)

    def update(self, request: FetchRequest) -> None:
        """Take what the request says is new, different or no longer wanted."""
        for topic, partitions in request.topics:
            for wanted in partitions:
                row = self._known.get((topic, wanted[0]))
                if row is None:
                    row = self._known[topic, wanted[0]] = Row(topic, wanted)
                else:
                    row.want(wanted)
                self._due[row] = None
        for topic, indexes in request.forgotten:
            for index in indexes:
                row = self._known.pop((topic, index), None)
                if row is not None:
                    self._due.pop(row, None)
                    self._ignore(row)

    def due(self) -> Sequence[Row]:
        return list(self._due)

    def to_tell(self, rows: Iterable[Row]) -> Iterable[Row]:
        return [row for row in rows if self._is_news(row)]

    def _is_news(self, row: Row) -> bool:
        if self._known.get((row.topic, row.index)) is not row:
            return False
        fetched = row.fetched
        known = (fetched.high_watermark, fetched.log_start_offset)
        news = fetched.error_code != 0 or len(fetched.records) > 0 or row.told != known
        row.told = None if fetched.error_code else known
        if fetched.records or row.at_end:
            self._due.pop(row, None)
        if fetched.records:
            self._due[row] = None
        self._follow(row)
        return news

    def _follow(self, row: Row) -> None:
        """Watch the row's partition, which may be another than the last time: topics are deleted and made again."""
        partition = row.partition
        if partition is not None and self._followed.get(row) is not partition:
            self._ignore(row)
            self._followed[row] = partition
            self._watched[partition] = row
            partition.watch(self)

    def _ignore(self, row: Row) -> None:
        partition = self._followed.pop(row, None)
        if partition is not None:
            del self._watched[partition]
            partition.unwatch(self)

    def watch(self, waiter: Waiter) -> None:
        if self._waiter is not None:
            self._waiter.hurry()
        for row in self._due:
            self._follow(row)
        self._waiter = waiter

    def advanced(self, partition: Partition, bytes_added: int) -> None:
        row = self._watched[partition]
        self._due[row] = None
        if self._waiter is not None:
            self._waiter.moved(row, bytes_added)

    def unwatch(self) -> None:
        self._waiter = None

    @property
    def waits(self) -> bool:
        """Is a Fetch of it waiting?"""
        return self._waiter is not None

    def abandon(self) -> None:
        self._forget(self)

    def enter(self, peer: Peer | None) -> None:
        if peer is not None:
            peer.session = self
            self._peer = peer

    def leave(self, peer: Peer) -> None:
        """The connection is gone, and the client may come back over another."""
        if self._peer is peer:
            self._peer = None
            super().unwatch()
            self._followed.clear()
            self._due = dict.fromkeys(self._known.values())

    def close(self) -> None:
        super().unwatch()


class Sessions:
    """The sessions of all consumers of this broker. The clock is given."""

    def __init__(self, sessions_max: int = SESSIONS_MAX, clock: Callable[[], float] = time.monotonic) -> None:
        self._sessions_max = sessions_max
        self._clock = clock
        #: Least recently used first.
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, request: FetchRequest, *, by_id: bool) -> Interest | int:
        """What the request is about: its session, a new one, none, or the error code of a session that is not there."""
        if request.session_epoch in (NEW_EPOCH, NO_EPOCH):
            old = self._sessions.get(request.session_id)
            if old is not None:
                self._end(old)
            session = self._new(by_id=by_id) if request.session_epoch == NEW_EPOCH and request.topics else None
            if session is None:
                return Interest(Row(topic, wanted) for topic, partitions in request.topics for wanted in partitions)
        else:
            found = self._find(request, by_id=by_id)
            if isinstance(found, int):
                return found
            session = found
        session.update(request)
        if not len(session):
            self._end(session)
            return Interest(())
        return session

    def _find(self, request: FetchRequest, *, by_id: bool) -> Session | int:
        session = self._sessions.pop(request.session_id, None)
        if session is None:
            return NOT_FOUND
        self._sessions[session.id] = session
        session.used_s = self._clock()
        if session.by_id != by_id:
            return TOPIC_ID_MIX
        if session.epoch != request.session_epoch:
            return INVALID_EPOCH
        session.epoch = 1 if session.epoch == INT32_MAX else session.epoch + 1
        return session

    def _new(self, *, by_id: bool) -> Session | None:
        self.sweep()
        if len(self._sessions) >= self._sessions_max:
            return None
        number = random.randint(1, INT32_MAX)
        while number in self._sessions:
            number = random.randint(1, INT32_MAX)
        session = self._sessions[number] = Session(number, self._end, by_id=by_id)
        session.used_s = self._clock()
        return session

    def sweep(self) -> None:
        """End the sessions that nobody has used for long."""
        used_before_s = self._clock() - IDLE_S
        idle = itertools.takewhile(lambda session: session.used_s < used_before_s, self._sessions.values())
        for session in [session for session in idle if not session.waits]:
            self._end(session)

    def _end(self, session: Session) -> None:
        self._sessions.pop(session.id, None)
        session.close()
