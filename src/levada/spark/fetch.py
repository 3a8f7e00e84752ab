"""One range of one partition, from its leader, as whole batches.

The next Fetch is sent before the last one is handed out, so the broker reads and the network carries while batches are decoded.
A range ends at its end whatever is left of it: offsets that compaction or transaction markers took are not waited for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple

from levada.errors import BrokerRefused, CorruptBatch, LevadaError, OffsetOutOfRange
from levada.wire.answers import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, TopicPartition
from levada.wire.blocking import BlockingClient
from levada.wire.calls.fetch import Ahead
from levada.wire.codes import ErrorCode
from levada.wire.fetch import Fetched as Answer

MiB: Final = 1 << 20
BYTES_MAX: Final = 8 * MiB
#: How long a leader holds a Fetch for which it has nothing.
_WAIT_MS: Final = 500


class Range(NamedTuple):
    """The offsets from `start` up to, not including, `end` of one partition."""

    topic: str
    partition: int
    start: int
    end: int
    #: Of the record before `start`, where known; −1 where not.
    leader_epoch: int = -1


class Fetched(NamedTuple):
    """Whole batches, as they lie in the log, and which of their offsets are meant: from `from_offset` up to, not including, `to_offset`."""

    data: memoryview
    #: (producer id, first offset) of transactions to leave out; None where uncommitted records are wanted too.
    aborted: Sequence[tuple[int, int]] | None
    from_offset: int
    to_offset: int
    partition: int = 0


class RangeLost(OffsetOutOfRange):
    """The partition no longer holds, or does not hold, a part of the range.

    `lost` is exactly that part; what lies before it has been handed out, and reading can go on at `lost.end`.
    `start` and `end` are what the partition holds.
    """

    def __init__(self, lost: Range, why: str, *, start: int, end: int) -> None:
        place = f"offsets {lost.start} to {lost.end - 1} of {lost.topic}-{lost.partition}"
        holds = f"it holds {start} to {end - 1}" if end > start else f"it is empty and goes on at {end}"
        super().__init__(f"{place} are lost: {why}; {holds}", start=start, end=end)
        self.lost = lost
        self.why = why

    def __reduce__(self) -> Any:
        return _range_lost, (self.lost, self.why, self.start, self.end)


def _range_lost(lost: Range, why: str, start: int, end: int) -> RangeLost:
    return RangeLost(lost, why, start=start, end=end)


def fetched(
    client_settings: Mapping[str, Any], wanted: Range, *, read_committed: bool, bytes_max: int = BYTES_MAX
) -> Iterator[Fetched]:
    """The batches that hold this range, in order: between two pieces lies nothing, or offsets that are gone.

    `client_settings` are the arguments of BlockingClient by name: `bootstrap` and any of ClientConfig. Its `timeout_ms` is how long
    a leader may be away, or offsets below `end` be not readable yet, before that is an error. RangeLost, CorruptBatch, ClientError.
    """
    if wanted.start > wanted.end:
        raise ValueError(f"the range begins at {wanted.start}, after its end {wanted.end}")
    if wanted.start == wanted.end:
        return
    # Not connected first: a broker that is away for a moment is waited for, as it is in the middle of a range.
    with closing(BlockingClient(**client_settings)) as client:
        yield from _Reader(client, wanted, read_committed, bytes_max).pieces()


class _Reader:
    """The reading of one range."""

    def __init__(self, client: BlockingClient, wanted: Range, read_committed: bool, bytes_max: int) -> None:
        self._client = client
        self._wanted = wanted
        self._at = TopicPartition(wanted.topic, wanted.partition)
        self._committed = read_committed
        self._isolation = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        self._bytes_max = bytes_max

    def pieces(self) -> Iterator[Fetched]:
        position, end = self._wanted.start, self._wanted.end
        deadline = self._deadline()
        ahead = self._begin(position)
        while position < end:
            piece = self._piece(self._answer(ahead, position), position)
            if piece is None:
                if time.monotonic() >= deadline:
                    raise self._missing(position)
                ahead = self._begin(position)
                continue
            position = piece.to_offset
            ahead = self._begin(position) if position < end else None
            if piece.data:
                yield piece
            deadline = self._deadline()  # not before: whoever was handed the piece may have taken long over it

    def _deadline(self) -> float:
        return time.monotonic() + self._client.config.timeout_ms / 1000

    def _begin(self, position: int) -> Ahead | None:
        """Send a Fetch; None where that failed, which whoever wants the answer will see to."""
        try:
            return self._client.begin_fetch(
                self._at, position, max_wait_ms=_WAIT_MS, max_bytes=self._bytes_max, isolation=self._isolation
            )
        except LevadaError:
            return None

    def _answer(self, ahead: Ahead | None, position: int) -> Answer | None:
        """What the leader has from here on, asked again where the first try failed; None for "not in range" that may pass."""
        try:
            if ahead is not None:
                return self._client.end_fetch(ahead)
        except LevadaError:
            pass  # Asking again, with retries, either answers or says what is wrong.
        try:
            answers = self._client.fetch(
                {self._at: position},
                max_wait_ms=_WAIT_MS,
                max_bytes=self._bytes_max,
                partition_max_bytes=self._bytes_max,
                isolation=self._isolation,
            )
        except BrokerRefused as refusal:
            if refusal.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self._check_range(position)
            time.sleep(self._client.config.backoff_ms / 1000)
            return None
        return answers[self._at]

    def _piece(self, answer: Answer | None, position: int) -> Fetched | None:
        """What was fetched of the range; None where there is nothing to be said of it yet."""
        import numpy as np  # with numba: whoever only plans ranges needs neither

        from levada.spark.columns.batches import BASE, END, LAST, batch_table

        if answer is None:
            return None
        end, partition = self._wanted.end, self._wanted.partition
        readable = answer.last_stable_offset if self._committed else answer.high_watermark
        data = memoryview(answer.records)
        if not data:
            # Nothing lies between here and the end of what can be read: compaction took it.
            return Fetched(data, None, position, min(readable, end), partition) if readable > position else None
        table = batch_table(np.frombuffer(data, np.uint8))
        if not len(table) or table[-1, LAST] < position:
            raise CorruptBatch(
                f"what {self._at} answered from offset {position} on holds no whole batch at or after it"
            )
        aborted = (answer.aborted or ()) if self._committed else None
        within = int(np.searchsorted(table[:, BASE], end))
        data = data[: int(table[within - 1, END])] if within else data[:0]
        return Fetched(data, aborted, position, min(int(table[-1, LAST]) + 1, end), partition)

    def _bounds(self) -> tuple[int, int]:
        earliest = self._client.list_offsets({self._at: EARLIEST})[self._at].offset
        latest = self._client.list_offsets({self._at: LATEST}, isolation=self._isolation)[self._at].offset
        return earliest, latest

    def _check_range(self, position: int) -> None:
        """Raise what is lost for good. Just after its election a leader may not know yet how far it can be read: that passes."""
        start, end = self._bounds()
        if position < start:
            lost = self._wanted._replace(start=position, end=min(start, self._wanted.end))
            raise RangeLost(lost, "they were deleted", start=start, end=end)

    def _missing(self, position: int) -> RangeLost:
        """Time is up and the offsets have not come."""
        start, end = self._bounds()
        lost = self._wanted._replace(start=position)
        why = f"within {self._client.config.timeout_ms} ms they could not be read"
        return RangeLost(lost, why, start=start, end=end)
