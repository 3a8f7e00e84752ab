"""Compaction of one log: a round rewrites closed segments so that of each key only the latest record is left.

    plan(…)            on the loop: is a round due, and over which segments?
    compaction.run()   in a worker thread: reads closed segments, writes their successors, makes them durable
    log.install(…)     on the loop: puts the successors in place

Below the *first dirty offset* the log was compacted before. A round learns the latest offset of each key from there up to
the first segment that may not be touched: the active one, one with an open transaction or younger than
`min.compaction.lag.ms`. Then it passes over everything below, and what `Cleaner` keeps goes into new segments;
neighbours that became small become one. What a stop at any moment leaves, swap.py says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise, takewhile
from typing import Final

import structlog

from levada.config import KiB, TopicConfig
from levada.errors import DamagedLog, RecordError, StorageFailed, StorageFull
from levada.log.aborted import AbortedIndex, AbortedTransaction
from levada.log.cleaner import KEYS_MAX, Cleaner, LatestOffsets, TransactionsPassed, last_records
from levada.log.disk import Disk
from levada.log.producers import Producers
from levada.log.scan import Unreadable, whole_batches
from levada.log.segment import NO_ROOM, Retired, Segment
from levada.log.snapshots import BrokenSegment
from levada.log.successor import Rewritten, Successor, fit_together
from levada.log.swap import Swap
from levada.records.batch import Batch
from levada.records.read import read

_log = structlog.get_logger("levada.log")
#: How much is read before others get a turn: about a millisecond's worth.
_YIELD_BYTES: Final = 64 * KiB


def plan(
    *,
    disk: Disk,
    path: str,
    config: TopicConfig,
    segments: Sequence[Segment],
    start_offset: int,
    first_dirty_offset: int,
    stable_end: int,
    producers: Producers,
    aborted_of: Callable[[Segment], AbortedIndex],
    found_broken: Callable[[BrokenSegment], None],
    now_ms: int,
) -> Compaction | None:
    """A round of compaction if one is due, as Kafka has it; None otherwise.

    `segments` are all of the log's, the active one last. `stable_end`: the end of what is visible and decided.
    `aborted_of` gives a segment's aborted transactions, and builds them again if need be; `found_broken` is told, in the
    worker thread, when a segment turns out to be damaged.
    """
    first_dirty_offset = max(first_dirty_offset, start_offset)
    closed = list(_closed(segments, stable_end))
    dirty = [segment for segment, end in closed if end > first_dirty_offset]
    if config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - config.min_compaction_lag_ms
        dirty = list(takewhile(lambda segment: segment.largest_timestamp()[0] <= youngest_ms, dirty))
    if not dirty:
        return None
    dirty_bytes = sum(segment.size for segment in dirty)
    clean_bytes = sum(segment.size for segment, end in closed if end <= first_dirty_offset)
    is_filthy = dirty_bytes > config.min_cleanable_dirty_ratio * (clean_bytes + dirty_bytes)
    if not is_filthy and not _overdue(dirty, config, now_ms):
        return None
    ends = dict(closed)
    return Compaction(
        disk=disk,
        path=path,
        config=config,
        segments=[segment for segment, end in closed if end <= ends[dirty[-1]]],
        all_segments=list(segments),
        first_dirty_offset=first_dirty_offset,
        end_offset=ends[dirty[-1]],
        producers=producers,
        aborted_of=aborted_of,
        found_broken=found_broken,
        now_ms=now_ms,
    )


def _closed(segments: Sequence[Segment], stable_end: int) -> Iterator[tuple[Segment, int]]:
    """The segments that may be compacted, each with where the next one begins."""
    for segment, following in pairwise(segments):
        if following.base_offset > stable_end or segment.is_held:
            return
        yield segment, following.base_offset


def _overdue(dirty: Sequence[Segment], config: TopicConfig, now_ms: int) -> bool:
    """Whether something has waited for longer than max.compaction.lag.ms. Looks into the segments only if that is set."""
    oldest_ms = now_ms - config.max_compaction_lag_ms
    return oldest_ms > 0 and any(0 < segment.first_timestamp() < oldest_ms for segment in dirty)


class Compaction:
    """One round over one log. The log must not let go of a segment in it until the round is installed or has failed."""

    def __init__(
        self,
        *,
        disk: Disk,
        path: str,
        config: TopicConfig,
        segments: list[Segment],
        all_segments: list[Segment],
        first_dirty_offset: int,
        end_offset: int,
        producers: Producers,
        aborted_of: Callable[[Segment], AbortedIndex],
        found_broken: Callable[[BrokenSegment], None],
        now_ms: int,
    ) -> None:
        self.segments = segments
        #: Below this the log is compacted once the round is installed.
        self.cleaned_to = first_dirty_offset
        self.rewritten: list[Rewritten] = []
        #: How many keys are held in memory; with more, the round ends early and another follows.
        self.keys_max = KEYS_MAX
        self._disk = disk
        self._path = path
        self._swap = Swap(disk, path)
        self._config = config
        self._all_segments = all_segments
        self._aborted_of = aborted_of
        self._found_broken = found_broken
        self._first_dirty_offset = first_dirty_offset
        self._end_offset = end_offset
        self._now_ms = now_ms
        # Taken here, on the loop, where nobody writes meanwhile.
        self._last_records = last_records(producers)
        self._cancelled = False
        self._unyielded_bytes = 0

    def cancel(self) -> None:
        """Stop at the next batch, if it is not too late; from any thread."""
        self._cancelled = True

    def run(self) -> bool:
        """The whole round, in a worker thread. True: install it. False: it was cancelled, or something of what
        it reads was deleted, and nothing has changed.

        StorageFull, StorageFailed, DamagedLog: nothing has changed either.
        """
        try:
            return self._run()
        except BrokenSegment as broken:
            self._found_broken(broken)
            file, position = broken.segment.path, broken.where.position
            raise DamagedLog(
                f"compaction stopped: {file} is damaged at byte {position}: {broken}", file=file, position=position
            ) from None
        except OSError as reason:
            kind = StorageFull if reason.errno in NO_ROOM else StorageFailed
            raise kind(f"compaction of {self._path} stopped: {reason}") from reason

    def _run(self) -> bool:
        # An earlier round may have failed so badly that it left something; one that was decided has been installed by now.
        self._swap.undo(self.cleaned_to)
        try:
            latest, mapped_to = self._learn_keys()
            cleaner = self._cleaner(latest, mapped_to)
            self._rewrite_all([segment for segment in self.segments if segment.base_offset < mapped_to], cleaner)
            self._swap.decide(mapped_to)
        except Exception as reason:
            self.rewritten.clear()
            self._swap.undo(self.cleaned_to)
            if isinstance(reason, _Cancelled | Retired):
                return False
            raise
        self.cleaned_to = mapped_to
        return True

    # What is the latest of each key

    def _learn_keys(self) -> tuple[LatestOffsets, int]:
        """The latest offsets of the keys in the dirty part, and up to where it was read before there were too many."""
        latest = LatestOffsets(self.keys_max)
        transactions = TransactionsPassed(self._aborted(self._first_dirty_offset))
        for segment in self.segments:
            for _, batch in self._batches(segment, self._first_dirty_offset):
                if batch.last_offset < self._first_dirty_offset:
                    continue
                if latest.full:
                    return latest, batch.base_offset
                if not transactions.passes(batch) and not batch.is_control:
                    self._learn(batch, latest)
        return latest, self._end_offset

    def _learn(self, batch: Batch, latest: LatestOffsets) -> None:
        try:
            for record in read(batch):
                if record.key is not None:
                    latest.add(record.key, record.offset)
        except RecordError as reason:
            # A producer sent it like that, while the topic was not compacted. What nobody understands nobody may drop.
            _log.warning("batch kept as it is", path=self._path, offset=batch.base_offset, reason=str(reason))

    def _batches(self, segment: Segment, offset: int = 0) -> Iterator[tuple[int, Batch]]:
        try:
            position = segment.locate(offset)
            file = segment.opened().file
            for found in whole_batches(file, position, segment.size, segment.base_offset, dense=False):
                if self._cancelled:
                    raise _Cancelled
                yield found
                self._let_others_run(found[1].size)
        except Unreadable as where:
            raise BrokenSegment(segment, where) from None

    def _let_others_run(self, size: int) -> None:
        """Reading records holds the interpreter: let the loop have it in between."""
        self._unyielded_bytes += size
        if self._unyielded_bytes >= _YIELD_BYTES:
            self._unyielded_bytes = 0
            time.sleep(0)

    def _aborted(self, offset: int = 0) -> list[AbortedTransaction]:
        """All that overlap what is compacted, from this offset on; the marker of some may lie beyond."""
        entries = chain.from_iterable(map(self._aborted_of, self._all_segments))
        return [entry for entry in entries if entry.last_offset >= offset and entry.first_offset < self._end_offset]

    # What is left

    def _cleaner(self, latest: LatestOffsets, mapped_to: int) -> Cleaner:
        return Cleaner(
            latest=latest,
            mapped_to=mapped_to,
            transactions=TransactionsPassed(self._aborted()),
            last_records=self._last_records,
            now_ms=self._now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
        )

    def _rewrite_all(self, segments: Sequence[Segment], cleaner: Cleaner) -> None:
        """Write successors, each of as many neighbours as fit; a segment that stays as it is, alone, gets none."""
        successor: Successor | None = None
        ends = [*(segment.base_offset for segment in segments[1:]), self._end_offset]
        for number, (segment, end) in enumerate(zip(segments, ends, strict=True)):
            if successor is not None and not successor.has_room(segment, end):
                self._finish(successor, cleaner)
                successor = None
            if successor is None:
                cleaner.transactions.kept = []
                if self._merges(segments[number : number + 2], ends[number : number + 2]):
                    successor = self._successor(segment)
            successor = self._rewrite(segment, successor, cleaner)
        if successor is not None:
            self._finish(successor, cleaner)

    def _merges(self, pair: Sequence[Segment], ends: Sequence[int]) -> bool:
        """Whether a segment and the next one fit into one, as they are now."""
        return len(pair) == 2 and fit_together(pair, ends[-1], self._config)

    def _successor(self, first: Segment) -> Successor:
        return Successor(self._disk, self._path, first.base_offset, self._config)

    def _rewrite(self, segment: Segment, successor: Successor | None, cleaner: Cleaner) -> Successor | None:
        """Add what is left of a segment to its successor. One that has none yet gets it with the first change."""
        for position, batch in self._batches(segment):
            kept = cleaner.clean(batch, keeps_place=position + batch.size == segment.size)
            if successor is None:
                if kept is batch.view:
                    continue
                successor = self._successor(segment)
                successor.copy(segment, position)
            if kept is not None:
                successor.append(kept)
        if successor is not None:
            successor.replaced.append(segment)
        return successor

    def _finish(self, successor: Successor, cleaner: Cleaner) -> None:
        self.rewritten.append(successor.finish(AbortedIndex(cleaner.transactions.kept)))


class _Cancelled(Exception):
    """The round is not wanted any more."""
