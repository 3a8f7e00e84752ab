"""Reading an engine as a consumer would, and batches as short as a test wants them."""

from __future__ import annotations

from levada.engine.port import At, Engine, Isolation
from levada.records.batch import batches
from levada.records.build import build
from levada.records.read import Record, read_all


def batch_of(
    *payloads: bytes | None,
    key: bytes | None = b"k",
    timestamp_ms: int = 1_700_000_000_000,
    codec: str = "none",
    producer: tuple[int, int, int] | None = None,
) -> bytearray:
    """A batch with one record per value. `producer` is (id, epoch, base sequence)."""
    producer_id, epoch, sequence = producer if producer is not None else (-1, -1, -1)
    return build(
        [(key, payload) for payload in payloads],
        timestamp_ms=timestamp_ms,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


async def records(
    engine: Engine,
    at: At,
    offset: int | None = None,
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    max_bytes: int = 1_000_000,
) -> list[Record]:
    """Everything from `offset` (the start) to the end that this isolation sees."""
    place = (await engine.bounds(at)).start if offset is None else offset
    found: list[Record] = []
    while True:
        slice_ = await engine.read(at, place, max_bytes, isolation=isolation)
        if not slice_.batches:
            return found
        committed_only = isolation == Isolation.READ_COMMITTED
        found += read_all(slice_.batches, from_offset=place, aborted=slice_.aborted, committed_only=committed_only)
        place = max(batch.next_offset for batch in batches(slice_.batches))


async def values(
    engine: Engine, at: At, offset: int | None = None, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> list[bytes | None]:
    return [record.value for record in await records(engine, at, offset, isolation=isolation)]
