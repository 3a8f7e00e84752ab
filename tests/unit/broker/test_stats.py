from __future__ import annotations

import os
from pathlib import Path

from levada import __version__
from levada.broker.stats import Statistician, resident_bytes
from support.engines import make_topic, running
from support.reading import batch_of


async def test_the_figures_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        statistician = Statistician(
            engine.view,
            groups=lambda: 2,
            connections=lambda: 5,
            records=engine.records,
            bytes_on_disk=engine.bytes_on_disk,
        )
        before = await statistician.read()
        at = await make_topic(engine, "t", 3)
        await engine.append(at, batch_of(b"x", b"y"))
        engine.count_out(at, 2, 100)
        stats = await statistician.read()
        assert (stats.version, stats.topics, stats.partitions, stats.groups, stats.connections) == (
            __version__, 1, 3, 2, 5,
        )  # fmt: skip
        assert stats.records_in - before.records_in == 3  # the topic's own record, and two
        assert stats.records_out - before.records_out == 2
        assert stats.bytes_on_disk > before.bytes_on_disk
        assert stats.uptime_ms >= before.uptime_ms >= 0


async def test_what_a_deleted_topic_took_and_gave_still_counts(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        at = await make_topic(engine)
        await engine.append(at, batch_of(b"x", b"y"))
        engine.count_out(at, 2, 100)
        came, went = engine.records()
        assert went == 2
        await engine.delete("t")
        assert engine.records() == (came + 1, went)  # and the record that says it is gone
        engine.count_out(at, 1, 50)  # a reader who was a little late
        assert engine.records() == (came + 1, went)


async def test_a_repeat_is_not_counted_and_out_is_counted_by_offsets(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        at = await make_topic(engine)
        for _ in range(2):
            await engine.append(at, batch_of(b"x", b"y", b"z", producer=(7, 0, 0)))
        partition = engine.partition(*at)
        assert (partition.records_in, partition.bytes_in) == (3, partition.log.size_bytes)
        partition.count_out(1, (await engine.read(at, 1, 1000)).batches)
        assert (partition.records_out, partition.bytes_out) == (2, partition.log.size_bytes)


def test_resident_memory_is_that_of_this_process() -> None:
    grown = bytearray(os.urandom(1)) * (64 * 1024 * 1024)
    assert len(grown) < resident_bytes() < 1 << 40
