"""How much of what was read is delivered: whole batches, counted without opening them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.broker.delivery.cut import cut
from levada.errors import CorruptBatch
from levada.records.batch import batches
from levada.records.read import read_all
from support.batches import make_batch, make_marker, make_record


def log_of(counts: list[int]) -> bytes:
    """Batches of so many records one after the other; 0 is a transaction marker."""
    buffer, offset = b"", 0
    for count in counts:
        batch = make_batch(count, base_offset=offset) if count else make_marker(base_offset=offset)
        buffer += bytes(batch.view)
        offset = batch.next_offset
    return buffer


@settings(deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.data())
def test_it_takes_whole_batches_up_to_the_one_that_fills_the_room(counts: list[int], data: st.DataObject) -> None:
    buffer = log_of(counts)
    whole = list(batches(buffer))
    offset = data.draw(st.integers(0, whole[0].last_offset))
    room = data.draw(st.integers(1, 20))
    part = cut(buffer, offset, room)

    taken = list(batches(part.data))
    assert [batch.base_offset for batch in taken] == [batch.base_offset for batch in whole[: len(taken)]]
    assert sum(batch.size for batch in taken) == len(part.data)
    assert part.to_offset == taken[-1].next_offset
    assert part.records == len(list(read_all(part.data, from_offset=offset)))
    without_last = len(list(read_all(part.data[: -taken[-1].size], from_offset=offset)))
    assert without_last < room
    assert part.records >= room or len(taken) == len(whole)


def test_of_a_thinned_out_batch_no_more_are_counted_than_it_has() -> None:
    sparse = make_batch(records=[make_record(offset) for offset in (0, 50, 99)])
    assert cut(sparse.view, 0, 1000).records == 3
    assert cut(sparse.view, 99, 1000) == (sparse.view, 100, 1, False)


def test_nothing_is_cut_from_nothing() -> None:
    assert cut(b"", 7, 10) == (b"", 7, 0, False)


@pytest.mark.parametrize("length", [-1, 0, 48, 10_000])
def test_what_is_no_batch_is_not_counted_as_one(length: int) -> None:
    data = bytearray(make_batch(3).view)
    data[8:12] = length.to_bytes(4, signed=True)
    with pytest.raises(CorruptBatch):
        cut(data, 0, 10)
    with pytest.raises(CorruptBatch):
        cut(bytes(make_batch(3).view) + b"more", 0, 10)
