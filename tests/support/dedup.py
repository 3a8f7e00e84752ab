"""A dedup over a real engine, for tests: with a clock of its own, stopped and killed at will."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from levada.broker.dedup import Dedup, Stored
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.port import Acks, At
from levada.records.batch import Batch
from levada.records.build import build

START_MS = 1_700_000_000_000


class Clock:
    def __init__(self) -> None:
        self.ms = START_MS

    def __call__(self) -> int:
        return self.ms


def dedup_over(engine: EmbeddedEngine, now_ms: Callable[[], int] | None = None) -> Dedup:
    """As the server puts it together."""
    return Dedup(
        engine,
        engine.view,
        partition_of=lambda at: engine.partition(*at),
        config_of=engine.config_of,
        shelf=engine.shelf("dedup"),
        in_thread=engine.in_thread,
        now_ms=now_ms or engine.now_ms,
    )


def batch_with(
    values: Sequence[bytes | None],
    *,
    ids: Sequence[str | None] | None = None,
    timestamp_ms: int = START_MS,
    codec: str = "none",
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> Batch:
    """`producer`: id, epoch, base sequence."""
    names = ids if ids is not None else [None] * len(values)
    made = [
        (None, value, [("other", b"x"), ("message_id", name.encode())] if name is not None else [])
        for value, name in zip(values, names, strict=True)
    ]
    producer_id, epoch, sequence = producer
    return Batch(
        memoryview(
            build(
                made,
                timestamp_ms=timestamp_ms,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
            )
        )
    )


async def publish(
    dedup: Dedup, at: At, *values: bytes | None, dense: bool = True, **given: object
) -> list[tuple[int, int, bool]]:
    """(partition, offset, whether it is a repeat) of each value."""
    batch = batch_with(values, **given)  # type: ignore[arg-type]
    return positions(await dedup.publish(at, batch, Acks.ALL, dense=dense), at)


def positions(stored: Stored, at: At) -> list[tuple[int, int, bool]]:
    return list(stored.offsets(at.partition))
