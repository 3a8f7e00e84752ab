"""Archives one topic: what is new in its log goes into its table, in order, each offset once.

What is to be archived follows from the table, which says for each partition how far it is, in the same commit as the files. Then the
offsets of group `__levada.archive` are committed, which is what retention waits for. A crash before the commit to the table leaves
files that nobody names; one after it leaves offsets that are committed again at the next start.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from levada.engine.names import ARCHIVE_GROUP
from levada.spark.archive.discovery import archives
from levada.spark.archive.layout import Written
from levada.spark.archive.logs import before, epochs_of, held
from levada.spark.archive.place import filesystem, missing
from levada.spark.archive.planning import Held, Limits, Plan, TailCut, check_tail, in_doubt, plan
from levada.spark.archive.progress import Progress
from levada.spark.archive.table import ArchiveTable, Overtaken, Whose
from levada.spark.archive.wanted import Archive
from levada.spark.archive.writing import Done, Job, archive
from levada.spark.fetch import Range
from levada.spark.options.cluster import Cluster
from levada.wire.answers import OffsetAndMetadata, TopicPartition
from levada.wire.blocking import BlockingClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger("levada.archive")

#: So often the group is told again how far partitions are: retention waits for what it says, and anybody may have moved it.
_TELL_AGAIN_S: Final = 60.0


class Archiver:
    """Of one topic, for one thread. The session is the caller's, and so is the client."""

    def __init__(
        self,
        spark: SparkSession,
        cluster: Cluster,
        client: BlockingClient,
        wanted: Archive,
        limits: Limits | None = None,
    ) -> None:
        self.archive = wanted
        self.progress = Progress()
        self._spark = spark
        self._cluster = cluster
        self._client = client
        self._limits = limits or Limits()
        self._since: dict[int, float] = {}
        self._told: dict[int, int] = {}
        self._tell_again_at = time.monotonic() + _TELL_AGAIN_S
        #: The leader epoch at which what is archived of a partition was found whole.
        self._whole: dict[int, int] = {}
        #: Open after the first step.
        self.table: ArchiveTable | None = None

    def ends(self) -> dict[int, int]:
        """Where the logs of the partitions end now."""
        topic = self.archive.topic
        partitions = [one.partition for one in self._client.topics([topic])[topic].partitions]
        return {partition: one.end for partition, one in held(self._client, topic, partitions).items()}

    def step(self, up_to: Mapping[int, int] | None = None) -> bool:
        """Archive what is due; False where nothing was. With `up_to`, all below these offsets is due, and nothing else.

        Durable when it returns, and retention may go on.
        WrongTable, AheadOfLog, TailCut, NotShared and other ArchiveErrors; ClientError while the broker is away; what Spark raises.
        """
        topic = self.archive.topic
        info = self._client.topics([topic])[topic]
        table = self._open(Whose(topic, str(info.topic_id)))
        partitions = [one.partition for one in info.partitions]
        archived = {one: table.next_offset(one) for one in partitions}
        log = held(self._client, topic, partitions)
        epochs = epochs_of(info)
        self._check_tails(table, archived, log, epochs)
        self._tell(archived)
        if up_to is not None:
            log = {one: before(log[one], max(up_to.get(one, 0), archived[one] or 0)) for one in partitions}
        plans = plan(topic, archived, log, self._since, time.monotonic(), self._limits, all_there_is=up_to is not None)
        self._since = plans.since
        self.progress.lag = plans.waiting
        if not plans.ranges and not plans.lost:
            return False
        self._carry_out(table, archived, epochs, plans)
        return True

    def _open(self, whose: Whose) -> ArchiveTable:
        if self.table is None or self.table.whose != whose:
            self.table = None
            self.table = ArchiveTable.open(self.archive.place, whose, self.archive.typed)
            self._told, self._since, self._whole = {}, {}, {}
            return self.table
        return self.table.refresh()

    def _check_tails(
        self,
        table: ArchiveTable,
        archived: Mapping[int, int | None],
        log: Mapping[int, Held],
        epochs: Mapping[int, int],
    ) -> None:
        """TailCut where a crash took back what is archived already. Retention waits for what the log holds there now."""
        new = {one: epoch for one, epoch in epochs.items() if self._whole.get(one) != epoch}
        doubts = in_doubt(archived, log, table.epochs(), new)
        if doubts:
            topic = self.archive.topic
            ends = self._client.epoch_ends({TopicPartition(topic, one): epoch for one, epoch in doubts.items()})
            for at, end in ends.items():
                try:
                    check_tail(topic, at.partition, archived[at.partition] or 0, end)
                except TailCut:
                    self._tell({at.partition: end})
                    raise
        self._whole |= new

    def _carry_out(
        self, table: ArchiveTable, archived: Mapping[int, int | None], epochs: Mapping[int, int], plans: Plan
    ) -> None:
        began = time.monotonic()
        ranges, lost = plans.ranges, plans.lost
        done = self._run(ranges)
        files = [file for one in done for file in one.files]
        self._check_seen(files)
        if not self._is_still_so(table, archived, epochs):
            return
        self._lose(table, [*lost, *(part for one in done for part in one.lost)])
        ends = {one.partition: one.end for one in lost} | {one.range.partition: one.range.end for one in done}
        moved = {partition: (archived[partition], end) for partition, end in ends.items()}
        table.note_epochs({one: epochs[one] for one in moved if one in epochs})
        try:
            table.append(files, moved)
        except Overtaken as reason:
            self._drop(str(reason))
            return
        self._tell({partition: to for partition, (_, to) in moved.items()})
        for partition in moved:
            self._since.pop(partition, None)
        self._count(files, time.monotonic() - began)
        self.progress.lag -= sum(one.end - one.start for one in ranges)

    def _is_still_so(self, table: ArchiveTable, archived: Mapping[int, int | None], epochs: Mapping[int, int]) -> bool:
        """What was read is of the topic the table is of, and what was missing has not been archived by somebody else before it went.

        And it was read under the leader epochs that are written down beside it.
        """
        topic = self.archive.topic
        info = self._client.topics([topic])[topic]
        if str(info.topic_id) != table.whose.topic_id:
            self._drop("the topic was deleted and made again")
            return False
        now = epochs_of(info)
        if any(now.get(one) != epoch for one, epoch in epochs.items()):
            self._drop("a partition has another leader, or was recovered after a crash")
            return False
        table.refresh()
        if any(table.next_offset(one) != offset for one, offset in archived.items()):
            self._drop("somebody else has archived meanwhile")
            return False
        return True

    def _drop(self, why: str) -> None:
        _log.warning("what was read is not archived", topic=self.archive.topic, reason=why)

    def _run(self, ranges: Sequence[Range]) -> list[Done]:
        if not ranges:
            return []
        jobs = [Job(self.archive.place, self.archive.typed, self._cluster, one) for one in ranges]
        context = self._spark.sparkContext
        return list(context.parallelize(jobs, len(jobs)).map(archive).collect())

    def _check_seen(self, files: Sequence[Written]) -> None:
        """An executor that does not share the place has written to a disk of its own."""
        if not files:
            return
        found = filesystem(self.archive.place).get_file_info([file.path for file in files])
        for file, info in zip(files, found, strict=True):
            if not info.is_file or info.size != file.size:
                raise missing(self.archive.place, file.path, f"though the executor {file.host} wrote it")

    def _lose(self, table: ArchiveTable, lost: Sequence[Range]) -> None:
        if not lost:
            return
        by_partition: dict[int, list[tuple[int, int]]] = {}
        for one in lost:
            by_partition.setdefault(one.partition, []).append((one.start, one.end))
            _log.error(
                "deleted before it was archived",
                topic=one.topic,
                partition=one.partition,
                first=one.start,
                last=one.end - 1,
            )
        table.note_lost(by_partition)
        self.progress.lost += lost

    def _tell(self, archived: Mapping[int, int | None]) -> None:
        """Commit how far partitions are archived, where the group does not say so yet."""
        now = time.monotonic()
        if now >= self._tell_again_at:
            self._told, self._tell_again_at = {}, now + _TELL_AGAIN_S
        new = {one: offset for one, offset in archived.items() if offset is not None and self._told.get(one) != offset}
        if new and self._is_the_topics():
            self._client.offset_commit(
                ARCHIVE_GROUP,
                {
                    TopicPartition(self.archive.topic, one): OffsetAndMetadata(offset, metadata=self.archive.place)
                    for one, offset in new.items()
                },
            )
        self._told |= new

    def _is_the_topics(self) -> bool:
        """Whether this is the archive that the topic's retention waits for. A copy that somebody keeps elsewhere says nothing to it."""
        return all(one.place == self.archive.place for one in archives(self._client, [self.archive.topic]))

    def _count(self, files: Sequence[Written], seconds: float) -> None:
        rows = sum(file.rows for file in files)
        progress = self.progress
        progress.rows += rows
        progress.bytes += sum(file.size for file in files)
        progress.files += len(files)
        progress.commits += 1
        progress.last_rows, progress.last_s = rows, seconds
