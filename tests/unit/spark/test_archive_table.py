"""An archive's Delta table, on a real directory, with no broker and no Spark."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from levada.spark.archive import vacancy
from levada.spark.archive.compaction import Merge, Sizes, check_rows, merged, planned, runs
from levada.spark.archive.files import Archived
from levada.spark.archive.history import Tables, pieces
from levada.spark.archive.layout import STORED, TYPED, Written, is_ours, stats
from levada.spark.archive.place import ArchiveError, NotShared
from levada.spark.archive.table import ArchiveTable, Overtaken, Whose, WrongTable, merge
from levada.spark.archive.vacancy import Occupied
from levada.spark.archive.wanted import Typed
from levada.spark.archive.writing import write_files
from levada.spark.columns.schema import schema_of
from levada.spark.fetch import Range
from levada.spark.history import Held
from levada.wire.answers import TopicPartition

WHOSE = Whose("t", "id-1")
RAW = Typed()
MS = 1_700_000_000_000


def rows(first: int, count: int) -> pa.RecordBatch:
    """Offsets from `first` on; every fifth has neither key nor headers."""
    numbers = range(first, first + count)
    columns = {
        "offset": list(numbers),
        "timestamp": [(MS + number) * 1000 for number in numbers],
        "timestampType": [0] * count,
        "key": [None if number % 5 == 0 else b"k%d" % number for number in numbers],
        "value": [b'{"id": %d}' % number for number in numbers],
        "headers": [None if number % 5 == 0 else [{"key": "h", "value": b"x"}] for number in numbers],
    }
    schema = schema_of(STORED)
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def written(place: str, partition: int, first: int, count: int, typed: Typed = RAW) -> list[Written]:
    return list(write_files(place, partition, [rows(first, count)], typed))


@pytest.fixture(params=["directory", "object store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A directory; and one that is spoken to as an object store is."""
    if request.param == "object store":
        for module in ("place", "making", "vacancy"):
            monkeypatch.setattr(f"levada.spark.archive.{module}.local_path", lambda place: None)
    return str(tmp_path / "lake" / "t")


@pytest.fixture
def table(place: str) -> ArchiveTable:
    return ArchiveTable.open(place, WHOSE, RAW)


def fill(table: ArchiveTable, partition: int, *counts: int) -> None:
    """A file and a commit for each count."""
    for count in counts:
        begin = table.next_offset(partition)
        first = begin or 0
        table.append(written(table.place, partition, first, count), {partition: (begin, first + count)})


def offsets(table: ArchiveTable, partition: int, start: int, end: int) -> list[int]:
    history = Tables({WHOSE: table.place})
    found = [
        batch.column("offset").to_pylist() for batch in history.read(Range("t", partition, start, end), ("offset",))
    ]
    return [offset for some in found for offset in some]


# What is committed


def test_files_and_how_far_they_go_are_one_commit(table: ArchiveTable) -> None:
    assert table.next_offset(0) is None
    version = table.version
    table.append([*written(table.place, 0, 0, 10), *written(table.place, 1, 5, 7)], {0: (None, 11), 1: (None, 12)})
    assert table.version == version + 1
    again = ArchiveTable.open(table.place, WHOSE, RAW)
    assert (again.next_offset(0), again.next_offset(1), again.next_offset(2)) == (11, 12, None)
    [file] = again.files()[1]
    assert (file.first, file.last, file.rows, file.newest_us) == (5, 11, 7, (MS + 11) * 1000)


def test_a_stretch_without_records_moves_on_without_a_file(table: ArchiveTable) -> None:
    fill(table, 0, 10)
    table.append([], {0: (10, 25)})
    assert ArchiveTable.open(table.place, WHOSE, RAW).next_offset(0) == 25
    assert len(table.files()[0]) == 1


def test_of_two_who_archive_the_same_offsets_one_is_heard(table: ArchiveTable) -> None:
    other = ArchiveTable.open(table.place, WHOSE, RAW)
    mine, theirs = written(table.place, 0, 0, 10), written(table.place, 0, 0, 12)
    table.append(mine, {0: (None, 10)})
    with pytest.raises(Overtaken, match="archived up to 10, not None"):
        other.append(theirs, {0: (None, 12)})
    assert offsets(table, 0, 0, 100) == list(range(10))


def test_others_who_commit_something_else_are_no_hindrance(table: ArchiveTable) -> None:
    other = ArchiveTable.open(table.place, WHOSE, RAW)
    fill(table, 0, 10)
    fill(other, 1, 10)
    fill(table, 0, 5)
    assert (table.next_offset(0), table.next_offset(1)) == (15, 10)


def test_how_far_it_goes_survives_checkpoints_of_the_delta_log(table: ArchiveTable) -> None:
    fill(table, 0, 3, 4)
    DeltaTable(table.place).create_checkpoint()
    for path in sorted(Path(table.place, "_delta_log").glob("*.json"))[:-1]:
        path.unlink()
    again = ArchiveTable.open(table.place, WHOSE, RAW)
    assert again.next_offset(0) == 7
    fill(again, 0, 5)
    assert offsets(again, 0, 0, 100) == list(range(12))


def test_lost_ranges_are_kept_and_told_once(table: ArchiveTable) -> None:
    table.note_lost({0: [(5, 8)]})
    version = table.version
    table.note_lost({0: [(5, 8)]})
    assert table.version == version
    table.note_lost({0: [(8, 9)], 3: [(0, 2)]})
    fill(table, 0, 3)
    assert ArchiveTable.open(table.place, WHOSE, RAW).lost() == {0: [(5, 9)], 3: [(0, 2)]}
    assert merge([(4, 6), (1, 2), (5, 9)]) == [[1, 2], [4, 9]]


def test_leader_epochs_are_kept_and_only_grow(table: ArchiveTable) -> None:
    assert table.epochs() == {}
    table.note_epochs({0: 3, 10: 1})
    version = table.version
    table.note_epochs({0: 2, 10: 1})
    assert table.version == version
    table.note_epochs({10: 4})
    fill(table, 0, 3)
    assert ArchiveTable.open(table.place, WHOSE, RAW).epochs() == {0: 3, 10: 4}


# Whose it is


def test_a_topic_made_again_does_not_get_the_history_of_the_one_before(table: ArchiveTable) -> None:
    with pytest.raises(
        WrongTable, match=r"history of topic t with the id id-1; t has the id id-2.*Move that table away"
    ):
        ArchiveTable.open(table.place, Whose("t", "id-2"), RAW)
    with pytest.raises(WrongTable, match="id-2"):
        Tables({Whose("t", "id-2"): table.place}).held(TopicPartition("t", 0))


def test_a_table_that_is_no_archive_is_left_alone(tmp_path: Path) -> None:
    place = str(tmp_path / "orders")
    write_deltalake(place, pa.table({"id": [1]}))
    with pytest.raises(WrongTable):
        ArchiveTable.open(place, WHOSE, RAW)
    assert DeltaTable(place).version() == 0


def test_other_columns_than_the_settings_say_are_refused(place: str) -> None:
    typed = Typed("json", "id BIGINT")
    ArchiveTable.open(place, WHOSE, typed)
    ArchiveTable.open(place, WHOSE, typed)
    for other in (RAW, Typed("json", "id STRING")):
        with pytest.raises(WrongTable, match=r"other columns than levada\.archive\.format.*: data"):
            ArchiveTable.open(place, WHOSE, other)


def test_a_place_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArchiveError, match=r"file/t cannot be"):
        ArchiveTable.open(str(tmp_path / "file" / "t"), WHOSE, RAW)


def test_a_place_that_holds_anything_is_left_alone(place: str) -> None:
    Path(place).mkdir(parents=True)
    Path(place, "accounts.csv").write_text("somebody's")
    with pytest.raises(
        Occupied, match=r"is not empty and holds no archive: accounts\.csv is there\. Give levada\.archive"
    ):
        ArchiveTable.open(place, WHOSE, RAW)
    assert [one.name for one in Path(place).iterdir()] == ["accounts.csv"]


def test_an_archive_is_neither_within_another_table_nor_around_one(tmp_path: Path) -> None:
    outer, inner = tmp_path / "lake", tmp_path / "lake" / "orders"
    ArchiveTable.open(str(inner), WHOSE, RAW)
    with pytest.raises(Occupied, match="orders is there"):
        ArchiveTable.open(str(outer), Whose("u", "id-2"), RAW)
    below = inner / "partition=0"
    with pytest.raises(Occupied, match=rf"{below} lies within {inner}, which is a Delta table"):
        ArchiveTable.open(str(below), Whose("u", "id-2"), RAW)
    assert not below.exists()


def test_what_a_crash_left_of_making_a_table_is_no_hindrance(place: str) -> None:
    Path(place, "_delta_log").mkdir(parents=True)
    assert ArchiveTable.open(place, WHOSE, RAW).next_offset(0) is None


def test_in_an_object_store_the_tables_above_are_looked_for_up_to_the_bucket() -> None:
    assert list(vacancy._above("s3://lake/orders/eu")) == ["s3://lake/orders", "s3://lake"]


# Others read it


def test_polars_and_duckdb_read_the_table_with_no_levada_at_all(table: ArchiveTable) -> None:
    fill(table, 0, 10, 20)
    fill(table, 1, 5)
    frame = pl.scan_delta(table.place).sort("partition", "offset").collect()
    assert frame.select("partition", "offset").rows() == [(0, n) for n in range(30)] + [(1, n) for n in range(5)]
    assert frame["key"].to_list()[:2] == [None, b"k1"]
    assert frame["headers"].to_list()[:2] == [None, [{"key": "h", "value": b"x"}]]
    dataset = DeltaTable(table.place).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("history", dataset)
        counted = connection.execute(
            'select "partition", count(*), min("offset"), max("timestamp") from history group by all order by 1'
        ).fetchall()
    assert [row[:3] for row in counted] == [(0, 30, 0), (1, 5, 0)]
    assert counted[0][3].timestamp() * 1000 == MS + 29


def test_typed_values_stand_beside_the_bytes(place: str) -> None:
    typed = Typed("json", "id BIGINT")
    table = ArchiveTable.open(place, WHOSE, typed)
    batch = rows(0, 3).append_column(TYPED, pa.array([{"id": 1}, None, {"id": 3}], pa.struct([("id", pa.int64())])))
    table.append(list(write_files(place, 0, [batch], typed)), {0: (None, 3)})
    frame = pl.scan_delta(place).sort("offset").collect()
    assert frame["data"].struct.field("id").to_list() == [1, None, 3]
    assert frame["value"].to_list()[0] == b'{"id": 0}'


@pytest.mark.parametrize("us", [-1, 2**62, -(2**62)])
def test_times_that_no_calendar_has_are_left_out_of_the_statistics(us: int) -> None:
    file = Written("p", 1, 0, 0, 1, 2, us, us, "host")
    assert ("timestamp" in stats(file).partition("nullCount")[0]) == (us == -1)


# Reading a part


def test_a_range_is_read_from_the_files_that_hold_it_in_order(table: ArchiveTable) -> None:
    fill(table, 0, 10, 20, 30)
    assert offsets(table, 0, 5, 40) == list(range(5, 40))
    assert offsets(table, 0, 10, 30) == list(range(10, 30))
    assert offsets(table, 0, 59, 100) == [59]
    assert offsets(table, 0, 60, 100) == []
    assert offsets(table, 1, 0, 100) == []


def test_rows_come_as_the_log_would_have_given_them(table: ArchiveTable) -> None:
    fill(table, 3, 10)
    columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    [batch] = Tables({WHOSE: table.place}).read(Range("t", 3, 2, 5), columns)
    assert batch.schema == schema_of(columns)
    expected = rows(2, 3).to_pylist()
    assert batch.to_pylist() == [{**row, "topic": "t", "partition": 3} for row in expected]
    [narrow] = Tables({WHOSE: table.place}).read(Range("t", 3, 2, 5), ("value",))
    assert narrow.schema == schema_of(("value",))


def test_what_is_held_is_looked_at_again_where_it_is_not_enough(table: ArchiveTable) -> None:
    history = Tables({WHOSE: table.place})
    at = TopicPartition("t", 0)
    assert history.held(at) is None
    fill(table, 0, 10)
    assert history.held(at) == Held(0, 10)
    fill(table, 0, 10)
    assert history.held(at, up_to=10) == Held(0, 10)
    assert history.held(at, up_to=11) == Held(0, 20)
    assert Tables({}).held(at) is None


def test_what_was_lost_before_it_was_archived_is_not_held(table: ArchiveTable) -> None:
    fill(table, 0, 5)
    table.note_lost({0: [(5, 1000)]})
    table.append(written(table.place, 0, 1000, 5), {0: (5, 1005)})
    assert Tables({WHOSE: table.place}).held(TopicPartition("t", 0)) == Held(0, 1005, ((5, 1000),))


def test_a_time_is_found_in_the_file_that_holds_it(table: ArchiveTable) -> None:
    fill(table, 0, 10, 20)
    history = Tables({WHOSE: table.place})
    at = TopicPartition("t", 0)
    assert history.at_time(at, 0) == 0
    assert history.at_time(at, MS + 10) == 10
    assert history.at_time(at, MS + 29) == 29
    assert history.at_time(at, MS + 30) is None


def test_a_file_that_cannot_be_seen_says_what_must_be_shared(table: ArchiveTable) -> None:
    fill(table, 0, 10)
    Path(table.place, table.files()[0][0].path).unlink()
    with pytest.raises(NotShared, match="that the driver and all executors share"):
        offsets(table, 0, 0, 10)


def test_a_table_that_somebody_else_optimized_is_still_read_in_order(table: ArchiveTable) -> None:
    fill(table, 0, 10, 300, 20, 5)
    DeltaTable(table.place).optimize.compact()
    again = ArchiveTable.open(table.place, WHOSE, RAW)
    assert not any(is_ours(file.path) for file in again.files()[0])
    assert offsets(again, 0, 3, 330) == list(range(3, 330))
    assert again.next_offset(0) == 335
    fill(again, 0, 4)
    assert offsets(again, 0, 0, 1000) == list(range(339))


def test_files_between_one_another_are_read_together() -> None:
    def file(first: int, last: int) -> Archived:
        return Archived("", 0, 0, first, last, 0)

    files = [file(0, 9), file(10, 30), file(15, 20), file(25, 40), file(41, 50)]
    found = [[one.first for one in some] for some in pieces(files, Range("t", 0, 5, 45))]
    assert found == [[0], [10, 15, 25], [41]]
    assert list(pieces(files, Range("t", 0, 51, 60))) == []


# Small files


def sized(*sizes: int) -> list[Archived]:
    return [Archived(f"f{number}", size, 0, number, number, 1) for number, size in enumerate(sizes)]


def test_small_files_that_follow_one_another_become_one() -> None:
    sizes = Sizes(target_bytes=100, files_min=3)

    def chosen(*given: int) -> list[list[int]]:
        return [[one.first for one in run] for run in runs(sized(*given), sizes)]

    assert chosen(10, 10) == []
    assert chosen(10, 10, 10) == [[0, 1, 2]]
    assert chosen(60, 60) == [[0, 1]]
    assert chosen(10, 200, 10, 10) == []
    assert chosen(10, 10, 10, 200, 10, 10, 10) == [[0, 1, 2], [4, 5, 6]]
    assert chosen(60, 60, 60, 60, 10) == [[0, 1], [2, 3]]


def test_compaction_changes_no_row_and_readers_of_the_old_files_find_them(table: ArchiveTable) -> None:
    fill(table, 0, *[10] * 12)
    fill(table, 1, 10)
    reader = Tables({WHOSE: table.place})
    reading = reader.read(Range("t", 0, 0, 120), ("offset",))
    first = next(reading).column("offset").to_pylist()
    before = pl.scan_delta(table.place).sort("partition", "offset").collect()
    [job] = planned(table.files(), table.place, RAW, Sizes(files_min=5))
    new = merged(job)
    check_rows(job.files, new)
    table.replace(job.files, new)
    assert pl.scan_delta(table.place).sort("partition", "offset").collect().equals(before)
    assert [len(table.files()[partition]) for partition in (0, 1)] == [1, 1]
    assert first + [offset for batch in reading for offset in batch.column("offset").to_pylist()] == list(range(120))
    assert offsets(table, 0, 17, 33) == list(range(17, 33))
    assert table.next_offset(0) == 120
    assert table.vacuum(168) == []


def test_files_that_somebody_else_put_together_are_not_put_together_again(table: ArchiveTable) -> None:
    fill(table, 0, *[10] * 5)
    other = ArchiveTable.open(table.place, WHOSE, RAW)
    job = Merge(table.place, RAW, tuple(table.files()[0]))
    table.replace(job.files, merged(job))
    with pytest.raises(Overtaken):
        other.replace(job.files, merged(job))
    assert offsets(table, 0, 0, 100) == list(range(50))


def test_archiving_goes_on_beside_compaction(table: ArchiveTable) -> None:
    fill(table, 0, *[10] * 5)
    other = ArchiveTable.open(table.place, WHOSE, RAW)
    job = Merge(table.place, RAW, tuple(table.files()[0]))
    new = merged(job)
    fill(other, 0, 10)
    table.replace(job.files, new)
    fill(other, 0, 10)
    assert offsets(table.refresh(), 0, 0, 100) == list(range(70))


def test_vacuum_removes_what_nobody_names(table: ArchiveTable) -> None:
    fill(table, 0, *[10] * 3)
    [orphan] = written(table.place, 0, 30, 5)
    job = Merge(table.place, RAW, tuple(table.files()[0]))
    table.replace(job.files, merged(job))
    assert len(table.vacuum(0)) == 4
    assert not Path(table.place, orphan.path).exists()
    assert offsets(table, 0, 0, 100) == list(range(30))


def test_vacuum_removes_nothing_that_is_not_its_own(table: ArchiveTable) -> None:
    fill(table, 0, 10)
    [orphan] = written(table.place, 0, 30, 5)
    name = Path(orphan.path).name
    others = ["notes.csv", "partition=0/part-0.parquet", f"inner/partition=0/{name}", f"partition=0/deep/{name}", name]
    for other in others:
        path = Path(table.place, other)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("somebody's")
    assert table.vacuum(0) == [orphan.path]
    assert all(Path(table.place, other).exists() for other in others)


# Writing


def test_a_file_is_closed_when_it_is_large_enough(place: str) -> None:
    ArchiveTable.open(place, WHOSE, RAW)
    batches = [rows(first, 300_000) for first in (0, 300_000)]
    files = list(write_files(place, 0, batches, RAW, file_bytes=1000))
    assert [(file.first, file.last, file.rows) for file in files] == [
        (0, 299_999, 300_000),
        (300_000, 599_999, 300_000),
    ]


def test_what_fails_half_way_leaves_no_file(place: str) -> None:
    ArchiveTable.open(place, WHOSE, RAW)

    def breaking() -> object:
        yield rows(0, 300_000)
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        list(write_files(place, 0, breaking(), RAW))  # type: ignore[arg-type]
    assert list(Path(place).rglob("*.parquet")) == []
