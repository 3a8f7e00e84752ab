"""Giving the stage's space back once a batch is visible, ahead of its retention.

Several sinks share a partition of the stage, and only its beginning can be deleted: up to the first batch that somebody may still
want. A staged batch is wanted by nobody once its sink is past the Spark batch it was staged for. If something goes wrong here, nothing is lost: retention
frees what is left.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from levada.records.batch import batches
from levada.spark.sink.claims import Asking
from levada.spark.sink.own_topics import STAGE, have
from levada.spark.sink.sinks import Sinks
from levada.spark.sink.stage import Looked
from levada.spark.sink.staged import ONE_OFF, StageKey, unwrapped
from levada.spark.sink.transactions import is_committed
from levada.wire.answers import EARLIEST, TopicPartition
from levada.wire.blocking import BlockingClient

#: Less than this is not worth asking for.
BYTES_MIN: Final = 1 << 20
BATCHES_MIN: Final = 128
#: So much of what lies before is looked at for one commit.
_LOOK_BYTES_MAX: Final = 32 << 20
_FETCH_BYTES: Final = 8 << 20
_NOTHING: Final = (-1, -1)


class Lying(NamedTuple):
    """A batch in the stage."""

    offset: int
    size: int
    key: bytes


def freeable(lying: Iterable[Lying], is_done: Callable[[StageKey], bool], *, anything: bool = False) -> int | None:
    """The offset up to which all of these, which follow on one another, are done with; None where there is not enough of it."""
    end, size, count = None, 0, 0
    for one in lying:
        try:
            key = StageKey.decoded(one.key)
        except ValueError:
            break
        if not is_done(key):
            break
        end, size, count = one.offset + 1, size + one.size, count + 1
    return end if anything or size >= BYTES_MIN or count >= BATCHES_MIN else None


def free(client: BlockingClient, sinks: Sinks, asking: Asking, looked: Mapping[int, Looked]) -> None:
    """Delete what is done with from the beginning of the partitions of the stage that were read for this batch."""
    done = _Done(client, sinks, asking)
    for partition, one in looked.items():
        _free(client, TopicPartition(STAGE.name, partition), one, done, asking)


def sweep(client: BlockingClient, sinks: Sinks, asking: Asking) -> None:
    """Delete what a write that failed has left at the beginning of any partition of the stage."""
    done = _Done(client, sinks, asking)
    places = [TopicPartition(STAGE.name, partition) for partition in range(have(client, STAGE))]
    for at, begin in client.list_offsets(dict.fromkeys(places, EARLIEST)).items():
        _free(client, at, Looked(begin.offset, []), done, asking)


def _free(client: BlockingClient, at: TopicPartition, looked: Looked, done: _Done, asking: Asking) -> None:
    # A sink's next batch takes along what this one leaves; a write that happens once has no next one.
    end = freeable(_lying(client, at, looked), done, anything=asking.sink.startswith(ONE_OFF))
    if end is not None:
        client.delete_records({at: end})


class _Done:
    """Whether a staged batch is wanted by nobody: ours are not, now; of others we ask once."""

    def __init__(self, client: BlockingClient, sinks: Sinks, asking: Asking) -> None:
        self._client = client
        self._sinks = sinks
        self._past: dict[str, tuple[int, int]] = {asking.sink: (asking.epoch, asking.batch)}

    def __call__(self, key: StageKey) -> bool:
        if key.sink not in self._past:
            self._past[key.sink] = self._looked_up(key.sink)
        return (key.epoch, key.batch) <= self._past[key.sink]

    def _looked_up(self, sink: str) -> tuple[int, int]:
        if sink.startswith(ONE_OFF):
            # It has no record, but its only transaction tells.
            return (0, 0) if is_committed(self._client, sink) else _NOTHING
        seen = self._sinks.last_committed(sink)
        return _NOTHING if seen is None else (seen.epoch, seen.batch)


def _lying(client: BlockingClient, at: TopicPartition, looked: Looked) -> Iterator[Lying]:
    """The partition's batches from its beginning to the last that was copied; a gap ends it, and so does looking at too much."""
    position, read = looked.log_start, 0
    known = [Lying(*one) for one in looked.found]
    end = known[0].offset if known else sys.maxsize
    while position < end and read < _LOOK_BYTES_MAX:
        answer = client.fetch({at: position}, max_wait_ms=0, max_bytes=_FETCH_BYTES, partition_max_bytes=_FETCH_BYTES)
        before = position
        for batch in batches(answer[at].records):
            if position <= batch.base_offset < end:
                yield Lying(batch.base_offset, batch.size, unwrapped(batch)[0])
                position, read = batch.next_offset, read + batch.size
        if position == before:
            return
    for one in known:
        if one.offset != position:
            return
        yield one
        position = one.offset + 1
