"""One staged batch: a batch of `__levada.stage` with a single record, whose value is a whole batch of another topic.

Its key is `<sink>/<epoch>/<batch>/<task>/<attempt>/<number>` in UTF-8: whose it is, and which. Compression would be of no use.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from levada.errors import CorruptBatch
from levada.records.batch import HEADER_SIZE, Batch
from levada.spark.sink.single import opened

#: Before the id of a write that nobody will repeat: it has no record in `__levada.sinks`.
ONE_OFF: Final = "levada.write."


class StageKey(NamedTuple):
    """Who staged a batch, for what. `attempt` is one of a kind, so no two batches ever have the same key."""

    sink: str
    epoch: int
    batch: int
    task: int
    attempt: str
    number: int

    def encoded(self) -> bytes:
        return "/".join(map(str, self)).encode()

    @classmethod
    def decoded(cls, key: bytes) -> StageKey:
        """ValueError where it is none."""
        sink, epoch, batch, task, attempt, number = key.decode().rsplit("/", 5)
        return cls(sink, int(epoch), int(batch), int(task), attempt, int(number))


def unwrapped(staged: Batch) -> tuple[bytes, memoryview]:
    """(key, the batch within). CorruptBatch where there is none."""
    key, data = opened(staged)
    if len(data) < HEADER_SIZE:
        raise CorruptBatch(f"offset {staged.base_offset} of the stage holds no batch of another topic")
    return key, data
