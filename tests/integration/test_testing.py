"""levada.testing: a real broker for a test suite."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path

import pytest

from levada.errors import DataInUse, InvalidConfig
from levada.records.build import build
from levada.records.read import Record, read_all
from levada.testing import Broker, ProcessBroker, broker
from levada.v1 import stream_pb2 as pb
from levada.wire.blocking import BlockingClient
from support.rpc import connect, connect_async, record


def write(bootstrap: str, topic: str, *values: bytes) -> None:
    with BlockingClient(bootstrap, auto_create=True) as client:
        client.topics([topic])
        client.produce((topic, 0), build([Record(n, 1, None, value) for n, value in enumerate(values)]))


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    with BlockingClient(bootstrap) as client:
        (fetched,) = client.fetch({(topic, 0): 0}).values()
        return [record.value for record in read_all(fetched.records)]


def test_the_fixture_gives_an_empty_broker(levada_broker: Broker) -> None:
    with BlockingClient(levada_broker.bootstrap) as client:
        assert [topic for topic in client.topics().values() if not topic.is_internal] == []


def test_two_brokers_do_not_know_each_other() -> None:
    with broker() as one, broker() as two:
        write(one.bootstrap, "t", b"here")
        with BlockingClient(two.bootstrap) as client:
            assert "t" not in client.topics()


@pytest.mark.parametrize("process", [False, True])
def test_native_clients_and_health_have_addresses_that_stay(process: bool) -> None:
    with broker(process=True) if process else broker() as levada:
        addresses = levada.grpc, levada.http
        with connect(levada.grpc) as client:
            client.create("t")
            client.publish("t", record(b"kept"))
        levada.stop()
        levada.start()
        assert (levada.grpc, levada.http) == addresses
        with connect(levada.grpc) as client:
            assert client.values("t") == [b"kept"]
        with urllib.request.urlopen(f"http://{levada.http}/readyz", timeout=20) as answer:
            assert answer.status == 200


def test_brokers_and_clients_of_every_kind_share_a_process() -> None:
    """Each broker has an event loop of its own, and so has whoever awaits; gRPC has one for all of them."""

    async def awaits(*addresses: str) -> None:
        for address in addresses:
            async with connect_async(address) as client:
                request = pb.PublishRequest(topic="t", records=[record()])
                await asyncio.gather(*(client.stream.Publish(request) for _ in range(50)))

    with broker() as one, broker() as two:
        for levada in (one, two):
            with connect(levada.grpc) as client:
                client.create("t")
                client.publish("t", record())
        asyncio.run(awaits(one.grpc, two.grpc))
        one.stop()
        asyncio.run(awaits(two.grpc))
        one.start()
        asyncio.run(awaits(one.grpc))
        for levada in (one, two):
            with connect(levada.grpc) as client:
                assert client.stored("t") == {0: 101}


def test_a_broker_in_this_process_stops_and_starts_again_with_its_data(tmp_path: Path) -> None:
    with broker(data=tmp_path / "d") as levada:
        write(levada.bootstrap, "t", b"a", b"b")
        address = levada.bootstrap
        levada.stop()
        levada.start()
        assert levada.bootstrap == address
        assert values(levada.bootstrap, "t") == [b"a", b"b"]


def test_a_broker_in_its_own_process_survives_kill_9() -> None:
    with broker({"levada.durability": "fsync"}, process=True) as levada:
        assert isinstance(levada, ProcessBroker)
        write(levada.bootstrap, "t", b"kept")
        levada.kill()
        levada.start()
        assert values(levada.bootstrap, "t") == [b"kept"]
        assert "not clean" in levada.log


def test_nothing_is_left_behind() -> None:
    with broker(process=True) as levada:
        data = levada.data
    assert not data.exists()
    assert list(data.parent.glob(f"{data.name}*")) == []


def test_settings_are_checked_and_taken() -> None:
    with (
        broker({"num.partitions": "3", "retention.ms": "5000"}) as levada,
        BlockingClient(levada.bootstrap, auto_create=True) as client,
    ):
        assert len(client.topics(["made"])["made"].partitions) == 3
        assert client.describe_configs("made")["retention.ms"].value == "5000"
    with pytest.raises(InvalidConfig, match="nonsense"), broker({"nonsense": "1"}):
        pass


def test_a_data_directory_has_one_broker_at_a_time(tmp_path: Path) -> None:
    with broker(data=tmp_path / "d"), pytest.raises(DataInUse), broker(data=tmp_path / "d"):
        pass
