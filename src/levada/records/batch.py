"""Record batch v2 (magic 2): the unit on the wire, in memory and on disk.

Layout, big-endian; the CRC-32C covers byte 21 to the end of the batch:

     0  int64   base offset              (stamped by the broker; not under the CRC)
     8  int32   length of all that follows this field
    12  int32   partition leader epoch   (stamped by the broker; not under the CRC)
    16  int8    magic, 2
    17  uint32  CRC-32C
    21  int16   attributes: bits 0–2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon
    23  int32   last offset delta
    27  int64   base timestamp; with the delete horizon bit, the time from which tombstones may be dropped
    35  int64   max timestamp
    43  int64   producer id, −1 for none
    51  int16   producer epoch
    53  int32   base sequence
    57  int32   record count
    61          records, compressed as one piece
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from crc32c import crc32c

from levada.errors import CorruptBatch, InvalidRecord, UnsupportedCompression

HEADER_SIZE: Final = 61
MAGIC: Final = 2
#: Bytes before the length field ends: what must be there to know a batch's size.
LENGTH_END: Final = 12
CRC_START: Final = 21

CODEC_MASK: Final = 0b111
LOG_APPEND_TIME: Final = 1 << 3
TRANSACTIONAL: Final = 1 << 4
CONTROL: Final = 1 << 5
DELETE_HORIZON: Final = 1 << 6

NO_PRODUCER: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

HEADER: Final = Struct(">qiibIhiqqqhii")
assert HEADER.size == HEADER_SIZE
_SIZE: Final = Struct(">8xi")
_STAMP: Final = Struct(">qii")
_OFFSETS: Final = Struct(">q15xi")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_MAX_TIMESTAMP: Final = Struct(">q")
_PRODUCER: Final = Struct(">qhi")
_CODECS_MAX: Final = 4
#: Length, attributes, timestamp, offset, key length, value length, header count: a byte each.
RECORD_SIZE_MIN: Final = 7
#: Records that differ in nothing but their offsets were seen to need a third of a byte each, with zstd.
PLAUSIBLE_RECORDS_PER_BYTE: Final = 4
_SEQUENCES: Final = 2**31


class Batch:
    """A view of one batch where it lies; nothing is copied.

    The header is read once, when the object is made; the stamping methods keep object and bytes alike, and need a
    writable buffer. Making one raises CorruptBatch if the batch does not fit the view, and checks nothing else.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "length",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size",
        "view",
    )

    view: memoryview  #: exactly the batch
    base_offset: int
    length: int  #: as in the header: without the first 12 bytes
    size: int  #: of the whole batch
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    def __init__(self, view: memoryview) -> None:
        """`view` starts at the batch and may extend beyond it."""
        if len(view) < HEADER_SIZE:
            raise CorruptBatch(f"the batch is cut short: {len(view)} bytes, a header has {HEADER_SIZE}")
        (
            self.base_offset,
            length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = HEADER.unpack_from(view)
        self.length = length
        self.size = size = LENGTH_END + length
        if size != len(view):
            if not HEADER_SIZE <= size <= len(view):
                raise CorruptBatch(f"the batch says it has {size} bytes, of which {len(view)} are here")
            view = view[:size]
        self.view = view

    def __repr__(self) -> str:
        return f"<Batch {self.base_offset}–{self.last_offset}, {self.record_count} records, {self.size} bytes>"

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are not known."""
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """True for what the broker itself writes: transaction markers."""
        return self.attributes & CONTROL != 0

    @property
    def log_append_time(self) -> bool:
        """True where every record's timestamp is `max_timestamp`, the time the broker took the batch."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may drop this batch's tombstones or marker, once it has been set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def has_producer(self) -> bool:
        return self.producer_id > NO_PRODUCER

    @property
    def last_sequence(self) -> int:
        """Of the last record; after 2³¹ − 1 comes 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES

    @property
    def payload(self) -> memoryview:
        """The records, still compressed."""
        return self.view[HEADER_SIZE:]

    @property
    def is_doubtful(self) -> bool:
        """True when it says it has more records than are ever packed into so few bytes: open it before believing it."""
        return self.record_count > PLAUSIBLE_RECORDS_PER_BYTE * (self.size - HEADER_SIZE)

    def stamp(self, base_offset: int, leader_epoch: int) -> None:
        """Give the batch its place in the log. Neither field is under the CRC."""
        _STAMP.pack_into(self.view, 0, base_offset, self.length, leader_epoch)
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch

    def stamp_append_time(self, now_ms: int) -> None:
        """Make the broker's clock the timestamp of every record."""
        self.attributes |= LOG_APPEND_TIME
        self.max_timestamp = now_ms
        _ATTRIBUTES.pack_into(self.view, 21, self.attributes)
        _MAX_TIMESTAMP.pack_into(self.view, 35, now_ms)
        self._checksum()

    def stamp_producer(self, producer_id: int, epoch: int, base_sequence: int, *, transactional: bool) -> None:
        """Make the batch one of this producer's."""
        self.attributes = self.attributes & ~TRANSACTIONAL | (TRANSACTIONAL if transactional else 0)
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, epoch, base_sequence
        _ATTRIBUTES.pack_into(self.view, 21, self.attributes)
        _PRODUCER.pack_into(self.view, 43, producer_id, epoch, base_sequence)
        self._checksum()

    def check(self) -> None:
        """All that can be said of a new batch without opening it.

        CorruptBatch: the CRC. InvalidRecord: an older format, or a header that contradicts itself. UnsupportedCompression.
        For what a producer sends; a stored batch may be older than compaction, so for that use `check_crc`.
        """
        if self.magic in (0, 1):
            raise InvalidRecord(f"the records are in format {self.magic}; only format {MAGIC} is taken")
        self.check_crc()
        count, attributes = self.record_count, self.attributes
        if count < 1 or self.last_offset_delta != count - 1:
            raise InvalidRecord(
                f"the batch says it has {count} records and its last offset delta is {self.last_offset_delta}"
            )
        codec = attributes & CODEC_MASK
        if not codec and count * RECORD_SIZE_MIN > self.size - HEADER_SIZE:
            raise InvalidRecord(f"the batch says it has {count} records in {self.size - HEADER_SIZE} bytes")
        if codec > _CODECS_MAX:
            raise UnsupportedCompression(f"compression codec {codec} is not known; 0 to {_CODECS_MAX} are")
        if attributes & DELETE_HORIZON:
            raise InvalidRecord("only compaction sets a delete horizon")
        if self.producer_id >= 0:
            if self.producer_epoch < 0 or (self.base_sequence < 0 and not attributes & CONTROL):
                raise InvalidRecord(
                    f"producer {self.producer_id} with epoch {self.producer_epoch} and sequence {self.base_sequence}: "
                    "neither may be negative"
                )
        elif attributes & (TRANSACTIONAL | CONTROL):
            raise InvalidRecord("a transactional batch needs a producer id")

    def check_crc(self) -> None:
        """Raise CorruptBatch unless this is format 2 and its checksum matches: enough for a batch read back from disk."""
        if self.magic != MAGIC:
            raise CorruptBatch(f"the batch at offset {self.base_offset} has magic {self.magic}, not {MAGIC}")
        actual = crc32c(self.view[CRC_START:])
        if actual != self.crc:
            raise CorruptBatch(
                f"the batch at offset {self.base_offset} has checksum {self.crc:#010x} and its bytes {actual:#010x}"
            )

    def _checksum(self) -> None:
        self.crc = checksum(self.view)


def checksum(view: memoryview | bytearray) -> int:
    """Compute a whole batch's CRC, put it into its header and return it."""
    with memoryview(view) as batch, batch[CRC_START:] as covered:
        crc: int = crc32c(covered)
    _CRC.pack_into(view, 17, crc)
    return crc


def end_of(buffer: bytes | bytearray | memoryview) -> int:
    """The offset after the last of these whole batches, of which there is at least one and which are what they say."""
    last, position, end = 0, 0, len(buffer)
    while position < end:
        last = position
        position += LENGTH_END + _SIZE.unpack_from(buffer, position)[0]
    base_offset, last_offset_delta = _OFFSETS.unpack_from(buffer, last)
    return int(base_offset + last_offset_delta + 1)


def sole_batch(buffer: bytes | bytearray | memoryview) -> Batch:
    """The one batch that is in the buffer, and can be stamped: copied where it cannot. CorruptBatch."""
    view = memoryview(buffer)
    batch = Batch(memoryview(bytearray(view)) if view.readonly else view)
    if batch.size != len(view):
        raise CorruptBatch(f"the batch says it has {batch.size} bytes, {len(view)} came")
    return batch


def batches(buffer: bytes | bytearray | memoryview) -> Iterator[Batch]:
    """The whole batches of a buffer, in order. Stops before one that is cut at the end, as Fetch gives it.

    CorruptBatch when a length is too small to be one.
    """
    view = memoryview(buffer)
    position, end = 0, len(view)
    while position + LENGTH_END <= end:
        size = LENGTH_END + _SIZE.unpack_from(view, position)[0]
        if size < HEADER_SIZE:
            raise CorruptBatch(f"the batch at byte {position} says it has {size} bytes, a header has {HEADER_SIZE}")
        if position + size > end:
            return
        yield Batch(view[position : position + size])
        position += size
