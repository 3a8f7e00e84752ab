"""Where every group stands, in memory: what replaying `__consumer_offsets` gives, and nothing more.

An offset committed in a transaction is held by its producer until the marker comes: then it counts, or never does. Of
two commits the one that is later in the log wins, whenever the marker of the earlier comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import structlog

from levada.engine.embedded.group_snapshot import GroupSnapshot
from levada.engine.embedded.internal_records import Unknown
from levada.engine.embedded.offset_records import GroupKey, OffsetKey, committed_of, key_of
from levada.engine.port import At, Committed
from levada.records.batch import Batch
from levada.records.read import Record, read_marker

#: Groups whose offsets never expire.
OWN_PREFIX: Final = "__levada."

_log = structlog.get_logger("levada.offsets")


class Stored(NamedTuple):
    """A committed offset, where in the log its record is, and when it expires if not by the broker's rule."""

    committed: Committed
    record_offset: int
    expire_ms: int = -1


class Expiry(NamedTuple):
    """When offsets are given up. `active(group, topic)`: the group uses its offsets in this topic, however old they are."""

    now_ms: int
    retention_ms: int
    active: Callable[[str, str], bool]


class OffsetTable:
    """Offsets, offsets held by open transactions, and groups."""

    def __init__(self) -> None:
        self.offsets: dict[str, dict[At, Stored]] = {}
        #: Producer id → what its open transaction would commit.
        self.pending: dict[int, dict[OffsetKey, Stored]] = {}
        #: Group → partition → producers whose open transactions hold it.
        self.holders: dict[str, dict[At, set[int]]] = {}
        self.snapshots: dict[str, GroupSnapshot] = {}

    # Changes

    def put(self, key: OffsetKey, stored: Stored) -> None:
        self.offsets.setdefault(key.group, {})[key.at] = stored

    def hold(self, producer_id: int, key: OffsetKey, stored: Stored) -> None:
        self.pending.setdefault(producer_id, {})[key] = stored
        self.holders.setdefault(key.group, {}).setdefault(key.at, set()).add(producer_id)

    def complete(self, producer_id: int, *, commit: bool) -> None:
        """The producer's transaction has its marker."""
        for key, stored in self.pending.pop(producer_id, {}).items():
            self._release(key, producer_id)
            if commit:
                held = self.offsets.setdefault(key.group, {})
                if key.at not in held or stored.record_offset > held[key.at].record_offset:
                    held[key.at] = stored

    def forget(self, key: OffsetKey) -> None:
        """Neither a committed nor a pending offset is left here."""
        held = self.offsets.get(key.group, {})
        held.pop(key.at, None)
        if not held:
            self.offsets.pop(key.group, None)
        for producer_id in tuple(self.holders.get(key.group, {}).get(key.at, ())):
            self._release(key, producer_id)
            del self.pending[producer_id][key]

    def _release(self, key: OffsetKey, producer_id: int) -> None:
        held = self.holders[key.group]
        held[key.at].discard(producer_id)
        if not held[key.at]:
            del held[key.at]
        if not held:
            del self.holders[key.group]

    # Replay

    def replay(self, batch: Batch, records: Iterable[Record]) -> None:
        """Apply a batch of the log."""
        if batch.is_control:
            # Compaction leaves a marker empty once nothing of its transaction is left.
            marker = read_marker(batch) if batch.record_count else None
            if marker is not None:
                self.complete(batch.producer_id, commit=marker.commit)
            return
        producer_id = batch.producer_id if batch.is_transactional else None
        for record in records:
            try:
                self._replay(record, producer_id)
            except Unknown as reason:
                _log.warning("record passed over", offset=record.offset, reason=str(reason))

    def _replay(self, record: Record, producer_id: int | None) -> None:
        key = key_of(record.key or b"")
        if isinstance(key, GroupKey):
            if record.value is None:
                self.snapshots.pop(key.group, None)
            else:
                self.snapshots[key.group] = GroupSnapshot.of(key.group, record.value)
        elif record.value is None:
            self.forget(key)
        else:
            committed, expire_ms = committed_of(record.value)
            stored = Stored(committed, record.offset, expire_ms)
            if producer_id is None:
                self.put(key, stored)
            else:
                self.hold(producer_id, key, stored)

    # Questions

    def groups(self) -> set[str]:
        return self.offsets.keys() | self.holders.keys() | self.snapshots.keys()

    def topics(self) -> set[str]:
        everywhere: Sequence[Iterable[At]] = [*self.offsets.values(), *self.holders.values()]
        return {at.topic for held in everywhere for at in held}

    def keys_of(self, group: str) -> list[OffsetKey]:
        """Everything of a group, committed or pending."""
        ats = self.offsets.get(group, {}).keys() | self.holders.get(group, {}).keys()
        return [OffsetKey(group, at) for at in sorted(ats)]

    def keys_in(self, topic: str) -> list[OffsetKey]:
        """Everything in a topic, committed or pending."""
        groups = self.offsets.keys() | self.holders.keys()
        return [key for group in sorted(groups) for key in self.keys_of(group) if key.at.topic == topic]

    def expired(self, expiry: Expiry) -> list[OffsetKey]:
        """Offsets to give up. Those held by an open transaction, and all of groups named `__levada.*`, stay."""
        return [
            OffsetKey(group, at)
            for group, held in self.offsets.items()
            if not group.startswith(OWN_PREFIX)
            for at, stored in held.items()
            if _is_old(stored, expiry) and at not in self.holders.get(group, ()) and not expiry.active(group, at.topic)
        ]


def _is_old(stored: Stored, expiry: Expiry) -> bool:
    if stored.expire_ms != -1:
        return expiry.now_ms >= stored.expire_ms
    return expiry.now_ms - stored.committed.commit_ms >= expiry.retention_ms
