"""Where keys lie, and where their router puts them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from levada.spark.jobs.audit.figures import Key, Keys
from levada.spark.jobs.routing import homes

#: So many keys of each kind are told by name: those with the most records.
_EXAMPLES: Final = 10


def summary(counted: pa.Table, router: str, partitions: int) -> dict[str, Any]:
    """Out of key, records and partition: all rows of some keys, of which each may have several. For JSON."""
    if not counted.num_rows:
        return {}
    by_key = counted.group_by("key").aggregate([("records", "sum"), ("partition", "min"), ("partition", "max")])
    table = by_key.rename_columns(["key", "records", "lowest", "highest"])
    table = table.append_column("home", _homes(table, router, partitions))
    away = counted.filter(pc.not_equal(counted["partition"], _homes(counted, router, partitions)))
    astray = away.group_by("key").aggregate([("records", "sum")])
    split = table.filter(pc.not_equal(table["lowest"], table["highest"]))
    misplaced = (
        table.join(astray.select(["key"]), "key", join_type="left semi") if astray.num_rows else table.slice(0, 0)
    )
    return {
        "distinct": table.num_rows,
        "split": split.num_rows,
        "split_records": pc.sum(split["records"]).as_py() or 0,
        "misplaced": astray.num_rows,
        "misplaced_records": pc.sum(away["records"]).as_py() or 0,
        "largest": _most(table),
        "split_examples": _most(split),
        "misplaced_examples": _most(misplaced),
    }


def _homes(table: pa.Table, router: str, partitions: int) -> pa.Array:
    return homes(table["key"].combine_chunks(), router, partitions)


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
    named: dict[str, list[Key]] = {"largest": [], "split_examples": [], "misplaced_examples": []}
    for part in parts:
        counts = {name: count + part.get(name, 0) for name, count in counts.items()}
        for name, held in named.items():
            held += [Key(bytes.fromhex(key), *rest) for key, *rest in part.get(name, ())]
    most: dict[str, Any] = {
        name: sorted(held, key=lambda one: (-one.records, one.key))[:_EXAMPLES] for name, held in named.items()
    }
    return Keys(**counts, **most)
