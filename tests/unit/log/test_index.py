"""The sparse indexes: Kafka's bytes, and lookups that agree with looking at everything."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from levada.log.index import Indexes, OffsetIndex, TimeIndex

#: (bytes, records, timestamp) of batches one after the other.
batch_lists = st.lists(st.tuples(st.integers(61, 300), st.integers(1, 5), st.integers(-1, 50)), max_size=40)
BASE = 1000


def indexed(batches: list[tuple[int, int, int]], interval: int) -> tuple[Indexes, list[tuple[int, int, int]]]:
    """The indexes, and (position, last offset, timestamp) of every batch."""
    indexes, places = Indexes.empty(BASE, interval), []
    position, offset = 0, BASE
    for size, count, timestamp in batches:
        offset += count
        indexes.add(position, size, offset - 1, timestamp)
        places.append((position, offset - 1, timestamp))
        position += size
    return indexes, places


def test_an_entry_is_two_big_endian_numbers() -> None:
    index = OffsetIndex(BASE)
    index.add(BASE + 258, 4097)
    assert index.pack() == bytes.fromhex("00000102 00001001")
    times = TimeIndex(BASE)
    times.add(1_700_000_000_000, BASE + 1)
    assert times.pack() == (1_700_000_000_000).to_bytes(8, "big") + bytes.fromhex("00000001")


@given(batch_lists, st.integers(0, 500))
def test_what_is_packed_is_parsed_again(batches: list[tuple[int, int, int]], interval: int) -> None:
    indexes, _ = indexed(batches, interval)
    indexes.seal()
    assert OffsetIndex.parse(BASE, indexes.offsets.pack()) == indexes.offsets
    assert TimeIndex.parse(BASE, indexes.times.pack()) == indexes.times


def test_bytes_that_are_no_entries_are_not_parsed() -> None:
    assert OffsetIndex.parse(0, b"1234567") is None
    assert TimeIndex.parse(0, b"1234567890123") is None


@given(batch_lists, st.integers(0, 500), st.integers(BASE - 5, BASE + 250))
def test_an_offset_is_found_from_the_batch_the_index_names(
    batches: list[tuple[int, int, int]], interval: int, offset: int
) -> None:
    indexes, places = indexed(batches, interval)
    known, position = indexes.offsets.floor(offset)
    first = next((each for each in places if each[1] >= offset), None)
    assert first is None or position <= first[0]
    assert (known, position) == (-1, 0) or (position, known) in [each[:2] for each in places]
    # No more than one interval, and the batch that closes it, lies between.
    assert first is None or first[0] - position <= interval + 300


@given(batch_lists, st.integers(0, 500), st.integers(0, 12_000))
def test_a_boundary_is_the_beginning_of_a_batch_that_has_ended_there(
    batches: list[tuple[int, int, int]], interval: int, position: int
) -> None:
    indexes, places = indexed(batches, interval)
    known, start = indexes.offsets.boundary(position)
    if known >= 0:
        number = [each[:2] for each in places].index((start, known))
        assert start + batches[number][0] <= position


@given(batch_lists, st.integers(0, 500), st.integers(-1, 55))
def test_no_record_at_a_time_lies_before_what_the_time_index_names(
    batches: list[tuple[int, int, int]], interval: int, timestamp: int
) -> None:
    indexes, places = indexed(batches, interval)
    indexes.seal()
    _, offset = indexes.times.floor(timestamp)
    assert all(each[2] < timestamp or each[1] >= offset for each in places)
    largest = max((each[2] for each in places), default=-1)
    assert indexes.times.last()[0] == max(largest, -1)


@given(batch_lists, st.integers(0, 500))
def test_entries_are_an_interval_apart(batches: list[tuple[int, int, int]], interval: int) -> None:
    indexes, _ = indexed(batches, interval)
    positions = [0, *indexes.offsets.positions]
    assert all(later - earlier > interval for earlier, later in pairwise(positions))
