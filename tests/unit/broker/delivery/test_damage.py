"""A damaged partition: its consumer is told, and the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from levada.engine.port import At
from levada.errors import DamagedLog
from support.delivery import world as open_world

T0, T1 = At("t", 0), At("t", 1)


@pytest.mark.parametrize("raw", [False, True])
async def test_34_it_is_read_up_to_the_damage_and_the_others_are_read_on(tmp_path: Path, raw: bool) -> None:
    data = tmp_path / "data"
    async with open_world(data) as world:
        await world.create(partitions=2)
        ends = []
        for _ in range(3):
            await world.publish(T0, 5)
            ends.append((data / "topics/t-0/00000000000000000000.log").stat().st_size)
        await world.publish(T1, 5)
    path = data / "topics/t-0/00000000000000000000.log"
    held = bytearray(path.read_bytes())
    held[ends[0] + 70] ^= 0xFF  # in the second batch
    path.write_bytes(held)
    async with open_world(data) as world:
        consumer = await world.open(partitions=[T0, T1], raw=raw)
        await consumer.until(lambda it: it.failed)
        [failed] = consumer.failed
        assert failed.at == T0
        assert isinstance(failed.error, DamagedLog)
        assert "t-0" in str(failed.error)
        await world.publish(T1, 5)
        await consumer.until(lambda it: len(it.offsets(T1)) == 10)
        assert consumer.offsets(T0) == list(range(5))
        assert len(consumer.failed) == 1
        # What is whole can be read again; and whoever insists is told again.
        await consumer.it.seek({T0: 3})
        await consumer.until(lambda it: len(it.failed) == 2)
        assert consumer.offsets(T0) == [0, 1, 2, 3, 4, 3, 4]
        consumer.it.resume([T0])
        await consumer.until(lambda it: len(it.failed) == 3)
