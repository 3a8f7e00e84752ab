"""The columns of a record, in the types of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

#: A record without headers has null for them, as in Spark. timestampType: 0 its producer's clock, 1 the broker's.
TYPES: Final[Mapping[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER)),
}
#: All of them, in Spark's order.
COLUMNS: Final = tuple(TYPES)


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of these columns. ValueError for one that does not exist."""
    for name in columns:
        if name not in TYPES:
            raise ValueError(f"there is no column {name!r}; {', '.join(COLUMNS)} are")
    return pa.schema([pa.field(name, TYPES[name]) for name in columns])
