"""Giving the stage's space back once a batch is visible, ahead of its retention.

Several sinks share a partition of the stage, and only its beginning can be deleted: up to the first batch that somebody may still
want. A staged batch is wanted by nobody once its sink is past the Spark batch it was staged for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from levada.errors import LevadaError
from levada.records.batch import batches
from levada.spark.sink.claims import Asking
from levada.spark.sink.own_topics import STAGE
from levada.spark.sink.sinks import Sinks
from levada.spark.sink.stage import Looked
from levada.spark.sink.staged import StageKey, unwrapped
from levada.wire.answers import TopicPartition
from levada.wire.blocking import BlockingClient

#: Less than this is not worth asking for.
BYTES_MIN: Final = 8 << 20
BATCHES_MIN: Final = 128
#: So much of what lies before is looked at for one commit.
_LOOK_BYTES_MAX: Final = 32 << 20
_FETCH_BYTES: Final = 8 << 20


class Lying(NamedTuple):
    """A batch in the stage."""

    offset: int
    size: int
    key: bytes


def freeable(lying: Iterable[Lying], is_done: Callable[[StageKey], bool]) -> int | None:
    """The offset up to which all of these, which follow on one another, are done with; None where it is not worth it."""
    end, size, count = None, 0, 0
    for one in lying:
        try:
            key = StageKey.decoded(one.key)
        except ValueError:
            break
        if not is_done(key):
            break
        end, size, count = one.offset + 1, size + one.size, count + 1
    return end if size >= BYTES_MIN or count >= BATCHES_MIN else None


def free(client: BlockingClient, sinks: Sinks | None, asking: Asking, looked: Mapping[int, Looked]) -> None:
    """Delete what is done with from the beginning of the partitions of the stage that were read for this batch.

    What goes wrong here is of no consequence: the batch is visible, and retention frees what is left.
    """
    try:
        done = _Done(asking, sinks)
        for partition, one in looked.items():
            at = TopicPartition(STAGE.name, partition)
            end = freeable(_lying(client, at, one), done)
            if end is not None:
                client.delete_records({at: end})
    except LevadaError:
        return


class _Done:
    """Whether a staged batch is wanted by nobody: ours are not, now; of others we ask once."""

    def __init__(self, asking: Asking, sinks: Sinks | None) -> None:
        self._past: dict[str, tuple[int, int]] = {asking.sink: (asking.epoch, asking.batch)}
        self._sinks = sinks

    def __call__(self, key: StageKey) -> bool:
        if key.sink not in self._past:
            seen = self._sinks.last_committed(key.sink) if self._sinks is not None else None
            self._past[key.sink] = (seen.epoch, seen.batch) if seen is not None else (-1, -1)
        return (key.epoch, key.batch) <= self._past[key.sink]


def _lying(client: BlockingClient, at: TopicPartition, looked: Looked) -> Iterator[Lying]:
    """The partition's batches from its beginning to the last that was copied; a gap ends it."""
    position, read = looked.log_start, 0
    known = [Lying(*one) for one in looked.found]
    while known and position < known[0].offset and read < _LOOK_BYTES_MAX:
        answer = client.fetch({at: position}, max_wait_ms=0, max_bytes=_FETCH_BYTES, partition_max_bytes=_FETCH_BYTES)[
            at
        ]
        before = position
        for batch in batches(answer.records):
            if position <= batch.base_offset < known[0].offset:
                yield Lying(batch.base_offset, batch.size, unwrapped(batch)[0])
                position, read = batch.next_offset, read + batch.size
        if position == before:
            return
    for one in known:
        if one.offset != position:
            return
        yield one
        position = one.offset + 1
