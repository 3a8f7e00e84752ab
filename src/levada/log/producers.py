"""What a partition remembers of the producers that write to it: epoch, sequence, open transaction.

The rules are Kafka's. A producer's batches follow on by sequence (after 2³¹ − 1 comes 0); a repeat of one of its last five
is answered with the offsets of the first; a gap or an older epoch is refused; a newer epoch starts at sequence 0; a
producer nobody remembers may start anywhere. Everything here can be found again by reading the log.

Snapshot (`<offset>.snapshot`, Kafka's version 1, big-endian): int16 version | uint32 CRC-32C of the rest | int32 count |
then for each producer: int64 id | int16 epoch | int32 last sequence | int64 last offset | int32 last offset − first offset of
the last batch | int64 timestamp | int32 coordinator epoch | int64 first offset of the open transaction, −1 for none.
Behind Kafka's entries, under the same CRC and ignored by Kafka's reader, stands what ours adds: the batches before the last,
oldest first, so that all a client may have in flight is known after a restart: int32 count | then for each: int64 producer id |
int32 first sequence | int32 last sequence | int64 first offset | int64 last offset. Kafka's own files end before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from levada.config import DAY_MS
from levada.errors import DamagedIndex, Fenced, InvalidProducerEpoch, InvalidTransactionState, OutOfOrderSequence
from levada.log.results import Appended
from levada.records.batch import CONTROL, NO_SEQUENCE, TRANSACTIONAL, Batch
from levada.records.read import Marker, read_marker

BATCHES_REMEMBERED: Final = 5
NO_EPOCH: Final = -1
_SEQUENCES: Final = 2**31
_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEADER: Final = Struct(">hI")
_SNAPSHOT_COUNT: Final = Struct(">i")
_SNAPSHOT_ENTRY: Final = Struct(">qhiqiqiq")
_SNAPSHOT_EARLIER: Final = Struct(">qiiqq")


class Remembered(NamedTuple):
    """A batch a producer wrote."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class Producer:
    """One producer as this partition knows it."""

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    #: When it last wrote here, by the broker's clock.
    last_write_ms: int = -1
    #: Where its open transaction began.
    open_from: int | None = None
    #: What its next batch in this epoch has to begin with.
    next_sequence: int = 0
    batches: deque[Remembered] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Of the last data batch remembered; −1 for none."""
        return self.batches[-1].last_offset if self.batches else -1

    def repeat_of(self, batch: Batch) -> Remembered | None:
        """The first copy of this batch, if it is one of the last five."""
        if batch.producer_epoch != self.epoch or batch.base_sequence == NO_SEQUENCE:
            return None
        wanted = (batch.base_sequence, batch.last_sequence)
        for seen in self.batches:
            if seen[:2] == wanted:
                return seen
        return None

    def remember(self, batch: Remembered) -> None:
        self.batches.append(batch)
        self.next_sequence = (batch.last_sequence + 1) % _SEQUENCES

    def enter(self, epoch: int) -> None:
        """A new epoch's sequences have nothing to do with the old one's."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.next_sequence = 0


class Completed(NamedTuple):
    """A transaction that a marker ended. An aborted one belongs into the index of aborted transactions."""

    producer_id: int
    first_offset: int
    #: Of the marker.
    last_offset: int
    commit: bool
    #: The last stable offset once this transaction is out of the way.
    stable_offset: int


class Producers:
    """All producers of a partition. The log asks `check` before it writes a batch and tells `applied` afterwards."""

    def __init__(self, *, expiration_ms: int = DAY_MS) -> None:
        self.expiration_ms = expiration_ms
        self._producers: dict[int, Producer] = {}
        #: Producer id → first offset of its open transaction, in the order of those offsets.
        self._open: dict[int, int] = {}
        #: Transactions whose marker may not be visible yet: (first offset, offset of the marker), by marker.
        self._ended: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    # Writing

    def check(self, batch: Batch, *, sequences: bool = True) -> Appended | None:
        """Whether this batch may be written next: None if so; where the first copy lies if it is a repeat.

        OutOfOrderSequence, InvalidProducerEpoch, InvalidTransactionState (not transactional while its transaction is
        open). Changes nothing. Without `sequences` only the epoch counts: what the broker itself writes for a producer
        (offset commits) has no sequence.
        """
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            return None
        if batch.attributes & CONTROL:
            self._check_marker(producer, batch)
            return None
        if batch.producer_epoch != producer.epoch or (sequences and batch.base_sequence != producer.next_sequence):
            seen = producer.repeat_of(batch) if sequences else None
            if seen is not None:
                return Appended(seen.first_offset, seen.last_offset, duplicate=True)
            _check_epoch(producer, batch)
            if sequences:
                self._check_sequence(producer, batch)
        if producer.open_from is not None and not batch.attributes & TRANSACTIONAL:
            raise InvalidTransactionState(
                f"producer {batch.producer_id} has had a transaction open since offset {producer.open_from}, "
                "and wrote outside of it"
            )
        return None

    def _check_sequence(self, producer: Producer, batch: Batch) -> None:
        expected = 0 if batch.producer_epoch > producer.epoch else producer.next_sequence
        if batch.base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {batch.producer_id}, epoch {batch.producer_epoch}: sequence {batch.base_sequence} came, "
                f"{expected} is next"
            )

    def _check_marker(self, producer: Producer, batch: Batch) -> None:
        _check_epoch(producer, batch)
        marker = read_marker(batch)
        if marker is not None and marker.coordinator_epoch < producer.coordinator_epoch:
            raise Fenced(
                f"a marker of coordinator epoch {marker.coordinator_epoch} came for producer {batch.producer_id}, "
                f"after one of epoch {producer.coordinator_epoch}"
            )

    def applied(self, batch: Batch, now_ms: int) -> Completed | None:
        """Remember a batch that is in the log, at its stamped offset; returns the transaction that it ended, if it did.

        Also for reading the log back: nothing is checked, the log is right.
        """
        if batch.producer_id < 0:
            return None
        if not batch.attributes & CONTROL:
            self._wrote(batch, now_ms)
            return None
        # Compaction keeps a marker empty once nothing else is left of its transaction.
        marker = read_marker(batch) if batch.record_count else None
        return None if marker is None else self._end(batch, marker, now_ms)

    def _wrote(self, batch: Batch, now_ms: int) -> None:
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            producer = self._producers[batch.producer_id] = Producer(batch.producer_id)
        if batch.producer_epoch != producer.epoch:
            producer.enter(batch.producer_epoch)
        producer.last_write_ms = now_ms
        sequence, base_offset = batch.base_sequence, batch.base_offset
        if sequence != NO_SEQUENCE:
            producer.remember(Remembered(sequence, batch.last_sequence, base_offset, batch.last_offset))
        if batch.attributes & TRANSACTIONAL and producer.open_from is None:
            producer.open_from = self._open[batch.producer_id] = base_offset

    def _end(self, batch: Batch, marker: Marker, now_ms: int) -> Completed | None:
        producer = self._producers.setdefault(batch.producer_id, Producer(batch.producer_id))
        producer.enter(batch.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_write_ms = now_ms
        first_offset = producer.open_from
        # A marker without data before it changes no reader's view.
        if first_offset is None:
            return None
        producer.open_from = None
        del self._open[batch.producer_id]
        self._ended.append((first_offset, batch.base_offset))
        stable_offset = next(iter(self._open.values()), batch.base_offset + 1)
        return Completed(batch.producer_id, first_offset, batch.base_offset, marker.commit, stable_offset)

    # Transactions

    @property
    def open_transactions(self) -> Mapping[int, int]:
        """Producer id → first offset, lowest offset first."""
        return self._open

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest open transaction began."""
        return next(iter(self._open.values()), None)

    def first_unstable_offset(self, visible_end: int) -> int | None:
        """The lowest offset whose transaction is open, or was ended by a marker that readers cannot see yet.

        `visible_end` never goes back: markers below it are forgotten.
        """
        ended = self._ended
        if not ended and not self._open:
            return None
        while ended and ended[0][1] < visible_end:
            ended.popleft()
        first = self.first_undecided_offset
        for first_offset, _ in ended:
            if first is None or first_offset < first:
                first = first_offset
        return first

    # Memory

    def expire(self, now_ms: int) -> int:
        """Forget producers that have been idle for too long and have no transaction open; returns how many."""
        idle = [
            producer.producer_id
            for producer in self._producers.values()
            if producer.open_from is None and now_ms - producer.last_write_ms >= self.expiration_ms
        ]
        for producer_id in idle:
            del self._producers[producer_id]
        return len(idle)

    def clear(self) -> None:
        self._producers.clear()
        self._open.clear()
        self._ended.clear()

    def snapshot(self) -> bytes:
        """All producers with their last five batches: the last in Kafka's file format, the others behind it."""
        parts = [_SNAPSHOT_COUNT.pack(len(self._producers))]
        for producer in self._producers.values():
            last = producer.batches[-1] if producer.batches else Remembered(NO_SEQUENCE, NO_SEQUENCE, -1, -1)
            open_from = -1 if producer.open_from is None else producer.open_from
            parts.append(
                _SNAPSHOT_ENTRY.pack(
                    producer.producer_id, producer.epoch, last.last_sequence, last.last_offset,
                    last.last_offset - last.first_offset, producer.last_write_ms, producer.coordinator_epoch, open_from,
                )
            )  # fmt: skip
        earlier = [
            _SNAPSHOT_EARLIER.pack(producer.producer_id, *batch)
            for producer in self._producers.values()
            for batch in tuple(producer.batches)[:-1]
        ]
        entries = b"".join((*parts, _SNAPSHOT_COUNT.pack(len(earlier)), *earlier))
        return _SNAPSHOT_HEADER.pack(_SNAPSHOT_VERSION, crc32c(entries)) + entries

    def load(self, snapshot: bytes, now_ms: int) -> None:
        """Start from a snapshot instead of what is remembered; those that expired meanwhile stay forgotten. DamagedIndex."""
        entries, earlier = _sections(snapshot)
        producers = [_producer(*entry) for entry in _SNAPSHOT_ENTRY.iter_unpack(entries)]
        by_id = {producer.producer_id: producer for producer in producers}
        # From the newest back, because each goes in front.
        for producer_id, *batch in reversed(list(_SNAPSHOT_EARLIER.iter_unpack(earlier))):
            if producer_id not in by_id:
                raise DamagedIndex(
                    f"the snapshot of producers has a batch of producer {producer_id}, and not the producer"
                )
            by_id[producer_id].batches.appendleft(Remembered(*batch))
        self.clear()
        self._producers = by_id
        started = sorted((p.open_from, p.producer_id) for p in producers if p.open_from is not None)
        self._open = {producer_id: first_offset for first_offset, producer_id in started}
        self.expire(now_ms)


def _check_epoch(producer: Producer, batch: Batch) -> None:
    if batch.producer_epoch < producer.epoch:
        raise InvalidProducerEpoch(
            f"producer {batch.producer_id} wrote with epoch {batch.producer_epoch}; epoch {producer.epoch} has been seen"
        )


def _sections(snapshot: bytes) -> tuple[memoryview, memoryview]:
    """A snapshot's entries and the earlier batches behind them, once it is known to be whole."""
    if len(snapshot) < _SNAPSHOT_HEADER.size + _SNAPSHOT_COUNT.size:
        raise DamagedIndex(f"the snapshot of producers is cut short: it has {len(snapshot)} bytes")
    version, crc = _SNAPSHOT_HEADER.unpack_from(snapshot)
    if version != _SNAPSHOT_VERSION:
        raise DamagedIndex(f"the snapshot of producers has version {version}, not {_SNAPSHOT_VERSION}")
    view = memoryview(snapshot)[_SNAPSHOT_HEADER.size :]
    if crc32c(view) != crc:
        raise DamagedIndex("the snapshot of producers does not match its checksum")
    entries, rest = _counted(view, _SNAPSHOT_ENTRY.size)
    earlier, rest = _counted(rest, _SNAPSHOT_EARLIER.size) if rest else (rest, rest)
    if rest:
        raise DamagedIndex(f"the snapshot of producers has {len(rest)} bytes too many")
    return entries, earlier


def _counted(view: memoryview, size: int) -> tuple[memoryview, memoryview]:
    """A count and as many things of this size, and what stands behind them."""
    count: int = _SNAPSHOT_COUNT.unpack_from(view)[0] if len(view) >= _SNAPSHOT_COUNT.size else -1
    end = _SNAPSHOT_COUNT.size + count * size
    if count < 0 or len(view) < end:
        raise DamagedIndex(f"the snapshot of producers says it has {count} of {size} bytes, and has {len(view)} bytes")
    return view[_SNAPSHOT_COUNT.size : end], view[end:]


def _producer(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    last_write_ms: int,
    coordinator_epoch: int,
    open_from: int,
) -> Producer:
    producer = Producer(producer_id, epoch, coordinator_epoch, last_write_ms, open_from if open_from >= 0 else None)
    if last_offset >= 0:
        first_sequence = (last_sequence - offset_delta) % _SEQUENCES
        producer.remember(Remembered(first_sequence, last_sequence, last_offset - offset_delta, last_offset))
    return producer
