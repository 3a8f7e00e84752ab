"""Broker-wide settings that are changed over the wire, and what they do at once to who is connected."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest

import levada
from levada.errors import BrokerRefused
from levada.testing import Broker, broker
from levada.v1 import stream_pb2 as pb
from levada.v1.stream_pb2_grpc import StreamServiceStub
from levada.wire.apis import ApiKey
from levada.wire.blocking import BlockingClient
from levada.wire.calls.admin import BROKER
from support.transaction_calls import Wire

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with broker() as one:
        yield one


@contextmanager
def changed(running: Broker, **changes: str) -> Iterator[None]:
    """`_` for `.`; back to what it was at the end."""
    named = {name.replace("_", "."): value for name, value in changes.items()}
    with BlockingClient(running.bootstrap) as client:
        client.alter_configs("1", named, kind=BROKER)
    yield
    with BlockingClient(running.bootstrap) as client:
        client.alter_configs("1", dict.fromkeys(named), kind=BROKER)


def connect(running: Broker) -> socket.socket:
    host, _, port = running.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


def is_cut_off(connection: socket.socket) -> bool:
    """Waits for the end; False when it does not come in time."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_an_idle_connection_is_closed_after_the_new_time(running: Broker) -> None:
    with connect(running) as idle, changed(running, connections_max_idle_ms="200"):
        assert is_cut_off(idle)


def test_a_frame_may_be_as_large_as_it_may_be_now(running: Broker) -> None:
    with connect(running) as before, changed(running, socket_request_max_bytes="10000"):
        for connection in (before, connect(running)):
            with connection:
                connection.sendall((10_001).to_bytes(4, "big"))
                assert is_cut_off(connection)


def test_there_are_as_many_connections_as_there_may_be_now(running: Broker) -> None:
    first = connect(running)
    with first, changed(running, max_connections="2"):
        second, third = connect(running), connect(running)
        with second, third:
            assert is_cut_off(third)


def test_sessions_and_transactions_take_as_long_as_they_may_now(running: Broker) -> None:
    with Wire(running.bootstrap) as wire:
        wire.create("limits")
        join = {
            "group_id": "limits",
            "session_timeout_ms": 8_000,
            "rebalance_timeout_ms": 8_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        assert wire.ask(ApiKey.JOIN_GROUP, 9, {**join, "member_id": ""}).error_code == 79, "join again with this id"
        with changed(running, group_max_session_timeout_ms="7000", transaction_max_timeout_ms="1000"):
            assert wire.ask(ApiKey.JOIN_GROUP, 9, {**join, "member_id": ""}).error_code == 26
            assert wire.init("limits", timeout_ms=1001)[0] == 50
        assert wire.init("limits", timeout_ms=1001)[0] == 0


def test_metadata_of_an_offset_is_as_long_as_it_may_be_now(running: Broker) -> None:
    with levada.connect(running.grpc) as native:
        native.manager.create_topic("metadata")
    offset = pb.PartitionOffset(topic="metadata", partition=0, offset=0, metadata="four")
    request = pb.CommitRequest(group="n", offsets=[offset])
    with grpc.insecure_channel(running.grpc) as channel:
        stub = StreamServiceStub(channel)
        with changed(running, offset_metadata_max_bytes="3"):
            assert [row.error.reason for row in stub.Commit(request).errors] == ["OffsetMetadataTooLarge"]
        assert not stub.Commit(request).errors


def test_topics_are_made_and_deleted_as_the_settings_allow(running: Broker) -> None:
    with BlockingClient(running.bootstrap) as client, levada.connect(running.grpc) as native:
        with changed(running, num_partitions="3", delete_topic_enable="false"):
            assert native.manager.create_topic("three").partitions == 3
            for delete in (client.delete_topic, native.manager.delete_topic):
                with pytest.raises((BrokerRefused, levada.errors.PolicyViolation)):
                    delete("three")
        native.manager.delete_topic("three")
