"""Rounds of compaction over a real log."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.config import INT64_MAX, TopicConfig
from levada.errors import DamagedLog, StorageFailed, StorageFull
from levada.log.compaction import Compaction
from levada.log.disk import WouldBlock
from levada.log.files import Files
from levada.log.log import Log
from levada.records.batch import Batch, batches, checksum
from levada.records.build import build
from levada.records.read import Record, read, read_all
from support.batches import make_batch, make_marker
from support.simulated_disk import PowerCut, SimulatedDisk

PATH = "/data/table-0"

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def config(**changes: object) -> TopicConfig:
    settings: dict[str, object] = {
        "compact": True,
        "delete": False,
        "segment_bytes": 300,
        "index_interval_bytes": 64,
        "min_cleanable_dirty_ratio": 0.0,
        **changes,
    }
    return TopicConfig(**settings)  # type: ignore[arg-type]


class Compacted:
    """A log with tiny segments, and a memory of everything that was written to it."""

    def __init__(self, **changes: object) -> None:
        self.config = config(**changes)
        self.disk = SimulatedDisk()
        self.disk.mkdir(PATH)
        self.now_ms = 1_000_000
        self.log = self._open(clean=False, recovery_point=None)
        self.written: list[Record] = []

    def _open(self, *, clean: bool, recovery_point: int | None, same_boot: bool = True) -> Log:
        log = Log.open(
            PATH,
            self.config,
            self.disk,
            now_ms=self.now_ms,
            clean=clean,
            recovery_point=recovery_point,
            same_boot=same_boot,
            files=Files(open_max=3),
        )
        assert log.damage is None, log.damage
        return log

    def put(self, *pairs: tuple[bytes | None, bytes | None], codec: str = "none") -> int:
        built = build([(key, value) for key, value in pairs], timestamp_ms=self.now_ms, codec=codec)
        return self.append(Batch(memoryview(built)))

    def append(self, batch: Batch) -> int:
        base_offset = self.log.append(batch, leader_epoch=0, now_ms=self.now_ms).base_offset
        if not batch.is_control:
            self.written += read(batch)
        return base_offset

    def fill(self, rounds: int = 6, keys: int = 4) -> None:
        """Overwrite the same few keys until several segments are closed."""
        for number in range(rounds):
            self.put(*((b"key-%d" % key, b"value-%d" % number) for key in range(keys)))

    def settle(self) -> None:
        self.log.mark_synced(self.log.sync())

    def due(self) -> Compaction | None:
        self.settle()
        return self.log.compaction(self.now_ms)

    def compact(self) -> Compaction:
        compaction = self.due()
        assert compaction is not None and compaction.run()
        self.log.install(compaction, self.now_ms)
        return compaction

    def reopen(self) -> None:
        self.log.close()
        self.log = self._open(clean=True, recovery_point=None)

    def crash(self, seed: int | None = None) -> None:
        """Stop dead, and verify everything; with a seed the machine goes down too, after all that was written was synced."""
        recovery_point = self.log.synced_offset
        self.log.abandon()
        if seed is None:
            self.disk.kill()
            self.log = self._open(clean=False, recovery_point=0)
        else:
            self.disk.crash(random.Random(seed))
            self.log = self._open(clean=False, recovery_point=recovery_point, same_boot=False)

    def batches(self) -> Iterator[Batch]:
        offset = self.log.start_offset
        while offset < self.log.end_offset:
            data = bytes(self.log.read(offset, 1000, self.log.end_offset))
            if not data:
                return
            for batch in batches(data):
                yield batch
                offset = batch.next_offset

    def records(self) -> list[Record]:
        return [record for batch in self.batches() for record in read_all(batch.view)]

    def latest(self) -> dict[bytes, bytes | None]:
        """What a reader of the whole log ends up with, key by key."""
        return {record.key: record.value for record in self.records() if record.key is not None}

    def expected(self) -> dict[bytes, bytes | None]:
        return {record.key: record.value for record in self.written if record.key is not None}

    @property
    def leftovers(self) -> list[str]:
        return [path for path in self.disk.paths() if path.endswith((".cleaned", ".swap", ".tmp"))]


@pytest.fixture
def table() -> Compacted:
    return Compacted()


# What is left


def test_the_latest_record_of_each_key_survives_at_its_offset(table: Compacted) -> None:
    table.fill()
    active = table.log.segments[-1].base_offset
    table.compact()
    records = table.records()
    assert table.latest() == table.expected()
    assert [r for r in records if r.offset >= active] == [r for r in table.written if r.offset >= active]
    assert set(records) < set(table.written) and records == sorted(records)


def test_the_active_segment_is_never_touched(table: Compacted) -> None:
    table.fill()
    active = table.log.segments[-1]
    before = table.disk.read(active.path)
    table.compact()
    assert table.log.segments[-1] is active and table.disk.read(active.path) == before


def test_a_compacted_log_opens_again(table: Compacted) -> None:
    table.fill()
    table.compact()
    before = table.records()
    table.reopen()
    assert table.records() == before
    table.crash()
    assert table.records() == before
    table.fill(rounds=3)
    table.compact()
    assert table.latest() == table.expected()


def test_segments_that_became_small_become_one() -> None:
    table = Compacted(segment_bytes=1000)
    table.fill(rounds=80)
    count = len(table.log.segments)
    table.compact()
    table.fill(rounds=10)
    table.compact()
    assert len(table.log.segments) < count / 3
    assert table.latest() == table.expected()


def test_every_offset_can_still_be_asked_for(table: Compacted) -> None:
    table.fill(rounds=10)
    table.compact()
    records = table.records()
    for offset in range(table.log.start_offset, table.log.end_offset):
        data = bytes(table.log.read(offset, 1, table.log.end_offset))
        found = next(batch for batch in batches(data))
        assert found.last_offset >= offset
        following = [record for record in records if record.offset >= offset]
        assert not following or found.base_offset <= following[0].offset


def test_a_segment_of_which_everything_stays_is_left_alone() -> None:
    table = Compacted(segment_bytes=150)
    for number in range(8):
        table.put((b"only-%d" % number, b"x" * 40))
    before = list(table.log.segments)
    compaction = table.compact()
    assert compaction.rewritten == [] and table.log.segments == before
    assert table.due() is None, "it is compacted all the same"


def test_a_batch_that_nobody_can_read_stays(table: Compacted) -> None:
    table.fill(rounds=1)
    garbage = make_batch(1)
    garbage.view[-3:] = b"\xff\xff\xff"
    checksum(garbage.view)
    offset = table.log.append(Batch(garbage.view), leader_epoch=0, now_ms=table.now_ms).base_offset
    table.fill()
    table.compact()
    kept = next(batch for batch in table.batches() if batch.base_offset == offset)
    assert kept.payload == garbage.payload


def test_a_tombstone_goes_a_day_after_it_was_first_compacted(table: Compacted) -> None:
    table.put((b"gone", b"1"), (b"here", b"1"))
    table.put((b"gone", None))
    table.fill()
    table.compact()
    assert table.latest()[b"gone"] is None
    table.now_ms += DAY_MS - 1
    table.fill()
    table.compact()
    assert table.latest()[b"gone"] is None
    table.now_ms += 1
    table.fill()
    table.compact()
    assert b"gone" not in table.latest() and table.latest()[b"here"] == b"1"


def test_timestamps_are_still_found(table: Compacted) -> None:
    table.fill()
    table.now_ms += HOUR_MS
    offset = table.put((b"late", b"1"))
    table.fill()
    table.compact()
    found = table.log.offset_at(table.now_ms)
    assert found is not None and (found.offset, found.timestamp_ms) == (offset, table.now_ms)


def test_more_keys_than_fit_in_memory_take_several_rounds(table: Compacted) -> None:
    for _ in range(2):
        for number in range(40):
            table.put((b"key-%d" % number, b"x" * 10))
    rounds = 0
    while (compaction := table.due()) is not None:
        compaction.keys_max = 10
        assert compaction.run()
        table.log.install(compaction, table.now_ms)
        assert table.latest() == table.expected()
        rounds += 1
    assert rounds > 2
    closed = [record for record in table.records() if record.offset < table.log.segments[-1].base_offset]
    assert len({record.key for record in closed}) == len(closed)


# Producers and transactions


def test_a_producer_goes_on_where_it_was_though_its_records_are_gone(table: Compacted) -> None:
    table.append(make_batch(2, producer_id=7, sequence=0, key=b"key"))
    table.append(make_batch(2, producer_id=7, sequence=2, key=b"key"))
    table.put((b"key-0", b""), (b"key-1", b""))
    table.fill()
    table.compact()
    table.crash()
    assert table.log.append(make_batch(2, producer_id=7, sequence=2), leader_epoch=0, now_ms=0).duplicate
    assert not table.log.append(make_batch(1, producer_id=7, sequence=4), leader_epoch=0, now_ms=0).duplicate


def test_aborted_records_go_and_then_their_marker(table: Compacted) -> None:
    table.put((b"a", b"kept"))
    first = table.append(make_batch(records=[Record(0, 0, b"a", b"aborted")], producer_id=9, transactional=True))
    table.append(make_marker(commit=False, producer_id=9))
    del table.written[-1]
    table.fill()
    table.compact()
    assert table.latest() == table.expected()
    # Its producer is still remembered, so an empty batch is left of it, and so is the marker.
    emptied = next(batch for batch in table.batches() if batch.base_offset == first)
    assert emptied.record_count == 0
    assert [(a.producer_id, a.first_offset) for a in table.log.aborted(0, table.log.end_offset)] == [(9, first)]
    table.now_ms += 2 * DAY_MS
    table.log.producers.expire(table.now_ms)
    for _ in range(3):
        table.fill()
        table.compact()
        table.now_ms += 2 * DAY_MS
    assert not any(batch.producer_id == 9 for batch in table.batches())
    assert table.log.aborted(0, table.log.end_offset) == []
    table.crash()
    assert table.log.aborted(0, table.log.end_offset) == []


def test_a_key_that_a_producer_deleted_stays_deleted_though_it_once_aborted(table: Compacted) -> None:
    sequence = 0

    def transaction(key: bytes, value: bytes | None, *, commit: bool = True) -> None:
        nonlocal sequence
        records = [Record(0, table.now_ms, key, value)]
        table.append(make_batch(records=records, producer_id=9, sequence=sequence, transactional=True))
        table.append(make_marker(producer_id=9, commit=commit))
        sequence += 1

    transaction(b"aborted", b"never", commit=False)
    transaction(b"deleted", b"old")
    table.fill()
    table.compact()
    transaction(b"deleted", None)
    transaction(b"changed", b"1")
    transaction(b"changed", b"2")
    table.fill()
    table.compact()
    assert [record.value for record in table.records() if record.key == b"deleted"] == [None]
    assert [record.value for record in table.records() if record.key == b"changed"] == [b"2"]
    for _ in range(2):
        table.now_ms += 2 * DAY_MS
        table.fill()
        table.compact()
    assert b"deleted" not in table.latest()


def test_nothing_is_compacted_beyond_an_open_transaction(table: Compacted) -> None:
    table.fill()
    offset = table.append(make_batch(1, producer_id=9, transactional=True))
    table.fill()
    compaction = table.compact()
    assert compaction.cleaned_to <= offset
    assert [r for r in table.records() if r.offset >= offset] == [r for r in table.written if r.offset >= offset]
    table.append(make_marker(producer_id=9))
    table.fill(rounds=2)
    assert table.compact().cleaned_to > offset


# When it is due


def test_an_empty_or_unrolled_log_is_not_due(table: Compacted) -> None:
    assert table.due() is None
    table.put((b"a", b"1"))
    assert table.due() is None


def test_a_log_is_due_when_enough_of_it_is_dirty() -> None:
    table = Compacted(min_cleanable_dirty_ratio=0.5)
    for number in range(30):
        table.put((b"key-%d" % number, b"x" * 30))
    table.compact()
    clean = sum(segment.size for segment in table.log.segments[:-1])
    while table.due() is None:
        table.put((b"key-0", b"x" * 30))
        assert sum(segment.size for segment in table.log.segments[:-1]) < 3 * clean
    dirty = sum(segment.size for segment in table.log.segments[:-1]) - clean
    assert clean < dirty < 2 * clean


def test_a_topic_that_is_not_compacted_is_never_due() -> None:
    table = Compacted(compact=False, delete=True)
    table.fill()
    assert table.due() is None


def test_young_records_are_left_alone() -> None:
    table = Compacted(min_compaction_lag_ms=HOUR_MS)
    table.fill()
    old = table.log.end_offset
    assert table.due() is None
    table.now_ms += HOUR_MS
    table.fill()
    compaction = table.compact()
    assert 0 < compaction.cleaned_to <= old
    assert [r for r in table.records() if r.offset >= old] == [r for r in table.written if r.offset >= old]


def test_old_dirt_is_due_however_little_it_is() -> None:
    table = Compacted(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR_MS)
    table.fill()
    assert table.due() is None
    table.now_ms += HOUR_MS + 1
    assert table.due() is not None
    lazy = Compacted(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=INT64_MAX)
    lazy.fill()
    lazy.now_ms += 1000 * DAY_MS
    assert lazy.due() is None


def test_a_segment_is_closed_before_its_records_are_too_old_to_wait() -> None:
    table = Compacted(segment_bytes=100_000, max_compaction_lag_ms=HOUR_MS)
    table.fill()
    table.now_ms += HOUR_MS
    table.fill(rounds=1)
    assert len(table.log.segments) == 1
    table.now_ms += 1
    table.fill(rounds=1)
    assert len(table.log.segments) == 2 and table.due() is not None


def test_only_what_lies_behind_the_last_round_is_dirty(table: Compacted) -> None:
    table.fill()
    table.compact()
    assert table.due() is None
    table.reopen()
    assert table.due() is None, "also after opening it again"


# Stops and failures


def test_a_power_cut_at_any_moment_leaves_the_old_segments_or_the_new_ones() -> None:
    step, cut = 0, True
    while cut:
        step += 1
        for seed in range(4):
            table = Compacted()
            table.put((b"deleted", b"1"))
            table.put((b"deleted", None))
            table.fill(rounds=8)
            compaction = table.due()
            assert compaction is not None
            table.disk.crash_at = table.disk.steps + step
            cut = False
            try:
                compaction.run()
                table.log.install(compaction, table.now_ms)
            except PowerCut:
                cut = True
            table.crash(seed)
            assert table.leftovers == []
            _check_power_cut(table)


def test_a_power_cut_while_a_failed_round_is_undone_leaves_all_of_it_or_nothing() -> None:
    step, cut = 0, True
    while cut:
        step += 1
        for seed in range(4):
            table = Compacted()
            table.put((b"deleted", b"1"))
            table.put((b"deleted", None))
            table.fill(rounds=8)
            compaction = table.due()
            assert compaction is not None
            table.disk.fail("replace", errno.EIO, times=1, path_ends="cleaner-offset-checkpoint")
            table.disk.crash_at = table.disk.steps + step
            cut = True
            try:
                compaction.run()
            except StorageFailed:
                cut = False
            except PowerCut:
                pass
            table.crash(seed)
            assert table.leftovers == []
            _check_power_cut(table)


def _check_power_cut(table: Compacted) -> None:
    assert table.latest() == table.expected()
    offsets = [record.offset for record in table.records()]
    assert offsets == sorted(set(offsets))
    # Whatever came back, the deleted key must not, once its tombstone is gone.
    for _ in range(2):
        table.fill(rounds=3)
        table.compact()
        table.now_ms += 2 * DAY_MS
    table.fill(rounds=3)
    table.compact()
    assert b"deleted" not in table.latest()
    assert table.latest() == {key: value for key, value in table.expected().items() if value is not None}


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, StorageFull), (errno.EIO, StorageFailed)])
@pytest.mark.parametrize("what", ["create", "write", "sync", "rename", "replace", "fsync_dir"])
def test_a_disk_that_fails_during_a_round_leaves_the_log_as_it_was(
    what: str, number: int, error: type[Exception], table: Compacted
) -> None:
    table.fill(rounds=8)
    before = table.records()
    compaction = table.due()
    assert compaction is not None
    table.disk.fail(what, number, times=1)
    with pytest.raises(error):
        compaction.run()
    table.disk.fault = None
    assert compaction.rewritten == [] and table.records() == before and table.leftovers == []
    table.compact()
    assert table.latest() == table.expected()


@pytest.mark.parametrize("what", ["rename", "fsync_dir"])
def test_a_log_whose_segments_were_half_replaced_says_so_and_is_whole_again_once_opened(
    what: str, table: Compacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levada.log.log._RETRIES_MAX", 3)
    table.fill(rounds=8)
    compaction = table.due()
    assert compaction is not None and compaction.run()
    table.disk.fail(what, errno.EIO, times=1)
    with pytest.raises(StorageFailed):
        table.log.install(compaction, table.now_ms)
    table.disk.fault = None
    for nowait in (False, True):
        with pytest.raises((StorageFailed, WouldBlock)):
            table.log.read(0, 1000, table.log.end_offset, nowait=nowait)
    with pytest.raises(StorageFailed):
        table.log.offset_at(0)
    with pytest.raises(StorageFailed):
        table.put((b"key", b"value"))
    table.crash()
    assert table.latest() == table.expected()


def test_a_cancelled_round_changes_nothing(table: Compacted) -> None:
    table.fill()
    compaction = table.due()
    assert compaction is not None
    before = table.disk.paths()
    compaction.cancel()
    assert compaction.run() is False
    assert table.disk.paths() == before
    table.compact()


def test_damage_ends_the_round_and_is_named() -> None:
    table = Compacted()
    table.fill()
    compaction = table.due()
    assert compaction is not None
    path = table.log.segments[1].path
    table.disk.flip(path, table.disk.size(path) - 1, 1)
    with pytest.raises(DamagedLog, match="byte"):
        compaction.run()
    assert table.leftovers == []
    assert table.log.damage is not None and table.log.damage.file == path


def test_appends_go_on_during_a_round(table: Compacted) -> None:
    table.fill()
    compaction = table.due()
    assert compaction is not None
    table.fill(rounds=3)
    assert compaction.run()
    table.fill(rounds=3)
    table.log.install(compaction, table.now_ms)
    assert table.latest() == table.expected()
    table.crash()
    assert table.latest() == table.expected()


def test_retention_during_a_round_brings_nothing_back() -> None:
    table = Compacted(segment_bytes=1000, delete=True, retention_ms=HOUR_MS)
    table.put((b"early", b"1"))
    table.fill(rounds=10)
    table.compact()
    table.fill(rounds=12)
    table.now_ms += HOUR_MS
    table.put((b"deleted", b"1"))
    table.fill(rounds=12)
    table.put((b"deleted", None))
    table.fill(rounds=12)
    compaction = table.due()
    assert compaction is not None and compaction.run()
    groups = [len(rewritten.replaced) for rewritten in compaction.rewritten]
    assert max(groups) > 1
    table.now_ms += 1
    assert table.log.retain(table.now_ms) > 0
    start_offset = table.log.start_offset
    assert any(start_offset == segment.base_offset for each in compaction.rewritten for segment in each.replaced[1:])
    table.log.install(compaction, table.now_ms)
    assert table.log.start_offset == start_offset and table.records()[0].offset >= start_offset
    assert table.latest()[b"deleted"] is None
    table.crash(1)
    table.config = config(segment_bytes=1000)
    for _ in range(3):
        table.log.config = table.config
        table.fill(rounds=12)
        table.compact()
        table.now_ms += 2 * DAY_MS
    assert b"deleted" not in table.latest()


# Any history

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"a key of more than sixteen bytes"])
WRITES = st.tuples(
    st.just("put"),
    st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=30)), min_size=1, max_size=4),
    st.sampled_from(["none", "gzip", "zstd"]),
)
TRANSACTIONS = st.tuples(
    st.just("transaction"),
    st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=10)), min_size=1, max_size=3),
    st.booleans(),
)
STEPS = st.one_of(
    WRITES, WRITES, WRITES, TRANSACTIONS, st.tuples(st.sampled_from(["compact", "reopen", "crash", "day"]))
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=60), st.integers(0, 1000))
def test_after_any_history_the_latest_of_each_key_is_there_and_nothing_else_changed(
    steps: list[tuple[object, ...]], seed: int
) -> None:
    table = Compacted(segment_bytes=200)
    sequence = 0
    untouched_from = 0
    aborted: set[int] = set()
    for step in [*steps, ("compact",)]:
        if step[0] == "put":
            table.put(*step[1], codec=step[2])  # type: ignore[misc, arg-type]
        elif step[0] == "transaction":
            records = [Record(0, table.now_ms, key, value) for key, value in step[1]]  # type: ignore[attr-defined]
            batch = make_batch(records=records, producer_id=3, sequence=sequence, transactional=True)
            base_offset = table.append(batch)
            if not step[2]:
                aborted |= set(range(base_offset, base_offset + len(records)))
            sequence += len(records)
            table.append(make_marker(producer_id=3, commit=bool(step[2])))
        elif step[0] == "compact":
            compaction = table.due()
            if compaction is not None:
                assert compaction.run()
                table.log.install(compaction, table.now_ms)
                untouched_from = compaction.cleaned_to
                _check_unique(table, untouched_from)
        elif step[0] == "day":
            table.now_ms += DAY_MS
        elif step[0] == "reopen":
            table.reopen()
        else:
            table.settle()
            table.crash(seed)
        _check(table, untouched_from, aborted)


def _check_unique(table: Compacted, cleaned_to: int) -> None:
    keys = [record.key for record in table.records() if record.offset < cleaned_to]
    assert len(keys) == len(set(keys))


def _check(table: Compacted, untouched_from: int, aborted: set[int]) -> None:
    everything = b"".join(bytes(batch.view) for batch in table.batches())
    entries = [(a.producer_id, a.first_offset) for a in table.log.aborted(0, table.log.end_offset)]
    records = list(read_all(everything, aborted=entries, committed_only=True))
    committed = [record for record in table.written if record.offset not in aborted]
    assert [r for r in records if r.offset >= untouched_from] == [r for r in committed if r.offset >= untouched_from]
    assert set(records) <= set(committed) and len(set(records)) == len(records)
    latest = {record.key: record for record in committed}
    for record in latest.values():
        # A tombstone may be gone, and then nothing of its key is left.
        if record.value is not None or any(each.key == record.key for each in records):
            assert record in records
