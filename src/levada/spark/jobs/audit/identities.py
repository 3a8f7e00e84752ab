"""Records that have an earlier one of the same identity, which is told by 128 bits of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from levada.spark.jobs.audit.figures import Copies, Duplicates
from levada.spark.jobs.audit.parcels import Ints

#: So many identities are told, those with the most records.
_EXAMPLES: Final = 10


def summary(identities: Ints, window_ms: int | None) -> dict[str, Any]:
    """Out of hash, hash, offset, time and partition: all records of some identities. For JSON. Of `window_ms`, see `Duplicates`."""
    if not identities.shape[1]:
        return {}
    found: dict[str, Any] = {"told": identities.shape[1], "identities": 0, "repeats": 0, "within_window": 0}
    held = _alike(identities)
    one, other, offsets, _, partitions = held
    begins = np.flatnonzero(np.concatenate(([True], (one[1:] != one[:-1]) | (other[1:] != other[:-1]))))
    counts = np.diff(np.append(begins, len(one)))
    several = counts > 1
    if not several.any():
        return found
    found |= {"identities": int(several.sum()), "repeats": int((counts - 1).sum())}
    if window_ms is not None:
        found["within_window"] = _near(held, window_ms)
    most = np.argsort(-counts, kind="stable")[:_EXAMPLES]
    examples = []
    for at in most[several[most]].tolist():
        first, last = int(begins[at]), int(begins[at] + counts[at] - 1)
        places = [[int(partitions[row]), int(offsets[row])] for row in (first, last)]
        examples.append([int(counts[at]), *places])
    return {**found, "examples": examples}


def _near(held: Ints, window_ms: int) -> int:
    """How many come so soon after the copy before them."""
    one, other, times = held[:, np.lexsort((held[3], held[1], held[0]))][[0, 1, 3]]
    same = (one[1:] == one[:-1]) & (other[1:] == other[:-1])
    return int((same & (np.diff(times) <= window_ms)).sum())


def _alike(identities: Ints) -> Ints:
    """Only those whose first hash another one has too, sorted: most often there are few, and the others need no second look."""
    order = np.argsort(identities[0])
    same = identities[0][order][1:] == identities[0][order][:-1]
    chosen = order[np.concatenate((same, [False])) | np.concatenate(([False], same))]
    few = identities[:, chosen]
    return few[:, np.lexsort((few[2], few[4], few[1], few[0]))]


def merged(what: str, parts: Iterable[Mapping[str, Any]]) -> Duplicates:
    """Several summaries, of different identities, as one."""
    counts: dict[str, Any] = dict.fromkeys(("told", "identities", "repeats", "within_window"), 0)
    examples: list[Copies] = []
    for part in parts:
        counts = {name: count + part.get(name, 0) for name, count in counts.items()}
        examples += [Copies(records, tuple(first), tuple(last)) for records, first, last in part.get("examples", ())]
    most = sorted(examples, key=lambda one: (-one.records, one.first))[:_EXAMPLES]
    return Duplicates(what, **counts, examples=most)
