"""Delta tables that batches are appended to, each once. Frames are stood in for: no JVM."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import ClassVar

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import NullType, StructField, StructType

from levada.spark.archive import place
from levada.spark.pipelines import files
from levada.spark.pipelines.errors import WrongCheckpoint, WrongTable
from levada.spark.pipelines.files import WriteFiles
from levada.spark.pipelines.table_schema import added, arrow_schema, same
from levada.spark.pipelines.tables import Table


class Frame:
    """As much of a frame as a table needs: one task, whose rows these are."""

    def __init__(self, rows: list[dict], schema: pa.Schema | None = None) -> None:
        self.batch = pa.RecordBatch.from_pylist(rows, schema=schema)
        self.schema = from_arrow_schema(self.batch.schema)
        self.evaluated = 0
        self.fails = False

    def mapInArrow(self, task, _schema):  # noqa: N802
        self.task = task
        return self

    def collect(self):
        self.evaluated += 1
        found = [_Row(row) for out in self.task(iter([self.batch])) for row in out.to_pylist()]
        if self.fails:
            raise OSError("the executor died after it had written its file")
        return found

    @property
    def write(self):
        return self

    def format(self, _name):
        return self

    def mode(self, _name):
        return self

    def save(self):
        self.evaluated += 1


class _Row(dict):
    def asDict(self):  # noqa: N802
        return self


def rows(*ids: int, **more) -> Frame:
    return Frame([{"id": one, "name": f"n{one}", **more} for one in ids])


def ids(uri: str) -> list[int]:
    return sorted(polars.read_delta(uri)["id"].to_list())


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "lake" / "orders")


def test_batches_are_appended_and_others_can_read_them(uri):
    table = Table(uri, "p/orders")
    table.append(rows(1, 2), 0)
    table.append(rows(3), 1)
    assert ids(uri) == [1, 2, 3]
    assert Table(uri, "p/orders").last_batch() == 1


def test_a_batch_that_is_there_is_not_written_again_and_yet_evaluated(uri):
    Table(uri, "p/orders").append(rows(1, 2), 0)
    again = rows(1, 2)
    Table(uri, "p/orders").append(again, 0)
    assert ids(uri) == [1, 2]
    assert again.evaluated == 1


def test_files_of_a_failed_try_are_no_part_of_the_table(uri):
    table = Table(uri, "p/orders")
    table.append(rows(1), 0)
    failing = rows(2, 3)
    failing.fails = True
    with pytest.raises(OSError, match="executor died"):
        table.append(failing, 1)
    assert len(list(Path(uri).glob("*.parquet"))) == 2
    assert ids(uri) == [1]
    table.append(rows(2, 3), 1)
    assert ids(uri) == [1, 2, 3]


def test_two_writers_with_one_name_write_a_batch_once(uri):
    """The older one had looked before the newer one committed."""
    older, newer = Table(uri, "p/orders"), Table(uri, "p/orders")
    older.append(rows(1), 0)
    newer.append(rows(1), 0)
    older.last_batch()
    frame = rows(2)
    collect = frame.collect
    frame.collect = lambda: (newer.append(rows(2), 1), collect())[1]
    with pytest.raises(Exception, match=r"(?i)transaction"):
        older.append(frame, 1)
    assert ids(uri) == [1, 2]


def during(frame: Frame, other) -> Frame:
    """Have something happen while the frame's files are written."""
    collect = frame.collect
    frame.collect = lambda: (other(), collect())[1]
    return frame


def test_two_writers_with_one_name_that_both_make_the_table_write_a_batch_once(uri):
    older, newer = Table(uri, "p/orders"), Table(uri, "p/orders")
    older.append(during(rows(1), lambda: newer.append(rows(1), 0)), 0)
    assert ids(uri) == [1]
    older.append(rows(2), 1)
    assert (ids(uri), newer.last_batch()) == ([1, 2], 1)


def test_two_writers_with_one_name_of_which_one_adds_a_column_write_a_batch_once(uri):
    """Adding the column succeeds beside the other's rows, and takes note of them."""
    older, newer = Table(uri, "p/orders"), Table(uri, "p/orders")
    older.append(rows(1), 0)
    older.append(during(rows(2, amount=2.5), lambda: newer.append(rows(2), 1)), 1)
    assert ids(uri) == [1, 2]


def test_who_comes_late_with_a_batch_of_another_checkpoint_is_refused(uri):
    """Of two clusters or two homes, under one name: their batches have the same numbers and other rows."""
    one, other = Table(uri, "p/orders", owner="a"), Table(uri, "p/orders", owner="b")
    with pytest.raises(WrongCheckpoint, match=r"another checkpoint has counted.*another name"):
        one.append(during(rows(1), lambda: other.append(rows(2), 0)), 0)
    for batch in (0, 1):
        with pytest.raises(WrongCheckpoint, match="batches up to 0 of p/orders that another checkpoint"):
            one.append(rows(1), batch)
    other.append(rows(3), 1)
    Table(uri, "p/orders", epoch=1, owner="a").append(rows(4), 0)
    assert ids(uri) == [2, 3, 4]


def test_what_is_committed_is_durable_with_its_name(uri, monkeypatch):
    """Spark takes the batch for written from then on. Who passes one over cannot know whether its writer came so far."""
    synced: list[str] = []
    really = place.sync
    monkeypatch.setattr(place, "sync", lambda path: (synced.append(str(path)), really(path)))
    table = Table(uri, "p/orders")

    def entry(version: int) -> list[str]:
        return [f"{uri}/_delta_log/{version:020d}.json", f"{uri}/_delta_log"]

    table.append(rows(1), 0)
    assert synced[-4:] == [*entry(0), f"{uri}/_delta_log", uri]
    table.append(rows(2, more=1.5), 1)
    assert synced[-4:] == [*entry(1), *entry(2)]
    synced.clear()
    Table(uri, "p/orders").append(rows(2, more=1.5), 1)
    assert set(entry(2)) <= set(synced)


def test_who_makes_a_table_second_must_fit_to_it(uri):
    one, other = Table(uri, "p/orders"), Table(uri, "q/orders")
    frame = rows(1)
    collect = frame.collect
    frame.collect = lambda: (other.append(rows(2, more=1.5), 0), collect())[1]
    with pytest.raises(WrongTable, match="'more'"):
        one.append(frame, 0)
    frame = rows(1, more=2.5)
    one.append(frame, 0)
    assert ids(uri) == [1, 2]


def test_who_makes_a_table_second_appends_to_it(uri):
    one, other = Table(uri, "p/orders"), Table(uri, "q/orders")
    frame = rows(1)
    collect = frame.collect
    frame.collect = lambda: (other.append(rows(2), 0), collect())[1]
    one.append(frame, 0)
    assert ids(uri) == [1, 2]
    assert (one.last_batch(), other.last_batch()) == (0, 0)


def test_two_pipelines_may_write_to_one_table(uri):
    Table(uri, "p/orders").append(rows(1), 0)
    Table(uri, "q/orders").append(rows(2), 0)
    assert ids(uri) == [1, 2]


def test_a_new_epoch_counts_anew(uri):
    Table(uri, "p/orders").append(rows(1), 7)
    Table(uri, "p/orders", epoch=1).append(rows(1), 0)
    assert ids(uri) == [1, 1]


def test_an_older_batch_than_the_tables_means_that_the_checkpoint_is_gone(uri):
    Table(uri, "p/orders").append(rows(1), 7)
    with pytest.raises(
        WrongCheckpoint, match=r"has batch 7 of p/orders and is given batch 6.*levada pipeline reset p`"
    ):
        Table(uri, "p/orders").append(rows(1), 6)
    assert ids(uri) == [1]


def test_a_batch_without_rows_makes_an_empty_table_and_then_no_entries(uri):
    schema = rows(1).batch.schema
    Table(uri, "p/orders").append(Frame([], schema), 0)
    assert polars.read_delta(uri).to_dicts() == []
    assert Table(uri, "p/orders").last_batch() == 0
    Table(uri, "p/orders").append(Frame([], schema), 1)
    assert DeltaTable(uri).version() == 0
    Table(uri, "p/orders").append(rows(1), 2)
    assert ids(uri) == [1]


def test_a_column_that_is_added_is_null_in_older_rows(uri):
    table = Table(uri, "p/orders")
    table.append(rows(1), 0)
    table.append(rows(2, amount=2.5), 1)
    table.append(rows(3, amount=3.5), 2)
    found = polars.read_delta(uri).sort("id")
    assert found["amount"].to_list() == [None, 2.5, 3.5]


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (Frame([{"id": 1}]), "has a column 'name' that the pipeline no longer makes"),
        (Frame([{"id": "1", "name": "a"}]), "has column 'id' as int64, and the pipeline now makes it string"),
        (rows(1, **{"a b": 1}), "'a b'"),
    ],
)
def test_any_other_change_of_columns_is_refused_and_writes_nothing(uri, frame, said):
    Table(uri, "p/orders").append(rows(1), 0)
    with pytest.raises(WrongTable) as refused:
        Table(uri, "p/orders").append(frame, 1)
    assert said in str(refused.value)
    assert (ids(uri), len(list(Path(uri).glob("*.parquet")))) == ([1], 1)


def test_a_table_by_partitions(uri):
    days = [datetime.date(2026, 1, 1), None, datetime.date(2026, 1, 2)]
    frame = Frame([{"id": number, "day": days[number % 3], "big": number > 4} for number in range(9)])
    Table(uri, "p/orders", partition_by=("day", "big")).append(frame, 0)
    assert {row["id"]: row["day"] for row in DeltaTable(uri).to_pyarrow_table().to_pylist()}[3] == days[0]
    found = polars.read_delta(uri).sort("id")
    assert found["day"].to_list() == [days[number % 3] for number in range(9)]
    assert found["big"].to_list() == [number > 4 for number in range(9)]
    assert DeltaTable(uri).metadata().partition_columns == ["day", "big"]
    with pytest.raises(WrongTable, match="partitioned by day, big, and the pipeline says nothing"):
        Table(uri, "p/orders").append(frame, 1)


def test_partitions_may_be_called_anything(uri):
    names = ["a b", "ü/../x", "100%", "k=v", "", "%20", None]
    frame = Frame([{"id": number, "name": name} for number, name in enumerate(names)])
    table = Table(uri, "p/orders", partition_by=("name",))
    for batch in range(2):
        table.append(frame, batch)
    expected = [(number, name or None) for number, name in enumerate(names) for _ in range(2)]
    assert [(row["id"], row["name"] or None) for row in polars.read_delta(uri).sort("id").to_dicts()] == expected
    arrow = DeltaTable(uri).to_pyarrow_table().sort_by("id").to_pylist()
    assert [(row["id"], row["name"] or None) for row in arrow] == expected


@pytest.mark.parametrize(
    ("schema", "by", "said"),
    [
        (pa.schema([("a", pa.int64())]), ("b",), "'b' is no column of the frame; a are"),
        (pa.schema([("a", pa.float64()), ("b", pa.int64())]), ("a",), "a whole number"),
        (pa.schema([("a", pa.int64())]), ("a",), "not partitioned by"),
    ],
)
def test_what_cannot_be_partitioned_by(schema, by, said):
    with pytest.raises(WrongTable, match=said):
        arrow_schema(from_arrow_schema(schema), by)


def test_a_column_without_a_type_is_refused():
    with pytest.raises(WrongTable, match="cast it"):
        arrow_schema(StructType([StructField("a", NullType())]))


def test_nested_columns_come_back_as_they_were(uri):
    kind = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("at", pa.timestamp("us", tz="UTC")),
            ("tags", pa.list_(pa.string())),
            ("who", pa.struct([("name", pa.string()), ("ages", pa.list_(pa.int32()))])),
            ("bytes", pa.binary()),
            ("price", pa.decimal128(10, 2)),
        ]
    )
    row = {
        "id": 1,
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC),
        "tags": ["a", None],
        "who": {"name": "x", "ages": [1, 2]},
        "bytes": b"\0\xff",
        "price": None,
    }
    table = Table(uri, "p/orders")
    table.append(Frame([row], kind), 0)
    table.append(Frame([row], kind), 1)
    assert polars.read_delta(uri).to_dicts() == [row, row]


def test_readers_pass_over_files_by_their_statistics(uri):
    table = Table(uri, "p/orders")
    for batch in range(3):
        table.append(rows(batch * 10, batch * 10 + 9), batch)
    found = sorted(json.loads(one) for one in _stats(uri))
    assert found == [[0, 9], [10, 19], [20, 29]]
    assert polars.scan_delta(uri).filter(polars.col("id") == 19).collect()["id"].to_list() == [19]


def _stats(uri: str) -> list[str]:
    log = sorted(Path(uri, "_delta_log").glob("*.json"))
    adds = [json.loads(line)["add"] for one in log for line in one.read_text().splitlines() if '"add"' in line]
    stats = [json.loads(one["stats"]) for one in adds]
    return [json.dumps([one["minValues"]["id"], one["maxValues"]["id"]]) for one in stats]


def test_statistics_never_claim_too_little(tmp_path):
    schema = pa.schema(
        [("at", pa.timestamp("us", tz="UTC")), ("x", pa.float64()), ("long", pa.string()), ("none", pa.int64())]
    )
    batch = pa.RecordBatch.from_pylist(
        [
            {"at": datetime.datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=datetime.UTC), "x": float("nan"), "long": "z" * 99},
            {"at": datetime.datetime(2026, 1, 1, 0, 0, 1, 1, tzinfo=datetime.UTC), "x": 1.0, "long": "a"},
        ],
        schema=schema,
    )
    (one,) = WriteFiles(str(tmp_path), schema, (), 0).files([batch])
    stats = json.loads(one["stats"])
    assert stats["numRecords"] == 2
    assert stats["minValues"]["at"] == "2026-01-01T00:00:00.000Z"
    assert stats["maxValues"]["at"] == "2026-01-01T00:00:01.001Z"
    assert "long" not in stats["maxValues"]
    assert "none" not in stats["minValues"]
    assert stats["nullCount"]["none"] == 2


def test_a_large_task_becomes_several_files(tmp_path):
    schema = pa.schema([("id", pa.int64())])
    batches = [
        pa.RecordBatch.from_arrays([pa.array(range(at, at + 10_000))], schema=schema) for at in range(0, 50_000, 10_000)
    ]
    files = list(WriteFiles(str(tmp_path), schema, (), 0, file_bytes=50_000, group_rows=10_000).files(batches))
    assert len(files) > 1
    assert sum(one["rows"] for one in files) == 50_000
    assert all(Path(tmp_path, one["path"]).stat().st_size == one["size"] for one in files)


def test_small_batches_are_put_down_together(tmp_path):
    schema = pa.schema([("id", pa.int64())])
    batches = [pa.RecordBatch.from_arrays([pa.array([at])], schema=schema) for at in range(250)]
    (one,) = WriteFiles(str(tmp_path), schema, (), 0, group_rows=100).files(batches)
    file = pq.ParquetFile(tmp_path / one["path"])
    assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == [100, 100, 50]
    assert file.read().column("id").to_pylist() == list(range(250))
    assert json.loads(one["stats"])["maxValues"] == {"id": 249}


class _Watched(files._File):
    """A file that is counted while it is open."""

    open: ClassVar[list[_Watched]] = []
    most_open = 0
    most_held = 0

    def __init__(self, *about) -> None:
        super().__init__(*about)
        self.open.append(self)
        _Watched.most_open = max(_Watched.most_open, len(self.open))

    def write(self, rows: pa.Table) -> None:
        super().write(rows)
        _Watched.most_held = max(_Watched.most_held, sum(one.held_bytes for one in self.open))

    def close(self):
        self.open.remove(self)
        return super().close()


def test_many_partitions_have_few_files_open_and_little_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_File", _Watched)
    schema = pa.schema([("id", pa.int64()), ("day", pa.int64())])
    batches = [
        pa.RecordBatch.from_pylist([{"id": at + n, "day": (at + n * n) % 50} for n in range(100)], schema=schema)
        for at in range(0, 1000, 100)
    ]
    task = WriteFiles(str(tmp_path), schema, ("day",), 0, files_open=8, held_bytes=1000)
    written = list(task.files(batches))
    assert _Watched.most_open == 8
    # What a batch has for one partition comes on top of the most that is held.
    assert 0 < _Watched.most_held < 1000 + batches[0].nbytes
    assert sum(one["rows"] for one in written) == 1000
    found = [
        number for one in written for number in pq.ParquetFile(tmp_path / one["path"]).read().column("id").to_pylist()
    ]
    assert sorted(found) == list(range(1000))


def test_a_task_that_fails_takes_its_open_file_with_it(tmp_path):
    schema = pa.schema([("id", pa.int64())])

    def failing():
        yield pa.RecordBatch.from_arrays([pa.array([1])], schema=schema)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        list(WriteFiles(str(tmp_path), schema, (), 0).files(failing()))
    assert list(tmp_path.iterdir()) == []


def test_types_that_differ_only_in_their_width_of_offsets_are_the_same():
    assert same(pa.string_view(), pa.string())
    assert same(pa.large_list(pa.large_string()), pa.list_(pa.string()))
    assert same(pa.struct([("a", pa.large_binary())]), pa.struct([("a", pa.binary())]))
    assert not same(pa.struct([("a", pa.int64())]), pa.struct([("b", pa.int64())]))
    assert not same(pa.int32(), pa.int64())
    assert added(pa.schema([("a", pa.int64())]), pa.schema([("b", pa.string()), ("a", pa.int64())]), "x") == [
        pa.field("b", pa.string())
    ]
