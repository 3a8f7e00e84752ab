"""Fetch, versions 4–18.

- Answers when min_bytes are readable, max_wait_ms has passed, or a partition is refused. Who waits is woken by the
  partition, polls nothing and holds no records.
- Returns at least one batch, even one larger than max_bytes, so a consumer always advances; more only within the limits.
- Records that are not in the page cache are read in a worker thread.
- No sessions (KIP-227): every answer has session id 0, which tells the client to name its partitions each time.
- Leaves out what only followers ask for: diverging epochs and preferred replicas.
"""

from __future__ import annotations

import asyncio
from typing import Final

from levada.engine.embedded.partition import Partition
from levada.engine.port import Isolation
from levada.fronts.kafka import notice
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.reading import Reading, Row
from levada.fronts.kafka.reply import Body, HangUp, Later
from levada.wire.endpoints import Endpoint
from levada.wire.fetch import FetchRequest, read_request, write_response

_FETCH_SESSION_ID_NOT_FOUND: Final = 70


def serve(body: memoryview, call: Call) -> Body | Later:
    request = read_request(call.version, body)
    if request.session_id != 0 and request.session_epoch > 0:
        return write_response(call.version, [], error_code=_FETCH_SESSION_ID_NOT_FOUND)
    reading = _reading(request, call)
    reading.read(reading.rows)
    if reading.cold:
        return Fetching(call, reading, request)
    if reading.failed or reading.size >= request.min_bytes or request.max_wait_ms <= 0:
        return _written(call, reading)
    return Fetching(call, reading, request)


def _reading(request: FetchRequest, call: Call) -> Reading:
    rows = [Row(topic, wanted) for topic, partitions in request.topics for wanted in partitions]
    isolation = Isolation(request.isolation_level == Isolation.READ_COMMITTED)
    return Reading(call.node, rows, isolation, min(request.max_bytes, call.node.budget.answer_bytes_max()))


def _written(call: Call, reading: Reading) -> Body:
    topics: list[tuple[str | object, list[object]]] = []
    for row in reading.rows:
        if not topics or topics[-1][0] != row.topic:
            topics.append((row.topic, []))
        topics[-1][1].append(row.fetched)
    node = call.node
    fenced = reading.failed and any(row.fetched.current_leader is not None for row in reading.rows)
    endpoints = [Endpoint(node.node_id, node.host, node.port)] if fenced else ()
    return write_response(call.version, topics, endpoints=endpoints)  # type: ignore[arg-type]


class Fetching(Later):
    """A Fetch that waits: for records to come, or for the disk."""

    __slots__ = (
        "_added",
        "_loop",
        "_min_bytes",
        "_missing",
        "_moved",
        "_reading",
        "_scheduled",
        "_task",
        "_timer",
        "_watched",
    )

    def __init__(self, call: Call, reading: Reading, request: FetchRequest) -> None:
        super().__init__(call)
        self._reading = reading
        self._min_bytes = request.min_bytes
        #: Bytes that came since the last look, how many it takes for the next one, and where something happened.
        self._added = 0
        self._missing = request.min_bytes - reading.size
        self._moved: dict[Row, None] = {}
        self._scheduled = False
        self._watched: dict[Partition, Row] = {}
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        if reading.cold:
            self._task = self._loop.create_task(self._read_cold())
        else:
            self._wait(request.max_wait_ms)

    def _wait(self, max_wait_ms: int) -> None:
        self._moved.update(dict.fromkeys(self._reading.let_go()))
        self._timer = self._loop.call_later(max_wait_ms / 1000, self._finish)
        for row in self._reading.rows:
            if row.partition is not None:
                self._watched[row.partition] = row
                row.partition.watch(self)

    def advanced(self, partition: Partition, bytes_added: int) -> None:
        """A partition moved. Looked at once in this turn of the loop, when all of a Produce has been appended."""
        self._moved[self._watched[partition]] = None
        self._added += bytes_added
        if not self._scheduled and (self._added >= self._missing or not bytes_added):
            self._scheduled = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._scheduled = False
        if self.frame is not None or self._task is not None:
            return
        reading = self._reading
        reading.read(self._moved)
        if reading.cold or reading.failed or reading.size >= self._min_bytes:
            self._conclude()
        else:
            # What came is not for this reader yet: its transaction is open.
            self._added = 0
            self._missing = self._min_bytes - reading.size
            self._moved = dict.fromkeys(reading.let_go())

    def _finish(self) -> None:
        """Time is up: answer with what there is."""
        if self.frame is None and self._task is None:
            self._reading.read(self._moved)
            self._conclude()

    def _conclude(self) -> None:
        self._release()
        if self._reading.cold:
            self._task = self._loop.create_task(self._read_cold())
        else:
            self.answer(_written(self.call, self._reading))

    async def _read_cold(self) -> None:
        try:
            await self._reading.read_cold()
            body = _written(self.call, self._reading)
        except Exception as error:
            notice.failed(self.call, "Fetch", error)
            self.hang_up(HangUp(f"Fetch failed: {error!r}"))
        else:
            self.answer(body)

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._watched:
            partition.unwatch(self)
        self._watched = {}

    def hurry(self) -> None:
        self._finish()

    def drop(self) -> None:
        super().drop()
        self.frame = b""
        self._release()
        if self._task is not None:
            self._task.cancel()
