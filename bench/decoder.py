"""How fast fetched batches become columns, from memory, on one core: rows/s for 8 B keys and 100 B values.

    python bench/decoder.py [--codec none|gzip|snappy|lz4|zstd] [--rows 1000000] [--batch-rows 1000] [--headers 0]

Random bytes for values would flatter nobody but would make the codecs pointless: values are text that packs about 1:3.
The best of five rounds is printed, since whoever else is on the machine can only slow it down; and how long the first decode of
the process took, in which the compiled code is loaded, or compiled where there is no cache yet.
"""

from __future__ import annotations

import argparse
import random
import time

from levada.records.build import build
from levada.spark.columns import decode
from levada.spark.fetch import Fetched

COLUMNS = {
    "all five": ("key", "value", "partition", "offset", "timestamp"),
    "value only": ("value",),
    "offset and time": ("offset", "timestamp"),
    "Kafka's eight": ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"),
}
FETCH_BYTES = 8 << 20


def pieces(rows: int, batch_rows: int, codec: str, headers: int) -> list[Fetched]:
    """The rows as fetches of about 8 MiB."""
    rng = random.Random(1)
    words = [rng.randbytes(6).hex().encode() for _ in range(200)]
    found, held, first = [], bytearray(), 0
    extra = [(f"header-{i}", b"some value") for i in range(headers)]
    for base in range(0, rows, batch_rows):
        records = [
            (b"%08d" % (base + i), b" ".join(rng.choices(words, k=8))[:100].ljust(100), extra)
            for i in range(batch_rows)
        ]
        held += build(records, codec=codec, base_offset=base, timestamp_ms=1_700_000_000_000)
        if len(held) >= FETCH_BYTES or base + batch_rows >= rows:
            found.append(Fetched(memoryview(bytes(held)), None, first, base + batch_rows))
            held, first = bytearray(), base + batch_rows
    return found


def decode_all(fetched: list[Fetched], columns: tuple[str, ...]) -> int:
    return sum(batch.num_rows for piece in fetched for batch in decode(piece, columns, topic="orders"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch-rows", type=int, default=1_000)
    parser.add_argument("--headers", type=int, default=0)
    args = parser.parse_args()
    fetched = pieces(args.rows, args.batch_rows, args.codec, args.headers)
    started = time.perf_counter()
    decode_all(fetched[:1], COLUMNS["all five"])
    print(f"first decode, with loading or compiling: {time.perf_counter() - started:.2f} s")
    for name, columns in COLUMNS.items():
        best = float("inf")
        for _ in range(5):
            started = time.perf_counter()
            rows = decode_all(fetched, columns)
            best = min(best, time.perf_counter() - started)
        print(f"{name:16} {rows / best / 1e6:6.2f} M rows/s, codec {args.codec}, {args.batch_rows} rows a batch")


if __name__ == "__main__":
    main()
