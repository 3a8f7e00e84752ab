"""What an archive looks like: an ordinary Delta table, partitioned by the topic's partition.

    partition=3/00000000000000001000-<unique>.parquet       the first offset it holds

A file holds records of one partition in the order of their offsets, and no two files have offsets between one another's: so the
files of a partition, by their first offset, are its history. How far the history goes is a `txn` of the Delta log for
each partition, written in the same commit as the files: its version is the next offset to archive.
"""

from __future__ import annotations

import datetime
import json
import re
import uuid
from typing import Any, Final, NamedTuple

import pyarrow as pa

from levada.spark.archive.wanted import Typed
from levada.spark.columns.schema import schema_of

#: What is kept of a record. The partition is in a file's directory, and not in the file.
COLUMNS: Final = ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
STORED: Final = COLUMNS[1:]
#: Where a schema is set: the value read by it, null where it could not be.
TYPED: Final = "data"
#: Properties of the table.
TOPIC_NAME: Final = "levada.topic"
TOPIC_ID: Final = "levada.topicId"
LOST: Final = "levada.lost"
EPOCHS: Final = "levada.epochs"

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Written(NamedTuple):
    """A file that was written: what it holds, and which of the covered offsets it is for. Offsets are inclusive."""

    path: str
    size: int
    partition: int
    first: int
    last: int
    rows: int
    oldest_us: int
    newest_us: int
    host: str


def table_schema(typed: Typed) -> pa.Schema:
    """All columns of the table. WrongSchema."""
    schema = schema_of(COLUMNS)
    found = typed.format()
    return schema if found is None else schema.append(pa.field(TYPED, found.type))


def file_schema(typed: Typed) -> pa.Schema:
    """The columns of a file."""
    return pa.schema(list(table_schema(typed))[1:])


def directory(partition: int) -> str:
    return f"partition={partition}"


def new_name(partition: int, first: int) -> str:
    """Where the next file of a partition goes, under the table."""
    return f"{directory(partition)}/{first:020d}-{uuid.uuid4().hex}.parquet"


def is_ours(path: str) -> bool:
    """Whether a file is named as we name them: then its rows are in order."""
    return re.search(r"(^|/)\d{20}-[0-9a-f]{32}\.parquet$", path) is not None


def is_own(path: str) -> bool:
    """Whether a path under the table is one that only we can have given: `new_name`, and nothing deeper or elsewhere."""
    return re.fullmatch(r"partition=\d+/\d{20}-[0-9a-f]{32}\.parquet", path) is not None


def app_id(topic_id: str, partition: int) -> str:
    """Whose `txn` says how far a partition is archived."""
    return f"levada.archive/{topic_id}/{partition}"


def stats(file: Written) -> str:
    """A file's statistics as Delta has them: by these, readers pass over files that hold nothing they want."""
    low: dict[str, Any] = {"offset": file.first}
    high: dict[str, Any] = {"offset": file.last}
    oldest, newest = _time(file.oldest_us), _time(file.newest_us)
    if oldest and newest:
        low["timestamp"], high["timestamp"] = oldest, newest
    nulls = {"offset": 0, "timestamp": 0}
    return json.dumps({"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def _time(us: int) -> str | None:
    """None for a time that no calendar has: timestamps are the producers' to choose."""
    try:
        moment = _EPOCH + datetime.timedelta(microseconds=us)
    except OverflowError:
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z" if moment.year >= 1000 else None
