"""Opening a log after a stop: cut what was torn, report what is damaged, trust nothing that can be built again."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from levada.config import DAY_MS
from levada.errors import DamagedLog
from levada.log import directory
from levada.log.index import OffsetIndex, TimeIndex
from levada.log.log import Log
from levada.log.rebuild import build
from levada.records.batch import Batch, batches
from support.batches import make_batch, make_marker
from support.logs import NOW_MS, PATH, append, contents, fill, open_log, read_batches, sync, tiny
from support.simulated_disk import SimulatedDisk

#: Not under the checksum, and any number may be right: a changed leader epoch cannot be told.
LEADER_EPOCH = range(12, 16)


class Written:
    """A log that was written and left as a killed process leaves it, and where each batch lies."""

    def __init__(self, sizes: list[int], *, close: bool = False) -> None:
        self.disk = SimulatedDisk()
        log = open_log(self.disk, clean=True)
        for size in sizes:
            append(log, count=1, value=b"v" * size, timestamp_ms=NOW_MS + size)
        sync(log)
        self.batches = contents(log)
        self.places: list[tuple[str, int]] = []
        for segment in log.segments:
            position = 0
            for batch in batches(self.disk.read(segment.path)):
                self.places.append((segment.path, position))
                position += batch.size
        self.files = [segment.path for segment in log.segments]
        if close:
            log.close()

    def offset(self, number: int) -> int:
        return number  # one record a batch

    def hit(self, file: str, position: int) -> int:
        """The number of the batch this byte belongs to."""
        return max(n for n, (path, start) in enumerate(self.places) if path == file and start <= position)


sizes = st.lists(st.integers(0, 150), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(sizes, st.data(), st.booleans())
def test_the_longest_whole_prefix_is_left_after_any_truncation(
    sizes: list[int], data: st.DataObject, boot: bool
) -> None:
    written = Written(sizes)
    last = written.files[-1]
    size = data.draw(st.integers(0, written.disk.size(last)))
    written.disk.cut(last, size)
    whole = [
        batch
        for batch, (file, start) in zip(written.batches, written.places, strict=True)
        if file != last or start + len(batch) <= size
    ]
    log = open_log(written.disk, same_boot=boot)
    assert contents(log) == whole
    assert log.damage is None and log.end_offset == len(whole)
    append(log)
    assert len(contents(log)) == len(whole) + 1


@settings(max_examples=60, deadline=None)
@given(sizes, st.data(), st.booleans())
def test_what_was_synced_and_is_missing_is_damage(sizes: list[int], data: st.DataObject, boot: bool) -> None:
    written = Written(sizes)
    last = written.files[-1]
    size = data.draw(st.integers(0, written.disk.size(last)))
    assume(size < written.disk.size(last))
    written.disk.cut(last, size)
    log = open_log(written.disk, recovery_point=len(sizes), same_boot=boot)
    assert log.damage is not None
    assert log.damage.file == last and log.damage.position <= size
    assert [bytes(batch.view) for batch in read_batches(log, end_offset=log.damage.offset)] == written.batches[
        : log.damage.offset
    ]


@settings(max_examples=150, deadline=None)
@given(sizes, st.data(), st.integers(1, 255), st.booleans())
def test_a_flipped_byte_is_torn_or_damage_as_the_rule_says(
    sizes: list[int], data: st.DataObject, mask: int, same_boot: bool
) -> None:
    written = Written(sizes)
    file = data.draw(st.sampled_from([file for file in written.files if written.disk.size(file)]))
    position = data.draw(st.integers(0, written.disk.size(file) - 1))
    number = written.hit(file, position)
    start = written.places[number][1]
    assume(position - start not in LEADER_EPOCH)
    point = data.draw(st.none() | st.integers(0, len(sizes)))
    written.disk.flip(file, position, mask)
    log = open_log(written.disk, recovery_point=point, same_boot=same_boot)

    scanned_from = (
        0
        if point is None
        else max(n for n, f in enumerate(written.files) if written.hit(f, 0) <= min(point, len(sizes) - 1))
    )
    if written.files.index(file) < scanned_from:
        assert log.damage is None and log.end_offset == len(sizes)
        return
    follows = same_boot and number + 1 < len(sizes)
    if follows or number < (point or 0):
        assert log.damage is not None
        assert (log.damage.file, log.damage.position, log.damage.offset) == (file, start, number)
        assert b"".join(bytes(b.view) for b in read_batches(log, end_offset=number)) == b"".join(
            written.batches[:number]
        )
        with pytest.raises(DamagedLog):
            append(log)
        with pytest.raises(DamagedLog) as refused:
            log.read(number, 1, len(sizes))
        assert (refused.value.file, refused.value.position) == (file, start)
    else:
        assert log.damage is None
        assert contents(log) == written.batches[:number]
        assert log.cut_bytes == sum(map(len, written.batches[number:]))


# After a clean stop


@settings(max_examples=60, deadline=None)
@given(sizes, st.data(), st.integers(1, 255))
def test_damage_is_found_when_it_is_read_and_remembered_from_then_on(
    sizes: list[int], data: st.DataObject, mask: int
) -> None:
    written = Written(sizes, close=True)
    number = data.draw(st.integers(0, len(sizes) - 1))
    file, start = written.places[number]
    # Under the checksum; a header that is broken otherwise may be met on the way to an offset before it.
    at = data.draw(st.integers(17, len(written.batches[number]) - 1))
    written.disk.flip(file, start + at, mask)
    log = open_log(written.disk, clean=True)
    found: list[bytes] = []
    with pytest.raises(DamagedLog):
        while True:
            found += [bytes(batch.view) for batch in batches(log.read(len(found), 120, len(sizes)))]
    assert found == written.batches[:number]
    for _ in range(2):
        assert log.damage is not None
        assert (log.damage.file, log.damage.position, log.damage.offset) == (file, start, number)
        with pytest.raises(DamagedLog):
            log.read(number, 120, len(sizes))
        with pytest.raises(DamagedLog):
            append(log)
        log.close()
        log = open_log(written.disk, clean=True)


def test_a_damaged_log_that_was_repaired_takes_writes_again() -> None:
    written = Written([10, 20, 30], close=True)
    file, start = written.places[1]
    written.disk.flip(file, start + 60, 1)
    log = open_log(written.disk, clean=True)
    assert log.scrub() == log.damage is not None
    log.close()
    written.disk.flip(file, start + 60, 1)
    log = open_log(written.disk, clean=True)
    assert log.damage is None
    append(log)
    log.close()
    assert open_log(written.disk, clean=True).damage is None


def test_damage_is_met_by_whoever_comes_first() -> None:
    """A header that does not make sense any more, in a log that was closed properly."""
    meets = {
        "a read": lambda log: log.read(2, 100, 3),
        "a look for a time": lambda log: log.offset_at(NOW_MS + 25),
        "a look for the latest": lambda log: log.max_timestamp(),
        "a cut": lambda log: log.truncate(2, NOW_MS),
    }
    for what, meet in meets.items():
        written = Written([10, 20, 30], close=True)
        # The index names the last batch, so opening the log looks at nothing before it.
        index = OffsetIndex(0)
        index.add(2, written.places[2][1])
        written.disk.replace(written.files[0].replace(".log", ".index"), index.pack())
        file, start = written.places[1]
        written.disk.flip(file, start + 16, 1)
        log = open_log(written.disk, tiny(index_interval_bytes=100), clean=True)
        log.segments[-1].held.indexes.offsets = OffsetIndex(0)
        with pytest.raises(DamagedLog):
            meet(log)
        assert log.damage is not None and (log.damage.position, log.damage.offset) == (start, 1), what


def test_damage_in_the_first_batch_is_met_by_an_append() -> None:
    written = Written([10, 20, 30], close=True)
    log = open_log(written.disk, clean=True)
    written.disk.flip(written.files[0], 16, 1)
    with pytest.raises(DamagedLog):
        append(log, count=1)
    assert log.damage is not None and log.end_offset == 3


def test_scrubbing_verifies_what_was_not_read() -> None:
    written = Written([10] * 3, close=True)
    assert open_log(written.disk, clean=True).scrub() is None
    file, start = written.places[-1]
    written.disk.flip(file, start + 50, 4)
    log = open_log(written.disk, clean=True)
    damage = log.scrub()
    assert damage is not None and (damage.file, damage.position, damage.offset) == (file, start, 2)


def test_bytes_are_verified_once() -> None:
    written = Written([10] * 3, close=True)
    log = open_log(written.disk, clean=True)
    assert len(contents(log)) == 3
    written.disk.flip(*written.places[1], 1)
    written.disk.flip(written.places[1][0], written.places[1][1] + 60, 1)
    log.read(0, 1 << 20, 3)
    assert log.damage is None


def test_what_this_process_wrote_is_not_verified() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 3)
    disk.flip(log.segments[0].path, 70, 1)
    assert len(contents(log)) == 3


def test_a_clean_start_reads_no_older_segment() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, clean=True)
    fill(log, 20)
    log.close()
    opened: list[str] = []
    disk.fault = lambda what, path: opened.append(path) if what in ("open", "read") else None
    log = open_log(disk, clean=True)
    assert len(log.segments) > 3 and log.end_offset == 60
    older = [segment.stem for segment in log.segments[:-1]]
    assert not [path for path in opened if path.startswith(tuple(older)) and not path.endswith(".snapshot")]


def test_an_unclean_start_reads_from_the_recovery_point_on() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, clean=True)
    fill(log, 20)
    point = sync(log)
    fill(log, 3)
    opened: list[str] = []
    disk.fault = lambda what, path: opened.append(path) if what == "open" else None
    older = [segment.path for segment in log.segments if segment.base_offset + 20 < point]
    log = open_log(disk, recovery_point=point)
    assert log.end_offset == 69
    assert older and not set(older) & set(opened)


# Indexes


def test_the_index_built_from_headers_equals_the_one_written() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, tiny(segment_bytes=2000))
    for number in range(60):
        append(log, count=1 + number % 3, timestamp_ms=NOW_MS + number * 7 % 50)
    log.close()
    for segment in log.segments:
        base = segment.base_offset
        built = build(base, disk.open(segment.path), segment.size, 100, dense=True).indexes
        assert built.offsets == OffsetIndex.parse(base, disk.read(segment.stem + ".index"))
        assert built.times == TimeIndex.parse(base, disk.read(segment.stem + ".timeindex"))
        assert len(built.offsets) > 3


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_no_index_file_is_trusted(data: st.DataObject) -> None:
    disk = SimulatedDisk()
    log = open_log(disk, tiny(segment_bytes=900))
    for number in range(30):
        append(log, count=1 + number % 3, timestamp_ms=NOW_MS + 10 * number)
    log.close()
    expected = contents(open_log(disk, clean=True))
    for segment in log.segments:
        for ending in (".index", ".timeindex"):
            path = segment.stem + ending
            what = data.draw(st.sampled_from(["keep", "remove", "empty", "cut", "flip", "zeros"]))
            content = disk.read(path)
            if what == "remove":
                disk.unlink(path)
            elif what == "empty":
                disk.replace(path, b"")
            elif what == "cut" and content:
                disk.cut(path, data.draw(st.integers(0, len(content) - 1)))
            elif what == "flip" and content:
                disk.flip(path, data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(1, 255)))
            elif what == "zeros":
                disk.replace(path, content + bytes(24))
    log = open_log(disk, clean=True)
    assert contents(log) == expected
    for batch in (Batch(memoryview(raw)) for raw in expected):
        assert batches_at(log, batch.last_offset)[0].base_offset == batch.base_offset
        assert log.offset_at(batch.max_timestamp) == (batch.last_offset, batch.max_timestamp, 0)
    assert log.damage is None
    append(log)
    assert len(contents(log)) == len(expected) + 1


def batches_at(log: Log, offset: int) -> list[Batch]:
    return list(batches(log.read(offset, 1, log.end_offset)))


# Producers


def transactions(log: Log, *, rounds: int = 8) -> None:
    """Two producers, one of which aborts every other transaction."""
    for number in range(rounds):
        append(log, make_batch(1, producer_id=1, sequence=number, transactional=True))
        append(log, make_batch(1, producer_id=2, sequence=number))
        append(log, make_marker(producer_id=1, commit=number % 2 == 0))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("snapshots", ["whole", "flipped", "gone"])
def test_producers_and_aborted_transactions_are_found_again(clean: bool, snapshots: str) -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    transactions(log)
    append(log, make_batch(1, producer_id=3, sequence=5, transactional=True))
    expected = log.producers.snapshot()
    aborted = log.aborted(0, log.end_offset)
    assert len(aborted) == 4 and len(log.segments) > 3
    if clean:
        log.close()
    else:
        sync(log)
    for path in disk.paths():
        if path.endswith(".snapshot"):
            if snapshots == "flipped":
                disk.flip(path, 8, 1)
            elif snapshots == "gone":
                disk.unlink(path)
    log = open_log(disk, clean=clean, recovery_point=log.end_offset - 1)
    assert log.producers.snapshot() == expected
    assert log.aborted(0, log.end_offset) == aborted
    assert log.first_unstable_offset == log.end_offset - 1


def test_an_index_of_aborted_transactions_that_is_out_of_date_is_built_again() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, tiny(segment_bytes=10_000))
    append(log, make_batch(1, producer_id=1, sequence=0, transactional=True))
    append(log, make_marker(producer_id=1, commit=False))
    log.close()
    log = open_log(disk, tiny(segment_bytes=10_000), clean=True)
    append(log, make_batch(1, producer_id=1, sequence=1, transactional=True))
    append(log, make_marker(producer_id=1, commit=False))
    expected = log.aborted(0, log.end_offset)
    assert len(expected) == 2
    sync(log)
    log.roll(NOW_MS)
    # Killed here: the file beside the closed segment has one of the two, and the recovery point lies behind it.
    log = open_log(disk, recovery_point=log.synced_offset)
    assert log.aborted(0, log.end_offset) == expected


@pytest.mark.parametrize("how", ["flipped", "gone", "cut"])
def test_a_broken_index_of_aborted_transactions_is_built_again(how: str) -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    transactions(log)
    expected = log.aborted(0, log.end_offset)
    log.close()
    for segment in log.segments:
        path = segment.stem + ".txnindex"
        if disk.exists(path):
            if how == "flipped":
                disk.flip(path, 0, 1)
            elif how == "cut":
                disk.cut(path, 10)
            else:
                disk.unlink(path)
                disk.unlink(segment.stem + ".index")
    log = open_log(disk, clean=True)
    assert log.aborted(0, log.end_offset) == expected


# Files that are left over


def test_files_left_over_are_removed() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log)
    log.close()
    expected = contents(open_log(disk, clean=True))
    for name in ("00000000000000000003.log.deleted", "00000000000000000000.log.cleaned", "leader-epoch-checkpoint.tmp"):
        disk.replace(f"{PATH}/{name}", b"left over")
    log = open_log(disk, clean=True)
    assert contents(log) == expected
    assert not [path for path in disk.paths() if path.endswith((".deleted", ".cleaned", ".tmp"))]


def test_a_swap_that_was_decided_is_carried_out() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log)
    log.close()
    first, second = log.segments[:2]
    merged = disk.read(first.path) + disk.read(second.path)
    disk.replace(first.path + ".swap", merged)
    log = open_log(disk, clean=True)
    assert disk.read(first.path) == merged
    assert not disk.exists(second.path) and not disk.exists(second.stem + ".index")
    assert len(contents(log)) == 12 and log.cleaned_to == log.segments[1].base_offset


def test_a_swap_beside_a_file_still_being_written_is_dropped() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log)
    log.close()
    first, second = log.segments[:2]
    disk.replace(first.path + ".cleaned", b"half")
    disk.replace(second.path + ".swap", b"not all of it")
    log = open_log(disk, clean=True)
    assert len(contents(log)) == 12
    assert not [path for path in disk.paths() if path.endswith((".swap", ".cleaned"))]


def test_a_broken_checkpoint_is_not_believed() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log)
    log.close()
    for name in (directory.START_FILE, directory.CLEANED_FILE, "leader-epoch-checkpoint"):
        disk.replace(f"{PATH}/{name}", b"\xff not a checkpoint")
    log = open_log(disk, clean=True)
    assert log.start_offset == 0 and len(contents(log)) == 12


def test_offsets_below_the_start_are_not_given_out_again() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 4)
    directory.write_checkpoint(disk, PATH, directory.START_FILE, 50)
    log = open_log(disk, recovery_point=0, same_boot=False)
    assert (log.start_offset, log.end_offset) == (50, 50)
    assert append(log).base_offset == 50
    assert len(contents(log)) == 1


def test_a_producer_that_was_idle_for_too_long_is_forgotten_at_the_start() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    append(log, producer_id=1, sequence=0)
    log.close()
    later = {"clean": True, "now_ms": NOW_MS + 2 * DAY_MS}
    assert open_log(disk, producer_expiration_ms=3 * DAY_MS, **later).producers.get(1) is not None
    assert open_log(disk, **later).producers.get(1) is None
