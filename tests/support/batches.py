"""Batches and records for tests, with defaults for everything."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from levada.records.batch import Batch
from levada.records.build import build, end_marker
from levada.records.read import Record


def make_record(
    offset: int = 0,
    *,
    timestamp_ms: int = 1_700_000_000_000,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> Record:
    return Record(offset, timestamp_ms, key, value, tuple(headers))


def make_batch(
    count: int = 3,
    *,
    records: Sequence[Record] | None = None,
    base_offset: int = 0,
    codec: str = "none",
    timestamp_ms: int = 1_700_000_000_000,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    producer_id: int = -1,
    producer_epoch: int | None = None,
    sequence: int | None = None,
    transactional: bool = False,
    leader_epoch: int = 0,
) -> Batch:
    """A batch that can be stamped: `count` records `key`-0, `value`-0 … or the records given."""
    if records is None:
        records = [
            Record(
                base_offset + i,
                timestamp_ms + i,
                None if key is None else key + b"-%d" % i,
                None if value is None else value + b"-%d" % i,
            )
            for i in range(count)
        ]
    with_producer = producer_id >= 0
    return Batch(
        memoryview(
            build(
                records,
                codec=codec,
                base_offset=base_offset,
                producer_id=producer_id,
                producer_epoch=producer_epoch if producer_epoch is not None else (0 if with_producer else -1),
                base_sequence=sequence if sequence is not None else (0 if with_producer else -1),
                transactional=transactional,
                leader_epoch=leader_epoch,
            )
        )
    )


def make_marker(
    *,
    commit: bool = True,
    producer_id: int = 1,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp_ms: int = 1_700_000_000_000,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> Batch:
    """The control batch that ends a transaction."""
    batch = Batch(
        memoryview(
            end_marker(
                commit=commit,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp_ms=timestamp_ms,
            )
        )
    )
    batch.stamp(base_offset, leader_epoch)
    return batch


#: Anything a record may hold: no key, no value, empty ones, timestamps before the first one's, odd headers.
header_lists = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=12)), max_size=3)
payloads = st.none() | st.binary(max_size=64)
timestamps = st.integers(min_value=-1, max_value=2**45)


@st.composite
def record_lists(draw: st.DrawFn, *, min_size: int = 1, max_size: int = 12, base_offset: int = 0) -> list[Record]:
    """Records with rising offsets, dense or not."""
    offset = base_offset
    records = []
    for _ in range(draw(st.integers(min_size, max_size))):
        offset += draw(st.integers(0, 3))
        headers = tuple(draw(header_lists))
        records.append(Record(offset, draw(timestamps), draw(payloads), draw(payloads), headers))
        offset += 1
    return records
