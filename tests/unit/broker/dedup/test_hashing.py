"""What the compiled reader finds in a batch, against the record reader and plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.broker.dedup.hashing import COLUMNS, DELTA, START, TIME, read_keys
from levada.records.batch import Batch
from levada.records.build import build, encode
from levada.records.read import Record, read
from levada.routing import fnv1a64

SEED = np.uint64(7)
names = st.sampled_from(["message_id", "message_ie", "message_i", "message_id2", "", "é"])
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=9)), max_size=4)
contents = st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=200), headers)


def found(data: bytes, count: int, *, by_id: bool, last_delta: int | None = None) -> tuple[int, np.ndarray, np.ndarray]:
    records, hashes = np.zeros((count, COLUMNS), np.int64), np.zeros((count, 2), np.uint64)
    end = count - 1 if last_delta is None else last_delta
    result = read_keys(np.frombuffer(data, np.uint8), count, end, by_id, SEED, records, hashes)
    return result, records, hashes


def told_by(record: Record, *, by_id: bool) -> bytes | None:
    if not by_id:
        return record.value
    ids = [value for name, value in record.headers if name == "message_id"]
    return (ids[-1] or None) if ids else None


@settings(deadline=None)
@given(st.lists(contents, min_size=1, max_size=20), st.booleans())
def test_every_record_is_told_by_its_last_id_or_by_its_value(made: list[tuple], by_id: bool) -> None:
    batch = Batch(memoryview(build(made, timestamp_ms=1_000)))
    result, records, hashes = found(bytes(batch.payload), len(made), by_id=by_id)
    assert result == len(made)
    for row, record in enumerate(read(batch)):
        key = told_by(record, by_id=by_id)
        assert int(hashes[row, 0]) == (0 if key is None else max(1, fnv1a64(key)))
        assert (records[row, DELTA], records[row, TIME]) == (row, 0)
        assert records[row, START] == len(encode(list(read(batch))[:row], 0, 1_000))


def test_the_second_hash_tells_apart_what_differs_in_one_bit_or_in_length() -> None:
    keys = [b"", b"\0", b"\0\0", *(bytes(8) + bytes([1 << bit]) for bit in range(8)), bytes(9), bytes(16), bytes(17)]
    payload = bytes(Batch(memoryview(build([(None, key) for key in keys]))).payload)
    _, _, hashes = found(payload, len(keys), by_id=False)
    assert len(set(hashes[:, 1].tolist())) == len(keys)


def test_offsets_and_timestamps_are_those_of_the_record() -> None:
    kept = [Record(3, 1_005, None, b"a"), Record(9, 990, None, b"b")]
    result, records, _ = found(bytes(encode(kept, 0, 1_000)), 2, by_id=False, last_delta=9)
    assert result == 2
    assert records[:, DELTA].tolist() == [3, 9]
    assert records[:, TIME].tolist() == [5, -10]


@pytest.mark.parametrize("by_id", [False, True])
@settings(deadline=None)
@given(st.lists(contents, min_size=1, max_size=5), st.data())
def test_bytes_that_are_not_these_records_are_found_out(by_id: bool, made: list[tuple], data: st.DataObject) -> None:
    payload = bytes(Batch(memoryview(build(made))).payload)
    cut = data.draw(st.integers(0, len(payload) - 1))
    assert found(payload[:cut], len(made), by_id=by_id)[0] < 0
    assert found(payload + b"\0", len(made), by_id=by_id)[0] < 0
    assert found(payload, len(made) + 1, by_id=by_id)[0] < 0


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(0, 4), st.booleans())
def test_no_bytes_lead_it_astray(garbage: bytes, count: int, by_id: bool) -> None:
    result, records, _ = found(garbage, count, by_id=by_id)
    assert -1 - count <= result <= count
    assert (records[:, START] <= len(garbage)).all()


def test_offsets_that_do_not_rise_or_pass_the_end_are_refused() -> None:
    same = bytes(encode([Record(1, 0, None, b"a"), Record(1, 0, None, b"b")], 0, 0))
    assert found(same, 2, by_id=False)[0] == -2
    assert found(bytes(encode([Record(5, 0, None, b"a")], 0, 0)), 1, by_id=False, last_delta=4)[0] == -1
