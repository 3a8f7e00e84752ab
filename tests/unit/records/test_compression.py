"""Codecs, against what clients write and against bytes made to hurt."""

import gzip
import os
import struct
import tracemalloc

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import codec as kafka_python_codec

from levada.errors import CorruptBatch, InvalidRecord, RecordError, UnsupportedCompression
from levada.records.compression import (
    CODECS,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    codec_id,
    compress,
    decompress,
    decompress_into,
)

MiB = 1024 * 1024
PACKED = [GZIP, SNAPPY, LZ4, ZSTD]
EVERY = st.sampled_from(list(CODECS.values()))
DATA = st.binary(max_size=200) | st.builds(
    lambda part, times: part * times, st.binary(max_size=20), st.integers(0, 9000)
)

THEIR_WRITERS = {
    GZIP: [gzip.compress, kafka_python_codec.gzip_encode, aiokafka_codec.gzip_encode],
    SNAPPY: [
        kafka_python_codec.snappy_encode,
        aiokafka_codec.snappy_encode,
        lambda data: bytes(cramjam.snappy.compress_raw(data)),  # librdkafka: no framing
    ],
    LZ4: [
        kafka_python_codec.lz4_encode,
        aiokafka_codec.lz4_encode,
        lambda data: bytes(cramjam.lz4.compress(data)),  # linked blocks and a checksum, as librdkafka may
    ],
    ZSTD: [kafka_python_codec.zstd_encode, aiokafka_codec.zstd_encode],
}
THEIR_READERS = {
    GZIP: [gzip.decompress, kafka_python_codec.gzip_decode, aiokafka_codec.gzip_decode],
    SNAPPY: [kafka_python_codec.snappy_decode, aiokafka_codec.snappy_decode],
    LZ4: [kafka_python_codec.lz4_decode, aiokafka_codec.lz4_decode],
    ZSTD: [kafka_python_codec.zstd_decode, aiokafka_codec.zstd_decode],
}


@given(EVERY, DATA)
def test_what_is_packed_comes_out_again(codec: int, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("data", [b"x", b"abc" * 40_000, os.urandom(70_000)], ids=["byte", "repeating", "random"])
def test_other_clients_and_this_one_read_each_other(codec: int, data: bytes) -> None:
    for write in THEIR_WRITERS[codec]:
        assert decompress(codec, write(data)) == data
    for read in THEIR_READERS[codec]:
        assert bytes(read(compress(codec, data))) == data


def test_lz4_is_written_as_java_reads_it() -> None:
    frame = compress(LZ4, b"a" * 200_000)
    magic, flags = struct.unpack_from("<IB", frame)
    assert magic == 0x184D2204
    assert flags & 0b0010_0000, "blocks are independent"
    assert not flags & 0b0000_1100, "no checksum of the content, and no size"


def test_snappy_is_written_in_xerial_blocks() -> None:
    framed = compress(SNAPPY, bytes(100_000))
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(SNAPPY, framed + framed) == bytes(200_000), "streams may be strung together"


@pytest.mark.parametrize("codec", PACKED)
def test_every_cut_is_refused(codec: int) -> None:
    packed = compress(codec, os.urandom(300) + b"abc" * 100)
    for size in range(1, len(packed)):
        # Of snappy's framing, a cut behind the header or a block is a shorter stream that is whole.
        if codec == SNAPPY and size in (16, len(packed)):
            continue
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:size])


@settings(max_examples=200)
@given(st.sampled_from(PACKED), st.binary(max_size=300), st.data())
def test_garbage_is_refused_and_never_unpacked_beyond_the_limit(codec: int, data: bytes, draw: st.DataObject) -> None:
    packed = bytearray(compress(codec, data))
    for _ in range(draw.draw(st.integers(1, 4))):
        packed[draw.draw(st.integers(0, len(packed) - 1))] = draw.draw(st.integers(0, 255))
    try:
        unpacked = decompress(codec, bytes(packed), limit=1000)
    except RecordError:
        return
    assert len(unpacked) <= 1000


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_is_refused_at_the_limit(codec: int) -> None:
    bomb = compress(codec, bytes(64 * MiB))
    tracemalloc.start()
    with pytest.raises((CorruptBatch, InvalidRecord)):
        decompress(codec, bomb, limit=MiB)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * MiB
    assert len(decompress(codec, bomb, limit=64 * MiB)) == 64 * MiB


def test_the_largest_ratio_of_every_codec_fits_its_bound() -> None:
    data = bytes(20 * MiB)
    for codec in (GZIP, LZ4, ZSTD):
        assert len(decompress(codec, compress(codec, data))) == len(data)


def test_codecs_go_by_name() -> None:
    assert [codec_id(name) for name in ("none", "uncompressed", "gzip", "snappy", "lz4", "zstd")] == [0, 0, 1, 2, 3, 4]
    with pytest.raises(UnsupportedCompression, match="brotli"):
        codec_id("brotli")
    for unknown in (5, 6, 7):
        with pytest.raises(UnsupportedCompression):
            decompress(unknown, b"x")
        with pytest.raises(UnsupportedCompression):
            compress(unknown, b"x")
    assert decompress(NONE, b"as it is") == b"as it is"


@given(EVERY, DATA)
def test_data_is_unpacked_to_the_beginning_of_a_room(codec, data):
    room = memoryview(bytearray(b"x" * (len(data) + 3)))
    assert decompress_into(codec, compress(codec, data), room) == len(data)
    assert bytes(room) == data + b"xxx"


@pytest.mark.parametrize("codec", CODECS.values())
def test_data_that_is_larger_than_the_room_is_refused(codec):
    room = memoryview(bytearray(999))
    with pytest.raises((CorruptBatch, InvalidRecord)):
        decompress_into(codec, compress(codec, os.urandom(1000)), room)


def test_an_unknown_codec_has_no_way_into_a_room():
    with pytest.raises(UnsupportedCompression):
        decompress_into(5, b"", memoryview(bytearray(9)))
