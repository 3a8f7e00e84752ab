"""The producer's short way over Kafka's port: taken where it can be, and nobody can tell but by the time it takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import levada
from levada.client.client import AsyncClient
from levada.client.shortcut import Shortcut
from levada.errors import RecordTooLarge, UnknownTopic
from levada.testing import ThreadBroker, broker
from support.levada import LevadaBroker
from support.proxy import Proxy


@pytest.fixture
def running() -> Iterator[ThreadBroker]:
    with broker({"levada.durability": "os"}) as started:
        yield started


@pytest.fixture
async def client(running: ThreadBroker) -> AsyncIterator[AsyncClient]:
    async with levada.aio.connect(running.grpc) as connection:
        yield connection


async def found(client: AsyncClient) -> Shortcut:
    """Wait until the short way is open."""
    shortcut = client._shortcut
    async with asyncio.timeout(30):
        while shortcut.link() is None:  # noqa: ASYNC110  nobody else wants to know
            await asyncio.sleep(0.01)
    return shortcut


async def values(client: AsyncClient, topic: str, partition: int = 0) -> list[bytes]:
    return [record.value for record in await client.read(topic, partition, limit=10_000)]


def no_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on nothing may be published over gRPC."""

    def refuse(self: object) -> None:
        raise AssertionError("a batch went over gRPC")

    monkeypatch.setattr("levada.client.shortcut.Conversation._grpc", refuse)


async def test_batches_go_over_kafkas_port_once_it_is_found(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.manager.create_topic("orders", partitions=2)
    async with client.producer() as producer:
        assert (await (await producer.publish("orders", b"first", partition=1))).offset == 0
        await found(client)
        no_grpc(monkeypatch)
        many = [await producer.publish("orders", b"%d" % n, partition=1) for n in range(500)]
        assert [(await each).offset for each in many] == list(range(1, 501))
    assert await values(client, "orders", 1) == [b"first", *(b"%d" % n for n in range(500))]


async def test_refusals_are_the_contracts_own(client: AsyncClient) -> None:
    await client.manager.create_topic("small", settings={"max.message.bytes": 2_000_000})
    await client.manager.create_topic("gone")
    async with client.producer() as producer:
        for topic in ("small", "gone"):
            await (await producer.publish(topic, b"v"))
        await found(client)
        await client.manager.alter_topic("small", {"max.message.bytes": 1_000})
        with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes is 1000"):
            await (await producer.publish("small", bytes(100_000)))
        await client.manager.delete_topic("gone")
        with pytest.raises(UnknownTopic, match="gone"):
            await (await producer.publish("gone", b"v"))
        assert (await (await producer.publish("small", b"w"))).offset == 1


async def test_a_topic_made_again_is_written_to(client: AsyncClient) -> None:
    await client.manager.create_topic("again")
    async with client.producer() as producer:
        await (await producer.publish("again", b"old"))
        await found(client)
        await client.manager.delete_topic("again")
        await client.manager.create_topic("again")
        await (await producer.publish("again", b"new"))
    assert await values(client, "again") == [b"new"]


async def test_a_duplicate_is_told_with_the_place_of_the_first(client: AsyncClient) -> None:
    await client.manager.create_topic("once", settings={"levada.dedup": "id"})
    await client.manager.create_topic("plain")
    async with client.producer() as producer:
        await (await producer.publish("plain", b"v"))
        await found(client)
        # In turns, so that both ways are used with requests of the other before them.
        deliveries = []
        for n in range(20):
            deliveries.append(await producer.publish("once", b"v", message_id=f"id-{n // 2}"))
            await producer.publish("plain", b"w")
        positions = [await each for each in deliveries]
    assert [each.duplicate for each in positions] == [False, True] * 10
    assert all(positions[n].offset == positions[n + 1].offset for n in range(0, 20, 2))
    assert len(await values(client, "plain")) == 21


async def test_new_partitions_are_heard_of(client: AsyncClient) -> None:
    await client.manager.create_topic("grows", partitions=1)
    async with client.producer() as producer:
        await (await producer.publish("grows", b"v", key=b"k"))
        await found(client)
        await client.manager.expand_topic("grows", 8)
        async with asyncio.timeout(60):
            seen, n = {0}, 0
            while len(seen) < 8:
                n += 1
                seen.add((await (await producer.publish("grows", b"v", key=b"key-%d" % n))).partition)


async def test_a_connection_cut_after_storing_repeats_nothing(tmp_path: Path) -> None:
    proxy = Proxy()
    server = LevadaBroker(tmp_path, {"levada.durability": "os"}, advertised=proxy.address)
    server.start()
    proxy.target = ("127.0.0.1", server.port)
    try:
        async with levada.aio.connect(server.grpc) as client:
            await client.manager.create_topic("orders")
            async with client.producer(linger_ms=0) as producer:
                await (await producer.publish("orders", b"first"))
                await found(client)
                proxy.cut_produce_answers(6, every=5)
                n = 0
                async with asyncio.timeout(120):
                    while proxy.cuts < 6:
                        n += 1
                        await (await producer.publish("orders", b"%d" % n))
                        client._shortcut._not_before = 0.0  # look for the way again at once
            assert await values(client, "orders") == [b"first", *(b"%d" % each for each in range(1, n + 1))]
    finally:
        server.stop()
        proxy.close()


@pytest.mark.parametrize("elsewhere", ["nobody", "another broker"])
async def test_an_address_that_leads_elsewhere_is_not_used(tmp_path: Path, elsewhere: str) -> None:
    with broker({"levada.durability": "os"}) as other:
        async with levada.aio.connect(other.grpc) as client:
            await client.manager.create_topic("orders")
        address = other.bootstrap if elsewhere == "another broker" else "127.0.0.1:1"
        server = LevadaBroker(tmp_path, {"levada.durability": "os"}, advertised=address)
        server.start()
        try:
            async with levada.aio.connect(server.grpc) as client:
                await client.manager.create_topic("orders")
                async with client.producer() as producer:
                    await (await producer.publish("orders", b"v"))
                    shortcut = client._shortcut
                    async with asyncio.timeout(30):
                        while shortcut._finding is not None:  # noqa: ASYNC110
                            await asyncio.sleep(0.01)
                    assert shortcut.link() is None
                    await (await producer.publish("orders", b"w"))
                assert await values(client, "orders") == [b"v", b"w"]
        finally:
            server.stop()
        async with levada.aio.connect(other.grpc) as client:
            assert await values(client, "orders") == []
