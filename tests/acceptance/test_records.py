"""What a record carries, where it lands, and how a reader finds its place: with every client."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from support import clients
from support.driver import Client, Refused, Sent

BYTES = bytes(range(256))


@pytest.mark.parametrize("name", clients.ALL)
def test_an_explicit_partition_is_where_the_record_goes(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    admin.create(topic, 3)
    client = with_client(name)
    client.produce(topic, [Sent(b"with key", b"k", 2), Sent(b"without", None, 2), Sent(b"first", b"k", 0)])
    assert {(seen.partition, seen.value) for seen in client.consume(topic)} == {
        (2, b"with key"),
        (2, b"without"),
        (0, b"first"),
    }


@pytest.mark.parametrize("name", clients.ALL)
def test_records_of_one_key_stay_in_one_partition_in_order(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    admin.create(topic, 6)
    client = with_client(name)
    # Idempotent, because a client may reorder what it sends again, and a new topic's leader may not be known at once.
    client.produce(topic, [Sent(b"%d" % turn, b"user-%d" % (turn % 20)) for turn in range(200)], idempotent=True)
    places: dict[bytes | None, set[int]] = {}
    values: dict[bytes | None, list[int]] = {}
    for seen in sorted(client.consume(topic), key=lambda seen: seen.offset):
        assert seen.value is not None
        places.setdefault(seen.key, set()).add(seen.partition)
        values.setdefault(seen.key, []).append(int(seen.value))
    assert all(len(partitions) == 1 for partitions in places.values())
    assert all(numbers == sorted(numbers) and len(numbers) == 10 for numbers in values.values())
    assert len(set.union(*places.values())) > 1


@pytest.mark.parametrize("name", clients.able("murmur2"))
def test_clients_that_hash_with_murmur2_agree_on_the_partition(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    admin.create(topic, 12)
    keys = [b"user-123", b"user-456", b"order-123", b"user:1", BYTES]
    with_client("java-4.3").produce(topic, [Sent(b"java", key) for key in keys])
    with_client(name).produce(topic, [Sent(b"other", key) for key in keys])
    found = admin.consume(topic)
    for key in keys:
        assert len({seen.partition for seen in found if seen.key == key}) == 1


@pytest.mark.parametrize("name", clients.ALL)
def test_nulls_empties_and_every_byte_arrive_as_sent(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    admin.create(topic)
    client = with_client(name)
    sent = [Sent(None, b"tombstone", 0), Sent(BYTES, BYTES, 0), Sent(b"\n", None, 0)]
    client.produce(topic, sent)
    for reader in {name, "librdkafka", "java-4.3"}:
        found = with_client(reader).consume(topic)
        assert [(seen.key, seen.value) for seen in found] == [(record.key, record.value) for record in sent]


@pytest.mark.parametrize("name", clients.ALL)
def test_headers_keep_their_order_and_repeats(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    admin.create(topic)
    headers = [("trace", b"1"), ("kind", b"order"), ("trace", b"2"), ("empty", b"")]
    with_client(name).produce(topic, [Sent(b"with", b"k", 0, headers)])
    with_client(name).produce(topic, [Sent(b"without", b"k", 0)])
    for reader in clients.ALL:
        found = with_client(reader).consume(topic)
        assert [list(seen.headers) for seen in found] == [headers, []], reader


@pytest.mark.parametrize("name", clients.able("null header values"))
def test_a_header_may_be_null(name: str, topic: str, admin: Client, with_client: Callable[[str], Client]) -> None:
    admin.create(topic)
    with_client(name).produce(topic, [Sent(b"v", b"k", 0, [("gone", None), ("here", BYTES)])])
    for reader in clients.able("null header values"):
        [seen] = with_client(reader).consume(topic)
        assert list(seen.headers) == [("gone", None), ("here", BYTES)], reader


@pytest.mark.parametrize("name", clients.ALL)
def test_a_reader_starts_at_the_offset_it_asks_for(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    """16, over the Kafka wire: an offset in the middle of a batch gives exactly the records from there."""
    admin.create(topic, 2)
    admin.produce(topic, [Sent(b"%d" % index, None, 0) for index in range(1000)])
    client = with_client(name)
    found = client.consume(topic, {0: 991})
    assert [(seen.offset, seen.value) for seen in found] == [(offset, b"%d" % offset) for offset in range(991, 1000)]
    assert client.consume(topic, {0: 1000}) == []
    assert client.bounds(topic) == {0: (0, 1000), 1: (0, 0)}


@pytest.mark.parametrize("name", clients.ALL)
def test_a_reader_finds_the_first_offset_at_or_after_a_time(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    admin.create(topic, 2)
    start = int(time.time() * 1000) - 100_000
    admin.produce(topic, [Sent(b"%d" % index, None, 0, timestamp_ms=start + index * 100) for index in range(100)])
    client = with_client(name)
    assert client.offsets_at(topic, start) == {0: 0, 1: None}
    assert client.offsets_at(topic, start + 4_250) == {0: 43, 1: None}
    assert client.offsets_at(topic, start + 4_300) == {0: 43, 1: None}
    assert client.offsets_at(topic, start + 10_000) == {0: None, 1: None}
    [first, *_] = client.consume(topic, {0: 43})
    assert first.timestamp_ms == start + 4_300


@pytest.mark.parametrize("name", clients.able("timestamps"))
def test_timestamps_are_the_producers_unless_the_topic_says_otherwise(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    stamped = f"{topic}-stamped"
    admin.create(topic)
    admin.create(stamped, 1, {"message.timestamp.type": "LogAppendTime"})
    an_hour_ago = int(time.time() * 1000) - 3_600_000
    client = with_client(name)
    for target in (topic, stamped):
        client.produce(target, [Sent(b"v", None, 0, timestamp_ms=an_hour_ago + turn) for turn in range(3)])
    assert [seen.timestamp_ms for seen in client.consume(topic)] == [an_hour_ago + turn for turn in range(3)]
    times = [seen.timestamp_ms for seen in client.consume(stamped)]
    assert all(abs(stamp - time.time() * 1000) < 60_000 for stamp in times) and len(times) == 3


@pytest.mark.parametrize("name", clients.able("telling offsets"))
def test_a_producer_learns_the_offset_of_each_record(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    admin.create(topic, 2)
    client = with_client(name)
    assert client.produce(topic, [Sent(b"%d" % index, None, 1) for index in range(5)]) == [
        (1, offset) for offset in range(5)
    ]
    assert client.produce(topic, [Sent(b"next", None, 1)]) == [(1, 5)]


@pytest.mark.parametrize("name", clients.able("admin"))
def test_a_record_larger_than_the_topic_takes_is_refused_and_nothing_is_stored(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    """18, over the Kafka wire."""
    admin.create(topic, 1, {"max.message.bytes": "20000"})
    client = with_client(name)
    with pytest.raises(Refused) as refused:
        client.produce(topic, [Sent(b"x" * 50_000, None, 0)])
    assert refused.value.code == "MESSAGE_TOO_LARGE"
    client.produce(topic, [Sent(b"small", None, 0)])
    assert [seen.value for seen in client.consume(topic)] == [b"small"]


@pytest.mark.parametrize("name", clients.able("admin"))
def test_reading_below_the_start_is_out_of_range_and_the_rest_is_there(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    """15, over the Kafka wire."""
    admin.create(topic)
    admin.produce(topic, [Sent(b"%d" % index, None, 0) for index in range(10)])
    client = with_client(name)
    client.trim(topic, {0: 6})
    assert client.bounds(topic) == {0: (6, 10)}
    with pytest.raises(Refused) as refused:
        client.consume(topic, {0: 2})
    assert "OFFSET_OUT_OF_RANGE" in refused.value.code or "OutOfRange" in refused.value.code
    assert [seen.value for seen in client.consume(topic)] == [b"6", b"7", b"8", b"9"]
