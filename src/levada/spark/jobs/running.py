"""What all jobs that copy share: a name under which they are known again, how large a batch may be, and whom they tell how far they are."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final, Protocol

from levada.spark.jobs.copying import Copying, Plan, Seen
from levada.spark.jobs.frames import Connection
from levada.spark.jobs.ledger import GroupLedger, Step
from levada.spark.jobs.topics import Topic, record_bytes
from levada.spark.sink.claims import BatchSeen
from levada.spark.sink.sinks import Sinks

if TYPE_CHECKING:
    from collections.abc import Callable

    from levada.wire.blocking import BlockingClient

#: A batch is one transaction, which the driver copies: so much, and not more rows than that.
BATCH_BYTES: Final = 256 << 20
BATCH_ROWS: Final = 1_000_000
#: Where nobody says how large records are.
_RECORD_BYTES: Final = 1_000


class Teller(Protocol):
    """Who is told how a job does."""

    def doing(self, what: str, total: int | None = None) -> None:
        """This begins; `total` offsets of it, where that is known."""
        ...

    def came(self, offsets: int) -> None:
        """So many more of it are done."""
        ...

    def lost(self, what: str) -> None:
        """This was deleted before it was copied, and is passed over."""
        ...


class Silent:
    """Tells nobody."""

    def doing(self, what: str, total: int | None = None) -> None:
        pass

    def came(self, offsets: int) -> None:
        pass

    def lost(self, what: str) -> None:
        pass


def job_name(verb: str, source: Topic, target: Topic, **said: Any) -> str:
    """The same for the same topics and the same wishes: what was begun under it is gone on with.

    It is short enough for a transactional id. Topics that were deleted and made again are others.
    """
    what = json.dumps([str(source.id), str(target.id), said], sort_keys=True, default=repr)
    digest = hashlib.sha256(f"{verb} {source.name} {target.name} {what}".encode()).hexdigest()[:12]
    return f"{verb}.{source.name[:60]}.{target.name[:60]}.{digest}"


def batch_rows(client: BlockingClient, source: Topic, given: int | None = None) -> int:
    """How many rows a batch may have."""
    if given is not None:
        return given
    return max(1000, min(BATCH_ROWS, BATCH_BYTES // max(1, record_bytes(client, source) or _RECORD_BYTES)))


def batch_seen(client: BlockingClient, job: str) -> Seen | None:
    """The last batch of a job that is in its target."""
    return _seen(Sinks(client).last_committed(job))


def _seen(found: BatchSeen | None) -> Seen | None:
    return None if found is None or found.batch < 0 else Seen(found.epoch, found.batch)


class Place:
    """Where a job's notes and its batches are kept."""

    def __init__(self, client: BlockingClient, connection: Connection, job: str, source: Topic) -> None:
        self.job = job
        self.connection = connection
        self.ledger = GroupLedger(client, job, source.name)
        self._sinks = Sinks(client)

    def seen(self) -> Seen | None:
        """The last batch that is in the target."""
        return _seen(self._sinks.last_committed(self.job))

    def next_epoch(self) -> int:
        """For a job that is to begin anew, whatever it has done before."""
        last, found = self.ledger.last(), self._sinks.last_committed(self.job)
        return 1 + max(last.epoch if last else -1, found.epoch if found else -1)

    def copying(
        self, plan: Plan, write: Callable[[Step], int], rows_max: int, teller: Teller, **limits: Any
    ) -> Copying:
        return Copying(self.ledger, self.seen, plan, write, rows_max=rows_max, told=teller.came, **limits)
