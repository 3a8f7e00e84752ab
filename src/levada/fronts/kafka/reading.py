"""What one Fetch reads: its partitions, one after the other, within its limits.

Kafka's rule: the first batch found is returned whatever its size, so a reader always advances; after it only what fits in
both the partition's and the request's limit. Batches are whole. High watermark, last stable offset and log start are
told of every partition that is known, also where it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from levada.engine.embedded.partition import Partition
from levada.engine.port import Bounds, Isolation, Slice
from levada.errors import DamagedLog, FencedLeaderEpoch, LevadaError
from levada.fronts.kafka.call import Node
from levada.fronts.kafka.codes import NONE, code_of
from levada.fronts.kafka.leader_epoch import check_epoch
from levada.log.disk import WouldBlock
from levada.log.stretch import Stretch
from levada.log.stretch import find as find_stretch
from levada.wire.fetch import Fetched, Wanted

#: What a consumer is told where the log is broken. It is not told to try again, as KAFKA_STORAGE_ERROR would.
_CORRUPT_MESSAGE: Final = 2


class Row:
    """One partition that is asked for, and the answer for it so far."""

    __slots__ = ("at_end", "bytes_max", "epoch", "fetched", "index", "offset", "partition", "told", "topic")

    def __init__(self, topic: str | UUID, wanted: Wanted) -> None:
        self.topic = topic
        self.partition: Partition | None = None
        #: High watermark and log start as the client last heard of them; for sessions.
        self.told: tuple[int, int] | None = None
        self.want(wanted)

    def want(self, wanted: Wanted) -> None:
        self.index, self.epoch, self.offset, _, _, self.bytes_max = wanted
        self.fetched = Fetched(self.index)
        #: There is nothing more for this reader now.
        self.at_end = False


class Found(NamedTuple):
    """As a Slice, with the records still in their file."""

    batches: Stretch
    bounds: Bounds
    aborted: Sequence[tuple[int, int]]


class Reading:
    """Reads rows. `size` counts bytes of records, `failed` says that a row was refused, `cold` names rows whose pages are
    not in memory: those have to be read by `read_cold`."""

    def __init__(self, node: Node, isolation: Isolation, bytes_max: int) -> None:
        self._node = node
        self._isolation = isolation
        self._bytes_max = bytes_max
        #: Every row that was read, in the order of the first time.
        self.rows: dict[Row, None] = {}
        self.size = 0
        #: A batch did not fit any more: for this answer no further one is looked for.
        self._full = False
        self.failed = False
        self.cold: list[Row] = []

    def read(self, rows: Iterable[Row]) -> None:
        """Read these rows anew, as far as memory holds them."""
        for row in rows:
            if self._full and row.told is not None:
                # Its turn comes with the session's next Fetch.
                continue
            self.rows[row] = None
            self.size -= len(row.fetched.records)
            try:
                self._take(row, self._read(row))
            except WouldBlock:
                self.cold.append(row)
                row.fetched = Fetched(row.index)
            except LevadaError as error:
                self._refuse(row, error)

    async def read_cold(self) -> None:
        """Read from the disk what was not in memory."""
        cold, self.cold = self.cold, []
        for row in cold:
            assert row.partition is not None
            try:
                self._take(row, await row.partition.read_cold(row.offset, self._room(row), self._isolation))
            except LevadaError as error:
                self._refuse(row, error)

    def let_go(self) -> list[Row]:
        """Forget the records that were read, and say of which rows: a reader who waits holds no memory."""
        held = [row for row in self.rows if row.fetched.records]
        for row in held:
            row.fetched = row.fetched._replace(records=b"")
        self.size = 0
        self._full = False
        return held

    def _read(self, row: Row) -> Slice | Found:
        row.at_end = False
        partition = row.partition = self._partition(row)
        check_epoch(partition, row.epoch)
        bounds = partition.bounds
        limit = bounds.stable_end if self._isolation else bounds.end
        if row.offset == limit and partition.damage is None:
            # The usual case while waiting: no need to look into the log.
            row.at_end = True
            return Slice(b"", bounds)
        room = self._room(row)
        if self.size and (self._full or room <= 0):
            return Slice(b"", bounds)
        stretch = find_stretch(partition.log, row.offset, room, limit)
        if stretch is None:
            return partition.read(row.offset, room, self._isolation)
        aborted = partition.log.aborted(row.offset, stretch.end_offset, nowait=True) if self._isolation else ()
        return Found(stretch, bounds, aborted)

    def _partition(self, row: Row) -> Partition:
        engine = self._node.engine
        if isinstance(row.topic, UUID):
            return engine.partition_by_id(row.topic, row.index)
        return engine.partition(row.topic, row.index)

    def _room(self, row: Row) -> int:
        return max(0, min(row.bytes_max, self._bytes_max - self.size))

    def _take(self, row: Row, found: Slice | Found) -> None:
        records, (start, stable_end, end), aborted = found
        if self.size and len(records) > self._room(row):
            self._full = len(records) > self._bytes_max - self.size
            records = b""
        self.size += len(records)
        row.fetched = Fetched(
            row.index,
            NONE,
            end,
            stable_end,
            start,
            records,  # type: ignore[arg-type]  # of a Stretch the wire asks nothing but its length
            aborted if self._isolation and records else None,
        )

    def _refuse(self, row: Row, error: LevadaError) -> None:
        self.failed = True
        code = _CORRUPT_MESSAGE if isinstance(error, DamagedLog) else code_of(error)
        if row.partition is None:
            row.fetched = Fetched(row.index, code)
            return
        start, stable_end, end = row.partition.bounds
        leader = (self._node.node_id, row.partition.leader_epoch) if isinstance(error, FencedLeaderEpoch) else None
        row.fetched = Fetched(row.index, code, end, stable_end, start, current_leader=leader)
