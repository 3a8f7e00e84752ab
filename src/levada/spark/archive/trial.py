"""Whether a store keeps commits apart: of two writers that make the same entry of a table's log, only one may.

A file system does. An object store does where it refuses to put an object that is there (S3's `If-None-Match: *`); one that takes no notice of
that lets the second writer replace what the first has committed, and tells both that all is well. No answer of such a store says
so: two writers that begin at the same moment show it.
"""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from levada.spark.archive.place import ArchiveError, filesystem, local_path

#: Under the place, for as long as it is tried.
TRIAL: Final = "_levada_trial"
#: A writer looks for others before it writes. Whoever sees the other in time learns nothing, so it is tried more than once.
_ROUNDS: Final = 5
_SCHEMA: Final = pa.schema([("nothing", pa.int32())])


class NotExclusive(ArchiveError):
    """The store lets one commit replace another."""


def check_exclusive(place: str) -> None:
    """NotExclusive, unless of two commits at the same time one fails. What was tried is removed again. DeltaError, OSError."""
    if local_path(place) is not None:
        return
    name = f"{TRIAL}/{uuid.uuid4().hex}"
    trial = f"{place.rstrip('/')}/{name}"
    try:
        DeltaTable.create(trial, _SCHEMA)
        if not all(_one_wins(trial) for _ in range(_ROUNDS)):
            raise NotExclusive(
                f"{place}: this store lets one commit replace another, so what is written could be lost. It has to honour "
                "If-None-Match when an object is put, as Amazon S3 does; or give levada another place"
            )
    finally:
        with suppress(DeltaError, OSError):
            filesystem(place).delete_dir(name)


def _one_wins(trial: str) -> bool:
    """Whether of two that commit the next version at most one is told that it did."""
    tables = [DeltaTable(trial) for _ in range(2)]
    together = threading.Barrier(len(tables))

    def commits(table: DeltaTable) -> bool:
        together.wait()
        try:
            table.create_write_transaction(
                [], "append", table.schema(), commit_properties=CommitProperties(max_commit_retries=0)
            )
        except CommitFailedError:
            return False
        return True

    with ThreadPoolExecutor(len(tables)) as pool:
        return sum(pool.map(commits, tables)) <= 1
