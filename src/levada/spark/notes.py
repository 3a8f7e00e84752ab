"""What a task could not read although it was planned: a note with the broker, for the driver to find and to tell Spark.

Retention may delete between planning and reading. A task has no way to its driver but the rows it gives, so it leaves word in the
one place both know: an offset committed under a group of that slice's own, with the losses as its metadata. Nothing is asked or
written unless something was lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from levada.errors import LevadaError
from levada.spark.losses import Lost, log
from levada.wire.answers import OffsetAndMetadata, TopicPartition
from levada.wire.blocking import BlockingClient

_TIMEOUT_MS: Final = 5_000
_PREFIX: Final = "levada-lost"


def name_of(run: str, at: TopicPartition, start: int) -> str:
    """The note of the slice that begins here. `run` is the driver's, so that no other finds it."""
    return f"{_PREFIX}.{run}.{at}.{start}"


def leave(client: BlockingClient, name: str, at: TopicPartition, lost: Sequence[Lost]) -> None:
    """All that this slice has lost so far. That it fails is said, and no more: the read goes on."""
    told = json.dumps([one.to_json() for one in lost])
    try:
        client.offset_commit(name, {at: OffsetAndMetadata(lost[-1].start, metadata=told)}, timeout_ms=_TIMEOUT_MS)
    except LevadaError as error:
        log.warning("the driver could not be told: %s", error)


def take(client: BlockingClient, name: str, at: TopicPartition) -> list[Lost]:
    """What this slice has lost; the note is gone then."""
    try:
        found = client.offset_fetch(name, [at], timeout_ms=_TIMEOUT_MS).get(at)
        if found is None:
            return []
        client.delete_group(name, timeout_ms=_TIMEOUT_MS)
    except LevadaError as error:
        log.warning("whether a task has lost anything could not be asked: %s", error)
        return []
    return [Lost.of_json(one) for one in json.loads(found.metadata)]
