"""How far a job has come, kept by the broker: as the offsets that a group named after the job has committed in the source.

A batch is noted down with its ranges before it is written, and written under its number (`sinkId`, `batchId`), which the sink keeps
in the same transaction as the records. So after a crash the last note says what the last batch was, the sink whether it is there, and
the same batch is written again or not at all. The committed offset is where that batch begins: the group's lag is what is left to do.

Notes are written in transactions: a second run of the same job takes the first one's right to write them, and writes the same last
batch; the first one ends when it has a further one to note.

The metadata of each offset, JSON: b the batch, t where it ends, p where the job began and its passes ended (the last one is under way, or
done), s the latest timestamp before the batch in ms, e the epoch of the count, v how many of the passes were compared with the target.
Up to where the target was compared is the group's committed offset in the target, without metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from levada.errors import BrokerRefused, Fenced, InvalidRequest
from levada.spark.jobs.extent import Offsets
from levada.wire.answers import OffsetAndMetadata, TopicPartition
from levada.wire.blocking import BlockingClient
from levada.wire.codes import ErrorCode

#: A timestamp before all others.
NEVER: Final = -(2**63)
_FENCED: Final = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH))
_TIMEOUT_MS: Final = 10_000


class Step(NamedTuple):
    """One batch: what it takes of each partition."""

    number: int
    starts: Offsets
    ends: Offsets
    #: By partition, where the job began and then where each pass ends; the batch is of the last one.
    passes: Mapping[int, tuple[int, ...]]
    #: By partition, the latest timestamp of this pass before the batch.
    since_ms: Offsets
    epoch: int = 0
    #: So many of the passes were compared with what the target has of them.
    verified: int = 0

    @property
    def begins(self) -> Offsets:
        """Where the job began."""
        return {p: held[0] for p, held in self.passes.items()}

    @property
    def verified_ends(self) -> Offsets:
        """All before was compared."""
        return {p: held[self.verified] for p, held in self.passes.items()}

    @property
    def is_verified(self) -> bool:
        """Whether nothing is left to compare."""
        return self.verified == self.passes_done

    @property
    def passes_done(self) -> int:
        """The last one counts, too, which may be under way."""
        return max((len(held) for held in self.passes.values()), default=1) - 1


class LostPlace(InvalidRequest):
    """The job has written to its target, and what it has read is no longer known."""


class Ledger(Protocol):
    """The notes of one job."""

    def last(self) -> Step | None:
        """The batch that was noted last; None for a job that has not begun."""
        ...

    def note(self, step: Step) -> None:
        """Keep it. Fenced: another run of the job has taken over."""
        ...


class GroupLedger:
    """Notes that a broker keeps."""

    def __init__(self, client: BlockingClient, job: str, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._job = job
        self.group = _group(job)
        self._producer = client.transactional_producer(self.group, transaction_timeout_ms=_TIMEOUT_MS)
        self._ours = False

    def last(self) -> Step | None:
        self._take_over()
        return noted(self._client, self._job, self._topic, stable=True)

    def compared(self, target: str) -> Offsets:
        """Up to where the target was compared; nothing where it was not."""
        found = self._client.offset_fetch(self.group, require_stable=True)
        return {at.partition: place.offset for at, place in found.items() if at.topic == target}

    def note(self, step: Step, compared: Mapping[TopicPartition, int] | None = None) -> None:
        """`compared` is kept at once with it: up to where the target was compared."""
        self._take_over()
        at = {TopicPartition(self._topic, p): written(step, p) for p in step.ends}
        at |= {one: OffsetAndMetadata(end) for one, end in (compared or {}).items()}
        try:
            self._producer.send_offsets(self.group, at)
            self._producer.commit()
        except BrokerRefused as refusal:
            if refusal.code in _FENCED:
                raise Fenced(
                    f"another run of this job ({self._job}) has taken over; it goes on where this one was"
                ) from None
            raise

    def _take_over(self) -> None:
        if not self._ours:
            self._producer.init()
            self._ours = True


def _group(job: str) -> str:
    return f"__levada.job.{job}"


def noted(client: BlockingClient, job: str, topic: str, *, stable: bool = False) -> Step | None:
    """The batch that a job has noted last; None for a job that has not begun. LostPlace.

    `stable` waits for a note that is being written. Who only looks does not: it may be of a run that was killed.
    """
    found = client.offset_fetch(_group(job), require_stable=stable)
    notes = {at.partition: place for at, place in found.items() if at.topic == topic}
    return read(notes) if notes else None


def written(step: Step, partition: int) -> OffsetAndMetadata:
    """What is committed for this partition."""
    note = {
        "b": step.number,
        "t": step.ends[partition],
        "p": list(step.passes[partition]),
        "s": step.since_ms.get(partition, NEVER),
        "e": step.epoch,
        "v": step.verified,
    }
    return OffsetAndMetadata(step.starts[partition], -1, json.dumps(note, separators=(",", ":")))


def read(notes: Mapping[int, OffsetAndMetadata]) -> Step:
    """Out of what is committed. LostPlace."""
    try:
        told = {partition: json.loads(place.metadata) for partition, place in notes.items()}
        numbers = {note["b"] for note in told.values()}
        if len(numbers) > 1:
            raise LostPlace(
                f"its notes are of batches {min(numbers)} to {max(numbers)}: somebody moved the job's group"
            )
        return Step(
            numbers.pop(),
            {partition: place.offset for partition, place in notes.items()},
            {partition: note["t"] for partition, note in told.items()},
            {partition: tuple(note["p"]) for partition, note in told.items()},
            {partition: note["s"] for partition, note in told.items()},
            max(note["e"] for note in told.values()),
            min(note["v"] for note in told.values()),
        )
    except (ValueError, KeyError, TypeError):
        raise LostPlace("its notes cannot be read: somebody moved the job's group") from None
