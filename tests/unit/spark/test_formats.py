"""Formats of keys and values: only the bad ones are bad, whatever stands beside them."""

from __future__ import annotations

import datetime
import io
import json
import pickle
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.spark.formats import BadRecord, Formatter, WrongSchema, format_of, struct_of
from levada.spark.formats.ddl import ddl_of

UTC = datetime.UTC
#: Cut in every wrong way: each is bad alone, and together they make as many objects as there are values.
BROKEN = [b"", b" ", b"nope", b"[1]", b"1", b'{"id": 1', b'1}', b'{"id": 1}{"id": 2}', b'{"id": "x"}', b"\xff", b'{"id": 1.5}',
          b'{"name": "a\nb"}', b'{"name": "a\\', b'{"id": 1,}', b'{"id": 1}\0', b'{"id" 1}', b'{"name": "\xff"}', b'{"id": [}]']  # fmt: skip


def binary(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def batch_of(*values: bytes | None, key: bytes | None = b"k") -> pa.RecordBatch:
    """A decoded batch: offsets from 100 on, and all that a dead letter keeps."""
    rows = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "key": binary(*[key] * rows),
            "value": binary(*values),
            "offset": pa.array(range(100, 100 + rows), pa.int64()),
            "timestamp": pa.array([0] * rows, pa.timestamp("us", tz="UTC")),
            "headers": pa.nulls(rows, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        }
    )


def test_json_of_all_types() -> None:
    read = format_of(
        "json",
        schema="id BIGINT, n INT, name STRING, ok BOOLEAN, x DOUBLE, day DATE, at TIMESTAMP, price DECIMAL(10, 2), "
        "tags ARRAY<STRING>, days ARRAY<DATE>, place STRUCT<x: DOUBLE, since: DATE>",
    ).read(
        binary(
            b'{"id":1,"n":2,"name":"\\u00e9","ok":true,"x":1,"day":"2024-02-29","at":"2024-01-02T03:04:05.5+01:00","price":1.25,'
            b'"tags":["a",null],"days":["2020-01-01"],"place":{"x":0.5,"since":"1999-12-31"},"unknown":{"a":[1]}}',
            b"{}",
            None,
        )
    )
    assert read.bad == {}
    first, empty, null = read.values.to_pylist()
    assert first == {
        "id": 1,
        "n": 2,
        "name": "é",
        "ok": True,
        "x": 1.0,
        "day": datetime.date(2024, 2, 29),
        "at": datetime.datetime(2024, 1, 2, 2, 4, 5, 500_000, UTC),
        "price": Decimal("1.25"),
        "tags": ["a", None],
        "days": [datetime.date(2020, 1, 1)],
        "place": {"x": 0.5, "since": datetime.date(1999, 12, 31)},
    }
    assert set(empty.values()) == {None}
    assert null is None


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(BROKEN)
        | st.none()
        | st.integers(0, 2**60).map(lambda i: json.dumps({"id": i, "name": "a\nb"}, indent=i % 3 or None).encode()),
        max_size=30,
    )
)
def test_of_json_only_the_bad_values_are_bad(values: list[bytes | None]) -> None:
    read = format_of("json", schema="id BIGINT, name STRING").read(binary(*values))
    read.values.validate(full=True)
    assert set(read.bad) == {row for row, value in enumerate(values) if value in BROKEN}
    for row, (found, value) in enumerate(zip(read.values.to_pylist(), values, strict=True)):
        assert found == (None if value is None or row in read.bad else json.loads(value))


def test_a_slice_of_a_column_is_read_like_any_other() -> None:
    values = binary(b"x", b"y", b'{"id": 1}', None, b'{"id": 2}', b"z")[2:5]
    read = format_of("json", schema="id INT").read(values)
    assert (read.values.to_pylist(), read.bad) == ([{"id": 1}, None, {"id": 2}], {})


def test_json_has_neither_maps_nor_bytes() -> None:
    for schema in ("a MAP<STRING, INT>", "a ARRAY<STRUCT<b: BINARY>>"):
        with pytest.raises(WrongSchema, match="json cannot be read as"):
            format_of("json", schema=schema)


def test_a_string_is_utf8_or_bad() -> None:
    read = format_of("string").read(binary(b"a", None, b"\xc3\xa9", b"\xff", b""))
    assert read.values.to_pylist() == ["a", None, "é", None, ""]
    assert read.bad == {3: "it is not UTF-8"}


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": "Kind"}},
    ],
}
ORDER = {
    "id": 7,
    "note": None,
    "at": datetime.datetime(2024, 1, 2, 3, 4, 5, 6000, UTC),
    "price": Decimal("12.34"),
    "kind": "B",
    "tags": ["x"],
    "more": {"m": "A"},
}


def avro_bytes(order: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), order)
    return stream.getvalue()


def test_avro_bare_and_framed() -> None:
    good = avro_bytes(ORDER)
    for name, frame in (("avro", b""), ("confluent-avro", b"\0\0\0\1\2")):
        avro = pickle.loads(pickle.dumps(format_of(name, schema=json.dumps(AVRO))))
        read = avro.read(binary(frame + good, None, frame + good[:-2], frame + good + b"x", frame + good))
        first, *others, last = read.values.to_pylist()
        assert first | {"more": dict(first["more"])} == ORDER
        assert last == first
        assert others == [None, None, None]
        assert sorted(read.bad) == [2, 3]
    assert sorted(format_of("confluent-avro", schema=json.dumps(AVRO)).read(binary(b"\1abcd" + good)).bad) == [0]


def test_what_spark_has_no_type_for_is_refused_in_an_avro_schema() -> None:
    itself = {"type": "record", "name": "Tree", "fields": [{"name": "left", "type": ["null", "Tree"]}]}
    for schema in (json.dumps(["int", "string"]), json.dumps(itself), "{", '"nothing"'):
        with pytest.raises(WrongSchema):
            format_of("avro", schema=schema)


@pytest.mark.parametrize(
    ("ddl", "kind"),
    [
        ("a INT", "struct<`a`:int>"),
        ("a: bigint NOT NULL COMMENT \"x, y\", `b``c` decimal", "struct<`a`:bigint,`b``c`:decimal(10,0)>"),
        ("STRUCT<a: ARRAY<STRUCT<b: MAP<STRING, TIMESTAMP_NTZ>>>>", "struct<`a`:array<struct<`b`:map<string,timestamp_ntz>>>>"),
        ("struct INT, b STRUCT<c: DATE>", "struct<`struct`:int,`b`:struct<`c`:date>>"),
    ],
)  # fmt: skip
def test_ddl_is_read_and_written(ddl: str, kind: str) -> None:
    assert ddl_of(struct_of(ddl)) == kind
    assert struct_of(kind) == struct_of(ddl)


@pytest.mark.parametrize(
    "ddl", ["", "a", "a INTT", "a INT b INT", "a ARRAY<INT", "a INT, a INT", "a DECIMAL(50, 2)", "a INT;"]
)
def test_a_schema_that_cannot_be_read_is_named(ddl: str) -> None:
    with pytest.raises(WrongSchema, match="the schema"):
        struct_of(ddl)


def test_fail_names_topic_partition_and_offset() -> None:
    formatter = Formatter(("value",), value=format_of("json", schema="id INT"))
    assert formatter.needed == ("value", "offset")
    batch = batch_of(b'{"id": 1}', b"x", b"y").select(["value", "offset"])
    with pytest.raises(
        BadRecord, match=r"offset 101 of orders-3 .*value is not json: it is not a JSON object"
    ) as caught:
        formatter.apply(batch, topic="orders", partition=3)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.topic, again.partition, again.offset, str(again)) == ("orders", 3, 101, str(caught.value))


def test_column_keeps_the_row_and_says_what_is_wrong() -> None:
    formatter = Formatter(
        ("value", "key"), key=format_of("string"), value=format_of("json", schema="id INT"), on_error="column"
    )
    formatted = formatter.apply(batch_of(b'{"id": 1}', b"x", None), topic="orders", partition=3)
    assert formatted.dead is None
    assert formatted.batch.schema == formatter.schema
    assert formatter.ddl == "`value` struct<`id`:int>, `key` string, `_error` string"
    assert formatted.batch.to_pydict() == {
        "value": [{"id": 1}, None, None],
        "key": ["k", "k", "k"],
        "_error": [None, "its value is not json: it is not a JSON object", None],
    }


def test_both_may_be_bad() -> None:
    formatter = Formatter(
        ("value", "key"), key=format_of("string"), value=format_of("json", schema="id INT"), on_error="column"
    )
    formatted = formatter.apply(batch_of(b"x", key=b"\xff"), topic="orders", partition=3)
    assert formatted.batch.column("_error").to_pylist() == [
        "its key is not string: it is not UTF-8; its value is not json: it is not a JSON object"
    ]


def test_dead_letters_are_handed_back_whole() -> None:
    formatter = pickle.loads(
        pickle.dumps(Formatter(("value",), value=format_of("json", schema="id INT"), on_error="deadLetter"))
    )
    assert set(formatter.needed) == {"key", "value", "offset", "timestamp", "headers"}
    formatted = formatter.apply(batch_of(b'{"id": 1}', b"x", b'{"id": 2}'), topic="orders", partition=3)
    assert formatted.batch.schema == formatter.schema
    assert formatted.batch.to_pydict() == {"value": [{"id": 1}, {"id": 2}]}
    (dead,) = formatted.dead.to_pylist()
    assert (dead["key"], dead["value"], dead["offset"]) == (b"k", b"x", 101)
    assert dead["_error"] == "its value is not json: it is not a JSON object"


def test_raw_columns_are_left_alone() -> None:
    formatter = Formatter(("value", "offset"), value=format_of("raw"), on_error="column")
    assert formatter.needed == ("value", "offset")
    batch = batch_of(b"x").select(["value", "offset"])
    assert formatter.apply(batch, topic="orders", partition=3).batch is batch


def test_a_format_or_a_policy_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="no format 'xml'"):
        format_of("xml")
    with pytest.raises(WrongSchema, match="json needs a schema"):
        format_of("json")
    with pytest.raises(ValueError, match="onError is 'ignore'"):
        Formatter(on_error="ignore")  # type: ignore[arg-type]
