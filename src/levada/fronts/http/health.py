"""Is the broker well, and is it ready? One answer for each thing that can be wrong.

`/healthz` fails on what somebody has to look after; `/readyz` on what keeps it from serving now. A damaged partition is the
first and not the second: all others serve.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Final, NamedTuple

from levada.config import SECOND_MS, MiB
from levada.engine.embedded.partition import Partition
from levada.fronts.http.sources import Sources

#: With less room than this the next segment may not find any.
ROOM_BYTES_MIN: Final = MiB
#: For so long a refused write tells of a full disk (or of a quota, which the room does not tell of).
REFUSED_MS: Final = 10 * SECOND_MS
#: So many partitions are named; the others are counted.
_NAMED_MAX: Final = 10


class Check(NamedTuple):
    """One thing that can be wrong. `why` is empty while it is not."""

    name: str
    why: str = ""
    #: Does it fail /healthz, and /readyz?
    unwell: bool = False
    unready: bool = False


def checks(sources: Sources, free_bytes: int) -> list[Check]:
    """All that is looked at, given the room on the disk."""
    partitions = sources.engine.open_partitions()
    damaged = [f"{each.at}: {each.damage}" for each in partitions if each.damage is not None]
    unsynced = [str(each.sync_error) for each in partitions if each.sync_error is not None]
    return [
        Check("damaged", _named(damaged), unwell=True),
        Check("disk_full", _full(partitions, free_bytes, sources.engine.now_ms()), unwell=True, unready=True),
        Check("sync_failed", _named(unsynced), unwell=True, unready=True),
        Check("closing", "the broker is closing" if sources.is_closing() else "", unready=True),
        Check("recovering", _recovering(sources), unready=True),
    ]


def free_bytes(sources: Sources) -> int:
    """Room on the disk; asks the file system, so in a worker thread."""
    return shutil.disk_usage(sources.engine.config.data).free


def _full(partitions: Sequence[Partition], free: int, now_ms: int) -> str:
    if free < ROOM_BYTES_MIN:
        return f"{free} bytes are free on the disk{_waiting(partitions)}"
    refused = [str(each.at) for each in partitions if each.full_ms and now_ms - each.full_ms < REFUSED_MS]
    if not refused:
        return ""
    return f"a moment ago there was no room for a write to {_named(refused)}{_waiting(partitions)}"


def _waiting(partitions: Sequence[Partition]) -> str:
    """An archiver that is down fills the disk: then it is what somebody has to look after."""
    waiting = sum(each.shrinker.waiting_bytes for each in partitions)
    return f"; {waiting} bytes could go if they were archived" if waiting else ""


def _recovering(sources: Sources) -> str:
    left = sources.engine.unrecovered
    return f"{left} partitions are still checked after the last stop, which was not clean" if left else ""


def _named(whys: Sequence[str]) -> str:
    more = len(whys) - _NAMED_MAX
    return "; ".join(whys[:_NAMED_MAX]) + (f"; and {more} more" if more > 0 else "")
