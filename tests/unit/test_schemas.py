"""Schemas of values, told apart from what is none without Arrow or Spark."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from levada.config import check_change
from levada.errors import InvalidConfig
from levada.schemas import Type, check_avro, check_json, parsed_ddl

ORDER = {"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}


def test_ddl_is_a_tree_of_types() -> None:
    assert parsed_ddl("id BIGINT NOT NULL COMMENT 'x', tags ARRAY<STRING>, `a b` DECIMAL(9, 2)") == Type(
        "struct",
        (
            ("id", Type("bigint")),
            ("tags", Type("array", (("element", Type("string")),))),
            ("a b", Type("decimal", digits=9, scale=2)),
        ),
    )
    assert parsed_ddl("STRUCT<a: INT>") == parsed_ddl("a int")


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("", "a name is expected where the end is"),
        ("id BIGNT", "there is no type BIGNT; boolean"),
        ("id BIGINT, tags ARRAY<STRING", "> is expected where the end is"),
        ("id BIGINT)", r"the end is expected where \) is"),
        ("id BIGINT, id INT", "there are two fields id"),
        ('{"type": "record"}', "at character 1"),
        ("a " + "ARRAY<" * 5000 + "INT" + ">" * 5000, "lie in one another"),
    ],
)
def test_what_is_no_ddl_is_told_where(ddl: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parsed_ddl(ddl)


@pytest.mark.parametrize("ddl", ["tags MAP<STRING, STRING>", "raw BINARY", "a ARRAY<STRUCT<b: BINARY>>"])
def test_what_json_cannot_be_read_as(ddl: str) -> None:
    parsed_ddl(ddl)
    with pytest.raises(ValueError, match="json cannot be read as"):
        check_json(ddl)


@pytest.mark.parametrize(
    "schema",
    [
        "long",
        ["null", "string"],
        ORDER,
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "array", "items": {"type": "map", "values": ORDER}},
        {"type": "enum", "name": "a.b.colour", "symbols": ["red"]},
        {
            "type": "record",
            "name": "two",
            "namespace": "shop",
            "fields": [{"name": "a", "type": ORDER}, {"name": "b", "type": ["null", "shop.order"]}],
        },
    ],
)
def test_avro_schemas(schema: object) -> None:
    check_avro(json.dumps(schema))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("id BIGINT", "it is not JSON"),
        ('{"type": "record", "name": "order"}', 'a record needs "name" and "fields"'),
        ('{"type": "record", "name": "order", "fields": [{"name": "id"}]}', "needs a name and a type"),
        ('{"type": "record", "name": "order", "fields": [{"name": "id", "type": "bigint"}]}', "no Avro type 'bigint'"),
        ('{"type": "array"}', 'array needs "items"'),
        ('{"fields": []}', "it is no Avro schema"),
        ("[]", "it is no Avro schema"),
        ("[" * 100_000, "lie in one another|not JSON"),
    ],
)
def test_what_is_no_avro_schema_is_told_why(schema: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_avro(schema)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"levada.archive.format": "json", "levada.archive.schema": "id BIGNT"}, "there is no type BIGNT"),
        ({"levada.archive.format": "avro", "levada.archive.schema": "id BIGINT"}, "needs an Avro schema in JSON"),
        ({"levada.archive.schema": "id BIGINT"}, r"levada\.archive\.format is raw, which has none"),
    ],
)
def test_a_topic_is_not_set_to_a_schema_that_nothing_can_read(settings: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"levada\.archive\.schema=.*{said}"):
        check_change({}, settings)
    check_change(settings, {**settings, "retention.ms": "1"})  # one that has it is served, and may be changed elsewhere


def test_a_topic_is_set_to_a_schema() -> None:
    check_change({}, {"levada.archive.format": "json", "levada.archive.schema": "id BIGINT"})
    check_change({}, {"levada.archive.format": "avro", "levada.archive.schema": json.dumps(ORDER)})
    check_change({"levada.archive.schema": "what ever"}, {})


def test_the_broker_needs_no_arrow_for_it() -> None:
    lines = "import sys, levada.config, levada.schemas; print([one for one in ('pyarrow', 'fastavro', 'pyspark') if one in sys.modules])"
    assert subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True).stdout == "[]\n"
