"""Data directories of every format that was ever released, kept as they were written. They must open, now and always.

A new format adds a directory `tests/data/format-<n>`, made by `python tests/data/make_sample.py`, and an upgrade from the last.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from levada.engine.embedded.meta import FORMAT_VERSION
from levada.engine.port import At, Isolation
from support.engines import running
from support.reading import batch_of, records

SAMPLES = Path(__file__).parents[3] / "data"
FORMATS = sorted(SAMPLES.glob("format-*"))


def test_there_is_a_sample_of_every_format() -> None:
    assert [path.name for path in FORMATS] == [f"format-{version}" for version in range(1, FORMAT_VERSION + 1)]


@pytest.mark.parametrize("sample", FORMATS, ids=lambda path: path.name)
async def test_a_directory_of_this_format_opens_with_all_it_holds(sample: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(sample, data)
    async with running(data) as engine:
        topics = {info.name: (info.partitions, dict(info.settings)) for info in engine.view.all() if not info.internal}
        assert topics == {
            "plain": (2, {}),
            "compacted": (1, {"cleanup.policy": "compact", "segment.bytes": "500"}),
            "empty": (3, {"retention.ms": "1000"}),
        }
        plain = await records(engine, At("plain", 0), isolation=Isolation.READ_COMMITTED)
        assert [record.value for record in plain] == [b"0", b"1", b"2", b"3", b"4", b"committed"]
        assert await engine.bounds(At("plain", 1)) == (1, 3, 3)
        latest = {record.key: record.value for record in await records(engine, At("compacted", 0))}
        assert latest == {b"0": b"28", b"1": b"29", b"2": b"26"}
        committed = await engine.offsets("group")
        assert [(at, each.offset, each.metadata) for at, each in committed.items()] == [(At("plain", 0), 3, "kept")]
        assert (await engine.append(At("plain", 1), batch_of(b"2", producer=(9000, 0, 2)))).duplicate
        async with engine.own("shard") as owner:
            assert owner.epoch > 0
        await engine.append(At("plain", 0), batch_of(b"new"))
