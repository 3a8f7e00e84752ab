"""Between topics and the frames that pipelines' functions see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from levada.spark.pipelines.errors import WrongDeclaration
from levada.spark.pipelines.topics import Topic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: What the sink takes of a frame that has a value.
RECORD_COLUMNS: Final = ("topic", "partition", "key", "value", "headers", "timestamp")


def source_frame(spark: SparkSession, source: Topic, *, bootstrap: str, group: str) -> DataFrame:
    """What a pipeline's function is given of this topic: a streaming frame, of the values' fields where they have some."""
    reader = spark.readStream.format("levada").options(**source.reading(bootstrap=bootstrap, group=group))
    frame = unfolded(reader.load()) if source.structured else reader.load()
    return frame.withWatermark(*source.watermark) if source.watermark else frame


def unfolded(frame: DataFrame) -> DataFrame:
    """The fields of `value` as columns, then the record's other columns."""
    others = [name for name in frame.columns if name != "value"]
    fields = frame.select("value.*").columns
    for name in others:
        if name in fields:
            raise WrongDeclaration(f"columns: {name!r} is a field of the values already")
    return frame.select("value.*", *others)


def records(frame: DataFrame, sink: Topic) -> DataFrame:
    """A frame as the records of a topic: as it is where it has a `value`, else each row as a JSON object with all its columns."""
    from pyspark.sql import functions as F

    if sink.key is not None and sink.key not in frame.columns:
        raise WrongDeclaration(
            f"topic {sink.name!r}: key={sink.key!r} is no column of the frame; {', '.join(frame.columns)} are"
        )
    key = [_bytes(frame, sink.key).alias("key")] if sink.key is not None else []
    if "value" not in frame.columns:
        row = F.struct(*(F.col(_quoted(name)) for name in frame.columns))
        return frame.select(*key, F.to_json(row, {"ignoreNullFields": "false"}).alias("value"))
    kept = [name for name in RECORD_COLUMNS if name in frame.columns and not (key and name == "key")]
    return frame.select(*key, *kept)


def _bytes(frame: DataFrame, name: str) -> Column:
    """A column as a key: binary as it is, all else as text; structures as JSON."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

    column, kind = F.col(_quoted(name)), frame.schema[name].dataType
    if isinstance(kind, BinaryType):
        return column
    return F.to_json(column) if isinstance(kind, ArrayType | MapType | StructType) else column.cast("string")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def deduplicated(frame: DataFrame, *keys: str) -> DataFrame:
    """One row for each key: the first of those that come within the watermark. Of a static frame, which has no lateness, one of all."""
    return frame.dropDuplicatesWithinWatermark(list(keys)) if frame.isStreaming else frame.dropDuplicates(list(keys))
