"""Reading with patience: from the page cache where it can be, from the disk where it must, and later where there is nothing yet."""

from __future__ import annotations

import asyncio

from levada.engine.embedded.partition import Partition
from levada.engine.port import Isolation, Slice
from levada.log.disk import WouldBlock


async def read(partition: Partition, offset: int, max_bytes: int, wait_ms: int, isolation: Isolation) -> Slice:
    """Whole batches from `offset` on; waits up to `wait_ms` for the first, without polling."""
    found = await read_now(partition, offset, max_bytes, isolation)
    if found.batches or wait_ms <= 0:
        return found
    alarm = _Alarm()
    partition.watch(alarm)
    try:
        async with asyncio.timeout(wait_ms / 1000):
            while not found.batches:
                await alarm.rang()
                found = await read_now(partition, offset, max_bytes, isolation)
    except TimeoutError:
        pass
    finally:
        partition.unwatch(alarm)
    return found


async def read_now(partition: Partition, offset: int, max_bytes: int, isolation: Isolation) -> Slice:
    try:
        return partition.read(offset, max_bytes, isolation)
    except WouldBlock:
        return await partition.read_cold(offset, max_bytes, isolation)


class _Alarm:
    """Rings when a partition moves."""

    def __init__(self) -> None:
        self._moved = asyncio.Event()

    def advanced(self, partition: Partition, bytes_added: int) -> None:
        self._moved.set()

    async def rang(self) -> None:
        await self._moved.wait()
        self._moved.clear()
