"""Clients of Kafka's wire while the broker reads nothing: who gives up takes nothing from the others, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from levada.errors import TimedOut
from levada.records.pack import pack
from levada.testing import ProcessBroker, broker
from levada.wire.blocking import BlockingClient
from levada.wire.client import Client

LARGE = bytes(pack([(1, None, b"x" * 900_000, [])]))
SMALL = bytes(pack([(1, None, b"small", [])]))
AT = ("t", 0)


@pytest.fixture(scope="module")
def running() -> Iterator[ProcessBroker]:
    with broker({"levada.durability": "os"}, process=True) as started:
        with BlockingClient(started.bootstrap) as client:
            client.create_topic("t", 16)
        yield started


@contextmanager
def stopped(running: ProcessBroker) -> Iterator[None]:
    os.kill(running.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(running.pid, signal.SIGCONT)


@asynccontextmanager
async def stalled(running: ProcessBroker, client: Client) -> AsyncIterator[list[asyncio.Task[object]]]:
    """While this lasts the broker reads nothing, and the client's socket takes no more: what was written to it."""
    await client.produce(AT, SMALL)
    connection = next(iter(client._connections.values())).result()
    under_way: list[asyncio.Task[object]] = []
    with stopped(running):
        while connection._writable is None:
            under_way.append(asyncio.create_task(client.produce(AT, LARGE)))
            await asyncio.sleep(0.01)
        yield under_way


async def test_who_gives_up_writing_takes_it_from_nobody(running: ProcessBroker) -> None:
    async with Client(running.bootstrap) as client:
        async with stalled(running, client) as under_way:
            one, two = (asyncio.create_task(client.produce(AT, SMALL)) for _ in range(2))
            await asyncio.sleep(0.1)
            one.cancel()
            await asyncio.wait([one])
            assert one.cancelled()
            assert not two.done()
        for each in (*under_way, two, asyncio.create_task(client.produce(AT, SMALL))):
            await each


async def test_waiting_to_write_has_the_requests_time_limit(running: ProcessBroker) -> None:
    async with Client(running.bootstrap) as client:
        async with stalled(running, client) as under_way:
            for each in under_way:
                each.cancel()
            async with asyncio.timeout(30):
                with pytest.raises(TimedOut, match="did not read what was sent within"):
                    await client.produce(AT, SMALL, timeout_ms=1_000)
        await client.produce(AT, SMALL)


def test_half_a_request_ends_its_connection(running: ProcessBroker) -> None:
    """As Ctrl-C in a notebook does it."""

    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    with BlockingClient(running.bootstrap) as client:
        client.produce(AT, SMALL)
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            with stopped(running), pytest.raises(Interrupted):
                signal.setitimer(signal.ITIMER_REAL, 0.5)
                client.produce_many({("t", partition): LARGE for partition in range(16)})
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert client.produce(AT, SMALL, timeout_ms=20_000).base_offset >= 0
