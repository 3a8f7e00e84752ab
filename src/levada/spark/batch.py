"""A batch: what the topics hold between two positions, as they are when it is planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from levada.spark.fetch import Range
from levada.spark.history import history_of
from levada.spark.losses import Lost, below, tell
from levada.spark.offsets import Logs
from levada.spark.options.positions import At, Offsets
from levada.spark.options.reading import WrongOption
from levada.spark.slices import Slice, rows_of
from levada.spark.split import split
from levada.spark.subscription import all_found
from levada.wire.answers import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from levada.spark.options.source import SourceOptions

_STARTING: Final = At("startingOffsets", "earliest")
_ENDING: Final = At("endingOffsets", "latest")


class BatchReader(DataSourceReader):
    """Planned on the driver, read by the executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The slices, one for each task. WrongOption, DataLost, ClientError: no task has run."""
        options = self._options
        with closing(options.cluster.client()) as client:
            client.connect()
            there = all_found(client, options.topics)
            history = history_of(client, there.ids, options.history)
            logs = Logs(client, there.partitions, history, read_committed=options.read_committed)
            ends = logs.resolve(options.ending or _ENDING, options.group)
            starts = logs.resolve(options.starting or _STARTING, options.group)
        self._check_order(starts, ends)
        lost: list[Lost] = []
        ranges = []
        for at, start in starts.items():
            log_start = logs.bounds[at].start
            held = history.held(at, up_to=log_start) if start < log_start else None
            lost += below(at, start, ends[at], log_start, held)
            ranges.append(Range(at.topic, at.partition, start, ends[at]))
        tell(lost, fail=options.fail_on_data_loss)
        parts = split(ranges, parts_min=options.partitions_min, offsets_max=options.task_offsets_max)
        return [Slice(part, history) for part in parts]

    def _check_order(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """Refuse a beginning behind the end where both were said in numbers."""
        starting, ending = self._options.starting, self._options.ending
        if isinstance(starting, Offsets) and isinstance(ending, Offsets):
            for at, start in starts.items():
                if start > ends[at]:
                    raise WrongOption(starting.option, f"{at}: {start}", f"at most its end is, which is {ends[at]}")

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        if isinstance(partition, Slice):  # Spark makes an empty one of its own where there are none
            yield from rows_of(partition, self._options)
