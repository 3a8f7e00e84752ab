"""Have everything compiled before the loop needs it."""

from __future__ import annotations

from uuid import UUID

from levada.broker.dedup.memory import Memory
from levada.broker.dedup.places import Place
from levada.engine.port import At
from levada.records.batch import Batch
from levada.records.build import build


def warm_up() -> None:
    """Call each compiled function once, with what it will be given: the first call is slow. For a worker thread."""
    for by_id in (True, False):
        memory = Memory(by_id=by_id)
        place = Place(UUID(int=0), At("warm", 0))
        headers = [("message_id", b"1")]
        for transactional in (False, True):
            batch = Batch(
                memoryview(
                    build(
                        [(None, b"1", headers)],
                        producer_id=1,
                        base_sequence=0,
                        producer_epoch=0,
                        transactional=transactional,
                    )
                )
            )
            memory.screen(place, batch, 0, 1, 1).forget()
        memory.table.merge(next(memory.table.entries()), 1, 1, memory.places.dead)
        for _ in memory.sweep(2, 1):
            pass
