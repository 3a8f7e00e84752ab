"""The two clients on real sockets, against a broker that misbehaves."""

import asyncio
import socket
import time

import pytest
import uvloop

from levada.errors import BrokerRefused, ConnectionLost, TimedOut, Unreachable, UnsupportedVersion
from levada.wire.answers import LATEST
from levada.wire.apis import ApiKey
from levada.wire.client import Client, connect
from support.either import CLIENTS, make_client
from support.fake_broker import BABBLE, CUT, HANG_UP, STALL, WRONG_TURN, FakeBroker

KEY = ApiKey.DESCRIBE_CLUSTER


@pytest.fixture
def broker():
    running = FakeBroker()
    yield running
    running.close()


@pytest.fixture(params=CLIENTS)
async def client(request, broker):
    made = make_client(request.param, broker.bootstrap, request_timeout_ms=300, timeout_ms=3_000)
    await made.connect()
    yield made
    await made.close()


def answers(broker, *replies):
    """What DescribeCluster gets, one after another, then always a good answer."""
    left = list(replies)
    broker.replies[KEY] = lambda _: left.pop(0) if left else {"cluster_id": "c"}


async def test_one_connection_serves_the_bootstrap_address_and_the_broker(client, broker):
    answers(broker)
    for _ in range(3):
        assert (await client.request(KEY, {})).cluster_id == "c"
    assert len(broker.connections) == 1
    assert broker.asked[0] == (ApiKey.API_VERSIONS, 4)


async def test_a_broker_that_stalls_is_timed_out_and_its_connection_given_up(client, broker):
    answers(broker, STALL)
    began = time.monotonic()
    with pytest.raises(TimedOut, match="300 ms"):
        await client.request(KEY, {})
    assert 0.25 < time.monotonic() - began < 20
    assert (await client.request(KEY, {})).cluster_id == "c"
    assert len(broker.connections) == 2


@pytest.mark.parametrize("how", [HANG_UP, CUT, BABBLE, WRONG_TURN])
async def test_an_answer_that_does_not_come_whole_is_a_lost_connection(client, broker, how):
    answers(broker, how)
    with pytest.raises(ConnectionLost, match=str(broker.port)):
        await client.request(KEY, {})
    assert (await client.request(KEY, {})).cluster_id == "c"


@pytest.mark.parametrize("how", [HANG_UP, CUT, BABBLE, STALL])
async def test_a_call_that_may_be_repeated_is(client, broker, how):
    answers(broker, how)
    assert (await client.request(KEY, {}, repeatable=True)).cluster_id == "c"


async def test_an_idle_connection_that_was_closed_is_opened_again(client, broker):
    answers(broker)
    await client.request(KEY, {})
    broker.connections[0].shutdown(socket.SHUT_RDWR)
    await asyncio.sleep(0.05)
    assert (await client.request(KEY, {}, repeatable=True)).cluster_id == "c"


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("newest", [0, 2, 3])
async def test_an_older_broker_is_asked_again_in_its_own_version(kind, newest):
    broker = FakeBroker(api_versions=(0, newest))
    client = make_client(kind, broker.bootstrap)
    await client.connect()
    assert broker.asked[:2] == [(ApiKey.API_VERSIONS, 4), (ApiKey.API_VERSIONS, newest)]
    await client.close()
    broker.close()


@pytest.mark.parametrize("kind", CLIENTS)
async def test_a_call_the_broker_lacks_is_unsupported(kind):
    broker = FakeBroker(describe_cluster=(7, 9))
    client = make_client(kind, broker.bootstrap)
    await client.connect()
    with pytest.raises(UnsupportedVersion, match="DescribeCluster 7 to 9"):
        await client.request(KEY, {})
    await client.close()
    broker.close()


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("how", [HANG_UP, CUT, BABBLE, STALL])
async def test_who_does_not_say_hello_is_unreachable(kind, how, broker):
    broker.replies[ApiKey.API_VERSIONS] = lambda _: how
    client = make_client(kind, broker.bootstrap, connect_timeout_ms=300)
    with pytest.raises(Unreachable, match=str(broker.port)):
        await client.connect()
    await client.close()


@pytest.mark.parametrize("kind", CLIENTS)
async def test_a_refused_hello_is_said_so(kind, broker):
    broker.replies[ApiKey.API_VERSIONS] = lambda _: {"error_code": 58}
    client = make_client(kind, broker.bootstrap)
    with pytest.raises(BrokerRefused, match="SASL"):
        await client.connect()
    await client.close()


@pytest.mark.parametrize("kind", CLIENTS)
async def test_the_next_bootstrap_address_is_tried(kind, broker):
    client = make_client(kind, f"127.0.0.1:1,{broker.bootstrap}")
    await client.connect()
    answers(broker)
    assert (await client.request(KEY, {})).cluster_id == "c"
    await client.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_many_tasks_share_one_connection(broker, run):
    async def ask():
        async with Client(broker.bootstrap) as client:
            return await asyncio.gather(*(client.request(KEY, {}) for _ in range(200)))

    answers(broker)
    assert {one.cluster_id for one in run(ask())} == {"c"}
    assert len(broker.connections) == 1


async def test_a_task_that_is_cancelled_does_not_harm_the_others(broker):
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(_):
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(60)
        return {"cluster_id": "c"}

    broker.replies[KEY] = slow
    async with Client(broker.bootstrap) as client:
        first = asyncio.create_task(client.request(KEY, {}))
        second = asyncio.create_task(client.request(KEY, {}))
        await asyncio.sleep(0.05)
        first.cancel()
        release.set()
        assert (await second).cluster_id == "c"
        with pytest.raises(asyncio.CancelledError):
            await first
    assert len(broker.connections) == 1


async def test_closing_ends_what_is_under_way(broker):
    broker.replies[KEY] = lambda _: STALL
    client = await connect(broker.bootstrap)
    waiting = asyncio.create_task(client.request(KEY, {}))
    await asyncio.sleep(0.05)
    await client.close()
    with pytest.raises(ConnectionLost, match="closed"):
        await waiting


async def test_closing_ends_those_who_wait_for_a_connection(broker):
    """A CancelledError would end the task that waits, though nobody has cancelled it."""
    client = await connect(broker.bootstrap)
    broker.connections[0].shutdown(socket.SHUT_RDWR)
    broker.replies[ApiKey.API_VERSIONS] = lambda _: STALL
    await asyncio.sleep(0.05)
    waiting = asyncio.create_task(client.request(KEY, {}))
    await asyncio.sleep(0.05)
    assert len(broker.connections) == 2
    await client.close()
    with pytest.raises(ConnectionLost, match="closed"):
        await waiting


async def test_who_is_cancelled_while_he_waits_for_a_connection_ends(broker):
    broker.replies[ApiKey.API_VERSIONS] = lambda _: STALL
    client = Client(broker.bootstrap)
    waiting = asyncio.create_task(client.request(KEY, {}))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await client.close()


@pytest.mark.parametrize("kind", CLIENTS)
async def test_a_client_that_was_closed_opens_nothing_any_more(kind, broker):
    client = make_client(kind, broker.bootstrap)
    await client.connect()
    await client.close()
    with pytest.raises(ConnectionLost, match="closed"):
        await client.request(KEY, {})
    assert len(broker.connections) == 1


async def test_a_stalled_request_ends_those_behind_it_with_the_connection(broker):
    broker.replies[KEY] = lambda _: STALL
    async with Client(broker.bootstrap, request_timeout_ms=300) as client:
        outcomes = await asyncio.gather(*(client.request(KEY, {}) for _ in range(3)), return_exceptions=True)
    assert {type(one) for one in outcomes} <= {TimedOut, ConnectionLost}
    assert any(isinstance(one, TimedOut) for one in outcomes)


async def test_a_call_knows_when_its_own_time_is_up(client, broker):
    broker.replies[ApiKey.LIST_OFFSETS] = lambda _: STALL
    began = time.monotonic()
    with pytest.raises((TimedOut, ConnectionLost, Unreachable)):
        await client.list_offsets({("t", 0): LATEST}, timeout_ms=700)
    assert time.monotonic() - began < 20


def test_calls_keep_their_names_and_their_words():
    assert Client.produce.__name__ == "produce"
    assert "Append one batch." in Client.produce.__doc__
