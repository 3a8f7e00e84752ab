"""Why there is no record at an offset: the batches of the log tell, which a consumer never sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from levada.records.batch import CONTROL
from levada.spark.fetch import Fetched
from levada.spark.jobs.audit.figures import ABORTED, BETWEEN, EMPTIED, MARKERS, WITHIN, Hole

if TYPE_CHECKING:
    import numpy as np

    Ints = np.ndarray[Any, np.dtype[np.int64]]

#: Of each kind, in each piece, so many are told by their offsets.
EXAMPLES: Final = 3


class Found(NamedTuple):
    """What was found in one piece of a partition: how many offsets of each kind, and some of them."""

    partition: int
    counts: dict[str, int]
    examples: list[Hole]


def holes(piece: Fetched, visible: Ints) -> Found:
    """Out of whole batches, and the offsets at which a consumer sees a record, in order."""
    import numpy as np

    from levada.spark.columns.batches import ATTRIBUTES, BASE, COUNT, LAST, batch_table

    table = batch_table(np.frombuffer(piece.data, np.uint8))
    first = np.maximum(table[:, BASE], piece.from_offset)
    end = np.maximum(first, np.minimum(table[:, LAST] + 1, piece.to_offset))
    seen = np.searchsorted(visible, end) - np.searchsorted(visible, first)
    missing = end - first - seen
    control = table[:, ATTRIBUTES] & CONTROL != 0
    unseen = (seen == 0) & ~control & (missing > 0)
    kinds = {
        MARKERS: control,
        EMPTIED: unseen & (table[:, COUNT] == 0),
        ABORTED: unseen & (table[:, COUNT] > 0),
        WITHIN: ~control & ~unseen,
    }
    counts = {kind: int(missing[rows].sum()) for kind, rows in kinds.items()}
    found = Found(piece.partition, counts, [])
    for kind, rows in kinds.items():
        for row in np.flatnonzero(rows & (missing > 0))[:EXAMPLES].tolist():
            found.examples.append(_hole(kind, piece.partition, int(first[row]), int(end[row]), visible))
    _between(found, piece, first, end)
    return found


def _hole(kind: str, partition: int, first: int, end: int, visible: Ints) -> Hole:
    """The first stretch in these offsets that is not visible."""
    import numpy as np

    here = visible[np.searchsorted(visible, first) : np.searchsorted(visible, end)]
    edges = np.concatenate(([first - 1], here, [end]))
    at = int(np.flatnonzero(np.diff(edges) > 1)[0])
    return Hole(kind, partition, int(edges[at]) + 1, int(edges[at + 1]))


def _between(found: Found, piece: Fetched, first: Ints, end: Ints) -> None:
    """Offsets that no batch holds. Batches are in order, so the end of each and the beginning of the next have them between them."""
    import numpy as np

    begins = np.concatenate(([piece.from_offset], end))
    ends = np.concatenate((first, [piece.to_offset]))
    gaps = np.maximum(ends - begins, 0)
    found.counts[BETWEEN] = int(gaps.sum())
    for at in np.flatnonzero(gaps)[:EXAMPLES].tolist():
        found.examples.append(Hole(BETWEEN, piece.partition, int(begins[at]), int(ends[at])))
