"""Transactions with every client: committed, aborted, fenced, cut short by kill −9, and what readers see of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pytest

from support import clients, raw
from support.brokers import Broker
from support.driver import Client, Driver, Refused, Sent
from support.wait import wait_until

SETTLE_S = 60.0
#: What clients call being fenced.
FENCED = {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "_FENCED", "ProducerFencedError", "ProducerFenced"}


def values(client: Client, topic: str, *, committed: bool) -> list[bytes | None]:
    return [seen.value for seen in client.consume(topic, committed=committed)]


@pytest.mark.parametrize("name", clients.able("stepwise transactions"))
def test_what_is_committed_is_seen_and_what_is_aborted_only_by_who_asks_for_it(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    admin.create(topic, 2)
    client = with_client(name)
    producer = client.transaction(topic, topic)
    producer.begin()
    producer.send(topic, [Sent(b"kept 0", b"k", 0), Sent(b"kept 1", b"k", 1)])
    assert values(client, topic, committed=True) == [], "not before the end"
    assert sorted(values(client, topic, committed=False)) == [b"kept 0", b"kept 1"]  # type: ignore[type-var]
    producer.commit()
    producer.begin()
    producer.send(topic, [Sent(b"dropped 0", b"k", 0), Sent(b"dropped 1", b"k", 1)])
    producer.abort()
    producer.begin()
    producer.send(topic, [Sent(b"last", b"k", 0)])
    producer.commit()
    producer.close()
    for reader in clients.ALL:
        seen = with_client(reader).consume(topic, committed=True)
        by_partition = {index: [s.value for s in seen if s.partition == index] for index in (0, 1)}
        assert by_partition == {0: [b"kept 0", b"last"], 1: [b"kept 1"]}, reader
        everything = with_client(reader).consume(topic, committed=False)
        by_partition = {index: [s.value for s in everything if s.partition == index] for index in (0, 1)}
        assert by_partition == {0: [b"kept 0", b"dropped 0", b"last"], 1: [b"kept 1", b"dropped 1"]}, reader
        # A marker takes an offset and is never shown.
        assert [s.offset for s in everything if s.partition == 0] == [0, 2, 4], reader


def test_kcat_commits_at_the_end_of_its_input_and_aborts_when_interrupted(
    topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    admin.create(topic)
    client = with_client("kcat")
    for ending in ("commit", "abort", "commit"):
        producer = client.transaction(topic, topic)
        producer.begin()
        producer.send(topic, [Sent(f"{ending} {turn}".encode(), None, 0) for turn in range(3)])
        getattr(producer, ending)()
        producer.close()
    committed = [b"commit 0", b"commit 1", b"commit 2"]
    assert values(client, topic, committed=True) == committed * 2
    aborted = [b"abort 0", b"abort 1", b"abort 2"]
    assert values(client, topic, committed=False) == committed + aborted + committed


def has_committed(client: Client, topic: str, expected: Mapping[int, int | None]) -> bool:
    return client.committed(topic, topic) == expected


@pytest.mark.parametrize("name", clients.able("stepwise transactions"))
def test_offsets_move_with_the_transaction_or_not_at_all(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    """38."""
    admin.create(topic, 2)
    client = with_client(name)
    producer = client.transaction(topic, topic)
    for ending, expected in (("abort", {0: None, 1: None}), ("commit", {0: 5, 1: 7}), ("abort", {0: 5, 1: 7})):
        producer.begin()
        producer.send(topic, [Sent(b"v", None, 0)])
        producer.send_offsets(topic, topic, {0: 5, 1: 7} if ending == "commit" else {0: 99, 1: 98})
        getattr(producer, ending)()
        wait_until(partial(has_committed, admin, topic, expected), SETTLE_S, f"{expected} are committed")
    producer.close()


@pytest.mark.parametrize("name", clients.able("stepwise transactions"))
def test_a_newer_producer_of_the_same_id_fences_the_older_and_aborts_what_it_left_open(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    """38."""
    admin.create(topic)
    client = with_client(name)
    older = client.transaction(f"{topic}-older", topic)
    older.begin()
    older.send(topic, [Sent(b"left open", None, 0)])
    newer = client.transaction(f"{topic}-newer", topic)
    newer.begin()
    newer.send(topic, [Sent(b"newer", None, 0)])
    newer.commit()
    with pytest.raises(Refused) as refused:
        older.send(topic, [Sent(b"too late", None, 0)])
        older.commit()
    assert refused.value.code in FENCED, refused.value
    newer.close()
    assert values(client, topic, committed=True) == [b"newer"]
    assert values(client, topic, committed=False) == [b"left open", b"newer"]


def test_every_call_of_a_fenced_epoch_is_refused(topic: str, admin: Client) -> None:
    """38: an older epoch of the same transactional id, in every call. Over the older, explicit protocol."""
    admin.create(topic)
    with raw.Raw(admin.bootstrap) as connection:
        producer, old = raw.init_producer(connection, topic)
        assert raw.add_partition(connection, topic, producer, old, topic, 0) == 0
        again, new = wait_until(lambda: raw.init_producer(connection, topic), SETTLE_S, "a newer epoch")
        assert (again, new) == (producer, old + 2) or (again == producer and new > old)
        refusals = {
            "AddPartitionsToTxn": raw.add_partition(connection, topic, producer, old, topic, 0),
            "AddOffsetsToTxn": raw.add_offsets(connection, topic, producer, old, topic),
            "TxnOffsetCommit": raw.txn_offset_commit(connection, topic, producer, old, topic, topic),
            "EndTxn": raw.end_transaction(connection, topic, producer, old, commit=True),
            "Produce": int(
                raw.produce(
                    connection,
                    topic,
                    0,
                    raw.batch([b"v"], producer_id=producer, epoch=old, sequence=0, transactional=True),
                    transactional_id=topic,
                ).error_code
            ),
        }
    assert all(code in (47, 90) for code in refusals.values()), refusals
    assert values(admin, topic, committed=False) == []


@pytest.mark.parametrize("name", clients.able("stepwise transactions"))
def test_a_transaction_cut_short_by_kill_9_is_never_seen_and_a_committed_one_is_whole(
    name: str,
    own_broker: Broker,
    drivers: Callable[[str], Driver],
    member_processes: Callable[[str], Driver],
    topic: str,
) -> None:
    """37."""
    admin = Client(drivers("librdkafka"), own_broker.bootstrap)
    admin.create(topic, 2)
    wait_until(lambda: topic in admin.topics(), SETTLE_S, "created")
    doomed = Client(member_processes(name), own_broker.bootstrap)
    producer = doomed.transaction("whole", "whole")
    producer.begin()
    producer.send(topic, [Sent(b"whole", None, 0), Sent(b"whole", None, 1)])
    producer.commit()
    producer = doomed.transaction("cut", "cut")
    producer.begin()
    producer.send(topic, [Sent(b"cut", None, 0), Sent(b"cut", None, 1)])
    own_broker.kill()
    doomed.driver.kill()
    own_broker.start()
    client = Client(drivers(name), own_broker.bootstrap)
    after = client.transaction("after", "cut")  # InitProducerId aborts what the id left open
    after.begin()
    after.send(topic, [Sent(b"after", None, 0), Sent(b"after", None, 1)])
    after.commit()
    after.close()
    committed, everything = client.consume(topic, committed=True), client.consume(topic)
    for index in (0, 1):
        assert [seen.value for seen in committed if seen.partition == index] == [b"whole", b"after"]
        assert [seen.value for seen in everything if seen.partition == index] == [b"whole", b"cut", b"after"]


@pytest.mark.parametrize("name", clients.able("stepwise transactions"))
def test_a_transaction_that_takes_too_long_is_aborted_by_the_broker(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    admin.create(topic)
    client = with_client(name)
    producer = client.transaction(topic, topic, timeout_ms=1000)
    producer.begin()
    producer.send(topic, [Sent(b"abandoned", None, 0)])
    admin.produce(topic, [Sent(b"plain", None, 0)])
    assert values(client, topic, committed=True) == [], "the open transaction holds back what follows it"
    wait_until(lambda: values(client, topic, committed=True) == [b"plain"], SETTLE_S, "aborted by the broker")
    with pytest.raises(Refused):
        producer.commit()


def test_a_timeout_above_the_brokers_limit_is_refused(topic: str, with_client: Callable[[str], Client]) -> None:
    for name in clients.able("stepwise transactions"):
        with pytest.raises(Refused) as refused:
            with_client(name).transaction(f"{topic}-{name}", topic, timeout_ms=3_600_000)
        assert "TIMEOUT" in str(refused.value).upper(), (name, refused.value)
