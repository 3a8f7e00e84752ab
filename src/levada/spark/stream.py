"""A stream: batch after batch, each between two offsets that Spark keeps in the checkpoint.

One process of the driver's asks for offsets and plans batches (everything here but `read`), and keeps one connection for it; it is
ended by closing it down, `stop` is not called. Executors read, knowing nothing but their slice.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from levada.errors import LevadaError
from levada.spark.admission import Limits, admitted
from levada.spark.fetch import Range
from levada.spark.following import Following, first, follow, gone
from levada.spark.history import History, history_of
from levada.spark.losses import GONE, REPLACED, Lost, log, tell
from levada.spark.notes import name_of, take
from levada.spark.offsets import Bounds, Logs
from levada.spark.options.positions import At
from levada.spark.options.topics import SubscribePattern
from levada.spark.slices import Slice, rows_of
from levada.spark.split import split
from levada.spark.stream_offset import INITIAL, StreamOffset, ranges
from levada.spark.subscription import Found, all_found, found
from levada.wire.answers import TopicPartition
from levada.wire.blocking import BlockingClient

if TYPE_CHECKING:
    import pyarrow

    from levada.spark.options.source import SourceOptions

_STARTING: Final = At("startingOffsets", "latest")
#: A new leader may not know for a moment how far it can be read, or a broker which topics there are: so long is that not believed.
_SETTLE_S: Final = 3.0
_HISTORY_S: Final = 60.0
_STORE_TIMEOUT_MS: Final = 5_000


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Planned on the driver, read by the executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client: BlockingClient | None = None
        #: With availableNow: where the query ends.
        self._target: Mapping[TopicPartition, int] | None = None
        self._last_batch_s: float | None = None
        #: What the group's offsets were last set to.
        self._stored: Mapping[TopicPartition, int] = {}
        self._ends: Mapping[TopicPartition, int] = {}
        #: Of which topics and ids, until when it is believed, and what it is.
        self._history: tuple[Mapping[str, str], float, History] | None = None
        #: Of the last batch that was planned.
        self._slices: list[Slice] = []
        self._run = uuid4().hex
        #: The offset that was made last.
        self._made: dict[str, Any] = {}

    def __reduce__(self) -> Any:
        return StreamReader, (self._options,)  # executors read, and need nothing else

    # Offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return dict(INITIAL)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.offsets_max is not None:
            return ReadMaxRows(self._options.offsets_max)
        if self._options.offsets_min is not None:
            return ReadMinRows(self._options.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        there = self._found(first=False)
        bounds = self._logs(there, {}, self._history_of(there.ids)).bounds
        self._target = {at: one.end for at, one in bounds.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; `start` itself where there is none yet. WrongOption, DataLost, ClientError."""
        before = StreamOffset.of_json(start)
        there = self._found(first=before is None)
        history = self._history_of(there.ids)
        logs = self._logs(there, before.to if before else {}, history)
        if before is not None:
            self._store(before, there)
        ids, missed = there.ids, dict[TopicPartition, int]()
        if before is None:
            # Goes into the first batch's end, and is never asked for again once Spark has logged that.
            begins = logs.resolve(self._options.starting or _STARTING, self._options.group)
            following = first(begins, logs.bounds, history)
        else:
            following = follow(before, self._options.topics, there, logs.bounds, history)
            missed = gone(before, there)
            ids = {**{at.topic: before.ids[at.topic] for at in missed}, **ids}
        to = self._admitted(following, logs.bounds, limit)
        tell(following.lost, fail=self._options.fail_on_data_loss)
        lost = (*self._lost_by_tasks(logs.bounds), *following.lost)
        offset = StreamOffset(to, following.moved, ids, lost, missed)
        if before is not None and offset == before._replace(begins={}, lost=(), ids=ids):
            return start
        self._last_batch_s = time.monotonic()
        self._made = offset.to_json()
        return self._made

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the partitions as they were last asked for: with a batch's end, its lag."""
        return StreamOffset(self._ends, {}, {}).to_json() if self._ends else None

    def _admitted(
        self, following: Following, bounds: Mapping[TopicPartition, Bounds], limit: ReadLimit
    ) -> dict[TopicPartition, int]:
        ends = {at: max(begin, bounds[at].end) for at, begin in following.begins.items()}
        self._ends = ends
        if self._target is not None:
            ends = {at: min(end, max(self._target.get(at, 0), following.begins[at])) for at, end in ends.items()}
        since = None if self._last_batch_s is None else (time.monotonic() - self._last_batch_s) * 1000
        return admitted(following.begins, ends, self._limits(limit), since)

    def _limits(self, limit: ReadLimit) -> Limits:
        # With availableNow nothing more comes that could be waited for.
        least = self._options.offsets_min if self._target is None else None
        match limit:
            case ReadMaxRows(rows):
                return Limits(rows, least, self._options.delay_ms_max)
            case ReadMinRows(_):
                return Limits(None, least, self._options.delay_ms_max)
        return Limits()

    # Batches

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The slices of the batch between these offsets. StreamError, DataLost."""
        stop = StreamOffset.of_json(end)
        if stop is None:
            return []
        wanted = ranges(StreamOffset.of_json(start), stop)
        if end != self._made:
            wanted = self._still_there(wanted, stop)
        # Not of those that are gone: it cannot be asked where their archives are.
        history = self._history_of({at.topic: stop.ids[at.topic] for at in stop.to if at.topic in stop.ids})
        parts = split(wanted, parts_min=self._options.partitions_min, offsets_max=self._options.task_offsets_max)
        self._slices = [Slice(part, history, self._note(part)) for part in parts]
        return list(self._slices)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        if isinstance(partition, Slice):
            yield from rows_of(partition, self._options)

    def _note(self, part: Range) -> str | None:
        if self._options.fail_on_data_loss:
            return None
        return name_of(self._run, TopicPartition(part.topic, part.partition), part.start)

    def _lost_by_tasks(self, bounds: Mapping[TopicPartition, Bounds]) -> list[Lost]:
        """What the batch that is done did not find any more."""
        slices, self._slices = self._slices, []
        lost: list[Lost] = []
        for one in slices:
            if one.note is not None and (one.at not in bounds or one.range.start < bounds[one.at].start):
                lost += take(self._connected(), one.note, one.at)
        return lost

    def _still_there(self, wanted: list[Range], end: StreamOffset) -> list[Range]:
        """What can be read of a batch that an earlier run planned: of a topic made again, the same offsets mean something else."""
        known = {one.topic: end.ids[one.topic] for one in wanted if one.topic in end.ids}
        ids = self._ids_now(known)
        others = {topic: ids.get(topic) for topic, one in known.items() if ids.get(topic) != one}
        lost = [Lost(*one[:4], REPLACED if others[one.topic] else GONE) for one in wanted if one.topic in others]
        tell(lost, fail=self._options.fail_on_data_loss)
        return [one for one in wanted if one.topic not in others]

    def _ids_now(self, topics: Collection[str]) -> Mapping[str, str]:
        """The ids that topics have now. What a batch leaves out is never read: one that is not seen is waited for, for a moment."""
        deadline = time.monotonic() + _SETTLE_S
        while True:
            ids = found(self._connected(), self._options.topics).ids
            if all(topic in ids for topic in topics) or time.monotonic() > deadline:
                return ids
            time.sleep(0.1)

    # The cluster

    def _connected(self) -> BlockingClient:
        """The client. A cluster that cannot be reached at first is an error at once; later it is waited for."""
        if self._client is None:
            self._client = self._options.cluster.client().connect()
        return self._client

    def _found(self, *, first: bool) -> Found:
        wanted = self._options.topics
        if first and not isinstance(wanted, SubscribePattern):  # a topic to match may be made later
            return all_found(self._connected(), wanted)
        return found(self._connected(), wanted)

    def _history_of(self, topics: Mapping[str, str]) -> History:
        """What is kept of these topics, by their ids; looked for now and then only, since an archive is not begun every day."""
        now = time.monotonic()
        if self._history is None or self._history[0] != topics or now > self._history[1]:
            self._history = topics, now + _HISTORY_S, history_of(self._connected(), topics, self._options.history)
        return self._history[2]

    def _logs(self, there: Found, read: Mapping[TopicPartition, int], history: History) -> Logs:
        deadline = time.monotonic() + _SETTLE_S
        while True:
            logs = Logs(self._connected(), there.partitions, history, read_committed=self._options.read_committed)
            if all(read.get(at, 0) <= bounds.end for at, bounds in logs.bounds.items()) or time.monotonic() > deadline:
                return logs
            time.sleep(0.1)

    def _store(self, before: StreamOffset, there: Found) -> None:
        """Commit the group's offsets. Its batch is done: Spark goes on from here. That it fails is said, and no more."""
        group = self._options.group
        offsets = {at: offset for at, offset in before.to.items() if at in there.partitions}
        if group is None or not offsets or offsets == self._stored:
            return
        try:
            self._connected().offset_commit(group, offsets, timeout_ms=_STORE_TIMEOUT_MS)
            self._stored = offsets
        except LevadaError as error:
            log.warning("the offsets of group %s were not committed: %s", group, error)

    def stop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
