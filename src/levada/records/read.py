"""From a batch to its records.

Record, every number a zigzag varint, after its own length: int8 attributes, unused | timestamp − base timestamp |
offset − base offset | key length, −1 for none | key | value length, −1 for none | value | header count | for each header:
key length | key, UTF-8 | value length, −1 for none | value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from levada.errors import CorruptBatch, InvalidRecord, UnsupportedCompression
from levada.records import compiled
from levada.records.batch import CODEC_MASK, HEADER, HEADER_SIZE, Batch, batches
from levada.records.compression import UNPACKED_BYTES_MAX, decompress

#: The compiled reader looks at a length before it knows that it is there: at most one varint past the end.
_OVERRUN: Final = 16
MARKER_KEY: Final = Struct(">hh")
MARKER_VALUE: Final = Struct(">hi")
ABORT: Final = 0
COMMIT: Final = 1
#: Half the cost of Record(…), in the one place where it counts.
_new: Final[Callable[[type[Record], tuple[Any, ...]], Record]] = tuple.__new__


class Record(NamedTuple):
    """One record. What a value of None means is the topic's to say: on a compacted topic, that the key is gone."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Marker(NamedTuple):
    """How a transaction ended, as the control batch in the log says it."""

    commit: bool
    coordinator_epoch: int


def read(batch: Batch, *, unpacked_bytes_max: int = UNPACKED_BYTES_MAX) -> Iterator[Record]:
    """The records of a batch, whatever its codec; of a control batch, its control records.

    CorruptBatch where the bytes are not records, at the latest after the last good one; InvalidRecord when it would
    unpack beyond the limit. The checksum is not looked at. Offsets rise and stay within the batch.
    """
    if batch.record_count == 0 and batch.size == HEADER_SIZE:
        return
    payload = decompress(batch.codec, batch.payload, limit=unpacked_bytes_max)
    offset_before, last_offset = batch.base_offset - 1, batch.last_offset
    reader, broken = compiled.reader()
    record: Record | None = None
    try:
        for found in reader(_guarded(batch, payload)):
            # The one before was whole, since this one was found where it must be.
            if record is not None:
                yield record
            offset = found.offset
            if not offset_before < offset <= last_offset:
                raise CorruptBatch(f"a record says it has offset {offset}, in {batch!r}")
            offset_before = offset
            headers = found.headers
            record = _new(Record, (offset, found.timestamp, found.key, found.value, tuple(headers) if headers else ()))
    except broken as reason:
        raise CorruptBatch(f"{batch!r} does not hold the records it says it does: {reason}") from None
    if record is not None:
        yield record


def _guarded(batch: Batch, payload: memoryview) -> memoryview:
    """The batch unpacked, with room behind it that the compiled reader may look at."""
    room = bytearray(HEADER_SIZE + len(payload) + _OVERRUN)
    HEADER.pack_into(
        room, 0, batch.base_offset, batch.length, batch.leader_epoch, batch.magic, batch.crc,
        batch.attributes & ~CODEC_MASK, batch.last_offset_delta, batch.base_timestamp, batch.max_timestamp,
        batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count,
    )  # fmt: skip
    room[HEADER_SIZE : HEADER_SIZE + len(payload)] = payload
    return memoryview(room)[:-_OVERRUN]


def read_all(
    buffer: bytes | bytearray | memoryview,
    *,
    from_offset: int = 0,
    aborted: Iterable[tuple[int, int]] = (),
    committed_only: bool = False,
    unpacked_bytes_max: int = UNPACKED_BYTES_MAX,
) -> Iterator[Record]:
    """What a consumer sees of fetched batches: checked, from its offset on, without control records.

    With `committed_only`, also without aborted transactions: `aborted` is what the broker sent along, (producer id,
    first offset) each, and the buffer must end at the last stable offset, as a read_committed fetch does.
    CorruptBatch, InvalidRecord and UnsupportedCompression as with `read`, naming the batch's offset.
    """
    pending = sorted(((first, producer) for producer, first in aborted), reverse=True)
    ignored: set[int] = set()
    for batch in batches(buffer):
        batch.check_crc()
        while pending and pending[-1][0] <= batch.last_offset:
            ignored.add(pending.pop()[1])
        if batch.is_control:
            ignored.discard(batch.producer_id)
        elif batch.last_offset >= from_offset and not (
            committed_only and batch.is_transactional and batch.producer_id in ignored
        ):
            try:
                for record in read(batch, unpacked_bytes_max=unpacked_bytes_max):
                    if record.offset >= from_offset:
                        yield record
            except (CorruptBatch, InvalidRecord, UnsupportedCompression) as reason:
                raise type(reason)(f"the batch at offset {batch.base_offset} cannot be opened: {reason}") from None


def read_marker(batch: Batch) -> Marker | None:
    """How the transaction ended that this control batch closes; None for any other control record.

    Key: int16 version | int16 type, 0 abort, 1 commit. Value: int16 version | int32 coordinator epoch.
    """
    record = next(read(batch), None)
    if not batch.is_control or record is None:
        raise InvalidRecord(f"{batch!r} is not a transaction marker")
    key, value = record.key or b"", record.value or b""
    if len(key) < MARKER_KEY.size:
        raise InvalidRecord(f"the control record at offset {record.offset} has a key of {len(key)} bytes")
    kind: int = MARKER_KEY.unpack_from(key)[1]
    if kind not in (ABORT, COMMIT):
        return None
    if len(value) < MARKER_VALUE.size:
        raise InvalidRecord(f"the transaction marker at offset {record.offset} has a value of {len(value)} bytes")
    return Marker(kind == COMMIT, MARKER_VALUE.unpack_from(value)[1])
