"""Pipelines in a Spark session: functions on static frames and on streams, several sinks, failures between them, checkpoints."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas
import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from levada.errors import UnknownTopic
from levada.spark import Pipeline, Places, declared, deduplicated, lake, pipeline, topic
from levada.spark.pipelines import preflight, writing
from levada.spark.pipelines.checkpoint import Checkpoint
from levada.spark.pipelines.errors import PipelineFailed, WrongCheckpoint, WrongDeclaration, WrongTable
from support.levada import LevadaBroker
from support.spark_pipelines import NOON, ORDER, order, received, run_once, run_until, send, table
from support.spark_topics import consumed, make_topic

EXAMPLE = Path(__file__).parents[3] / "examples" / "orders.py"
names = (f"p{number}" for number in itertools.count())


@pytest.fixture
def places(levada: LevadaBroker, tmp_path: Path) -> Places:
    return Places(bootstrap=levada.bootstrap, home=tmp_path / "home", master="local[2]")


@pytest.fixture
def topics(levada: LevadaBroker) -> tuple[str, str]:
    """One to read, with two partitions, and one to write."""
    return make_topic(levada.bootstrap, 2), make_topic(levada.bootstrap)


def declare(function: Callable[..., Any], source: Any, sink: Any, **options: Any) -> Pipeline:
    return pipeline(source=source, sink=sink, name=next(names), **options)(function)


def same(orders: Any) -> Any:
    return orders


def numbers(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"n": number, "user": f"u{number % 3}"} for number in range(start, start + count)]


def reading(name: str, **options: Any) -> Any:
    return topic(name, format="json", schema="n INT, user STRING", **options)


def ns(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["n"] for row in rows)


def revenue_by_hand(orders: list[dict[str, Any]]) -> list[tuple[str, str, int, float]]:
    """What the example makes of orders of which none is too late, in plain Python."""
    first = {one["id"]: one for one in reversed(orders)}
    sums: dict[tuple[str, str], list[float]] = {}
    for one in first.values():
        minute = datetime.fromisoformat(one["at"]).replace(second=0, microsecond=0)
        sums.setdefault((minute.isoformat(), one["user"]), []).append(one["amount"])
    return sorted((minute, user, len(held), round(sum(held), 2)) for (minute, user), held in sums.items())


def told(rows: list[dict[str, Any]]) -> list[tuple[str, str, int, float]]:
    """Rows of the example's topic or table."""
    found = []
    for row in rows:
        minute = row["minute"] if isinstance(row["minute"], datetime) else datetime.fromisoformat(row["minute"])
        found.append((minute.astimezone(UTC).isoformat(), row["user"], row["orders"], row["revenue"]))
    return sorted(found)


def example(source: str, sink: str) -> Pipeline:
    """The example as it is, on topics of this test's own."""
    (one,) = declared(EXAMPLE)
    reads = topic(source, format="json", schema=ORDER, on_error="deadLetter", watermark=("at", "30 minutes"))
    return declare(one.function, reads, [topic(sink, key="user"), lake("revenue")], partitions=1)


def test_the_example_counts_late_and_repeated_orders_as_they_are_to_count(
    spark: Any, places: Places, topics: tuple[str, str]
) -> None:
    """Orders come in runs: repeated within a run and across runs, late and just in time, too late, and not orders at all."""
    one = example(*topics)
    users = ("ada", "bob", "cyd")
    early = [order(number, users[number % 3], 1.25 * (number % 7 + 1), number * 11) for number in range(100)]
    late = [order(1000 + number, users[number % 3], 2.5, 300 + number) for number in range(20)]
    later = [order(2000 + number, users[number % 3], 10.0, 1500 + number * 13) for number in range(50)]
    too_late = [order(3000 + number, "ada", 99.0, number) for number in range(5)]
    closing = [order(4000, "bob", 1.0, 4 * 3600)]
    nothing = [{"id": None, "user": "ada", "amount": 5.0, "at": NOON.isoformat()}, order(5000, "ada", -1.0, 5), b"{no"]

    send(places.bootstrap, topics[0], [*early, *early[::3], *nothing])
    assert received(places.bootstrap, topics[1]) == []
    run_once(spark, one, places)
    # What closes all minutes comes with them: the watermark moves after the batch.
    send(places.bootstrap, topics[0], [*late, *early[::4], *later, *closing])
    run_once(spark, one, places)
    send(places.bootstrap, topics[0], [*too_late, *later[::5]])
    last = run_once(spark, one, places)

    expected = revenue_by_hand([*early, *late, *later])
    assert told(received(places.bootstrap, topics[1])) == expected
    assert told(table(places.home, "revenue")) == expected
    assert last.progress().late_rows >= len(too_late)
    keys = {row[3]: json.loads(row[4] or b"")["user"].encode() for row in consumed(places.bootstrap, topics[1])}
    assert keys == {user.encode(): user.encode() for user in users}


def test_the_same_function_gives_the_same_rows_of_a_static_frame(spark: Any) -> None:
    (one,) = declared(EXAMPLE)
    orders = [
        order(number % 40, "ada" if number % 2 else "bob", 1.5 * (number % 40 + 1), number % 40 * 17)
        for number in range(80)
    ]
    rows = [(x["id"], x["user"], x["amount"], datetime.fromisoformat(x["at"])) for x in orders]
    found = [row.asDict() for row in one(spark.createDataFrame(rows, ORDER)).collect()]
    zoned = [{**row, "minute": row["minute"].astimezone(UTC)} for row in found]
    assert told(zoned) == revenue_by_hand(orders)


def fail(monkeypatch: pytest.MonkeyPatch, kind: type, batch: int, *, after: bool) -> None:
    """Have a sink fail once, at this batch: before it has written, or after."""
    write = kind.write
    left = [batch]

    def failing(self: Any, frame: Any, number: int) -> None:
        if number not in left:
            return write(self, frame, number)
        left.remove(number)
        if after:
            write(self, frame, number)
        raise OSError("the plug was pulled")

    monkeypatch.setattr(kind, "write", failing)


@pytest.mark.parametrize(
    ("kind", "after", "topic_first"),
    [
        pytest.param(writing.TopicWriter, True, True, id="the topic has it, the lake does not"),
        pytest.param(writing.TableWriter, True, True, id="both have it, Spark does not know"),
        pytest.param(writing.TopicWriter, False, False, id="the topic fails behind the lake"),
    ],
)
def test_each_sink_has_each_row_once_when_one_of_them_fails(
    spark: Any,
    places: Places,
    topics: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    kind: type,
    after: bool,
    topic_first: bool,
) -> None:
    """A sink fails in the second of three micro-batches, with the other sink before or behind it; then it is started again."""
    sinks = [topic(topics[1], key="user"), lake("all")]
    counted = lambda rows: rows.withColumn("drawn", F.rand())  # noqa: E731
    one = declare(counted, reading(topics[0], max_records=25), sinks if topic_first else sinks[::-1])
    send(places.bootstrap, topics[0], numbers(75))
    fail(monkeypatch, kind, 1, after=after)
    with pytest.raises(PipelineFailed, match=r"batch 1, sink '.*': OSError: the plug was pulled"):
        run_once(spark, one, places)
    run_once(spark, one, places)
    in_topic, in_table = received(places.bootstrap, topics[1]), table(places.home, "all")
    assert ns(in_topic) == ns(in_table) == list(range(75))
    # Within one try the sinks share what was drawn: it was computed once.
    drawn = {row["n"]: row["drawn"] for row in in_table}
    shared = [row for row in in_topic if row["drawn"] == drawn[row["n"]]]
    assert len(shared) >= 50


def test_a_stateful_pipeline_survives_a_failure_behind_all_its_sinks(
    spark: Any, places: Places, topics: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sinks have the batch, Spark does not know: it is replayed into sinks that pass it over, and state must still be right."""
    count = lambda rows: rows.groupBy("user").agg(F.count("*").alias("count"))  # noqa: E731
    one = declare(count, reading(topics[0], max_records=30), lake("counts"), mode="update", partitions=1)
    send(places.bootstrap, topics[0], numbers(90))
    fail(monkeypatch, writing.TableWriter, 1, after=True)
    with pytest.raises(PipelineFailed, match="the plug was pulled"):
        run_once(spark, one, places)
    run_once(spark, one, places)
    most: dict[str, int] = {}
    for row in table(places.home, "counts"):
        most[row["user"]] = max(most.get(row["user"], 0), row["count"])
    assert most == {"u0": 30, "u1": 30, "u2": 30}


def test_a_started_pipeline_goes_on_where_it_was_and_lag_shows_under_its_name(
    spark: Any, places: Places, topics: tuple[str, str]
) -> None:
    one = declare(same, reading(topics[0]), topic(topics[1]))
    for start in (0, 50):
        send(places.bootstrap, topics[0], numbers(50, start))
        progress = run_once(spark, one, places).progress()
        assert (progress.rows_total, progress.lag) == (50, 0)
    assert ns(received(places.bootstrap, topics[1])) == list(range(100))


def test_a_running_pipeline_ends_after_its_micro_batch(spark: Any, places: Places, topics: tuple[str, str]) -> None:
    one = declare(same, reading(topics[0]), [topic(topics[1]), lake("all")], trigger="100 ms")
    send(places.bootstrap, topics[0], numbers(50))
    running = run_until(spark, one, places, 50)
    running.stop()
    assert not running.active
    assert running.failure is None
    assert ns(received(places.bootstrap, topics[1])) == ns(table(places.home, "all")) == list(range(50))
    send(places.bootstrap, topics[0], numbers(10, 50))
    assert run_once(spark, one, places).progress().rows_total == 10


def test_a_deleted_checkpoint_is_refused_and_a_reset_begins_anew(
    spark: Any, places: Places, topics: tuple[str, str]
) -> None:
    sinks = (topic(topics[1]), lake("all"))
    one = declare(same, reading(topics[0]), sinks)
    send(places.bootstrap, topics[0], numbers(10))
    run_once(spark, one, places)
    shutil.rmtree(places.checkpoint(one.name))
    for sink in sinks:
        with pytest.raises(WrongCheckpoint, match=f"levada pipeline reset {one.name}"):
            preflight.check(replace(one, sinks=(sink,)), places)
    with pytest.raises(WrongCheckpoint, match="knows nothing"):
        run_once(spark, one, places)
    Checkpoint(places.checkpoint(one.name)).reset()
    run_once(spark, one, places)
    assert ns(received(places.bootstrap, topics[1])) == ns(table(places.home, "all")) == sorted([*range(10)] * 2)


def test_an_epoch_that_is_asked_for_begins_anew_once(spark: Any, places: Places, topics: tuple[str, str]) -> None:
    one = declare(same, reading(topics[0]), [topic(topics[1]), lake("all")])
    send(places.bootstrap, topics[0], numbers(10))
    for epoch, times in ((0, 1), (2, 2), (1, 2)):
        run_once(spark, one, places, epoch=epoch)
        assert ns(received(places.bootstrap, topics[1])) == sorted([*range(10)] * times)
        assert ns(table(places.home, "all")) == sorted([*range(10)] * times)


def test_a_checkpoint_of_another_declaration_is_refused_with_what_to_do(
    spark: Any, places: Places, levada: LevadaBroker, topics: tuple[str, str]
) -> None:
    by_user = lambda rows: rows.groupBy("user").count()  # noqa: E731
    one = declare(by_user, reading(topics[0]), topic(topics[1]), partitions=1)
    send(places.bootstrap, topics[0], numbers(10))
    run_once(spark, one, places)
    others = make_topic(levada.bootstrap)

    def changed(function: Any, source: Any) -> Pipeline:
        return pipeline(source=source, sink=topic(topics[1]), name=one.name, partitions=1)(function)

    with pytest.raises(WrongCheckpoint, match=f"it now reads source rows .topic {others}.*levada pipeline reset"):
        run_once(spark, changed(by_user, reading(others)), places)
    send(places.bootstrap, topics[0], numbers(10, 10))
    by_another = lambda rows: rows.groupBy("n", "user").count()  # noqa: E731
    with pytest.raises(WrongCheckpoint, match=r"other state than its checkpoint has.*levada pipeline reset"):
        run_once(spark, changed(by_another, reading(topics[0])), places)
    run_once(spark, one, places)


HELPED = """
import helping
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType
from levada.spark import pipeline, topic

@F.udf(IntegerType())
def more(n):
    return helping.doubled(n) + OFFSET

OFFSET = 1

@pipeline(source=topic("{source}", format="json", schema="n INT"), sink=topic("{sink}"), name="{name}")
def helped(rows):
    return rows.select(more("n").alias("n"))
"""


def test_functions_of_the_operators_files_reach_executors(
    spark: Any, places: Places, topics: tuple[str, str], tmp_path: Path
) -> None:
    """T5: a function of the file, and one of a module beside it, none of which an executor could import."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "helping.py").write_text("def doubled(n):\n    return 2 * n\n")
    file = tmp_path / "code" / "file.py"
    file.write_text(HELPED.format(source=topics[0], sink=topics[1], name=next(names)))
    (one,) = declared(file)
    shutil.rmtree(tmp_path / "code")
    send(places.bootstrap, topics[0], numbers(10))
    run_once(spark, one, places)
    assert ns(received(places.bootstrap, topics[1])) == [2 * n + 1 for n in range(10)]


def test_what_goes_wrong_in_a_function_is_told_with_its_line(
    spark: Any, places: Places, topics: tuple[str, str]
) -> None:
    @F.udf("int")
    def divided(n: int) -> int:
        return 1 // (n - 5)

    one = declare(lambda rows: rows.select(divided("n").alias("n")), reading(topics[0]), topic(topics[1]))
    send(places.bootstrap, topics[0], numbers(10))
    with pytest.raises(PipelineFailed) as failed:
        run_once(spark, one, places)
    assert "ZeroDivisionError: integer division or modulo by zero" in str(failed.value)
    assert f"{__file__}, line " in str(failed.value)
    assert "\tat " not in str(failed.value)
    with pytest.raises(PipelineFailed, match=r"no_such_column.*test_pipelines\.py, line \d+"):
        run_once(
            spark, declare(lambda rows: rows.select("no_such_column"), reading(topics[0]), topic(topics[1])), places
        )


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda rows: None, "it must return a DataFrame"),
        (lambda rows: rows.sparkSession.range(3), "it must be made of its sources"),
    ],
)
def test_what_a_function_returns_must_be_a_stream(
    spark: Any, places: Places, topics: tuple[str, str], function: Any, said: str
) -> None:
    with pytest.raises(WrongDeclaration, match=said):
        run_once(spark, declare(function, reading(topics[0]), topic(topics[1])), places)


class Counting(StatefulProcessor):
    """A row for each call."""

    def init(self, handle: Any) -> None: ...

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
        yield pandas.DataFrame({"n": [sum(len(one) for one in rows)]})

    def close(self) -> None: ...


def test_timers_by_the_clock_do_not_run_to_an_end(spark: Any, places: Places, topics: tuple[str, str]) -> None:
    """T7: with availableNow such a query never ends, so it is not begun."""

    def timed(rows: Any) -> Any:
        return rows.groupBy("user").transformWithStateInPandas(Counting(), "n LONG", "append", "ProcessingTime")

    with pytest.raises(WrongDeclaration, match="would have it run for ever"):
        run_once(spark, declare(timed, reading(topics[0]), topic(topics[1])), places)
    assert not places.home.exists()


def test_a_topic_that_is_not_there_is_named_before_anything_runs(
    spark: Any, places: Places, topics: tuple[str, str]
) -> None:
    for source, sink in ((f"{topics[0]}x", topics[1]), (topics[0], f"{topics[1]}x")):
        with pytest.raises(UnknownTopic, match=r"there is no topic 'spark-\d+x'; did you mean spark-\d+\?"):
            run_once(spark, declare(same, reading(source), topic(sink)), places)
    assert not places.home.exists()


def test_which_rows_come_in_which_mode(spark: Any, places: Places, topics: tuple[str, str]) -> None:
    count = lambda rows: rows.groupBy("user").count()  # noqa: E731
    changing = declare(count, reading(topics[0]), topic(topics[1], key="user"), partitions=1)
    for start in (0, 3):
        send(places.bootstrap, topics[0], numbers(3, start))
        run_once(spark, changing, places)
    assert sorted((row["user"], row["count"]) for row in received(places.bootstrap, topics[1])) == [
        ("u0", 1), ("u0", 2), ("u1", 1), ("u1", 2), ("u2", 1), ("u2", 2)
    ]  # fmt: skip
    with pytest.raises(WrongDeclaration, match=r"Spark refuses mode='append'.*watermark"):
        run_once(spark, declare(count, reading(topics[0]), [topic(topics[1]), lake("counts")]), places)
    with pytest.raises(WrongDeclaration, match="Spark refuses mode='complete'"):
        run_once(spark, declare(same, reading(topics[0]), topic(topics[1]), mode="complete"), places)


def test_records_as_they_are_and_columns_beside_fields(spark: Any, places: Places, topics: tuple[str, str]) -> None:
    copied = declare(
        lambda rows: rows.select("key", "value", F.col("timestamp")),
        topic(topics[0]),
        topic(topics[1], options={"includeTimestamp": True}),
    )
    send(places.bootstrap, topics[0], numbers(5))
    run_once(spark, copied, places)
    before, after = (
        sorted((row[3], row[4], row[6][1]) for row in consumed(places.bootstrap, name, partitions=count))
        for name, count in ((topics[0], 2), (topics[1], 1))
    )
    assert after == before
    beside = declare(same, reading(topics[0], columns=["offset", "partition"]), lake("beside"))
    run_once(spark, beside, places)
    found = table(places.home, "beside")
    assert (ns(found), {row["partition"] for row in found} <= {0, 1}) == (list(range(5)), True)
    assert set(found[0]) == {"n", "user", "offset", "partition"}


def test_a_bad_value_stays_in_its_column(spark: Any, places: Places, topics: tuple[str, str]) -> None:
    one = declare(same, reading(topics[0], on_error="column"), lake("marked"))
    send(places.bootstrap, topics[0], [*numbers(3), b"{bad"])
    run_once(spark, one, places)
    found = table(places.home, "marked")
    assert sorted(row["n"] for row in found if row["_error"] is None) == [0, 1, 2]
    (bad,) = [row for row in found if row["_error"] is not None]
    assert (bad["n"], bad["user"]) == (None, None)


def test_a_sink_may_have_a_shape_of_its_own(spark: Any, places: Places, topics: tuple[str, str]) -> None:
    few = lambda rows: rows.where("n < 3").withColumn("user", F.upper("user")).limit(2)  # noqa: E731
    one = declare(same, reading(topics[0]), [lake("all"), topic(topics[1]).using(few)])
    send(places.bootstrap, topics[0], numbers(10))
    run_once(spark, one, places)
    assert ns(table(places.home, "all")) == list(range(10))
    found = received(places.bootstrap, topics[1])
    assert len(found) == 2
    assert all(row["user"].startswith("U") and row["n"] < 3 for row in found)


def test_two_streams_are_joined_by_the_names_of_their_parameters(
    spark: Any, places: Places, levada: LevadaBroker, topics: tuple[str, str]
) -> None:
    more = make_topic(levada.bootstrap)

    def joined(users: Any, orders: Any) -> Any:
        return orders.join(users.withColumnRenamed("n", "m"), "user").select("n", "m")

    one = declare(joined, {"orders": reading(topics[0]), "users": reading(more)}, topic(topics[1]), partitions=1)
    send(places.bootstrap, topics[0], numbers(6))
    send(places.bootstrap, more, [{"n": 100 + number, "user": f"u{number}"} for number in range(2)])
    run_once(spark, one, places)
    found = sorted((row["n"], row["m"]) for row in received(places.bootstrap, topics[1]))
    assert found == [(0, 100), (1, 101), (3, 100), (4, 101)]


def test_a_table_takes_a_new_column_and_refuses_another_type(
    spark: Any, places: Places, topics: tuple[str, str]
) -> None:
    send(places.bootstrap, topics[0], numbers(3))
    run_once(spark, declare(same, reading(topics[0]), lake("grows")), places)
    wider = declare(lambda rows: rows.withColumn("more", F.array(F.col("n"))), reading(topics[0]), lake("grows"))
    run_once(spark, wider, places)
    found = table(places.home, "grows")
    assert sorted((row["n"], row["more"]) for row in found if row["more"]) == [(n, [n]) for n in range(3)]
    assert len(found) == 6
    with pytest.raises(WrongTable, match="has column 'n' as int32, and the pipeline now makes it string"):
        run_once(
            spark,
            declare(lambda rows: rows.withColumn("n", F.col("n").cast("string")), reading(topics[0]), lake("grows")),
            places,
        )


def test_of_a_stream_repeats_within_the_watermark_are_dropped_and_of_a_static_frame_all(spark: Any) -> None:
    at = [NOON, NOON + timedelta(minutes=1), NOON + timedelta(hours=5)]
    frame = spark.createDataFrame([("a", at[0]), ("a", at[1]), ("b", at[2])], "id STRING, at TIMESTAMP")
    assert sorted(row.id for row in deduplicated(frame, "id").collect()) == ["a", "b"]
