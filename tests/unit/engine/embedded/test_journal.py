from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from levada.engine.embedded.journal import Journal
from levada.errors import StorageFull
from support.engines import ScarceDisk, as_killed, running

TOPIC = "__levada.leases"


def rows(journal: Journal) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for batch, found in journal.replay() if not batch.is_control for record in found]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


async def test_a_journal_nobody_wrote_to_is_empty_and_no_topic(data: Path) -> None:
    async with running(data) as engine:
        assert rows(engine.internal(TOPIC)) == []
        assert engine.view.get(TOPIC) is None


async def test_what_was_written_is_replayed_in_order(data: Path) -> None:
    async with running(data) as engine:
        journal = engine.internal(TOPIC)
        assert journal.append([(b"a", b"1"), (b"b", b"2")]) == 2
        end = journal.append([(b"a", None)])
        await journal.durable(end)
        expected = [(b"a", b"1"), (b"b", b"2"), (b"a", None)]
        assert rows(journal) == expected
        assert engine.config_of(TOPIC).compact
    async with running(data) as engine:
        assert rows(engine.internal(TOPIC)) == expected


async def test_a_journal_longer_than_one_read_is_replayed_whole(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levada.engine.embedded.journal._READ_BYTES", 300)
    async with running(data) as engine:
        journal = engine.internal(TOPIC)
        for number in range(30):
            journal.append([(b"key %d" % number, b"x" * number * 10)])
        assert [key for key, _ in rows(journal)] == [b"key %d" % number for number in range(30)]


async def test_a_transaction_is_written_with_its_producer_and_ended_by_a_marker(data: Path) -> None:
    async with running(data) as engine:
        journal = engine.internal(TOPIC)
        journal.append([(b"a", b"1")], producer=(7, 2))
        journal.append([(b"b", b"2")], producer=(7, 2))
        journal.append_marker(7, 2, commit=True, coordinator_epoch=0)
        batches = [batch for batch, _ in journal.replay()]
        assert [(batch.producer_id, batch.producer_epoch, batch.is_control) for batch in batches] == [
            (7, 2, False),
            (7, 2, False),
            (7, 2, True),
        ]
        assert all(batch.is_transactional for batch in batches)


async def test_durable_means_that_the_topic_is_too(data: Path) -> None:
    async with running(data) as engine:
        journal = engine.internal(TOPIC)
        end = journal.append([(b"a", b"1")])
        await asyncio.gather(*(journal.durable(end) for _ in range(3)))
        killed = as_killed(data)
        await journal.durable(end)
    async with running(killed) as engine:
        assert rows(engine.internal(TOPIC)) == [(b"a", b"1")]


async def test_a_journal_without_room_can_be_written_later(data: Path) -> None:
    disk = ScarceDisk()
    async with running(data, disk=disk) as engine:
        journal = engine.internal(TOPIC)
        disk.room = 0
        for _ in range(2):
            with pytest.raises(StorageFull):
                journal.append([(b"a", b"1")])
        disk.room = 1 << 30
        await journal.durable(journal.append([(b"a", b"2")]))
        assert rows(journal) == [(b"a", b"2")]
    async with running(data) as engine:
        assert rows(engine.internal(TOPIC)) == [(b"a", b"2")]
