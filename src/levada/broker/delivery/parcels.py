"""From what was read to what is delivered, within the consumer's credit and bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from levada.broker.delivery.credit import Credit
from levada.broker.delivery.cut import Cut, cut
from levada.broker.delivery.deliveries import Batches, Delivery, Records
from levada.broker.delivery.opener import UNPACKED_BYTES_MAX, Opener
from levada.broker.delivery.place import Place
from levada.broker.delivery.reading import size_of
from levada.broker.delivery.wanted import Wanted
from levada.config import MiB
from levada.engine.port import At, Isolation, Slice
from levada.errors import RecordError
from levada.records.read import Record, read_all

#: A read is no smaller, whatever the room: batches are seldom smaller either.
_READ_BYTES_MIN: Final = 16 * 1024

#: Most bytes that are held of what was opened, or one delivery.
_OPENED_BYTES_MAX: Final = 4 * MiB

#: Told of what goes out: partition, records, bytes as they are stored.
Counted = Callable[[At, int, int], None]


class Parcels:
    """Makes them for one consumer. Half of its `bytes_max` is for what is read in turn, half for what was waited for."""

    def __init__(
        self,
        wanted: Wanted,
        credit: Credit,
        deliver: Callable[[Delivery], Awaitable[None]],
        counted: Counted,
        opener: Opener,
    ) -> None:
        self._raw = wanted.raw
        self._committed = wanted.isolation == Isolation.READ_COMMITTED
        self._bytes_max = max(1, wanted.bytes_max // 2)
        self._credit = credit
        self._deliver = deliver
        self._counted = counted
        self._opener = opener
        #: Of a record, as far as was seen: so that no more is read than there is room for.
        self._record_bytes: float | None = None
        #: What was delivered counts as granted.
        self.free = False

    def read_bytes(self, room: int) -> int:
        """How much to read for so many records."""
        if self._record_bytes is None:
            return self._bytes_max
        return min(self._bytes_max, max(_READ_BYTES_MIN, int(self._record_bytes * room)))

    def wait_bytes(self, partitions: int) -> int:
        """How much each of so many partitions may bring when it was waited for."""
        return max(1, self._bytes_max // max(1, partitions))

    async def send(self, place: Place, found: Slice) -> None:
        """Deliver as many batches as there is room for. The place has moved on before each delivery.

        A RecordError: a batch cannot be read; all before it was delivered.
        """
        part = cut(found.batches, place.offset, self._credit.room())
        if part.records:
            self._record_bytes = len(part.data) / part.records
        self._credit.take(part.records)
        end = found.bounds.stable_end if self._committed else found.bounds.end
        if self._raw:
            await self._send_batches(place, found, part, end)
        else:
            await self._send_records(place, found, part, end)

    async def _send_batches(self, place: Place, found: Slice, part: Cut, end: int) -> None:
        self._counted(place.at, part.records, len(part.data))
        from_offset, place.offset = place.offset, part.to_offset
        aborted = [each for each in found.aborted if each.first_offset < part.to_offset]
        await self._deliver(Batches(place.at, part.data, from_offset, part.to_offset, end, aborted, part.records))
        if self.free:
            self._credit.grant(part.records)

    async def _send_records(self, place: Place, found: Slice, part: Cut, end: int) -> None:
        """Deliver what of them fits into one opening; what is left is read again, from where this one ends."""
        turn, left = place.turn, part.records
        try:
            opened = await self._opener.open(part, partial(self._open, place.offset, found, part))
            if place.turn != turn:
                return
            if opened.is_whole:
                self._counted(place.at, part.records, len(part.data))
            for number, chunk in enumerate(opened.chunks, 1):
                over = opened.is_whole and number == len(opened.chunks)
                place.offset = part.to_offset if over else chunk[-1].offset + 1
                left -= len(chunk)
                if not opened.is_whole:
                    self._counted(place.at, len(chunk), sum(map(size_of, chunk)))
                await self._deliver(Records(place.at, chunk, place.offset, end))
                if self.free:
                    self._credit.grant(len(chunk))
                if place.turn != turn:
                    return
            if opened.error is not None:
                raise opened.error
        finally:
            # Aborted, thinned out by compaction, left for the next time, or not wanted any more: nobody will grant those.
            self._credit.grant(max(0, left))

    def _open(self, offset: int, found: Slice, part: Cut) -> _Opened:
        """May be in a worker thread."""
        records = read_all(
            part.data,
            from_offset=offset,
            aborted=found.aborted,
            committed_only=self._committed,
            unpacked_bytes_max=UNPACKED_BYTES_MAX,
        )
        return _chunks(records, self._bytes_max)


class _Opened(NamedTuple):
    """Records, in lists of some bytes each; whether these are all of them, and what kept the others."""

    chunks: Sequence[Sequence[Record]]
    is_whole: bool
    error: RecordError | None = None


def _chunks(records: Iterable[Record], bytes_max: int) -> _Opened:
    """Lists of at most so many bytes, or of one record, up to some MiB. Of all, the last may be empty."""
    chunk: list[Record] = []
    chunks = [chunk]
    size = total = 0
    try:
        for record in records:
            added = size_of(record)
            if chunk and size + added > bytes_max:
                if total >= _OPENED_BYTES_MAX:
                    return _Opened(chunks, False)
                chunk = []
                chunks.append(chunk)
                size = 0
            chunk.append(record)
            size += added
            total += added
    except RecordError as reason:
        return _Opened([each for each in chunks if each], False, reason)
    return _Opened(chunks, True)
