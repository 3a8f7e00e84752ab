"""Records of one partition that came together: opened when the user gets to them, and handed out one by one or in slices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from levada.client.records import Record
from levada.client.serializers import Bytes, Serializer
from levada.client.track import Track
from levada.errors import InvalidRecord, LevadaError
from levada.records.read import read_all

_new: Callable[[type[Record], tuple[Any, ...]], Record] = tuple.__new__


class Opener:
    """Makes a user's records of a partition's batches."""

    def __init__(self, key: Serializer, value: Serializer, *, committed_only: bool) -> None:
        self._key = None if isinstance(key, Bytes) else key.loads
        self._value = None if isinstance(value, Bytes) else value.loads
        self._committed_only = committed_only

    def open(
        self,
        topic: str,
        partition: int,
        data: bytes,
        from_offset: int,
        to_offset: int,
        aborted: Iterable[tuple[int, int]],
    ) -> tuple[list[Record], InvalidRecord | None]:
        """The records from `from_offset` to `to_offset` − 1; up to the first that a serializer cannot read, and why."""
        found = read_all(data, from_offset=from_offset, aborted=aborted, committed_only=self._committed_only)
        if self._key is None and self._value is None:
            return [
                _new(Record, (topic, partition, offset, timestamp_ms, key, value, headers))
                for offset, timestamp_ms, key, value, headers in found
                if offset < to_offset
            ], None
        made: list[Record] = []
        for offset, timestamp_ms, key, value, headers in found:
            if offset >= to_offset:
                break
            try:
                loaded_key = key if key is None or self._key is None else self._key(key)
                loaded = value if value is None or self._value is None else self._value(value)
            except Exception as reason:
                return made, _unreadable(topic, partition, offset, reason)
            made.append(_new(Record, (topic, partition, offset, timestamp_ms, loaded_key, loaded, headers)))
        return made, None


def _unreadable(topic: str, partition: int, offset: int, reason: Exception) -> InvalidRecord:
    error = InvalidRecord(
        f"topic {topic}, partition {partition}, offset {offset}: the serializer cannot read the record: {reason}; "
        "seek past it to go on"
    )
    error.__cause__ = reason
    return error


class Chunk:
    """What one answer of the broker brought. `index` is how much of it was handed out."""

    __slots__ = (
        "_aborted", "_data", "_error", "_from", "_records", "connection", "count", "index", "is_failure", "is_interrupted", "to", "track",
        "turn",
    )  # fmt: skip

    def __init__(
        self,
        track: Track,
        data: bytes,
        from_offset: int,
        to_offset: int,
        aborted: Sequence[tuple[int, int]],
        count: int,
        connection: int,
    ) -> None:
        self.track = track
        self.turn = track.turn
        #: Behind its last record, and what follows it that is not for readers.
        self.to = to_offset
        #: For how many granted records it counts, and on which connection.
        self.count = count
        self.connection = connection
        self.index = 0
        self.is_interrupted = False
        #: It brings an error instead of records, which is told once: the other partitions go on.
        self.is_failure = False
        self._data = data
        self._from = from_offset
        self._aborted = aborted
        self._records: list[Record] | None = None
        self._error: LevadaError | None = None

    @classmethod
    def of_failure(cls, track: Track, error: LevadaError, connection: int) -> Chunk:
        """Behind what came of the partition, why nothing more does."""
        chunk = cls(track, b"", track.received, track.received, (), 0, connection)
        chunk.is_failure, chunk._records, chunk._error = True, [], error
        return chunk

    @property
    def is_stale(self) -> bool:
        """True where the user has moved on, or the partition."""
        return self.turn != self.track.turn or self.track.is_leaving

    def open(self, opener: Opener) -> list[Record]:
        """Its records; those before the first that cannot be read."""
        if self._records is None:
            at = self.track.at
            self._records, self._error = opener.open(*at, self._data, self._from, self.to, self._aborted)
            self._data = b""
        return self._records

    def take_credit(self) -> int:
        """For how many granted records it counts; from now on for none, since they are granted anew."""
        count, self.count = self.count, 0
        return count

    @property
    def is_used_up(self) -> bool:
        return self._records is not None and self.index >= len(self._records) and self._error is None

    @property
    def error(self) -> LevadaError | None:
        """What is wrong with the next record, or with the partition, once all before it were handed out."""
        return self._error if self._records is not None and self.index >= len(self._records) else None

    @property
    def handed(self) -> int:
        """Behind what was handed out."""
        records = self._records or ()
        if self.index >= len(records) and self._error is None:
            return self.to
        return records[self.index - 1].offset + 1 if self.index else self._from

    @property
    def in_hand(self) -> int:
        """The offset of the last record that was handed out: it may still be worked on."""
        records = self._records or ()
        return records[self.index - 1].offset if self.index else self._from

    def settle(self) -> None:
        """The user is done with what was handed out."""
        self.track.done(self.handed, self.turn)

    def __iter__(self) -> Iterator[Record]:
        """The rest of an opened chunk, each handed out when it is asked for; until it is interrupted, moved or paused."""
        records, track, turn = self._records or [], self.track, self.turn
        self.is_interrupted = False
        for index in range(self.index, len(records)):
            self.index = index + 1
            yield records[index]
            if self.is_interrupted or track.paused or track.is_leaving or track.turn != turn:
                return

    def unhandled(self) -> Iterator[Record]:
        """The rest of an opened chunk, each handed out when the next is asked for: whoever ends early begins with the same."""
        records, track, turn = self._records or [], self.track, self.turn
        for index in range(self.index, len(records)):
            if track.paused or track.is_leaving or track.turn != turn:
                return
            yield records[index]
            self.index = index + 1

    def take(self, most: int) -> list[Record]:
        """So many of the rest of an opened chunk."""
        records = self._records or []
        taken = records[self.index : self.index + most]
        self.index += len(taken)
        return taken
