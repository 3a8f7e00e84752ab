"""What the bytes of keys and values mean: raw, string, json, avro, bare or in Confluent's frame; and what becomes of records that are not so.

formatter = Formatter(("key", "value", "offset"), value=format_of("json", schema="id BIGINT, name STRING"))
for batch in decode(piece, formatter.needed, topic="orders"):
    good, dead = formatter.apply(batch, topic="orders", partition=0)
"""

from __future__ import annotations

from typing import Final

from levada.spark.formats.ddl import WrongSchema, ddl_of_schema, struct_of
from levada.spark.formats.formatter import ON_ERROR, BadRecord, Formatted, Formatter, OnError
from levada.spark.formats.plain import Raw, String
from levada.spark.formats.reading import Format

__all__ = [
    "FORMATS",
    "ON_ERROR",
    "BadRecord",
    "Format",
    "Formatted",
    "Formatter",
    "OnError",
    "WrongSchema",
    "ddl_of_schema",
    "format_of",
    "struct_of",
]

FORMATS: Final = ("raw", "string", "json", "avro", "confluent-avro")


def format_of(name: str, *, schema: str | None = None) -> Format:
    """The format of this name. `schema` is DDL for json, JSON for avro. WrongSchema, ValueError."""
    match name:
        case "raw":
            return Raw()
        case "string":
            return String()
        case "json" if schema:
            from levada.spark.formats.json_values import Json

            return Json(schema)
        case "avro" | "confluent-avro" if schema:
            from levada.spark.formats.avro_values import Avro

            return Avro(schema, framed=name == "confluent-avro")
        case "json" | "avro" | "confluent-avro":
            raise WrongSchema(f"{name} needs a schema")
    raise ValueError(f"there is no format {name!r}; {', '.join(FORMATS)} are")
