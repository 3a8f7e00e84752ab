"""The Delta table of an archive: whose history it is, how far that goes, which files hold it, and how that changes.

A change is a commit that is only made if the table is still as it was looked at; where somebody else was faster, what he did is
looked at first. So of two archivers that wrote the same offsets only one is heard, whoever they are and whenever they crashed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from levada.spark.archive.files import Archived, files_of
from levada.spark.archive.layout import (
    EPOCHS,
    LOST,
    TOPIC_ID,
    TOPIC_NAME,
    Written,
    app_id,
    is_own,
    stats,
    table_schema,
)
from levada.spark.archive.making import created, found
from levada.spark.archive.place import ArchiveError, filesystem, settle
from levada.spark.archive.wanted import Typed

#: Others commit at the same time now and then, and never for long.
_TRIES_MAX: Final = 20


class WrongTable(ArchiveError):
    """The place holds something else than this topic's history."""


class Overtaken(ArchiveError):
    """Somebody else has archived these offsets, or replaced these files."""


class Whose(NamedTuple):
    """The topic that a table is the history of. Made again, a topic has another id."""

    topic: str
    topic_id: str


class ArchiveTable:
    """An open table. Make one with `open`."""

    def __init__(self, place: str, whose: Whose, table: DeltaTable) -> None:
        self.place = place
        self.whose = whose
        self._table = table
        self._files: tuple[int, dict[int, list[Archived]]] | None = None

    @classmethod
    def open(cls, place: str, whose: Whose, typed: Typed) -> Self:
        """The table, made where there is none. WrongTable where it is another topic's, or holds other columns; Occupied."""
        table = found(place)
        if table is None:
            table = created(place, whose, typed)
        opened = cls(place, whose, table)
        opened._check()
        opened._check_columns(typed)
        return opened

    @classmethod
    def existing(cls, place: str, whose: Whose) -> Self | None:
        """The table to be read; None where there is none yet. WrongTable where it is another topic's."""
        table = found(place)
        if table is None:
            return None
        opened = cls(place, whose, table)
        opened._check()
        return opened

    def _check(self) -> None:
        """WrongTable, unless this is the history of the topic as it is now."""
        properties = self._table.metadata().configuration
        name, topic_id = properties.get(TOPIC_NAME), properties.get(TOPIC_ID)
        if topic_id is None:
            raise WrongTable(
                f"{self.place} holds a Delta table that is no archive; give levada.archive a place of its own"
            )
        if topic_id != self.whose.topic_id:
            raise WrongTable(
                f"{self.place} holds the history of topic {name} with the id {topic_id}; {self.whose.topic} has the id "
                f"{self.whose.topic_id}: it is another topic, or was deleted and made again. Move that table away, or set "
                "levada.archive to another place"
            )

    def _check_columns(self, typed: Typed) -> None:
        has = {field.name: field.type for field in pa.schema(self._table.schema().to_arrow())}
        wants = {field.name: field.type for field in table_schema(typed)}
        if has.keys() != wants.keys() or any(not _same(has[name], kind) for name, kind in wants.items()):
            differing = sorted(name for name in has.keys() | wants.keys() if not _same(has.get(name), wants.get(name)))
            raise WrongTable(
                f"the archive {self.place} has other columns than levada.archive.format and levada.archive.schema of "
                f"{self.whose.topic} say: {', '.join(differing)}. Set them as they were, or set levada.archive to another place"
            )

    def refresh(self) -> Self:
        """See what others have committed."""
        self._table.update_incremental()
        self._check()
        return self

    @property
    def version(self) -> int:
        return self._table.version()

    def next_offset(self, partition: int) -> int | None:
        """The first offset of this partition that is not archived; None where none of it is."""
        return self._table.transaction_version(app_id(self.whose.topic_id, partition))

    def files(self) -> Mapping[int, Sequence[Archived]]:
        """By partition, in the order of their offsets."""
        if self._files is None or self._files[0] != self.version:
            by_partition: dict[int, list[Archived]] = {}
            for file in sorted(files_of(self._table), key=lambda one: (one.partition, one.first)):
                by_partition.setdefault(file.partition, []).append(file)
            self._files = (self.version, by_partition)
        return self._files[1]

    def lost(self) -> dict[int, list[tuple[int, int]]]:
        """By partition, the ranges that were deleted before they could be archived; ends are not included."""
        text = self._table.metadata().configuration.get(LOST, "{}")
        return {int(partition): [(low, high) for low, high in held] for partition, held in json.loads(text).items()}

    def epochs(self) -> dict[int, int]:
        """By partition, the leader epoch under which its last offsets were archived."""
        text = self._table.metadata().configuration.get(EPOCHS, "{}")
        return {int(partition): epoch for partition, epoch in json.loads(text).items()}

    def append(self, files: Sequence[Written], moved: Mapping[int, tuple[int | None, int]]) -> None:
        """Add files, and with them say how far the partitions are archived: (from, to). All or nothing. Overtaken."""
        transactions = [Transaction(app_id(self.whose.topic_id, one), to) for one, (_, to) in moved.items()]
        adds = [
            AddAction(one.path, one.size, {"partition": str(one.partition)}, _now_ms(), True, stats(one))
            for one in files
        ]

        def check() -> None:
            for partition, (begin, _) in moved.items():
                now = self.next_offset(partition)
                if now != begin:
                    raise Overtaken(
                        f"partition {partition} of {self.whose.topic} was archived up to {now}, not {begin}, by somebody else"
                    )

        self._commit(adds, check, transactions)

    def replace(self, old: Sequence[Archived], new: Sequence[Written]) -> None:
        """Put files in the place of others that hold the same rows. Readers of the old ones find them until vacuum. Overtaken."""
        now = _now_ms()
        removes = [RemoveAction(one.path, False, now, one.size, {"partition": str(one.partition)}) for one in old]
        adds = [AddAction(one.path, one.size, {"partition": str(one.partition)}, now, False, stats(one)) for one in new]

        def check() -> None:
            there = {file.path for files in self.files().values() for file in files}
            if not all(one.path in there for one in old):
                raise Overtaken(f"files of {self.place} were replaced by somebody else")

        self._commit([*removes, *adds], check, [])

    def note_lost(self, lost: Mapping[int, Sequence[tuple[int, int]]]) -> None:
        """Write down ranges that nobody will ever archive. Saying it twice changes nothing."""
        held = self.lost()
        merged = {
            str(partition): merge([*held.get(partition, ()), *lost.get(partition, ())])
            for partition in held.keys() | lost.keys()
        }
        if merged != {str(partition): [list(one) for one in ranges] for partition, ranges in held.items()}:
            self._set(LOST, merged)

    def note_epochs(self, epochs: Mapping[int, int]) -> None:
        """Write down under which leader epochs partitions are archived from here on. They only grow: a late one changes nothing."""
        held = self.epochs()
        new = {partition: epoch for partition, epoch in epochs.items() if epoch > held.get(partition, -1)}
        if new:
            self._set(EPOCHS, {str(partition): epoch for partition, epoch in sorted({**held, **new}.items())})

    def _set(self, name: str, value: Any) -> None:
        self._table.alter.set_table_properties({name: json.dumps(value)}, raise_if_not_exists=False)
        self._settle(self.version)

    def _commit(self, actions: list[Any], check: Any, transactions: list[Transaction]) -> None:
        """Commit once the check passes and nobody has committed since."""
        properties = CommitProperties(max_commit_retries=0, app_transactions=transactions or None)
        for _ in range(_TRIES_MAX):
            check()
            try:
                self._table.create_write_transaction(
                    actions,
                    "append",
                    self._table.schema(),
                    ["partition"],
                    commit_properties=properties,
                )
            except CommitFailedError:
                self.refresh()
                continue
            self._settle(self.version + 1)
            self.refresh()
            return
        raise ArchiveError(f"{self.place}: others commit all the time, so this could not be committed")

    def _settle(self, version: int) -> None:
        """What was committed is on disk: only then may anything else depend on it."""
        settle(self.place, f"_delta_log/{version:020d}.json")

    def vacuum(self, retention_hours: int) -> list[str]:
        """Remove files that no version of the last hours names, those of writers that crashed too, and say which. Ours alone."""
        unnamed = self._table.vacuum(retention_hours, dry_run=True, enforce_retention_duration=False, full=True)
        files = filesystem(self.place)
        removed = []
        for path in filter(is_own, unnamed):
            with suppress(FileNotFoundError):  # somebody else was faster
                files.delete_file(path)
                removed.append(path)
        return removed


def merge(ranges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Ranges that touch or overlap as one, in order."""
    merged: list[list[int]] = []
    for low, high in sorted(tuple(one) for one in ranges):
        if merged and low <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    return merged


def _same(one: Any, other: Any) -> bool:
    """Types are compared by what they hold: Delta and Arrow name the elements of lists each in their own way."""
    if one is None or other is None:
        return one is other
    return str(one).replace("large_", "") == str(other).replace("large_", "")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
