"""Retention of a topic with `levada.archive` waits for the committed offset of group `__levada.archive`."""

from __future__ import annotations

from pathlib import Path

import pytest

from levada.config import HOUR_MS
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.names import ARCHIVE_GROUP
from levada.engine.port import At, Committed, TopicSpec
from levada.errors import InvalidConfig
from support.engines import as_killed, make_topic, running
from support.reading import batch_of

START_MS = 1_700_000_000_000
PLACE = "/lake/t"


class Clock:
    ms = START_MS

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def archived_topic(engine: EmbeddedEngine, **settings: str) -> At:
    """Twenty records, about two in a segment."""
    at = await make_topic(engine, levada_archive=PLACE, segment_bytes="150", **settings)
    for number in range(20):
        await engine.append(at, batch_of(b"%d" % number, timestamp_ms=START_MS))
    return at


async def archive(engine: EmbeddedEngine, at: At, offset: int, place: str = PLACE) -> None:
    await engine.commit_offsets(ARCHIVE_GROUP, {at: Committed(offset, metadata=place)})


async def start_after_retention(engine: EmbeddedEngine, at: At) -> int:
    await engine._upkeep.retain()
    return (await engine.bounds(at)).start


@pytest.mark.parametrize("settings", [{"retention_ms": str(HOUR_MS)}, {"retention_ms": "-1", "retention_bytes": "0"}])
async def test_retention_goes_as_far_as_the_archive_and_no_further(
    tmp_path: Path, clock: Clock, settings: dict[str, str]
) -> None:
    async with running(tmp_path / "data", now_ms=clock) as engine:
        at = await archived_topic(engine, **settings)
        clock.ms += 2 * HOUR_MS
        assert await start_after_retention(engine, at) == 0
        await archive(engine, at, 7)
        assert 4 <= await start_after_retention(engine, at) <= 7
        await archive(engine, at, 20)
        assert await start_after_retention(engine, at) == 20


async def test_what_waits_is_counted(tmp_path: Path, clock: Clock) -> None:
    async with running(tmp_path / "data", now_ms=clock) as engine:
        at = await archived_topic(engine, retention_ms=str(HOUR_MS))
        partition = engine.partition(*at)
        await engine._upkeep.retain()
        assert partition.shrinker.waiting_bytes == 0
        clock.ms += 2 * HOUR_MS
        await engine._upkeep.retain()
        assert partition.shrinker.waiting_bytes == partition.log.size_bytes > 0
        await archive(engine, at, 20)
        await engine._upkeep.retain()
        assert partition.shrinker.waiting_bytes == 0


async def test_an_offset_of_another_place_says_nothing_about_this_one(tmp_path: Path, clock: Clock) -> None:
    async with running(tmp_path / "data", now_ms=clock) as engine:
        at = await archived_topic(engine, retention_ms=str(HOUR_MS))
        clock.ms += 2 * HOUR_MS
        await archive(engine, at, 20, "/lake/before")
        assert await start_after_retention(engine, at) == 0
        await archive(engine, at, 20, "")  # set by hand
        assert await start_after_retention(engine, at) == 20


async def test_each_partition_waits_for_its_own_offset(tmp_path: Path, clock: Clock) -> None:
    async with running(tmp_path / "data", now_ms=clock) as engine:
        at = await archived_topic(engine, retention_ms=str(HOUR_MS))
        await engine.expand("t", 2)
        new = At("t", 1)
        await engine.append(new, batch_of(b"x", timestamp_ms=START_MS))
        clock.ms += 2 * HOUR_MS
        await archive(engine, at, 20)
        assert await start_after_retention(engine, at) == 20
        assert await start_after_retention(engine, new) == 0
        await archive(engine, new, 1)
        assert await start_after_retention(engine, new) == 1


async def test_the_floor_holds_after_a_crash(tmp_path: Path, clock: Clock) -> None:
    data = tmp_path / "data"
    async with running(data, now_ms=clock) as engine:
        at = await archived_topic(engine, retention_ms=str(HOUR_MS))
        await archive(engine, at, 10)
        killed = as_killed(data)
    clock.ms += 2 * HOUR_MS
    async with running(killed, now_ms=clock) as engine:
        engine.partition(*at)
        assert 8 <= await start_after_retention(engine, at) <= 10


async def test_records_that_somebody_asked_to_delete_go_and_free_their_segments(tmp_path: Path, clock: Clock) -> None:
    async with running(tmp_path / "data", now_ms=clock) as engine:
        at = await archived_topic(engine, retention_ms=str(HOUR_MS))
        size = engine.partition(*at).log.size_bytes
        assert await engine.trim(at, 12) == 12
        clock.ms += 2 * HOUR_MS
        assert await start_after_retention(engine, at) == 12
        assert engine.partition(*at).log.size_bytes < size / 2


async def test_without_the_setting_nothing_waits(tmp_path: Path, clock: Clock) -> None:
    async with running(tmp_path / "data", now_ms=clock) as engine:
        at = await archived_topic(engine, retention_ms=str(HOUR_MS))
        clock.ms += 2 * HOUR_MS
        assert await start_after_retention(engine, at) == 0
        await engine.alter("t", {"levada.archive": None})
        assert await start_after_retention(engine, at) == 20


async def test_a_topic_made_again_starts_without_an_offset(tmp_path: Path, clock: Clock) -> None:
    async with running(tmp_path / "data", now_ms=clock) as engine:
        at = await archived_topic(engine, retention_ms=str(HOUR_MS))
        await archive(engine, at, 20)
        await engine.delete("t")
        at = await archived_topic(engine, retention_ms=str(HOUR_MS))
        clock.ms += 2 * HOUR_MS
        assert await start_after_retention(engine, at) == 0


async def test_an_archive_and_compaction_do_not_go_together(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as engine:
        for policy in ("compact", "delete,compact"):
            with pytest.raises(InvalidConfig, match=r"cleanup\.policy must be delete"):
                await make_topic(engine, levada_archive=PLACE, cleanup_policy=policy)
        await make_topic(engine, cleanup_policy="compact")
        with pytest.raises(InvalidConfig, match="do not go together"):
            await engine.alter("t", {"levada.archive": PLACE})
        assert not engine.config_of("t").archive


async def test_where_compaction_is_the_default_an_archived_topic_is_not_compacted(tmp_path: Path) -> None:
    async with running(tmp_path / "data", topic={"cleanup.policy": "compact"}) as engine:
        await engine.create(TopicSpec(name="t", partitions=1, settings={"levada.archive": PLACE}))
        config = engine.config_of("t")
        assert (config.compact, config.delete) == (False, True)
