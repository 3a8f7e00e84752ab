"""Fetched batches as columns: what Spark's Kafka source gives, built in compiled code with no Python per record.

    for piece in fetched({"bootstrap": "127.0.0.1:9092"}, Range("orders", 0, 0, 1000), read_committed=True):
        for batch in decode(piece, ("key", "value", "offset"), topic="orders"):
            ...

`schema` needs neither numba nor a broker; the compiled code is loaded with the first `decode`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow

from levada.spark.columns.schema import COLUMNS, schema_of

if TYPE_CHECKING:
    from levada.spark.fetch import Fetched

__all__ = ["BATCH_BYTES_MAX", "COLUMNS", "ROWS_MAX", "decode", "schema_of"]

ROWS_MAX: Final = 65_536
#: Of keys, values and headers in one RecordBatch, unless one record alone has more. Arrow's offsets would allow 2 GiB.
BATCH_BYTES_MAX: Final = 64 << 20


def decode(
    fetched: Fetched,
    columns: Sequence[str],
    *,
    rows_max: int = ROWS_MAX,
    bytes_max: int = BATCH_BYTES_MAX,
    topic: str,
) -> Iterator[pyarrow.RecordBatch]:
    """The records of these batches that a consumer would see, with these columns in this order, at most `rows_max` at a time.

    Checksums are checked, control records and aborted transactions left out, offsets outside the piece cut off. No RecordBatch
    is empty. CorruptBatch, naming the partition and the offset, where the bytes are not what they should be.
    """
    from levada.spark.columns.decoding import decoded

    return decoded(fetched, columns, rows_max, bytes_max, topic)
