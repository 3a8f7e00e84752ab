"""`format("levada")`: topics as a source and a sink of Spark. Spark finds it by the package `pyspark_levada`.

    spark.readStream.format("levada").option("bootstrap", "127.0.0.1:9092").option("subscribe", "orders").load()

Options are checked when a reader or a writer is made, on the driver, before any job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from levada.spark.options.reading import WrongOption
from levada.spark.options.source import SourceOptions

if TYPE_CHECKING:
    import pyarrow


class LevadaSource(DataSource):
    """Topics of a broker that speaks Kafka's protocol."""

    @classmethod
    def name(cls) -> str:
        return "levada"

    def schema(self) -> str:
        """The columns that a read with these options has."""
        return SourceOptions.of(self.options).formatter.ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        from levada.spark.batch import BatchReader

        options = SourceOptions.of(self.options).for_batch()
        _check_schema(schema, options.formatter.schema)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from levada.spark.stream import StreamReader

        options = SourceOptions.of(self.options).for_stream()
        _check_schema(schema, options.formatter.schema)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from levada.spark.sink.writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from levada.spark.sink.writers import stream_writer

        return stream_writer(self.options, schema, overwrite)


def _check_schema(given: StructType, ours: pyarrow.Schema) -> None:
    """A schema that the user gave has to be the one that follows from the options."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if not to_arrow_schema(given, timezone="UTC").equals(ours):
        from levada.spark.formats import ddl_of_schema

        allowed = f"what the options say is, so leave it away: {ddl_of_schema(ours)}"
        raise WrongOption("schema", given.simpleString(), allowed)
