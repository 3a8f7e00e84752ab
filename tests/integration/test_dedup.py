"""Dedup in a whole broker: requests that come before the memory is loaded, metrics, and what a broker without it does not load."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from levada.broker.dedup.dedup import Dedup
from levada.broker.publishing import NewRecord
from levada.engine.port import At, TopicSpec
from levada.server import Server
from levada.wire.apis import ApiKey
from levada.wire.produce import write_request
from support.broker import running
from support.dedup import batch_with
from support.raw_client import RawClient, connected
from support.reading import records

PAYLOAD = {"levada.dedup": "payload"}
STORAGE_ERROR = 56
LOAD_S = 120.0


def send(
    client: RawClient,
    *topics: tuple[str, Sequence[tuple[int, Sequence[bytes]]]],
    producer: tuple[int, int, int] = (-1, -1, -1),
    acks: int = -1,
) -> None:
    made: list[Any] = [
        (name, [(index, batch_with(values, producer=producer).view) for index, values in partitions])
        for name, partitions in topics
    ]
    body = b"".join(write_request(9, made, acks=acks, timeout_ms=60_000))
    client.send_body(ApiKey.PRODUCE, 9, body, answered=acks != 0)


async def answers(client: RawClient) -> dict[str, list[tuple[int, int, int]]]:
    """(partition, error code, base offset) by topic."""
    found: Any = await client.expect(LOAD_S)
    return {
        row.name: [(one.index, one.error_code, one.base_offset) for one in row.partition_responses]
        for row in found.responses
    }


async def create(server: Server, name: str, partitions: int = 1, **settings: str) -> None:
    await server.engine.create(TopicSpec(name=name, partitions=partitions, settings=settings))


async def test_requests_that_come_before_the_memory_is_loaded_are_answered_in_their_order(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server, connected(server) as client:
        await create(server, "t", 2, **PAYLOAD)
        await create(server, "plain")
        producer_id, epoch = await server.engine.transactions.init_producer_id(None, 0)
        for sequence in range(5):
            send(client, ("t", [(0, [b"%d" % sequence])]), producer=(producer_id, epoch, sequence))
        # Partitions before the one that has to wait, and after it.
        send(client, ("plain", [(0, [b"a"])]), ("t", [(0, [b"0"]), (7, [b"x"]), (1, [b"5"])]), ("none", [(0, [b"x"])]))
        for sequence in range(5):
            assert await answers(client) == {"t": [(0, 0, sequence)]}
        assert await answers(client) == {
            "plain": [(0, 0, 0)],
            "t": [(0, 0, 5), (7, 3, -1), (1, 0, 0)],
            "none": [(0, 3, -1)],
        }
        found = await records(server.engine, At("t", 0))
        assert [(record.offset, record.value) for record in found] == [(n, b"%d" % n) for n in range(5)]


async def test_the_rest_of_a_request_waits_for_a_topic_in_its_middle(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server, connected(server) as client:
        for name in ("t", "u"):
            await create(server, name, 2, **PAYLOAD)
        await create(server, "plain", 2)
        send(
            client, ("plain", [(0, [b"a"]), (1, [b"a"])]), ("t", [(0, [b"a"]), (1, [b"a"])]), ("u", [(1, [b"a", b"a"])])
        )
        assert await answers(client) == {
            "plain": [(0, 0, 0), (1, 0, 0)],
            "t": [(0, 0, 0), (1, 0, 0)],
            "u": [(1, 0, 0)],
        }
        assert [record.value for record in await records(server.engine, At("t", 1))] == []
        assert (await server.engine.bounds(At("t", 1))).end == 1
        send(client, ("t", [(0, [b"b"])]), acks=0)
        send(client, ("t", [(0, [b"c"])]))
        assert await answers(client) == {"t": [(0, 0, 2)]}


async def test_a_request_that_has_to_wait_more_than_once_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "data") as server, connected(server) as client:
        for name in ("t", "u"):
            await create(server, name, 2, **PAYLOAD)
        await create(server, "plain", 2)
        # Also one that is not ready again when it comes to the second partition of the same topic.
        met = set()
        ready = Dedup.ready

        def not_at_first(self: Dedup, partition: Any) -> bool:
            is_first = partition.at not in met
            met.add(partition.at)
            return not is_first and ready(self, partition)

        monkeypatch.setattr(Dedup, "ready", not_at_first)
        send(
            client,
            ("plain", [(0, [b"a"]), (1, [b"b"])]),
            ("t", [(7, [b"x"]), (1, [b"c"]), (0, [b"d"])]),
            ("plain", [(9, [b"x"]), (1, [b"e"])]),
            ("u", [(0, [b"f"]), (1, [b"g"])]),
        )
        found: Any = await client.expect(LOAD_S)
        rows = [
            (row.name, [(one.index, one.error_code, one.base_offset) for one in row.partition_responses])
            for row in found.responses
        ]
        assert rows == [
            ("plain", [(0, 0, 0), (1, 0, 0)]),
            ("t", [(7, 3, -1), (1, 0, 0), (0, 0, 0)]),
            ("plain", [(9, 3, -1), (1, 0, 1)]),
            ("u", [(0, 0, 0), (1, 0, 0)]),
        ]


async def test_a_memory_that_cannot_be_loaded_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(self: Dedup, topic: str) -> None:
        raise OSError("no")

    async with running(tmp_path / "data") as server, connected(server) as client:
        await create(server, "t", **PAYLOAD)
        monkeypatch.setattr(Dedup, "open", fails)
        send(client, ("t", [(0, [b"a"])]))
        assert await answers(client) == {"t": [(0, STORAGE_ERROR, -1)]}
        monkeypatch.undo()
        send(client, ("t", [(0, [b"a"])]))
        assert await answers(client) == {"t": [(0, 0, 0)]}


async def test_drops_and_entries_are_counted(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server:
        await create(server, "t", **PAYLOAD)
        assert server._native is not None
        await server._native.publisher.publish("t", [NewRecord(b"a"), NewRecord(b"b"), NewRecord(b"a")])
        host, port = server.addresses["http"]
        async with httpx.AsyncClient() as http:
            text = (await http.get(f"http://{host}:{port}/metrics")).text
        assert 'levada_dedup_dropped_messages_total{topic="t"} 1' in text
        assert 'levada_dedup_entries{topic="t"} 2' in text


def test_a_broker_without_such_topics_never_imports_numba() -> None:
    program = """
import asyncio, sys, tempfile
from pathlib import Path
from levada.broker.publishing import NewRecord
from levada.config import BrokerConfig
from levada.engine.port import TopicSpec
from levada.server import Server

async def main():
    with tempfile.TemporaryDirectory() as home:
        server = Server(BrokerConfig(data=Path(home), kafka_port=0, grpc_port=0, http_port=None))
        await server.start()
        await server.engine.create(TopicSpec(name="t", partitions=1))
        await server._native.publisher.publish("t", [NewRecord(b"a")])
        await server.stop()

asyncio.run(main())
assert not {"numba", "numpy"} & set(sys.modules), "loaded"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
