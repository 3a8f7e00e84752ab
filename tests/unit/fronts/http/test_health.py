from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from levada.config import MiB
from levada.engine.embedded.engine import EmbeddedEngine
from levada.errors import StorageFull
from levada.fronts.http.health import REFUSED_MS, Check, checks, free_bytes
from levada.fronts.http.sources import Sources
from support.engines import ScarceDisk, as_killed, make_topic, running
from support.reading import batch_of

PLENTY = 1 << 40


class Clock:
    ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


def wrong(engine: EmbeddedEngine, free: int = PLENTY, is_closing: Callable[[], bool] = bool) -> dict[str, str]:
    found = checks(Sources(engine=engine, node_name="n1", is_closing=is_closing), free)
    assert [check.name for check in found] == ["damaged", "disk_full", "sync_failed", "closing", "recovering"]
    return {check.name: check.why for check in found if check.why}


async def test_every_check_counts_somewhere(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        found = checks(Sources(engine=engine, node_name="n1"), PLENTY)
        assert all(check.unwell or check.unready for check in found)
        assert Check("damaged", "", unwell=True, unready=False) in found


async def test_a_disk_without_room_is_full_though_nobody_writes(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        assert wrong(engine, MiB) == {}
        assert wrong(engine, MiB - 1) == {"disk_full": "1048575 bytes are free on the disk"}
        assert free_bytes(Sources(engine=engine, node_name="n1")) > 0


async def test_a_full_disk_says_how_much_waits_for_the_archive(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        at = await make_topic(engine)
        engine.partition(*at).shrinker.waiting_bytes = 4711
        assert wrong(engine, 0)["disk_full"].endswith("; 4711 bytes could go if they were archived")


async def test_a_refused_write_tells_of_a_full_disk_for_a_while(tmp_path: Path) -> None:
    disk, clock = ScarceDisk(), Clock()
    async with running(tmp_path / "data", disk=disk, now_ms=clock) as engine:
        at = await make_topic(engine)
        await engine.append(at, batch_of(b"x"))
        disk.room = 10
        with pytest.raises(StorageFull):
            await engine.append(at, batch_of(b"x"))
        assert "t-0" in wrong(engine)["disk_full"]
        disk.room = 1 << 30
        clock.ms += REFUSED_MS
        assert wrong(engine) == {}


async def test_many_partitions_are_counted_after_the_first_ten(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        await make_topic(engine, "t", 12)
        for index in range(12):
            engine.partition("t", index).sync_failed(OSError(5, "broken"))
        assert wrong(engine)["sync_failed"].endswith("; and 2 more")


async def test_a_broker_that_recovers_says_how_much_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path / "data") as engine:
        at = await make_topic(engine)
        await engine.append(at, batch_of(b"x"))
        killed = as_killed(tmp_path / "data")
    async with running(killed) as engine:
        assert wrong(engine) == {}
        monkeypatch.setattr(type(engine), "unrecovered", 3)
        assert wrong(engine)["recovering"].startswith("3 partitions are still checked")


async def test_a_closing_broker_says_so(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        assert wrong(engine, is_closing=lambda: True) == {"closing": "the broker is closing"}
