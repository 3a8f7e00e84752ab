"""The dual path: a record reaches whoever waits as soon as its policy makes it visible, and no disk is read for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from levada.engine.port import At
from levada.log.disk import Disk, File
from support.delivery import World, settle
from support.delivery import world as open_world

T0 = At("t", 0)


class SlowDisk(Disk):
    """Notes reads that may wait for the platter, and syncs the logs of topic t only when it is let."""

    def __init__(self) -> None:
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.cold_reads: list[str] = []

    def create(self, path: str) -> File:
        return _SlowFile(self, super().create(path))

    def open_append(self, path: str) -> File:
        return _SlowFile(self, super().open_append(path))

    def open(self, path: str) -> File:
        return _SlowFile(self, super().open(path))


class _SlowFile(File):
    __slots__ = ("_disk",)

    def __init__(self, disk: SlowDisk, file: File) -> None:
        self._disk = disk
        self.path, self.size = file.path, file.size
        self._handle, self._nowait = file._handle, file._nowait

    def sync(self) -> None:
        if "/t-0/" in self.path:
            assert self._disk.may_sync.wait(60)
        super().sync()

    def pread(self, position: int, size: int, *, nowait: bool = False) -> bytes | bytearray:
        if "/t-0/" in self.path and not nowait:
            self._disk.cold_reads.append(self.path)
        return super().pread(position, size, nowait=nowait)


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
async def world(tmp_path: Path, disk: SlowDisk) -> AsyncIterator[World]:
    async with open_world(tmp_path / "data", disk) as made:
        try:
            yield made
        finally:
            disk.may_sync.set()


@pytest.mark.parametrize("durability", ["os", "interval:60000"])
async def test_it_is_delivered_before_it_is_synced_and_from_memory(
    world: World, disk: SlowDisk, durability: str
) -> None:
    await world.create(levada_durability=durability)
    consumer = await world.open()
    await consumer.until_assigned(T0)
    await settle()
    disk.may_sync.clear()
    await world.publish(count=3)
    await consumer.until_got(3)
    assert consumer.offsets(T0) == [0, 1, 2]
    assert disk.cold_reads == []
    await world.engine.partition("t", 0).read_cold(0, 1_000)
    assert disk.cold_reads, "a read that may wait would have been noted"


async def test_with_fsync_it_is_delivered_when_it_is_on_disk_and_still_from_memory(
    world: World, disk: SlowDisk
) -> None:
    await world.create(levada_durability="fsync")
    consumer = await world.open()
    await consumer.until_assigned(T0)
    disk.may_sync.clear()
    published = asyncio.create_task(world.publish(count=3))
    await settle(200)
    assert not published.done()
    assert consumer.records() == []
    disk.may_sync.set()
    await consumer.until_got(3)
    await published
    assert consumer.offsets(T0) == [0, 1, 2]
    assert disk.cold_reads == []


@pytest.mark.parametrize("durability", ["os", "fsync"])
async def test_many_readers_wait_and_each_gets_it_without_being_asked_again(
    world: World, disk: SlowDisk, durability: str
) -> None:
    """Nobody polls: whoever waits asks the engine once, and once more for what comes next."""
    await world.create(levada_durability=durability)
    asked = 0
    read = world.engine.read

    async def counting(*args: object) -> object:
        nonlocal asked
        asked += 1
        return await read(*args)  # type: ignore[arg-type]

    world.engine.read = counting  # type: ignore[method-assign,assignment]
    consumers = [await world.open() for _ in range(5)]
    for consumer in consumers:
        await consumer.until_assigned(T0)
    await settle()
    before = asked
    await settle(500)
    assert asked == before
    await world.publish()
    for consumer in consumers:
        await consumer.until_got(1)
    await settle()
    # For each: reading on, finding nothing, and waiting for more.
    assert asked == before + 2 * len(consumers)
    assert disk.cold_reads == []
