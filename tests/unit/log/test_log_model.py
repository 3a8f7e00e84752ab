"""A log against a list: whatever is done to it, in whatever order, it holds what the list holds."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from levada.config import HOUR_MS
from levada.errors import OffsetOutOfRange
from levada.log.log import Log
from levada.records.batch import Batch, batches
from support.batches import make_batch
from support.logs import NOW_MS, append, contents, open_log, sync, tiny
from support.simulated_disk import SimulatedDisk


class LogAgainstAList(RuleBasedStateMachine):
    """The model: the batches, as (base offset, bytes, largest timestamp), and where the log starts and ends."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.model: list[tuple[int, bytes, int]] = []
        self.start = self.end = 0
        self.now_ms = NOW_MS
        self.log: Log

    @initialize(segment_bytes=st.integers(100, 1500), interval=st.integers(0, 300), retention_ms=st.integers(0, 500))
    def make(self, segment_bytes: int, interval: int, retention_ms: int) -> None:
        self.config = tiny(
            segment_bytes=segment_bytes, index_interval_bytes=interval, retention_ms=retention_ms, segment_ms=40
        )
        self.log = open_log(self.disk, self.config, clean=True)

    @rule(sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 80), st.integers(0, 30)), min_size=1, max_size=8))
    def append(self, sizes: list[tuple[int, int, int]]) -> None:
        for count, size, later_ms in sizes:
            self.now_ms += later_ms
            batch = make_batch(count, value=b"v" * size, timestamp_ms=self.now_ms)
            assert append(self.log, batch, now_ms=self.now_ms).base_offset == self.end
            self.model.append((self.end, bytes(batch.view), batch.max_timestamp))
            self.end += count

    # Often enough that there is something to take away.
    append_more = append_again = append

    @rule()
    def sync(self) -> None:
        assert sync(self.log) == self.end

    @rule()
    def roll(self) -> None:
        if self.log.segments[-1].size:
            self.log.roll(self.now_ms)

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        point = self.log.synced_offset
        self.log.close() if clean else self.log.abandon()
        self.log = open_log(self.disk, self.config, clean=clean, recovery_point=point, now_ms=self.now_ms)
        assert self.log.cut_bytes == 0

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        self.log.trim(self.start)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        to = data.draw(st.integers(self.start, self.end))
        self.log.truncate(to, self.now_ms)
        while self.model and self.model[-1][0] + Batch(memoryview(self.model[-1][1])).last_offset_delta >= to:
            self.end = self.model.pop()[0]
        self.start = min(self.start, self.end)

    @rule(later_ms=st.integers(0, 100), room=st.none() | st.integers(0, 10))
    def retain(self, later_ms: int, room: int | None) -> None:
        self.now_ms += later_ms
        floor = None if room is None else max(0, self.end - room)
        before = self.log.size_bytes
        freed = self.log.retain(self.now_ms, floor=floor)
        assert self.log.size_bytes == before - freed
        old_ms = self.now_ms - self.config.retention_ms
        gone = [batch for batch in self.model if batch[0] < self.log.start_offset and batch[0] >= self.start]
        assert all(timestamp_ms < old_ms for _, _, timestamp_ms in gone)
        assert floor is None or self.log.start_offset <= max(floor, self.start)
        self.start = self.log.start_offset

    @rule()
    def purge(self) -> None:
        self.log.purge(self.now_ms + HOUR_MS)
        assert not [path for path in self.disk.paths() if path.endswith(".deleted")]

    @rule(data=st.data(), max_bytes=st.sampled_from([0, 100, 200, 300, 500, 1000]))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(0, self.end + 1))
        limit = max(offset, data.draw(st.just(self.end) | st.integers(offset, max(offset, self.end))))
        if not self.start <= offset <= self.end:
            try:
                self.log.read(offset, max_bytes, limit)
            except OffsetOutOfRange as refused:
                assert (refused.start, refused.end) == (self.start, self.end)
                return
            raise AssertionError(f"offset {offset} is not there")
        found = [bytes(batch.view) for batch in batches(self.log.read(offset, max_bytes, limit))]
        holding = [batch[1] for batch in self.model if self.ends_at(batch) > offset and self.ends_at(batch) <= limit]
        assert found == holding[: len(found)]
        assert bool(found) == bool(holding)
        assert len(found) <= 1 or sum(map(len, found)) <= max_bytes
        if len(found) < len(holding):
            following = holding[len(found)]
            begins_segment = Batch(memoryview(following)).base_offset in {
                each.base_offset for each in self.log.segments
            }
            assert begins_segment or sum(map(len, found)) + len(following) > max_bytes

    @rule(data=st.data())
    def look_up(self, data: st.DataObject) -> None:
        target = data.draw(st.integers(NOW_MS - 1, self.now_ms + 5))
        later = [batch for batch in self.model if batch[2] >= target and self.ends_at(batch) > self.start]
        found = self.log.offset_at(target)
        if later and later[0][0] >= self.start:
            assert found is not None and later[0][0] <= found.offset < self.ends_at(later[0])
            assert found.timestamp_ms >= target
        elif not later:
            assert found is None

    @staticmethod
    def ends_at(batch: tuple[int, bytes, int]) -> int:
        return Batch(memoryview(batch[1])).next_offset

    @invariant()
    @precondition(lambda self: hasattr(self, "log"))
    def bounds_agree(self) -> None:
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        assert self.log.synced_offset <= self.end
        assert self.log.damage is None

    def teardown(self) -> None:
        if hasattr(self, "log"):
            assert contents(self.log) == [batch[1] for batch in self.model if self.ends_at(batch) > self.start]


LogAgainstAList.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLogAgainstAList = LogAgainstAList.TestCase
