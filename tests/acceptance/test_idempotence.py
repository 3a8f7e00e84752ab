"""Producing exactly once: through cut connections with every client, and by hand where no client would do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support import clients, raw
from support.brokers import Broker, levada_only
from support.driver import Client, Driver, Sent
from support.proxy import Proxy
from support.wait import wait_until

COUNT = 1500
CUTS = 6
OUT_OF_ORDER, INVALID_EPOCH, FENCED = 45, 47, 90


@pytest.mark.parametrize("name", clients.ALL)
def test_nothing_is_stored_twice_or_out_of_order_when_answers_are_cut_off(
    name: str, topic: str, proxied: tuple[Broker, Proxy], drivers: Callable[[str], Driver]
) -> None:
    broker, proxy = proxied
    Client(drivers("librdkafka"), broker.bootstrap).create(topic, 1)
    client = Client(drivers(name), broker.bootstrap)
    client.produce(topic, [Sent(b"warm", None, 0)], idempotent=True)
    proxy.cut_produce_answers(CUTS, every=3)
    client.produce(topic, [Sent(b"%d" % turn, None, 0) for turn in range(COUNT)], idempotent=True, batch=20)
    assert proxy.cuts == CUTS, "the answers were cut"
    values = [seen.value for seen in client.consume(topic)][1:]
    assert values == [b"%d" % turn for turn in range(COUNT)]


def test_a_repeated_batch_is_stored_once_and_a_gap_or_an_older_epoch_is_an_error(
    own_broker: Broker, drivers: Callable[[str], Driver], topic: str
) -> None:
    """10, and the same after a restart and after kill −9."""
    admin = Client(drivers("librdkafka"), own_broker.bootstrap)
    admin.create(topic)
    wait_until(lambda: topic in admin.topics(), 15, "created")
    with raw.Raw(own_broker.bootstrap) as connection:
        producer, epoch = raw.init_producer(connection)

    def send(sequence: int, *values: bytes, epoch: int = epoch) -> tuple[int, int]:
        records = raw.batch(values, producer_id=producer, epoch=epoch, sequence=sequence)
        with raw.Raw(own_broker.bootstrap) as connection:
            answer = wait_until(
                lambda: unless_electing(raw.produce(connection, topic, 0, records)), 15, "the partition has a leader"
            )
        return int(answer.error_code), answer.base_offset

    assert send(0, b"a", b"b") == (0, 0)
    assert send(2, b"c") == (0, 2)
    assert send(0, b"a", b"b") == (0, 0), (
        "a repeat of an older batch gives its offset; only the last outlives a restart"
    )
    for stop in (own_broker.stop, own_broker.kill, None):
        assert send(2, b"c") == (0, 2), "a repeat gives the first offset"
        assert send(9, b"x")[0] == OUT_OF_ORDER
        if stop is not None:
            stop()
            own_broker.start()
    assert send(0, b"d", epoch=epoch + 1) == (0, 3), "a new epoch starts at sequence 0"
    assert send(3, b"x", epoch=epoch)[0] in (INVALID_EPOCH, FENCED)
    assert send(5, b"x", epoch=epoch + 2)[0] == OUT_OF_ORDER, "a new epoch that does not start at 0"
    assert [seen.value for seen in admin.consume(topic)] == [b"a", b"b", b"c", b"d"]


@levada_only
@pytest.mark.parametrize("ends", [("kill",), ("stop",), ("kill", "kill"), ("stop", "kill"), ("kill", "stop")], ids=str)
def test_every_batch_a_producer_may_have_in_flight_is_known_after_restarts(
    ends: tuple[str, ...], own_broker: Broker, drivers: Callable[[str], Driver], topic: str
) -> None:
    """10: a client has up to five batches in flight. Kafka's snapshots keep the last one only, ours must not lose the others:
    librdkafka is dead for good if a batch it sends again is not recognised.
    """
    Client(drivers("librdkafka"), own_broker.bootstrap).create(topic)
    with raw.Raw(own_broker.bootstrap) as connection:
        producer, epoch = raw.init_producer(connection)
    batches = [raw.batch([b"v"] * 3, producer_id=producer, epoch=epoch, sequence=3 * turn) for turn in range(7)]

    def send(records: bytes) -> tuple[int, int]:
        with raw.Raw(own_broker.bootstrap) as connection:
            answer = raw.produce(connection, topic, 0, records)
        return int(answer.error_code), answer.base_offset

    assert [send(records) for records in batches] == [(0, 3 * turn) for turn in range(7)]
    for end in ends:
        getattr(own_broker, end)()
        own_broker.start()
    assert [send(records) for records in batches[2:]] == [(0, 3 * turn) for turn in range(2, 7)]
    assert send(raw.batch([b"v"], producer_id=producer, epoch=epoch, sequence=21)) == (0, 21)


def unless_electing(answer: Any) -> Any:
    """None for NOT_LEADER_OR_FOLLOWER and UNKNOWN_TOPIC_OR_PARTITION just after a start: ask again."""
    return None if int(answer.error_code) in (3, 6) else answer
