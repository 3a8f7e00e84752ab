"""Where keys lie, and where their router puts them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from levada.spark.jobs.audit.figures import Key, Keys
from levada.spark.jobs.routing import home, homes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: So many keys of each kind are told by name: those with the most records.
_EXAMPLES: Final = 10


def keys(counted: DataFrame, router: str, partitions: int) -> Keys:
    """Out of key, partition and records, of which a key may have several rows. One row for each key is all that is routed."""
    by_key = counted.groupBy("key").agg(
        f.sum("records").alias("records"), f.min("partition").alias("lowest"), f.max("partition").alias("highest")
    )

    def summarised(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            told = json.dumps(_summary(batch, router, partitions))
            yield pa.RecordBatch.from_arrays([pa.array([told])], names=["told"])

    rows = by_key.mapInArrow(summarised, "told STRING").collect()
    found = merged(json.loads(row[0]) for row in rows)
    return _exact(found, counted, router, partitions) if found.split else found


def _summary(batch: pa.RecordBatch, router: str, partitions: int) -> dict[str, Any]:
    """Of some keys, each once. A key in one partition is right or wrong as a whole."""
    table = pa.table(batch).append_column("home", homes(batch.column(0), router, partitions))
    apart = pc.not_equal(table["lowest"], table["highest"])
    away = pc.and_(pc.invert(apart), pc.fill_null(pc.not_equal(table["lowest"], table["home"]), False))
    split, misplaced = table.filter(apart), table.filter(away)
    return {
        "distinct": table.num_rows,
        "split": split.num_rows,
        "split_records": pc.sum(split["records"]).as_py() or 0,
        "misplaced": misplaced.num_rows,
        "misplaced_records": pc.sum(misplaced["records"]).as_py() or 0,
        "largest": _most(table),
        "split_examples": _most(split),
        "misplaced_examples": _most(misplaced),
    }


def _most(table: pa.Table) -> list[list[Any]]:
    if not table.num_rows:
        return []
    chosen = table.take(pc.select_k_unstable(table, _EXAMPLES, [("records", "descending")]))
    return [
        [row["key"].hex(), row["records"], row["lowest"], row["highest"], row["home"]] for row in chosen.to_pylist()
    ]


def merged(parts: Iterable[Mapping[str, Any]]) -> Keys:
    """Several summaries, of different keys, as one."""
    counts: dict[str, Any] = dict.fromkeys(("distinct", "split", "split_records", "misplaced", "misplaced_records"), 0)
    named: dict[str, Any] = {"largest": [], "split_examples": [], "misplaced_examples": []}
    for part in parts:
        counts = {name: count + part[name] for name, count in counts.items()}
        for name, held in named.items():
            held += [Key(bytes.fromhex(key), *rest) for key, *rest in part[name]]
    most: dict[str, Any] = {
        name: sorted(held, key=lambda one: (-one.records, one.key))[:_EXAMPLES] for name, held in named.items()
    }
    return Keys(**counts, **most)


def _exact(found: Keys, counted: DataFrame, router: str, partitions: int) -> Keys:
    """Some keys lie in several partitions: which of their records are in the wrong one is counted for itself."""
    apart = counted.groupBy("key").agg((f.min("partition") != f.max("partition")).alias("apart")).where("apart")
    placed = apart.select("key", home(router, partitions).alias("home"))
    away = counted.join(placed, "key").where(f.col("partition") != f.col("home"))
    more, records = away.agg(f.count_distinct("key"), f.sum("records")).collect()[0]
    return found._replace(misplaced=found.misplaced + more, misplaced_records=found.misplaced_records + (records or 0))
