"""Wrong options and columns are refused by name, with what is allowed."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from levada.spark.options.reading import WrongOption
from levada.spark.options.sink import SinkOptions
from levada.spark.sink.rows import Columns, WrongColumns, columns_of


def options(*, streaming: bool = False, **given: str) -> SinkOptions:
    return SinkOptions.of({"bootstrap": "127.0.0.1:9092", **given}, streaming=streaming)


def test_the_defaults():
    found = options(topic="orders")
    assert (found.topic, found.delivery, found.sink_id, found.sink_epoch, found.codec) == (
        "orders",
        "exactly_once",
        None,
        0,
        None,
    )
    assert pickle.loads(pickle.dumps(found)) == found


def test_names_are_taken_in_any_case_as_spark_hands_them_over():
    found = options(sinkid="revenue.0", batchid="17", sinkepoch="2", includetimestamp="true", compression="ZSTD")
    assert (found.sink_id, found.batch_id, found.sink_epoch, found.include_timestamp, found.codec) == (
        "revenue.0",
        17,
        2,
        True,
        "zstd",
    )


def test_a_java_producers_settings_are_taken():
    given = {
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "kafka.acks": "all",
        "kafka.linger.ms": "5",
        "kafka.compression.type": "lz4",
    }
    assert SinkOptions.of(given, streaming=True).codec == "lz4"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delivery": "maybe"}, "delivery: 'maybe' is not allowed; exactly_once or at_least_once is"),
        ({"topik": "orders"}, "topik: there is no such option; did you mean topic"),
        ({"topic": "a b"}, "topic: 'a b' is not allowed"),
        ({"compression": "brotli"}, "compression: 'brotli' is not allowed; none, gzip, snappy, lz4 or zstd is"),
        ({"batchId": "3"}, "batchId: '3' is not allowed; it counts the batches of a sinkId"),
        ({"sinkId": "a"}, "batchId: it is missing; with a sinkId"),
        ({"sinkId": "a", "batchId": "-1"}, "batchId: '-1' is not allowed; a whole number from 0 on is"),
        ({"sinkId": "a" * 201, "batchId": "1"}, "at most 200 characters"),
        ({"delivery": "at_least_once", "sinkId": "a", "batchId": "1"}, "sinkId: 'a' is not allowed; with delivery=at_least_once"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_by_name(given, message):
    with pytest.raises(WrongOption, match=message):
        options(**given)


def test_a_stream_counts_its_batches_itself():
    with pytest.raises(WrongOption, match="batchId: '3' is not allowed; a stream counts"):
        options(streaming=True, batchId="3")
    assert options(streaming=True, sinkId="a", checkpointlocation="/somewhere").sink_id == "a"


STRING, BINARY, LONG, INT, TIME = StringType(), BinaryType(), LongType(), IntegerType(), TimestampType()
HEADERS = ArrayType(StructType().add("key", STRING).add("value", BINARY))


def columns(*fields: tuple[str, DataType], topic: str | None = "orders", include_timestamp: bool = False) -> Columns:
    schema = StructType()
    for name, kind in fields:
        schema.add(name, kind)
    return columns_of(schema, topic=topic, include_timestamp=include_timestamp)


VALUE, TOPIC = ("value", STRING), ("topic", STRING)


def test_columns_are_found_by_name_and_others_left_out():
    found = columns(("offset", LONG), ("Key", STRING), ("value", BINARY), ("headers", HEADERS), ("partition", INT))
    assert found == Columns(value=2, key=1, headers=3, partition=4)


def test_the_option_topic_comes_before_the_column():
    assert columns(VALUE, TOPIC).topic is None
    assert columns(VALUE, TOPIC, topic=None).topic == 1


def test_timestamps_are_kept_when_asked_for():
    assert columns(VALUE, ("timestamp", TIME)).timestamp is None
    assert columns(VALUE, ("timestamp", TIME), include_timestamp=True).timestamp == 1


@pytest.mark.parametrize(
    ("fields", "settings", "message"),
    [
        ([("key", STRING), ("id", LONG)], {}, "no column 'value'.*the columns are: key, id"),
        ([("value", LONG)], {}, "column 'value' has type bigint; binary or string is allowed"),
        ([VALUE, ("partition", LONG)], {}, "column 'partition' has type bigint; int is allowed"),
        ([VALUE, ("headers", MapType(STRING, BINARY))], {}, "column 'headers' has type map"),
        ([VALUE], {"topic": None}, "give the option topic, or a column 'topic'"),
        ([VALUE], {"include_timestamp": True}, "includeTimestamp=true needs a column 'timestamp'"),
        ([VALUE, ("VALUE", STRING)], {}, "two columns 'value'"),
    ],
)
def test_columns_that_make_no_record_are_refused(fields, settings, message):
    with pytest.raises(WrongColumns, match=message):
        columns(*fields, **settings)
