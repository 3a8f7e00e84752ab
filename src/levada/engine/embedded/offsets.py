"""Where every group stands: committed offsets, offsets that wait for a transaction, and the groups themselves.

All of it is records in `__consumer_offsets`, and what `OffsetTable` makes of them. How the engine wires it:

    store = OffsetStore(journal, now_ms)
    store.load()                                # after Transactions.load(), before Transactions.start()
    store.topic_deleted(name)                   # when a topic goes, and for each of store.topics() that is gone at start
    store.expire(now_ms, retention_ms, active)  # every offsets.retention.check.interval.ms
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from levada.config import KiB
from levada.engine.embedded.group_snapshot import GroupSnapshot
from levada.engine.embedded.offset_records import GroupKey, OffsetKey, value_of
from levada.engine.embedded.offset_table import Expiry, OffsetTable, Stored
from levada.engine.port import At, Committed

if TYPE_CHECKING:
    from levada.engine.embedded.journal import Journal

#: Commits of one turn of the loop are written together up to about this much.
_BATCH_BYTES: Final = 256 * KiB


class Expired(NamedTuple):
    """What `expire` removed: how many offsets, and the groups that have no offset left."""

    offsets: int
    groups: Sequence[str]


class _Commit(NamedTuple):
    """A commit that waits for the end of the loop's turn."""

    rows: Mapping[OffsetKey, Committed]
    expire_ms: int
    #: The end offset of the journal when it is written.
    written: asyncio.Future[int]

    def encoded(self) -> list[tuple[bytes, bytes | None]]:
        return [(key.bytes(), value_of(committed, self.expire_ms)) for key, committed in self.rows.items()]


class OffsetStore:
    """Offsets and groups. What an awaited call returns from is durable; the others return a receipt for `durable`."""

    def __init__(self, journal: Journal, now_ms: Callable[[], int]) -> None:
        self._journal = journal
        self._now_ms = now_ms
        self._table = OffsetTable()
        self._queue: list[_Commit] = []

    def load(self) -> None:
        """Read everything back."""
        for batch, records in self._journal.replay():
            self._table.replay(batch, records)

    async def durable(self, receipt: int) -> None:
        """Wait until what gave this receipt is durable."""
        await self._journal.durable(receipt)

    # Reading

    def fetch(self, group: str) -> Mapping[At, Committed]:
        """All committed offsets of a group; none for a group that nobody knows."""
        return {at: stored.committed for at, stored in self._table.offsets.get(group, {}).items()}

    def committed(self, group: str, at: At) -> Committed | None:
        """Where a group stands in one partition."""
        stored = self._table.offsets.get(group, {}).get(at)
        return None if stored is None else stored.committed

    def pending(self, group: str) -> set[At]:
        """Partitions for which an open transaction holds an offset of this group."""
        return set(self._table.holders.get(group, ()))

    def groups(self) -> Collection[str]:
        """Every group that has an offset, a pending one, or a state of its own."""
        return self._table.groups()

    def topics(self) -> Collection[str]:
        """Every topic that some group has an offset in."""
        return self._table.topics()

    def group_snapshots(self) -> Iterable[GroupSnapshot]:
        return list(self._table.snapshots.values())

    # Committing

    async def commit(self, group: str, offsets: Mapping[At, Committed], *, expire_ms: int = -1) -> None:
        """Store these offsets; durable on return. Commits that come together are written in one batch.

        `expire_ms` is for clients so old that they ask for a time of their own (OffsetCommit 2–4).
        """
        if not offsets:
            return
        loop = asyncio.get_running_loop()
        commit = _Commit(self._rows(group, offsets), expire_ms, loop.create_future())
        if not self._queue:
            loop.call_soon(self._flush)
        self._queue.append(commit)
        await self._journal.durable(await commit.written)

    async def commit_transactional(
        self, group: str, producer_id: int, epoch: int, offsets: Mapping[At, Committed]
    ) -> None:
        """Store these offsets as part of the producer's transaction; durable on return, and pending until it ends.

        `Transactions.commit_offsets` calls this when it has made sure that the transaction is open and
        `__consumer_offsets` is in it; nobody else should.
        """
        if not offsets:
            return
        self._flush()
        rows = self._rows(group, offsets)
        encoded = [(key.bytes(), value_of(committed)) for key, committed in rows.items()]
        end = self._journal.append(encoded, producer=(producer_id, epoch))
        for place, (key, committed) in enumerate(rows.items(), end - len(rows)):
            self._table.hold(producer_id, key, Stored(committed, place))
        await self._journal.durable(end)

    def complete(self, producer_id: int, *, commit: bool) -> None:
        """The producer's marker was appended to `__consumer_offsets`: its pending offsets count now, or never."""
        self._table.complete(producer_id, commit=commit)

    def _rows(self, group: str, offsets: Mapping[At, Committed]) -> dict[OffsetKey, Committed]:
        now_ms = self._now_ms()
        return {
            OffsetKey(group, at): committed if committed.commit_ms >= 0 else committed._replace(commit_ms=now_ms)
            for at, committed in offsets.items()
        }

    def _flush(self) -> None:
        """Write the commits that wait, in the order they came."""
        queue, self._queue = self._queue, []
        batch: list[_Commit] = []
        rows: list[tuple[bytes, bytes | None]] = []
        size = 0
        for commit in queue:
            encoded = commit.encoded()
            batch.append(commit)
            rows += encoded
            size += sum(len(key) + len(value or b"") for key, value in encoded)
            if size >= _BATCH_BYTES:
                self._write(batch, rows)
                batch, rows, size = [], [], 0
        if batch:
            self._write(batch, rows)

    def _write(self, commits: list[_Commit], rows: list[tuple[bytes, bytes | None]]) -> None:
        try:
            end = self._journal.append(rows)
        except Exception as error:
            for commit in commits:
                if not commit.written.cancelled():
                    commit.written.set_exception(error)
            return
        place = end - len(rows)
        for commit in commits:
            for key, committed in commit.rows.items():
                self._table.put(key, Stored(committed, place, commit.expire_ms))
                place += 1
            if not commit.written.cancelled():
                commit.written.set_result(end)

    # Removing

    async def delete(self, group: str, ats: Iterable[At] | None = None) -> None:
        """Forget a group's offsets, all of them or these, pending ones too; durable on return."""
        self._flush()
        keys = self._table.keys_of(group)
        if ats is not None:
            wanted = set(ats)
            keys = [key for key in keys if key.at in wanted]
        await self._journal.durable(self._remove(keys))

    def topic_deleted(self, topic: str) -> int:
        """Forget every group's offsets in this topic, pending ones too. Returns a receipt."""
        self._flush()
        return self._remove(self._table.keys_in(topic))

    def expire(self, now_ms: int, retention_ms: int, active: Callable[[str, str], bool]) -> Expired:
        """Forget offsets whose last commit is `retention_ms` ago, unless the group still uses them.

        `active(group, topic)` says so: members may read the topic, or the last one left less than the retention ago.
        (Kafka counts from the latter alone, and so may expire what was just committed for an empty group.) Offsets with
        a time of their own expire then. Offsets held by an open transaction, and all of groups named `__levada.*`, stay.
        """
        self._flush()
        expired = self._table.expired(Expiry(now_ms, retention_ms, active))
        self._remove(expired)
        left = self._table.offsets.keys() | self._table.holders.keys()
        return Expired(len(expired), sorted({key.group for key in expired} - left))

    def _remove(self, keys: Sequence[OffsetKey]) -> int:
        if not keys:
            return 0
        end = self._journal.append([(key.bytes(), None) for key in keys])
        for key in keys:
            self._table.forget(key)
        return end

    # Groups

    def save_group(self, snapshot: GroupSnapshot) -> int:
        """Keep a group as it is now. Returns a receipt."""
        end = self._journal.append([(GroupKey(snapshot.group_id).bytes(), snapshot.value())])
        self._table.snapshots[snapshot.group_id] = snapshot
        return end

    def forget_group(self, group: str) -> int:
        """Forget the group itself; its offsets are `delete`'s. Returns a receipt."""
        if group not in self._table.snapshots:
            return 0
        end = self._journal.append([(GroupKey(group).bytes(), None)])
        del self._table.snapshots[group]
        return end
