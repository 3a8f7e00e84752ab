"""A staged batch, the sinks' records, and how much of the stage can be given back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levada.errors import CorruptBatch
from levada.records.batch import Batch, checksum
from levada.records.read import read
from levada.spark.sink.claims import BatchSeen
from levada.spark.sink.commit import transaction_timeout_ms
from levada.spark.sink.freeing import BYTES_MIN, Lying, freeable
from levada.spark.sink.single import OVERHEAD, opened, packed
from levada.spark.sink.sinks import _Tail, record_of
from levada.spark.sink.staged import StageKey, unwrapped
from support.batches import make_batch, make_marker

keys = st.builds(
    StageKey,
    st.text(max_size=30),
    st.integers(0),
    st.integers(0),
    st.integers(0),
    st.from_regex(r"[0-9a-f-]+", fullmatch=True),
    st.integers(0),
)


@given(keys)
def test_a_key_is_read_back_whatever_the_sink_is_called(key):
    assert StageKey.decoded(key.encoded()) == key


@given(keys, st.integers(1, 60), st.integers(0, 400))
def test_what_is_staged_is_one_ordinary_record(key, records, size):
    target = make_batch(records, value=b"x" * size)
    staged = packed(key.encoded(), target.view, 17)
    checksum(staged)
    assert len(staged) <= len(target.view) + len(key.encoded()) + OVERHEAD
    batch = Batch(staged)
    batch.check()
    (record,) = read(batch)
    assert (record.timestamp_ms, record.key, record.value) == (17, key.encoded(), bytes(target.view))
    assert unwrapped(batch) == (key.encoded(), target.view)


@pytest.mark.parametrize(
    "batch", [make_batch(1), make_batch(3), make_batch(1, value=None), make_batch(1, codec="gzip")]
)
def test_what_is_no_staged_batch_is_refused(batch):
    with pytest.raises(CorruptBatch):
        unwrapped(batch)


def test_one_record_is_opened_as_it_is_read():
    for batch in (make_batch(1, base_offset=17), make_marker()):
        (record,) = read(batch)
        assert opened(batch) == (record.key, record.value)


def make_record(sink: str, number: int, *, offset: int, producer_id: int) -> Batch:
    batch = Batch(record_of(sink, BatchSeen(0, number, None, ()), lambda: 0))
    batch.stamp_producer(producer_id, 0, 0, transactional=True)
    batch.stamp(offset, 0)
    return batch


def batch_of(tail: _Tail, sink: str) -> int | None:
    value = tail.settled.get(sink.encode())
    return None if value is None else BatchSeen.decoded(value).batch


def test_a_sinks_record_counts_once_its_transaction_is_committed():
    tail = _Tail(0)
    tail.take(make_record("a", 1, offset=0, producer_id=7))
    assert batch_of(tail, "a") is None
    tail.take(make_marker(commit=True, base_offset=1, producer_id=7))
    assert batch_of(tail, "a") == 1
    tail.take(make_record("a", 2, offset=2, producer_id=7))
    tail.take(make_marker(commit=False, base_offset=3, producer_id=7))
    assert batch_of(tail, "a") == 1


def test_transactions_of_other_sinks_neither_count_nor_hold_anybody_back():
    tail = _Tail(0)
    tail.take(make_record("b", 9, offset=0, producer_id=8))
    tail.take(make_record("a", 1, offset=1, producer_id=7))
    tail.take(make_marker(commit=True, base_offset=2, producer_id=7))
    assert (batch_of(tail, "a"), batch_of(tail, "b")) == (1, None)
    assert tail.position == 3


def lying(*batches: int, sink: str = "a", first: int = 10, size: int = BYTES_MIN) -> list[Lying]:
    return [Lying(first + n, size, StageKey(sink, 0, batch, 0, "x", n).encoded()) for n, batch in enumerate(batches)]


def test_the_stage_is_freed_up_to_what_somebody_may_still_want():
    assert freeable(lying(1, 2, 3), lambda key: key.batch <= 2) == 12
    assert freeable(lying(1, 2, 3), lambda key: True) == 13
    assert freeable(lying(3, 1, 1), lambda key: key.batch <= 2) is None


def test_what_is_not_the_sinks_is_left_alone():
    assert freeable([Lying(10, BYTES_MIN, b"a stranger")], lambda key: True) is None


def test_a_little_is_not_worth_asking_for():
    assert freeable(lying(1, 2, 3, size=10), lambda key: True) is None
    assert freeable(lying(*range(500), size=10), lambda key: True) == 510


def test_a_transaction_may_take_as_long_as_its_size_needs_and_a_broker_allows():
    assert transaction_timeout_ms(0) == 60_000
    assert transaction_timeout_ms(100 << 20) > 100_000
    assert transaction_timeout_ms(1 << 50) == 900_000
