"""Fetch, versions 4–18.

- Answers when min_bytes are readable, max_wait_ms has passed, or a partition is refused. Who waits is woken by the
  partition, polls nothing and holds no records.
- Returns at least one batch, even one larger than max_bytes, so a consumer always advances; more only within the limits.
- Records that are not in the page cache are read in a worker thread.
- Sessions (KIP-227): see `fetch_session`.
- Leaves out what only followers ask for: diverging epochs and preferred replicas.
"""

from __future__ import annotations

import asyncio

from levada.engine.port import Isolation
from levada.fronts.kafka import notice
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.fetch_session import Interest
from levada.fronts.kafka.reading import Reading, Row
from levada.fronts.kafka.reply import Body, HangUp, Later
from levada.wire.endpoints import Endpoint
from levada.wire.fetch import Fetched, FetchRequest, read_request, write_response
from levada.wire.fetch_request import TOPIC_IDS


def serve(body: memoryview, call: Call) -> Body | Later:
    request = read_request(call.version, body)
    interest = call.node.sessions.of(request, by_id=call.version >= TOPIC_IDS)
    if isinstance(interest, int):
        return write_response(call.version, [], error_code=interest)
    interest.enter(call.peer)
    isolation = Isolation(request.isolation_level == Isolation.READ_COMMITTED)
    reading = Reading(call.node, isolation, min(request.max_bytes, call.node.budget.answer_bytes_max()))
    reading.read(interest.due())
    if reading.cold or not (reading.failed or reading.size >= request.min_bytes or request.max_wait_ms <= 0):
        return Fetching(call, interest, reading, request)
    return _written(call, interest, reading)


def _written(call: Call, interest: Interest, reading: Reading) -> Body:
    topics: dict[object, list[Fetched]] = {}
    fenced = False
    for row in interest.to_tell(reading.rows):
        if row.fetched.records and row.partition is not None:
            row.partition.count_out(row.offset, row.fetched.records)
        topics.setdefault(row.topic, []).append(row.fetched)
        fenced = fenced or row.fetched.current_leader is not None
    node = call.node
    body = write_response(
        call.version,
        list(topics.items()),  # type: ignore[arg-type]  # names or ids, as they were asked for
        session_id=interest.id,
        endpoints=[Endpoint(node.node_id, node.host, node.port)] if fenced else (),
    )
    if interest.id:
        # The session's rows stay; the records are the answer's alone.
        reading.let_go()
    return body


class Fetching(Later):
    """A Fetch that waits: for records to come, or for the disk. One at a time per connection, so its answers are bounded."""

    exclusive = True

    __slots__ = (
        "_added",
        "_interest",
        "_loop",
        "_min_bytes",
        "_missing",
        "_moved",
        "_reading",
        "_scheduled",
        "_task",
        "_timer",
    )

    def __init__(self, call: Call, interest: Interest, reading: Reading, request: FetchRequest) -> None:
        super().__init__(call)
        self._interest = interest
        self._reading = reading
        self._min_bytes = request.min_bytes
        #: Bytes that came since the last look, how many it takes for the next one, and where something happened.
        self._added = 0
        self._missing = request.min_bytes - reading.size
        self._moved: dict[Row, None] = {}
        self._scheduled = False
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        if reading.cold:
            self._task = self._loop.create_task(self._read_cold())
        else:
            self._moved = dict.fromkeys(reading.let_go())
            self._timer = self._loop.call_later(request.max_wait_ms / 1000, self._finish)
            interest.watch(self)

    def moved(self, row: Row, bytes_added: int) -> None:
        """A partition moved. Looked at once in this turn of the loop, when all of a Produce has been appended."""
        self._moved[row] = None
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
        self._rest()
        if self._reading.cold:
            self._task = self._loop.create_task(self._read_cold())
        else:
            self.answer(_written(self.call, self._interest, self._reading))

    async def _read_cold(self) -> None:
        try:
            await self._reading.read_cold()
            body = _written(self.call, self._interest, self._reading)
        except Exception as error:
            notice.failed(self.call, "Fetch", error)
            self.hang_up(HangUp(f"Fetch failed: {error!r}"))
        else:
            self.answer(body)

    def _rest(self) -> None:
        """Wait no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._interest.unwatch()

    def hurry(self) -> None:
        self._finish()

    def drop(self) -> None:
        super().drop()
        self.frame = b""
        self._rest()
        self._interest.abandon()
        if self._task is not None:
            self._task.cancel()
