"""Where a table may be made: a place with nothing in it, neither below nor above another table. Nobody's files come under an archive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from levada.spark.archive.place import ArchiveError, filesystem, local_path
from levada.spark.archive.trial import TRIAL

LOG: Final = "_delta_log"


class Occupied(ArchiveError):
    """The place holds something already, or lies within another table."""


def check_vacant(place: str) -> None:
    """Occupied, unless nothing is here but what a table's making or a trial may have left. OSError and DeltaError where it cannot be looked at."""
    there = sorted(name for name in _entries(place) if name not in (LOG, TRIAL))
    if there:
        raise Occupied(
            f"{place} is not empty and holds no archive: {there[0]} is there"
            f"{f', and {len(there) - 1} more' if len(there) > 1 else ''}. Give levada.archive a place of its own"
        )
    for above in _above(place):
        if _holds_table(above):
            raise Occupied(
                f"{place} lies within {above}, which is a Delta table. Give levada.archive a place outside of it"
            )


def _entries(place: str) -> list[str]:
    path = local_path(place)
    if path is not None:
        return [one.name for one in path.iterdir()] if path.exists() else []
    from pyarrow import fs

    try:
        return [one.base_name for one in filesystem(place).get_file_info(fs.FileSelector("", allow_not_found=True))]
    except TableNotFoundError:
        return []


def _above(place: str) -> Iterator[str]:
    """The directories it lies in, the nearest first; in an object store, up to its bucket."""
    path = local_path(place)
    if path is not None:
        yield from map(str, path.resolve().parents)
        return
    store, _, rest = place.partition("://")
    parts = rest.strip("/").split("/")
    for count in range(len(parts) - 1, 0, -1):
        yield f"{store}://{'/'.join(parts[:count])}"


def _holds_table(place: str) -> bool:
    """False, too, where it may not be looked at: whoever keeps us out keeps nothing there that we could touch."""
    path = local_path(place)
    with suppress(DeltaError, OSError):
        return DeltaTable.is_deltatable(place) if path is None else (path / LOG).is_dir()
    return False
