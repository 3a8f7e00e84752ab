"""pack: the same batch as `build` makes, for rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levada.records.batch import Batch
from levada.records.build import build
from levada.records.compression import CODECS
from levada.records.pack import Row, pack, size_of
from levada.records.read import Record, read

headers = st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=3)
rows = st.lists(
    st.tuples(st.integers(0, 2**45), st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=200), headers),
    min_size=1,
    max_size=30,
)


@given(rows)
def test_a_batch_of_rows_is_the_one_build_makes(rows: list[Row]) -> None:
    records = [Record(n, *row[:3], tuple(row[3])) for n, row in enumerate(rows)]
    assert pack(rows, producer=(7, 1, 42)) == build(records, producer_id=7, producer_epoch=1, base_sequence=42)


@given(rows, st.sampled_from(sorted(CODECS)))
def test_every_codec_is_read_back(rows: list[Row], codec: str) -> None:
    batch = Batch(memoryview(pack(rows, codec=CODECS[codec])))
    batch.check()
    assert batch.codec == CODECS[codec]
    assert [(r.timestamp_ms, r.key, r.value, list(r.headers)) for r in read(batch)] == [tuple(row) for row in rows]


@given(rows)
def test_no_batch_is_larger_than_it_was_said_to_be(rows: list[Row]) -> None:
    assert len(pack(rows)) <= 61 + sum(size_of(*row[1:]) for row in rows)


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_the_producer_is_in_the_header(codec: str) -> None:
    batch = Batch(memoryview(pack([(5, None, b"v", [])], codec=CODECS[codec], producer=(9, 3, 2**31 - 1))))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 3, 2**31 - 1)
