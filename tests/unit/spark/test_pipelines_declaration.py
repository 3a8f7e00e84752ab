"""What a pipeline may be declared to be, and what is said otherwise: all before any Spark is started."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from levada.spark import lake, pipeline, topic
from levada.spark.pipelines.declaration import Pipeline, collecting
from levada.spark.pipelines.errors import WrongDeclaration
from levada.spark.pipelines.modes import is_aggregate, never_ends, output_mode
from levada.spark.pipelines.places import Places
from levada.spark.pipelines.triggers import Trigger, trigger_of


def declare(function=None, **changed) -> Pipeline:
    """A pipeline that is right but for what is changed."""
    given = {"source": topic("orders"), "sink": topic("revenue"), **changed}
    return pipeline(**given)(function or (lambda orders: orders))


def named(orders):
    """The first line.

    And more.
    """
    return orders


def test_a_declared_function_is_still_the_function():
    one = declare(lambda orders: [*orders, "more"], name="any")
    assert one(["row"]) == ["row", "more"]


def test_it_is_called_after_its_function_and_says_what_it_is():
    one = declare(named)
    assert (one.name, one.about) == ("named", "The first line.")
    assert (Path(one.file).name, one.trigger) == (Path(__file__).name, Trigger(1000))


def test_sinks_are_remembered_under_the_pipelines_name():
    one = declare(named, sink=[topic("revenue"), lake("table"), lake("/mnt/lake/other/")])
    assert [one.sink_id(sink) for sink in one.sinks] == ["named/revenue", "named/table", "named/other"]


def test_no_two_pipelines_have_a_sink_of_one_name():
    one, other = declare(named, name="a", sink=topic("b.c")), declare(named, name="a.b", sink=topic("c"))
    assert one.sink_id(one.sinks[0]) != other.sink_id(other.sinks[0])


def test_several_sources_are_given_by_the_names_of_the_parameters():
    one = declare(lambda a, b: (a, b), source={"b": topic("bees"), "a": topic("ants")}, name="both")
    assert {name: source.id for name, source in one.sources.items()} == {"a": "ants", "b": "bees"}


def test_what_is_declared_meanwhile_is_collected_in_order_and_again():
    with collecting() as found:
        declare(named, name="one")
        declare(named, name="two")
        declare(named, name="one")
    declare(named, name="three")
    assert [one.name for one in found] == ["one", "two", "one"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sink": []}, "it has no sinks"),
        ({"sink": "revenue"}, "must be a topic"),
        ({"source": "orders"}, "must be a topic"),
        ({"sink": [topic("x"), topic("x")]}, "two sinks 'x'"),
        ({"sink": topic("orders")}, "reads topic 'orders', which it writes to"),
        ({"sink": topic(pattern="x.*")}, "pattern= is for a source"),
        ({"sink": topic("x", format="json")}, "format= is for a source"),
        ({"sink": topic("x", delivery="exactly-once")}, "did you mean exactly_once"),
        ({"source": topic("orders", key="user")}, "key= is for a sink"),
        ({"source": topic("orders").using(lambda frame: frame)}, "using() is for a sink"),
        ({"source": topic()}, "a topic's name or a pattern"),
        ({"source": topic("orders", pattern="o.*")}, "one of the two"),
        ({"source": topic("orders", format="jsn", schema="a INT")}, "json"),
        ({"source": topic("orders", format="json")}, "schema"),
        ({"source": topic("orders", format="json", schema="a INTT")}, "INTT"),
        ({"source": topic("orders", on_error="ignore")}, "deadLetter"),
        ({"source": topic("orders", starting="soon")}, "earliest"),
        ({"source": topic("orders", options={"subscribbe": "x"})}, "subscribe"),
        ({"source": topic("orders", columns=["ofset"])}, "offset"),
        ({"mode": "upsert"}, "append, update, complete"),
        ({"mode": "complete", "sink": lake("x")}, "again and again"),
        ({"state": "rocks"}, "did you mean rocksdb"),
        ({"partitions": 0}, "at least 1"),
        ({"trigger": "soon"}, "available now"),
        ({"name": "p" * 100, "sink": topic("t" * 100)}, "more than 199 characters together"),
        ({"name": "a/b"}, "[A-Za-z0-9._-]"),
        ({"name": ".."}, "[A-Za-z0-9._-]"),
        ({"name": ""}, "[A-Za-z0-9._-]"),
        ({"sink": lake("../x")}, "an absolute path, or a URI"),
        ({"source": {"orders": topic("orders"), "users": topic("users")}}, "the same names"),
    ],
)
def test_a_mistake_is_named_with_what_is_allowed(changed, said):
    with pytest.raises(WrongDeclaration) as refused:
        declare(named, **changed)
    assert said in str(refused.value)


def test_a_function_of_nothing_or_of_two_frames_is_no_pipeline_of_one_source():
    for function in (lambda: None, lambda a, b: a):
        with pytest.raises(WrongDeclaration, match="with one source it must take one frame"):
            declare(function, name="any")


def test_a_pipeline_cannot_be_declared_a_pipeline():
    with pytest.raises(WrongDeclaration, match="is a pipeline already"):
        declare(declare(named))


def test_a_source_reads_with_the_options_of_the_format():
    source = topic(
        "orders",
        format="json",
        schema="id STRING",
        columns=["offset", "timestamp"],
        on_error="column",
        max_records=10,
        min_records=5,
        max_delay="1 minute",
        options={"failOnDataLoss": False},
    )
    assert source.reading(bootstrap="b:1", group="g") == {
        "bootstrap": "b:1",
        "groupId": "g",
        "subscribe": "orders",
        "valueFormat": "json",
        "valueSchema": "id STRING",
        "onError": "column",
        "maxOffsetsPerTrigger": "10",
        "minOffsetsPerTrigger": "5",
        "maxTriggerDelay": "1 minute",
        "columns": "value,offset,timestamp",
        "startingOffsets": "earliest",
        "failOnDataLoss": "False",
    }


@pytest.mark.parametrize(
    ("starting", "option", "value"),
    [
        (None, "startingOffsets", "earliest"),
        ("group", "startingOffsets", "group"),
        ({"orders": {"0": 17}}, "startingOffsets", '{"orders": {"0": 17}}'),
        (datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), "startingTimestamp", "2000"),
        (datetime(1970, 1, 1, 0, 0, 2), "startingTimestamp", "2000"),
    ],
)
def test_where_it_starts(starting, option, value):
    assert topic("orders", starting=starting).reading(bootstrap="b:1", group="g")[option] == value


def test_without_fields_the_frame_has_the_columns_asked_for():
    assert topic("a", columns=["key"]).reading(bootstrap="b:1", group="g")["columns"] == "key"
    assert "columns" not in topic("a").reading(bootstrap="b:1", group="g")


@pytest.mark.parametrize(
    ("text", "every_ms"),
    [("10 seconds", 10_000), ("1 second", 1000), ("500 ms", 500), ("2 minutes", 120_000), ("1h", 3_600_000), ("3s", 3000), ("available now", None)],
)  # fmt: skip
def test_triggers(text, every_ms):
    assert trigger_of(text) == Trigger(every_ms)


@pytest.mark.parametrize("text", ["", "10", "ten seconds", "10 fortnights", "-1 seconds", "1.5 seconds", "now"])
def test_no_trigger(text):
    with pytest.raises(WrongDeclaration, match="10 seconds"):
        trigger_of(text)


@pytest.mark.parametrize("watermark", ["at", ("at",), ("at", "1", "2")])
def test_a_watermark_is_a_column_and_a_delay(watermark):
    with pytest.raises(WrongDeclaration, match="a column and a delay"):
        topic("orders", watermark=watermark)


@pytest.mark.parametrize(
    ("declared", "sinks", "aggregated", "mode"),
    [
        (None, [topic("a")], False, "append"),
        (None, [topic("a")], True, "update"),
        (None, [topic("a"), lake("b")], True, "append"),
        (None, [lake("b")], True, "append"),
        ("append", [topic("a")], True, "append"),
        ("update", [lake("a")], True, "update"),
        ("complete", [topic("a")], True, "complete"),
    ],
)
def test_which_rows_a_micro_batch_has(declared, sinks, aggregated, mode):
    assert output_mode(declared, sinks, aggregated=aggregated) == mode


def test_an_aggregate_is_found_in_a_plan():
    assert is_aggregate("~Aggregate [a#1], [a#1]\n+- ~StreamingRelation")
    assert is_aggregate("Project [a#1]\n+- Aggregate [a#1], [a#1]\n   +- Relation")
    assert not is_aggregate("Project [Aggregate#1]\n+- Deduplicate [a#1]\n   +- Relation")


def test_timers_by_the_clock_are_found_in_a_plan():
    plan = "~Project [a#1]\n+- ~TransformWithStateInPySpark udf(a#1)#2, 1, [a#3L], Append, {}, pandas, false, 0\n   :- ~Relation"
    assert never_ends(plan.format("ProcessingTime"))
    assert not never_ends(plan.format("EventTime"))
    assert not never_ends("~Project [ProcessingTime#1]")


def test_tables_lie_in_the_home_unless_they_are_addressed(tmp_path):
    places = Places(home=tmp_path)
    assert places.table("revenue") == str(tmp_path / "lake" / "revenue")
    assert places.table("/mnt/x") == "/mnt/x"
    assert places.table("s3://bucket/x") == "s3://bucket/x"
    assert places.checkpoint("revenue") == tmp_path / "checkpoints" / "revenue"
