import struct
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.errors import MalformedFrame
from levada.wire.framing import Framer, frame

bodies = st.lists(st.binary(max_size=60), max_size=12)


@given(bodies, st.lists(st.integers(1, 50)))
def test_framing_does_not_depend_on_how_tcp_cut_the_bytes(bodies, cuts):
    stream = b"".join(b"".join(frame([body])) for body in bodies)
    framer, found = Framer(60), []
    for cut in [*cuts, len(stream)]:
        found += [bytes(one) for one in framer.feed(stream[:cut])]
        stream = stream[cut:]
    found += [bytes(one) for one in framer.feed(stream)]
    assert found == bodies
    assert framer.pending_bytes == 0


@given(bodies)
def test_a_frame_may_be_kept_while_more_arrive(bodies):
    framer, kept = Framer(60), []
    for body in bodies:
        data = b"".join(frame([body]))
        kept += framer.feed(data[:3])
        kept += framer.feed(data[3:])
    assert kept == bodies


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([0, 5, 64 << 10, 200_000]), max_size=5), st.integers(0, 2**32))
def test_large_frames_may_be_received_in_place(sizes, seed):
    random = Random(seed)
    bodies = [random.randbytes(size) for size in sizes]
    stream = b"".join(b"".join(frame([body])) for body in bodies)
    framer, found = Framer(1 << 20), []
    while stream:
        cut = random.choice((3, 4, 30_000, 100_000))
        room = framer.room()
        if room is None:
            data, stream = stream[:cut], stream[cut:]
            found += framer.feed(data)
        else:
            count = min(len(room), cut, len(stream))
            room[:count], stream = stream[:count], stream[count:]
            found += framer.filled(count)
    assert found == bodies, "and none was written to after it was given"
    assert framer.pending_bytes == 0


def test_there_is_room_for_the_rest_of_a_large_frame_and_for_no_more():
    framer = Framer(1 << 20)
    assert framer.room() is None
    assert list(framer.feed(struct.pack(">i", 100_000) + b"first")) == []
    room = framer.room()
    assert room is not None
    assert len(room) == 100_000 - 5
    assert framer.pending_bytes == 9


def test_no_room_is_made_for_what_is_promised_beyond_measure():
    framer = Framer(1 << 30)
    assert list(framer.feed(struct.pack(">i", 1 << 29) + b"first")) == []
    assert framer.room() is None


@pytest.mark.parametrize("size", [-1, 101, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("cut", [1, 4, 8])
def test_a_size_outside_the_limit_is_malformed_as_soon_as_it_is_read(size, cut):
    data = struct.pack(">i", size) + b"more"
    framer = Framer(100)
    with pytest.raises(MalformedFrame, match=str(size)):
        for start in range(0, len(data), cut):
            list(framer.feed(data[start : start + cut]))


def test_the_largest_allowed_frame_passes():
    assert [len(one) for one in Framer(100).feed(b"".join(frame([bytes(100)])))] == [100]


def test_what_is_left_of_a_cut_stream_is_counted():
    framer = Framer(100)
    assert list(framer.feed(b"\0\0\0\x05abc")) == []
    assert framer.pending_bytes == 7


def test_a_frame_names_its_parts_without_copying_them():
    records = memoryview(b"r" * 1000)
    parts = frame([b"head", records])
    assert parts[0] == struct.pack(">i", 1004)
    assert parts[2] is records
