from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levada.errors import MalformedFrame
from levada.fronts.kafka.inbox import Buffers, Inbox

KiB = 1024


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def make_inbox(*, scratch_bytes: int = 64, frame_bytes_max: int = 1000, buffers: Buffers | None = None) -> Inbox:
    return Inbox(memoryview(bytearray(scratch_bytes)), buffers or Buffers(), frame_bytes_max)


def put(inbox: Inbox, data: bytes) -> int:
    """Receive as much of the data as there is room for, as a socket would."""
    room = inbox.room()
    count = min(len(room), len(data))
    room[:count] = data[:count]
    inbox.received(count)
    return count


def take_all(inbox: Inbox) -> list[bytes]:
    taken = []
    while (body := inbox.take()) is not None:
        taken.append(bytes(body))
    inbox.settle()
    return taken


@given(st.lists(st.binary(max_size=200), max_size=20), st.lists(st.integers(1, 80), min_size=1), st.integers(8, 100))
def test_frames_do_not_depend_on_how_tcp_cut_the_bytes(bodies: list[bytes], cuts: list[int], scratch: int) -> None:
    inbox = make_inbox(scratch_bytes=scratch)
    data = b"".join(frame(body) for body in bodies)
    taken: list[bytes] = []
    turn = 0
    while data:
        piece = data[: cuts[turn % len(cuts)]]
        data = data[put(inbox, piece) :]
        taken += take_all(inbox)
        turn += 1
    assert taken == bodies
    assert not inbox.unread
    assert inbox.held_bytes == 0


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=10), st.data())
def test_frames_may_be_taken_later_than_they_came(bodies: list[bytes], data: st.DataObject) -> None:
    inbox = make_inbox(scratch_bytes=64)
    stream = b"".join(frame(body) for body in bodies)
    taken: list[bytes] = []
    while stream or inbox.unread:
        body = inbox.take()
        if body is None:
            inbox.settle()
            stream = stream[put(inbox, stream) :]
        else:
            taken.append(bytes(body))
        if data.draw(st.booleans()):
            inbox.settle()
    assert taken == bodies


def test_an_idle_connection_holds_no_memory() -> None:
    inbox = make_inbox()
    put(inbox, frame(b"hello") + b"\0\0")
    assert take_all(inbox) == [b"hello"]
    assert inbox.held_bytes == 0


def test_a_large_frame_is_received_into_its_own_buffer_and_no_further() -> None:
    inbox = make_inbox(frame_bytes_max=500)
    put(inbox, frame(b"x" * 300)[:64])
    assert take_all(inbox) == []
    assert len(inbox.room()) == 304 - 64
    assert inbox.held_bytes >= 304


def test_a_huge_frame_gets_room_as_it_comes() -> None:
    inbox = make_inbox(frame_bytes_max=100 * KiB * KiB)
    put(inbox, struct.pack(">i", 100 * KiB * KiB) + b"abcd")
    inbox.settle()
    assert inbox.held_bytes == len(inbox.room()) + 8 == 256 * KiB
    while inbox.held_bytes < 100 * KiB * KiB:
        came = inbox.kept_bytes
        inbox.received(len(inbox.room()))
        inbox.settle()
        assert came < inbox.kept_bytes
        assert inbox.held_bytes <= 4 * inbox.kept_bytes


def test_a_frame_above_the_limit_is_refused_and_makes_no_room() -> None:
    inbox = make_inbox(frame_bytes_max=100)
    put(inbox, struct.pack(">i", 2**31 - 1) + b"abc")
    inbox.settle()
    assert inbox.held_bytes < 100
    with pytest.raises(MalformedFrame, match=r"socket\.request\.max\.bytes is 100"):
        inbox.take()


def test_a_negative_size_is_refused() -> None:
    inbox = make_inbox()
    put(inbox, b"\xff\xff\xff\xff....")
    with pytest.raises(MalformedFrame):
        inbox.take()


def test_a_buffer_that_was_given_back_is_used_again() -> None:
    buffers = Buffers()
    first = buffers.get(200 * KiB)
    assert len(first) == 256 * KiB
    buffers.put(first)
    assert buffers.get(190 * KiB) is first


def test_no_more_than_the_limit_is_kept() -> None:
    buffers = Buffers(kept_bytes_max=256 * KiB)
    first, second = buffers.get(256 * KiB), buffers.get(256 * KiB)
    buffers.put(first)
    buffers.put(second)
    assert buffers.get(256 * KiB) is first
    assert buffers.get(256 * KiB) is not second


def test_odd_sizes_are_left_to_the_allocator() -> None:
    buffers = Buffers()
    assert len(buffers.get(100)) == 100
    huge = buffers.get(5 * KiB * KiB)
    assert len(huge) == 5 * KiB * KiB
    buffers.put(huge)
    assert buffers.get(5 * KiB * KiB) is not huge
