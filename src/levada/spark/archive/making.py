"""How a table comes to be, and how one that is there is found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from levada.spark.archive.layout import TOPIC_ID, TOPIC_NAME, table_schema
from levada.spark.archive.place import ArchiveError, local_path, settle, sync
from levada.spark.archive.trial import check_exclusive
from levada.spark.archive.vacancy import Occupied, check_vacant
from levada.spark.archive.wanted import Typed

if TYPE_CHECKING:
    from levada.spark.archive.table import Whose

_SETTINGS: Final[Mapping[str, str]] = {"delta.checkpointInterval": "100"}


def found(place: str) -> DeltaTable | None:
    """The Delta table at this place, if there is one. ArchiveError where it cannot be read."""
    try:
        return DeltaTable(place)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as reason:
        path = local_path(place)
        if path is not None and not (path / "_delta_log").exists():
            return None
        raise ArchiveError(f"the archive {place} cannot be read: {reason}") from reason


def created(place: str, whose: Whose, typed: Typed) -> DeltaTable:
    """A new table, durably; the one that somebody else has made this moment. Occupied, NotExclusive, ArchiveError."""
    path = local_path(place)
    try:
        check_vacant(place)
        check_exclusive(place)
        if path is not None:
            path.mkdir(parents=True, exist_ok=True)
        DeltaTable.create(
            place,
            table_schema(typed),
            mode="ignore",
            partition_by=["partition"],
            name=whose.topic,
            description=f"Every record of topic {whose.topic}",
            configuration={**_SETTINGS, TOPIC_NAME: whose.topic, TOPIC_ID: whose.topic_id},
            raise_if_key_not_exists=False,
        )
    except Occupied:
        table = found(place)  # unless somebody else has made it this moment
        if table is None:
            raise
        return table
    except (DeltaError, OSError) as reason:
        raise ArchiveError(f"the archive {place} cannot be made: {reason}") from reason
    if path is not None:
        for each in (path / "_delta_log", path, path.parent):
            sync(each)
    settle(place, f"_delta_log/{0:020d}.json")
    return DeltaTable(place)
