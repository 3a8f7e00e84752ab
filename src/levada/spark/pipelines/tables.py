"""A Delta table that micro-batches are appended to, each once.

Executors write parquet files under names of their own; the driver commits those of the tasks that Spark counts, in one entry of
the Delta log together with a `txn` (sink and epoch, batch). What a failed try has left lies beside the table and is no part of
it; a batch whose `txn` is there already is not written again. A second `txn` has the same number under the name of the checkpoint
that counted it: two that run under one name, of two clusters or homes, do not take each other's batches for their own.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from levada.spark.archive.place import make_directory, settle
from levada.spark.pipelines.checkpoint import what_to_do
from levada.spark.pipelines.errors import WrongCheckpoint, WrongTable
from levada.spark.pipelines.files import WRITTEN, WriteFiles
from levada.spark.pipelines.table_schema import added, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame


def evaluate(frame: DataFrame) -> None:
    """Have all rows made, and thrown away: Spark keeps the state of a micro-batch only when all of it was asked for."""
    frame.write.format("noop").mode("append").save()


class Table:
    """One sink's view of a table, which the first `append` makes, also of no rows: who looks finds it empty, not missing."""

    def __init__(
        self, uri: str, sink_id: str, epoch: int = 0, partition_by: Sequence[str] = (), owner: str = ""
    ) -> None:
        """`owner`: the checkpoint that counts the batches, where there is one."""
        self.uri = uri
        self.sink_id = sink_id
        self.partition_by = tuple(partition_by)
        #: Whose batches a `txn` counts.
        self.app_id = sink_id if epoch == 0 else f"{sink_id}#{epoch}"
        self._own_id = f"{self.app_id}@{owner}" if owner else self.app_id
        self._table: DeltaTable | None = None

    def last_batch(self) -> int | None:
        """The newest batch the table has of this sink and epoch."""
        table = self._opened()
        return None if table is None else table.transaction_version(self.app_id)

    def append(self, frame: DataFrame, batch: int) -> None:
        """The rows of a batch, once, and durable. All of the frame is evaluated. WrongTable, WrongCheckpoint, NotExclusive: nothing has been
        written."""
        table = self._opened()
        if table is not None and self._has(table, batch):
            # Who has written it may have died before it was durable.
            self._settle(-1)
            evaluate(frame)
            return
        schema = arrow_schema(frame.schema, self.partition_by)
        self._fitting(table, schema)
        if table is None:
            from levada.spark.archive.trial import check_exclusive

            check_exclusive(self.uri)
        make_directory(self.uri, "")
        task = WriteFiles(self.uri, schema, self.partition_by, batch)
        written = [row.asDict() for row in frame.mapInArrow(task, WRITTEN).collect()]
        if written or table is None:
            self._commit(table, schema, written, batch)

    def _has(self, table: DeltaTable, batch: int) -> bool:
        """Whether the table has this batch. WrongCheckpoint where it has a later one, or another checkpoint's."""
        last = table.transaction_version(self.app_id)
        if last is None:
            return False
        if table.transaction_version(self._own_id) != last:
            raise WrongCheckpoint(
                f"lake {self.uri} has batches up to {last} of {self.sink_id} that another checkpoint has counted: a pipeline of "
                "this name has another --home or another cluster; give one of them another name"
            )
        if batch < last:
            raise WrongCheckpoint(
                f"lake {self.uri} has batch {last} of {self.sink_id} and is given batch {batch}: the checkpoint is gone or "
                f"older than the table; bring it back, or: {what_to_do(self.sink_id.partition('/')[0])}"
            )
        return batch == last

    def _opened(self) -> DeltaTable | None:
        """As it is now; None where there is none yet."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        if self._table is not None:
            self._table.update_incremental()
        else:
            try:
                self._table = DeltaTable(self.uri)
            except TableNotFoundError:
                return None
        return self._table

    def _fitting(self, table: DeltaTable | None, schema: pa.Schema) -> list[pa.Field]:
        """The columns that the table lacks. WrongTable."""
        if table is None:
            return []
        partitions = tuple(table.metadata().partition_columns)
        if partitions != self.partition_by:
            raise WrongTable(
                f"lake {self.uri} is partitioned by {', '.join(partitions) or 'nothing'}, and the pipeline says "
                f"{', '.join(self.partition_by) or 'nothing'}; this cannot change"
            )
        return added(_schema(table.schema().to_arrow()), schema, self.uri)

    def _commit(
        self, table: DeltaTable | None, schema: pa.Schema, written: Sequence[dict[str, Any]], batch: int
    ) -> None:
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction, create_table_with_add_actions

        now_ms = round(time.time() * 1000)
        actions: list[Any] = [
            AddAction(one["path"], one["size"], json.loads(one["partition"]), now_ms, True, one["stats"])
            for one in written
        ]
        by = list(self.partition_by)
        counted = [Transaction(name, batch) for name in dict.fromkeys((self.app_id, self._own_id))]
        properties = CommitProperties(app_transactions=counted)
        before = -1 if table is None else table.version()
        if table is None:
            try:
                create_table_with_add_actions(
                    self.uri,
                    Schema.from_arrow(schema),
                    actions,
                    mode="error",
                    partition_by=by,
                    commit_properties=properties,
                )
            except DeltaError:
                table = self._opened()
                if table is None:
                    raise
                # Somebody else has made it meanwhile.
        if table is not None and not self._has(table, batch):
            if more := self._fitting(table, schema):
                table.alter.add_columns(list(Schema.from_arrow(_schema(more)).fields))
            # delta-rs finds a `txn` twice only in what is newer than the table as we know it, and by now we may know more.
            if not more or not self._has(table, batch):
                table.create_write_transaction(actions, "append", schema, by, commit_properties=properties)
        self._settle(before)

    def _settle(self, before: int) -> None:
        """What was committed after this version is on disk: only then may Spark take the batch for written."""
        table = self._opened()
        for version in range(before + 1, 0 if table is None else table.version() + 1):
            with contextlib.suppress(FileNotFoundError):  # old entries make way for checkpoints
                settle(self.uri, f"_delta_log/{version:020d}.json")
        if before < 0:
            settle(self.uri, "_delta_log")


def _schema(fields: Any) -> pa.Schema:
    """Of fields, or of another library's schema."""
    import pyarrow as pa

    return pa.schema(fields)
