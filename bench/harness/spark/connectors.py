"""The two connectors, each used as its documentation says. What differs between them is here, and nothing else is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from harness.rows import OURS
from harness.spark.filling import JSON_SCHEMA

#: What a raw read is asked for.
COLUMNS = ("key", "value", "partition", "offset", "timestamp")


class Connector(Protocol):
    """A source and a sink of topics. `frame` is a static one or a stream, as the reader given is."""

    name: str

    def all_columns(self, reader: Any, bootstrap: str, topic: str, **options: str) -> Any: ...

    def raw(self, reader: Any, bootstrap: str, topic: str, **options: str) -> Any: ...

    def orders(self, reader: Any, bootstrap: str, topic: str, **options: str) -> Any: ...

    def sink(self, writer: Any, bootstrap: str, topic: str) -> Any: ...


class Official:
    """Spark's own, format("kafka"), with its jars."""

    name = "official"

    def all_columns(self, reader: Any, bootstrap: str, topic: str, **options: str) -> Any:
        return _reader(reader.format("kafka"), bootstrap, topic, options).load()

    def raw(self, reader: Any, bootstrap: str, topic: str, **options: str) -> Any:
        return self.all_columns(reader, bootstrap, topic, **options).select(*COLUMNS)

    def orders(self, reader: Any, bootstrap: str, topic: str, **options: str) -> Any:
        from pyspark.sql import functions as f

        value = f.from_json(f.col("value").cast("string"), JSON_SCHEMA).alias("order")
        return self.all_columns(reader, bootstrap, topic, **options).select(value).select("order.*")

    def sink(self, writer: Any, bootstrap: str, topic: str) -> Any:
        return writer.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", topic)


class Ours:
    """format("levada")."""

    name = OURS

    def __init__(self, delivery: str = "exactly_once") -> None:
        self.delivery = delivery

    def all_columns(self, reader: Any, bootstrap: str, topic: str, **options: str) -> Any:
        return _reader(reader.format("levada"), bootstrap, topic, options).load()

    def raw(self, reader: Any, bootstrap: str, topic: str, **options: str) -> Any:
        return self.all_columns(reader, bootstrap, topic, columns=",".join(COLUMNS), **options)

    def orders(self, reader: Any, bootstrap: str, topic: str, **options: str) -> Any:
        typed = {"columns": "value", "valueFormat": "json", "valueSchema": JSON_SCHEMA}
        return self.all_columns(reader, bootstrap, topic, **typed, **options).select("value.*")

    def sink(self, writer: Any, bootstrap: str, topic: str) -> Any:
        made = writer.format("levada").option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
        return made.option("delivery", self.delivery)


def _reader(reader: Any, bootstrap: str, topic: str, options: Mapping[str, str]) -> Any:
    known = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return reader.options(**{**known, **options})


PAIR: tuple[Connector, Connector] = (Official(), Ours())
