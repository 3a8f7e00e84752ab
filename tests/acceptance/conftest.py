"""Brokers and clients for the acceptance tests. support.brokers says which broker that is, support.clients which clients."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support import clients
from support.brokers import Broker, make_broker
from support.driver import Client, Driver
from support.proxy import Proxy


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker most tests share. Nobody stops it; tests use topics of their own."""
    running = make_broker(tmp_path_factory.mktemp("broker"))
    with running:
        yield running


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of this test's own, that may be killed and started again."""
    running = make_broker(tmp_path / "broker")
    with running:
        yield running


@pytest.fixture(scope="session")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Proxy]]:
    """A broker that advertises a proxy in front of it."""
    proxy = Proxy()
    running = make_broker(tmp_path_factory.mktemp("proxied"), advertised=proxy.address)
    with running:
        proxy.target = ("127.0.0.1", running.port)
        yield running, proxy
        proxy.close()


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Driver]]:
    """One long-lived process per client, started when first asked for."""
    home = tmp_path_factory.mktemp("drivers")
    started: dict[str, Driver] = {}

    def get(name: str) -> Driver:
        if name not in started:
            started[name] = clients.driver(name, home / f"{name}.txt")
        return started[name]

    yield get
    for driver in started.values():
        driver.kill()


@pytest.fixture
def with_client(drivers: Callable[[str], Driver], broker: Broker) -> Callable[[str], Client]:
    """A client by name, bound to the shared broker."""
    return lambda name: Client(drivers(name), broker.bootstrap)


@pytest.fixture
def admin(with_client: Callable[[str], Client]) -> Client:
    """The client that prepares topics for those that cannot."""
    return with_client("librdkafka")


@pytest.fixture
def member_processes(drivers: Callable[[str], Driver]) -> Iterator[Callable[[str], Driver]]:
    """Further processes of a client, for members that will be killed; all are gone after the test."""
    with ExitStack() as stack:

        def get(name: str) -> Driver:
            another = drivers(name).another()
            stack.callback(another.kill)
            return another

        yield get


NAMES = itertools.count()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name no other test uses, with a bit of this test's name in it."""
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.removeprefix("test_").lower())
    return f"{stem[:60]}-{next(NAMES)}"
