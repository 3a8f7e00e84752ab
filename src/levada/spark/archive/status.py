"""How far archives are, beside their logs. Needs a broker and the tables, and no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from levada.spark.archive.logs import held
from levada.spark.archive.table import ArchiveTable, Whose
from levada.spark.archive.wanted import Archive
from levada.wire.blocking import BlockingClient


class Stand(NamedTuple):
    """One partition: what the log holds, what the table holds, and what is in neither."""

    topic: str
    partition: int
    place: str
    #: None where nothing is archived yet. Ends are not included.
    archived_start: int | None
    archived_end: int | None
    log_start: int
    log_end: int
    files: int
    bytes: int
    lost: list[tuple[int, int]]

    @property
    def lag(self) -> int:
        """Offsets that are not archived."""
        return self.log_end - max(self.log_start, self.archived_end or 0)


def stands(client: BlockingClient, archives: Iterable[Archive]) -> Iterator[Stand]:
    """Of all their partitions. WrongTable, ArchiveError, BrokerRefused for a topic that is not there."""
    for archive in archives:
        info = client.topics([archive.topic])[archive.topic]
        partitions = sorted(one.partition for one in info.partitions)
        table = ArchiveTable.existing(archive.place, Whose(archive.topic, str(info.topic_id)))
        log = held(client, archive.topic, partitions)
        lost = table.lost() if table is not None else {}
        for one in partitions:
            files = table.files().get(one, ()) if table is not None else ()
            end = table.next_offset(one) if table is not None else None
            yield Stand(
                archive.topic,
                one,
                archive.place,
                files[0].first if files else end,
                end,
                *log[one],
                len(files),
                sum(file.size for file in files),
                lost.get(one, []),
            )
