"""The codecs of a batch's records, as every Kafka client writes and reads them.

- gzip and zstd: their ordinary frames.
- lz4: the frame format. Written with independent blocks, because Java's reader takes no others.
- snappy: written in xerial's framing (16-byte header, then int32 length | raw block of at most 32 KiB, repeated), as
  Java does; read in that and as one raw block, as librdkafka writes it.

What comes out is bounded: a payload that would grow beyond the limit is refused before it is unpacked that far.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final

import cramjam

from levada.errors import CorruptBatch, InvalidRecord, UnsupportedCompression

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

#: Name → the id in a batch's attributes. `uncompressed` is what `compression.type` calls `none`.
CODECS: Final[Mapping[str, int]] = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
NAMES: Final[Mapping[int, str]] = {number: name for name, number in CODECS.items()}

#: What one batch may unpack to unless the caller says otherwise.
UNPACKED_BYTES_MAX: Final = 256 * 1024 * 1024

Bytes = bytes | bytearray | memoryview

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK: Final = 32 * 1024
_INT32: Final = Struct(">i")
#: Above this, unpack into fresh pages, of which only those written to cost anything.
_PAGES_FROM: Final = 128 * 1024
_PRIVATE: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def codec_id(name: str) -> int:
    """The number of a codec; `uncompressed` is another name for `none`."""
    try:
        return NONE if name == "uncompressed" else CODECS[name]
    except KeyError:
        raise UnsupportedCompression(f"compression {name!r} is not known; {', '.join(CODECS)} are") from None


def compress(codec: int, data: Bytes) -> bytes:
    """Pack records with this codec."""
    return _writer(codec)(data)


def decompress(codec: int, data: Bytes, *, limit: int = UNPACKED_BYTES_MAX) -> memoryview:
    """Unpack records. CorruptBatch for bytes that are not of this codec, InvalidRecord for more than `limit` bytes."""
    if codec == NONE:
        return memoryview(data)
    try:
        return _reader(codec)(data, limit)
    except cramjam.DecompressionError as reason:
        raise CorruptBatch(f"the {NAMES[codec]} data of the batch is broken, or unpacks beyond {limit} bytes: {reason}")


def decompress_into(codec: int, data: Bytes, room: memoryview) -> int:
    """Unpack records to the beginning of `room` and return how many bytes they are. Errors as with `decompress`, its limit the room."""
    try:
        if codec == SNAPPY:
            blocks, size = _snappy_blocks(data, len(room))
            _unpack_snappy(blocks, room)
            return size
        if codec not in _INTO:
            raise UnsupportedCompression(f"compression codec {codec} is not known; 0 to {ZSTD} are")
        return int(_INTO[codec](data, room))
    except cramjam.DecompressionError as reason:
        raise CorruptBatch(
            f"the {NAMES[codec]} data is broken, or unpacks beyond {len(room)} bytes: {reason}"
        ) from None


def _put(data: Bytes, room: memoryview) -> int:
    if len(data) > len(room):
        raise InvalidRecord(f"the batch has {len(data)} bytes; at most {len(room)} are taken")
    room[: len(data)] = data
    return len(data)


def _unpack(unpack_into: Callable[[Bytes, memoryview], int], data: Bytes, bound: int, limit: int) -> memoryview:
    """Unpack what can never need more than `bound` bytes."""
    room = min(bound, limit)
    output = memoryview(bytearray(room) if room <= _PAGES_FROM else mmap.mmap(-1, room, flags=_PRIVATE))
    return output[: unpack_into(data, output)]


def _gzip(data: Bytes, limit: int) -> memoryview:
    # Deflate packs at most 1032 bytes into one.
    return _unpack(cramjam.gzip.decompress_into, data, 1032 * len(data), limit)


def _lz4(data: Bytes, limit: int) -> memoryview:
    # A match's length grows by at most 255 for each byte spent on it.
    return _unpack(cramjam.lz4.decompress_into, data, 255 * len(data), limit)


def _zstd(data: Bytes, limit: int) -> memoryview:
    # A block is at most 128 KiB, and four bytes are enough to ask for one.
    return _unpack(cramjam.zstd.decompress_into, data, 32 * 1024 * len(data), limit)


def _snappy(data: Bytes, limit: int) -> memoryview:
    blocks, size = _snappy_blocks(data, limit)
    output = memoryview(bytearray(size))
    _unpack_snappy(blocks, output)
    return output


def _snappy_blocks(data: Bytes, limit: int) -> tuple[list[tuple[memoryview, int]], int]:
    """(the raw blocks, each with its unpacked size; the size of all)"""
    view = memoryview(data)
    blocks = _xerial_blocks(view) if _is_xerial(view) else [view]
    sized = [(block, int(cramjam.snappy.decompress_raw_len(block))) for block in blocks]
    total = sum(size for _, size in sized)
    if total > limit:
        raise InvalidRecord(f"the snappy data of the batch unpacks to {total} bytes; at most {limit} are taken")
    return sized, total


def _unpack_snappy(blocks: list[tuple[memoryview, int]], output: memoryview) -> None:
    position = 0
    for block, size in blocks:
        cramjam.snappy.decompress_raw_into(block, output[position : position + size])
        position += size


def _is_xerial(view: memoryview) -> bool:
    return bytes(view[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    blocks = []
    position, end = len(_XERIAL_HEADER), len(view)
    if end < position:
        raise CorruptBatch("the snappy data of the batch is cut short")
    while position < end:
        # A stream that was appended to another brings its own header.
        if _is_xerial(view[position:]):
            position += len(_XERIAL_HEADER)
            continue
        if position + _INT32.size > end:
            raise CorruptBatch("the snappy data of the batch is cut short")
        size: int = _INT32.unpack_from(view, position)[0]
        position += _INT32.size
        if size <= 0 or position + size > end:
            raise CorruptBatch(f"a snappy block says it has {size} bytes, of which {end - position} are here")
        blocks.append(view[position : position + size])
        position += size
    return blocks


def _write_snappy(data: Bytes) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for position in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[position : position + _XERIAL_BLOCK]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _write_lz4(data: Bytes) -> bytes:
    compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


_WRITERS: Final[Mapping[int, Callable[[Bytes], bytes]]] = {
    NONE: bytes,
    GZIP: lambda data: bytes(cramjam.gzip.compress(data)),
    SNAPPY: _write_snappy,
    LZ4: _write_lz4,
    ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
}
_INTO: Final[Mapping[int, Callable[[Bytes, memoryview], int]]] = {
    NONE: _put,
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}
_READERS: Final[Mapping[int, Callable[[Bytes, int], memoryview]]] = {
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4,
    ZSTD: _zstd,
}


def _writer(codec: int) -> Callable[[Bytes], bytes]:
    try:
        return _WRITERS[codec]
    except KeyError:
        raise UnsupportedCompression(f"compression codec {codec} is not known; 0 to {ZSTD} are") from None


def _reader(codec: int) -> Callable[[Bytes, int], memoryview]:
    try:
        return _READERS[codec]
    except KeyError:
        raise UnsupportedCompression(f"compression codec {codec} is not known; 0 to {ZSTD} are") from None
