"""The Kafka front over real sockets: what is said byte by byte, which no client library lets one see."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import uvloop

from levada.engine.port import TopicInfo, TopicSpec
from levada.fronts.kafka import listener, notice
from levada.fronts.kafka.apis import offered
from levada.records.batch import Batch, batches
from levada.records.read import read
from levada.server import Server
from levada.wire import fetch as fetch_wire
from levada.wire import produce as produce_wire
from levada.wire.apis import APIS, ApiKey
from levada.wire.produce import Produced
from support.batches import make_batch, make_record
from support.broker import make_config, running
from support.raw_client import RawClient, connected

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING = -2, -1, -3, -4, -5, -6


pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy. fixture")


@pytest.fixture
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    """As the broker runs."""
    return uvloop.EventLoopPolicy()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path / "data", {"num.partitions": "2"}) as broker:
        yield broker


@pytest.fixture
async def client(server: Server) -> AsyncIterator[RawClient]:
    async with connected(server) as connection:
        yield connection


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The log lines that name client and cause."""
    lines: list[str] = []
    monkeypatch.setattr(notice, "refused", lambda call, request, cause: lines.append(f"{call} {request}: {cause}"))
    monkeypatch.setattr(notice, "closed", lambda who, cause: lines.append(f"{who} closed: {cause}"))
    return lines


async def make_topic(server: Server, name: str = "t", partitions: int = 2, **settings: str) -> TopicInfo:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return await server.engine.create(TopicSpec(name=name, partitions=partitions, settings=given))


def produce_body(
    version: int, topics: Sequence[Any], *, acks: int = -1, timeout_ms: int = 5000, transactional_id: str | None = None
) -> bytes:
    parts = produce_wire.write_request(
        version, topics, acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id
    )
    return b"".join(parts)


async def produce(
    client: RawClient,
    topic: str | UUID,
    records: Batch | bytes | None,
    *,
    partition: int = 0,
    version: int = 9,
    **more: Any,
) -> Any:
    """Produce to one partition; gives its answer."""
    held = records.view if isinstance(records, Batch) else records
    client.send_body(0, version, produce_body(version, [(topic, [(partition, held)])], **more))
    answer = await client.expect()
    return answer.responses[0].partition_responses[0]


def fetch_body(version: int, topic: str | UUID, offsets: dict[int, int], **more: Any) -> bytes:
    wanted = [
        (partition, more.pop("epoch", -1), offset, -1, -1, more.pop("partition_max_bytes", 1 << 20))
        for partition, offset in offsets.items()
    ]
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20, **more}
    return fetch_wire.write_request(version, [(topic, wanted)], **limits)


async def fetch(
    client: RawClient, topic: str | UUID, offsets: dict[int, int], *, version: int = 11, **more: Any
) -> Any:
    client.send_body(1, version, fetch_body(version, topic, offsets, **more))
    return await fetched(client, version)


async def fetched(client: RawClient, version: int = 11, timeout_s: float = 60) -> Any:
    answer = await client.expect(timeout_s)
    assert version < 7 or answer.error_code == 0
    return answer.responses[0].partitions


def values(rows: Any) -> list[bytes]:
    """The values of all records in these partitions' answers."""
    return [record.value for row in rows for batch in batches(row.records) for record in read(batch)]


# ApiVersions


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_names_what_is_offered(client: RawClient, version: int) -> None:
    answer = await client.call(18, version, client_software_name="raw", client_software_version="1.0")
    assert answer.error_code == 0
    told = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
    assert told.keys() == offered().keys()
    assert told.pop(0) == (0, 13)
    assert all(told[key] == (APIS[key].min_version, APIS[key].max_version) for key in told)
    if version >= 3:
        [feature] = answer.finalized_features
        assert (feature.name, feature.max_version_level) == ("transaction.version", 2)
        assert answer.supported_features[0].min_version == (0 if version == 4 else 1)


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(client: RawClient) -> None:
    client.send_frame(struct.pack(">hhih", 18, 99, 7, -1) + b"\0whatever comes then")
    frame = await client.receive()
    assert struct.unpack_from(">ih", frame) == (7, 35)
    (count,) = struct.unpack_from(">i", frame, 6)
    assert count == len(offered())
    assert len(frame) == 10 + 6 * count


async def test_a_client_with_an_impossible_name_is_refused(client: RawClient, refusals: list[str]) -> None:
    answer = await client.call(18, 3, client_software_name="no spaces", client_software_version="1")
    assert answer.error_code == 42
    assert len(refusals) == 1


async def test_a_call_that_is_not_offered_closes_the_connection(client: RawClient, refusals: list[str]) -> None:
    client.send_frame(struct.pack(">hhih", 999, 0, 1, -1))
    assert await client.is_closed()
    assert "call 999 is not known here" in refusals[0]


async def test_a_version_that_is_not_offered_closes_the_connection(client: RawClient, refusals: list[str]) -> None:
    client.send_frame(struct.pack(">hhih", ApiKey.METADATA, 14, 1, -1) + b"\0")
    assert await client.is_closed()
    assert len(refusals) == 1


# Produce


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
async def test_produce_appends_and_tells_the_offset(server: Server, client: RawClient, version: int) -> None:
    info = await make_topic(server)
    topic = info.id if version >= 13 else "t"
    first = await produce(client, topic, make_batch(3), version=version)
    second = await produce(client, topic, make_batch(2), version=version, acks=1)
    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 3)
    assert server.engine.partition("t", 0).end == 5


async def test_produce_takes_many_partitions_and_refuses_each_on_its_own(
    server: Server, client: RawClient, refusals: list[str]
) -> None:
    await make_topic(server)
    broken = bytearray(make_batch(3).view)
    broken[-1] ^= 1
    topics = [
        ("t", [(0, make_batch(3).view), (1, broken), (7, make_batch(1).view)]),
        ("nope", [(0, make_batch(1).view)]),
    ]
    client.send_body(0, 9, produce_body(9, topics))
    answer = await client.expect()
    rows = [row for topic in answer.responses for row in topic.partition_responses]
    assert [row.error_code for row in rows] == [0, 2, 3, 3]
    assert rows[1].error_message
    assert server.engine.partition("t", 0).end == 3
    assert server.engine.partition("t", 1).end == 0
    [line] = refusals
    assert "client raw at 127.0.0.1" in line and "t-1" in line and "nope-0" in line


@pytest.mark.parametrize("records", [None, b""])
async def test_produce_without_records_is_invalid(
    server: Server, client: RawClient, records: bytes | None, refusals: list[str]
) -> None:
    await make_topic(server)
    assert (await produce(client, "t", records)).error_code == 87


async def test_produce_takes_exactly_one_batch_per_partition(
    server: Server, client: RawClient, refusals: list[str]
) -> None:
    await make_topic(server)
    two = bytes(make_batch(1).view) + bytes(make_batch(1).view)
    assert (await produce(client, "t", two)).error_code == 87
    assert (await produce(client, "t", bytes(make_batch(1).view)[:-1])).error_code == 2
    assert server.engine.partition("t", 0).end == 0


async def test_produce_refuses_acks_that_mean_nothing(server: Server, client: RawClient, refusals: list[str]) -> None:
    await make_topic(server)
    assert (await produce(client, "t", make_batch(1), acks=2)).error_code == 21
    assert server.engine.partition("t", 0).end == 0
    assert "acks=2" in refusals[0]


async def test_produce_takes_zstd_from_version_7_on(server: Server, client: RawClient, refusals: list[str]) -> None:
    await make_topic(server)
    assert (await produce(client, "t", make_batch(1, codec="zstd"), version=6)).error_code == 76
    assert (await produce(client, "t", make_batch(1, codec="zstd"), version=7)).error_code == 0


async def test_a_batch_above_max_message_bytes_is_too_large(
    server: Server, client: RawClient, refusals: list[str]
) -> None:
    await make_topic(server, max_message_bytes="200")
    assert (await produce(client, "t", make_batch(1, value=b"v" * 500))).error_code == 10


async def test_the_record_that_breaks_a_rule_is_named(server: Server, client: RawClient, refusals: list[str]) -> None:
    await make_topic(server, cleanup_policy="compact")
    records = [make_record(0), make_record(1), make_record(2, key=None), make_record(3)]
    row = await produce(client, "t", make_batch(records=records))
    assert row.error_code == 87
    assert [each.batch_index for each in row.record_errors] == [2]
    assert server.engine.partition("t", 0).end == 0


async def test_the_brokers_own_bookkeeping_takes_no_records(
    server: Server, client: RawClient, refusals: list[str]
) -> None:
    assert (await produce(client, "__levada.topics", make_batch(1))).error_code == 17


async def test_a_repeated_batch_is_answered_with_the_first_ones_offset(server: Server, client: RawClient) -> None:
    await make_topic(server)
    await produce(client, "t", make_batch(2))
    for _ in range(2):
        row = await produce(client, "t", make_batch(3, producer_id=5, producer_epoch=0, sequence=0))
        assert (row.error_code, row.base_offset) == (0, 2)
    assert server.engine.partition("t", 0).end == 5


async def test_a_gap_in_a_producers_sequence_is_refused(server: Server, client: RawClient, refusals: list[str]) -> None:
    await make_topic(server)
    await produce(client, "t", make_batch(1, producer_id=5, producer_epoch=0, sequence=0))
    row = await produce(client, "t", make_batch(1, producer_id=5, producer_epoch=0, sequence=9))
    assert row.error_code == 45


async def test_an_unknown_topic_id_is_named_as_such(server: Server, client: RawClient, refusals: list[str]) -> None:
    assert (await produce(client, uuid4(), make_batch(1), version=13)).error_code == 100


async def test_acks_0_is_not_answered(server: Server, client: RawClient) -> None:
    await make_topic(server)
    client.send_body(0, 9, produce_body(9, [("t", [(0, make_batch(2).view)])], acks=0), answered=False)
    row = await produce(client, "t", make_batch(1))
    assert row.base_offset == 2


async def test_acks_0_that_fails_closes_the_connection(server: Server, client: RawClient, refusals: list[str]) -> None:
    client.send_body(0, 9, produce_body(9, [("nope", [(0, make_batch(2).view)])], acks=0), answered=False)
    assert await client.is_closed()
    assert "nope-0" in refusals[0]


async def test_a_timestamp_stamped_by_the_broker_is_told(server: Server, client: RawClient) -> None:
    await make_topic(server, message_timestamp_type="LogAppendTime")
    row = await produce(client, "t", make_batch(1))
    assert row.log_append_time_ms > 1_700_000_000_000
    [answer] = await fetch(client, "t", {0: 0})
    [batch] = batches(answer.records)
    assert batch.log_append_time and batch.max_timestamp == row.log_append_time_ms


@pytest.mark.parametrize("version", range(3))
async def test_versions_0_to_2_of_produce_are_advertised_and_refused(
    server: Server, client: RawClient, version: int, refusals: list[str]
) -> None:
    await make_topic(server)
    body = produce_body(3, [("t", [(1, make_batch(1).view)])])[2:]
    client.send_body(0, version, body, answered=False)
    frame = await client.receive()
    row = struct.pack(">ihq", 1, 35, -1) + (struct.pack(">q", -1) if version == 2 else b"")
    throttle = struct.pack(">i", 0) if version >= 1 else b""
    assert frame == struct.pack(">iih1si", 1, 1, 1, b"t", 1) + row + throttle
    assert server.engine.partition("t", 1).end == 0


async def test_pipelined_produces_are_appended_and_answered_in_order(server: Server, client: RawClient) -> None:
    await make_topic(server)
    for number in range(50):
        batch = make_batch(1, value=b"%d" % number)
        client.send_body(0, 9, produce_body(9, [("t", [(0, batch.view)])]))
    answers = [await client.expect() for _ in range(50)]
    assert [each.responses[0].partition_responses[0].base_offset for each in answers] == list(range(50))
    assert values(await fetch(client, "t", {0: 0})) == [b"%d-0" % number for number in range(50)]


async def test_with_fsync_produces_are_answered_in_order_when_they_are_durable(tmp_path: Path) -> None:
    async with running(tmp_path / "data", {"levada.durability": "fsync"}) as server, connected(server) as client:
        await make_topic(server)
        for number in range(20):
            client.send_body(0, 9, produce_body(9, [("t", [(number % 2, make_batch(1).view)])]))
        answers = [await client.expect() for _ in range(20)]
        rows = [each.responses[0].partition_responses[0] for each in answers]
        assert [row.error_code for row in rows] == [0] * 20
        assert [row.base_offset for row in rows] == [number // 2 for number in range(20)]
        assert server.engine.partition("t", 0).log.synced_offset == 10


async def test_a_produce_that_is_not_durable_in_time_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: list[str]
) -> None:
    async with running(tmp_path / "data", {"levada.durability": "fsync"}) as server, connected(server) as client:
        await make_topic(server)
        partition = server.engine.partition("t", 0)
        release = asyncio.Event()
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(partition, "when_durable", lambda end: never)
        row = await produce(client, "t", make_batch(1), timeout_ms=30)
        assert row.error_code == 7
        release.set()


# Fetch


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_fetch_gives_what_was_produced(server: Server, client: RawClient, version: int) -> None:
    info = await make_topic(server)
    await produce(client, "t", make_batch(3))
    [row] = await fetch(client, info.id if version >= 13 else "t", {0: 0}, version=version)
    assert (row.error_code, row.high_watermark, row.last_stable_offset) == (0, 3, 3)
    assert row.log_start_offset == (0 if version >= 5 else -1)
    assert values([row]) == [b"value-0", b"value-1", b"value-2"]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_an_empty_answer_has_records_of_length_0_and_all_offsets(
    server: Server, client: RawClient, version: int
) -> None:
    info = await make_topic(server)
    await produce(client, "t", make_batch(3))
    [row] = await fetch(client, info.id if version >= 13 else "t", {0: 3}, version=version)
    assert row.records == b""
    assert (row.error_code, row.high_watermark, row.last_stable_offset) == (0, 3, 3)


async def test_an_offset_within_a_batch_gives_the_whole_batch(server: Server, client: RawClient) -> None:
    await make_topic(server)
    await produce(client, "t", make_batch(5))
    [row] = await fetch(client, "t", {0: 3})
    [batch] = batches(row.records)
    assert (batch.base_offset, batch.record_count) == (0, 5)


async def test_at_least_one_batch_comes_whatever_the_limits(server: Server, client: RawClient) -> None:
    await make_topic(server)
    for partition in (0, 1):
        for _ in range(3):
            await produce(client, "t", make_batch(1, value=b"v" * 1000), partition=partition)
    rows = await fetch(client, "t", {0: 0, 1: 0}, max_bytes=1, partition_max_bytes=1)
    assert [len(list(batches(row.records))) for row in rows] == [1, 0]
    assert [row.high_watermark for row in rows] == [3, 3]


async def test_limits_give_whole_batches_only(server: Server, client: RawClient) -> None:
    await make_topic(server)
    for partition in (0, 1):
        for _ in range(10):
            await produce(client, "t", make_batch(1, value=b"v" * 1000), partition=partition)
    size = len((await fetch(client, "t", {0: 0}, max_bytes=1))[0].records)
    rows = await fetch(client, "t", {0: 0, 1: 0}, max_bytes=size * 5 + 10, partition_max_bytes=size * 3)
    assert [len(row.records) for row in rows] == [size * 3, size * 2]


@pytest.mark.parametrize("offset", [-1, 4, 10**12])
async def test_an_offset_that_is_not_there_is_out_of_range(server: Server, client: RawClient, offset: int) -> None:
    await make_topic(server)
    await produce(client, "t", make_batch(3))
    [row] = await fetch(client, "t", {0: offset}, max_wait_ms=5000)
    assert (row.error_code, row.high_watermark, row.log_start_offset) == (1, 3, 0)


async def test_unknown_topics_partitions_and_ids_are_told_apart(server: Server, client: RawClient) -> None:
    await make_topic(server)
    assert (await fetch(client, "nope", {0: 0}, max_wait_ms=5000))[0].error_code == 3
    assert (await fetch(client, "t", {9: 0}, max_wait_ms=5000))[0].error_code == 3
    assert (await fetch(client, uuid4(), {0: 0}, version=13, max_wait_ms=5000))[0].error_code == 100


async def test_a_leader_epoch_that_is_not_the_brokers_is_refused(server: Server, client: RawClient) -> None:
    await make_topic(server)
    epoch = server.engine.broker_epoch
    assert (await fetch(client, "t", {0: 0}, epoch=epoch))[0].error_code == 0
    assert (await fetch(client, "t", {0: 0}, epoch=epoch + 1))[0].error_code == 75
    if epoch > 0:
        assert (await fetch(client, "t", {0: 0}, epoch=epoch - 1))[0].error_code == 74


async def test_a_waiting_fetch_is_woken_by_an_append(server: Server, client: RawClient) -> None:
    await make_topic(server)
    client.send_body(1, 11, fetch_body(11, "t", {0: 0, 1: 0}, max_wait_ms=60_000))
    assert await client.nothing_comes()
    async with connected(server) as other:
        topics = [("t", [(0, make_batch(1).view), (1, make_batch(2).view)])]
        other.send_body(0, 9, produce_body(9, topics))
        await other.expect()
    rows = await fetched(client, timeout_s=30)
    # Both partitions of the one Produce, not the first alone.
    assert [len(values([row])) for row in rows] == [1, 2]


async def test_a_waiting_fetch_waits_for_min_bytes(server: Server, client: RawClient) -> None:
    await make_topic(server)
    client.send_body(1, 11, fetch_body(11, "t", {0: 0}, max_wait_ms=60_000, min_bytes=3000))
    async with connected(server) as other:
        await produce(other, "t", make_batch(1, value=b"v" * 1000))
        await produce(other, "t", make_batch(1, value=b"v" * 1000))
        assert await client.nothing_comes()
        await produce(other, "t", make_batch(1, value=b"v" * 1000))
    assert len(values(await fetched(client, timeout_s=30))) == 3


async def test_a_waiting_fetch_ends_at_max_wait_with_what_there_is(server: Server, client: RawClient) -> None:
    await make_topic(server)
    await produce(client, "t", make_batch(1))
    began = asyncio.get_running_loop().time()
    rows = await fetch(client, "t", {0: 0}, max_wait_ms=80, min_bytes=100_000)
    assert 0.07 <= asyncio.get_running_loop().time() - began < 30
    assert len(values(rows)) == 1


async def test_a_waiting_fetch_is_woken_when_its_topic_goes(server: Server, client: RawClient) -> None:
    await make_topic(server)
    client.send_body(1, 11, fetch_body(11, "t", {0: 0}, max_wait_ms=60_000))
    assert await client.nothing_comes()
    await server.engine.delete("t")
    assert (await fetched(client, timeout_s=30))[0].error_code == 3


async def test_a_waiting_fetch_is_dropped_with_its_connection(server: Server) -> None:
    await make_topic(server)
    partition = server.engine.partition("t", 0)
    async with connected(server) as gone:
        gone.send_body(1, 11, fetch_body(11, "t", {0: 0}, max_wait_ms=60_000))
        await asyncio.sleep(0.05)
        assert partition._waiters
    await asyncio.sleep(0.05)
    assert not partition._waiters


async def test_a_session_nobody_knows_is_told_so(client: RawClient) -> None:
    body = fetch_wire.write_request(11, [], max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=77, session_epoch=3)
    client.send_body(1, 11, body)
    answer = await client.expect()
    assert (answer.error_code, answer.session_id) == (70, 0)


async def test_read_committed_stops_at_an_open_transaction(server: Server, client: RawClient) -> None:
    await make_topic(server)
    partition = server.engine.partition("t", 0)
    partition.append(make_batch(2))
    partition.append(make_batch(2, producer_id=9, producer_epoch=0, sequence=0, transactional=True))
    partition.append(make_batch(1))
    [row] = await fetch(client, "t", {0: 0}, isolation_level=1)
    assert (row.last_stable_offset, row.high_watermark) == (2, 5)
    assert len(values([row])) == 2
    [row] = await fetch(client, "t", {0: 0}, isolation_level=0)
    assert len(values([row])) == 5


async def test_a_read_committed_reader_waits_on_until_the_transaction_ends(server: Server, client: RawClient) -> None:
    await make_topic(server)
    partition = server.engine.partition("t", 0)
    client.send_body(1, 11, fetch_body(11, "t", {0: 0}, max_wait_ms=60_000, isolation_level=1))
    await asyncio.sleep(0.02)
    partition.append(make_batch(2, producer_id=9, producer_epoch=0, sequence=0, transactional=True))
    assert await client.nothing_comes()
    partition.append_marker(9, 0, commit=False, coordinator_epoch=0)
    [row] = await fetched(client, timeout_s=30)
    assert [(each.producer_id, each.first_offset) for each in row.aborted_transactions] == [(9, 0)]
    assert row.last_stable_offset == 3


async def test_records_that_are_not_in_memory_are_read_in_a_thread(
    server: Server, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from levada.log.disk import WouldBlock

    await make_topic(server)
    await produce(client, "t", make_batch(3))
    partition = server.engine.partition("t", 0)

    def cold(*_: Any) -> Any:
        raise WouldBlock

    monkeypatch.setattr(partition, "read", cold)
    assert len(values(await fetch(client, "t", {0: 0, 1: 0}))) == 3


# Metadata


@pytest.mark.parametrize("version", range(14))
async def test_metadata_of_all_topics(server: Server, client: RawClient, version: int) -> None:
    await make_topic(server, "a", 3)
    await make_topic(server, "b", 1)
    answer = await client.call(3, version, topics=None if version else [])
    host, port = server.addresses["kafka"]
    [broker] = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, host, port)
    if version >= 1:
        assert answer.controller_id == 1
    shown = {topic.name: topic for topic in answer.topics}
    assert [each.partition_index for each in shown["a"].partitions] == [0, 1, 2]
    assert all(each.leader_id == 1 and list(each.isr_nodes) == [1] for each in shown["a"].partitions)
    if version >= 1:
        assert shown["__levada.topics"].is_internal and not shown["a"].is_internal


async def test_metadata_of_all_topics_shows_a_topic_made_since(server: Server, client: RawClient) -> None:
    for name in ("a", "b", "c"):
        await make_topic(server, name)
        answer = await client.call(3, 12, topics=None)
        assert name in {topic.name for topic in answer.topics}


async def test_metadata_of_no_topics(server: Server, client: RawClient) -> None:
    await make_topic(server)
    assert list((await client.call(3, 12, topics=[])).topics) == []


async def test_metadata_makes_a_topic_that_is_asked_for(server: Server, client: RawClient) -> None:
    answer = await client.call(3, 12, topics=[{"name": "fresh"}], allow_auto_topic_creation=True)
    [topic] = answer.topics
    assert (topic.error_code, len(topic.partitions)) == (0, 2)
    info = server.engine.view.get("fresh")
    assert info is not None and topic.topic_id == info.id
    assert server.engine.config_of("fresh").router == "murmur2"


async def test_metadata_makes_nothing_where_the_request_forbids_it(server: Server, client: RawClient) -> None:
    answer = await client.call(3, 12, topics=[{"name": "fresh"}], allow_auto_topic_creation=False)
    assert answer.topics[0].error_code == 3
    assert server.engine.view.get("fresh") is None


async def test_metadata_makes_nothing_where_the_broker_forbids_it(tmp_path: Path) -> None:
    settings = {"auto.create.topics.enable": "false"}
    async with running(tmp_path / "data", settings) as server, connected(server) as client:
        answer = await client.call(3, 12, topics=[{"name": "fresh"}], allow_auto_topic_creation=True)
        assert answer.topics[0].error_code == 3


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "ü", "x" * 250, "__levada.x", "dlq.x"])
async def test_metadata_makes_no_topic_of_a_bad_name(
    server: Server, client: RawClient, name: str, refusals: list[str]
) -> None:
    answer = await client.call(3, 12, topics=[{"name": name}], allow_auto_topic_creation=True)
    assert answer.topics[0].error_code == 17
    assert len(refusals) == 1


async def test_many_may_ask_for_a_new_topic_at_once(server: Server) -> None:
    async def ask() -> int:
        async with connected(server) as each:
            return (await each.call(3, 12, topics=[{"name": "fresh"}])).topics[0].error_code

    assert await asyncio.gather(*(ask() for _ in range(8))) == [0] * 8


async def test_metadata_by_topic_id(server: Server, client: RawClient) -> None:
    info = await make_topic(server)
    known, unknown = (
        await client.call(3, 12, topics=[{"name": None, "topic_id": info.id}, {"name": None, "topic_id": uuid4()}])
    ).topics
    assert (known.error_code, known.name) == (0, "t")
    assert (unknown.error_code, unknown.name) == (100, None)


async def test_authorized_operations_are_told_when_asked_for(server: Server, client: RawClient) -> None:
    await make_topic(server)
    asked = await client.call(
        3,
        9,
        topics=[{"name": "t"}],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert (asked.topics[0].topic_authorized_operations, asked.cluster_authorized_operations) == (3576, 8096)
    plain = await client.call(3, 9, topics=[{"name": "t"}])
    assert plain.topics[0].topic_authorized_operations == -(2**31)


# ListOffsets, OffsetForLeaderEpoch


async def list_offsets(client: RawClient, timestamp: int, *, version: int = 11, **more: Any) -> Any:
    wanted = {
        "partition_index": 0,
        "timestamp": timestamp,
        **{key: more.pop(key) for key in ["current_leader_epoch"] if key in more},
    }
    answer = await client.call(2, version, replica_id=-1, topics=[{"name": "t", "partitions": [wanted]}], **more)
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
async def test_list_offsets_knows_both_ends_and_times(server: Server, client: RawClient, version: int) -> None:
    await make_topic(server)
    await produce(client, "t", make_batch(3, timestamp_ms=1000))
    await produce(client, "t", make_batch(3, timestamp_ms=2000))
    assert (await list_offsets(client, EARLIEST, version=version)).offset == 0
    assert (await list_offsets(client, LATEST, version=version)).offset == 6
    found = await list_offsets(client, 1001, version=version)
    assert (found.offset, found.timestamp) == (1, 1001)
    found = await list_offsets(client, 1500, version=version)
    assert (found.offset, found.timestamp) == (3, 2000)
    nothing = await list_offsets(client, 9000, version=version)
    assert (nothing.error_code, nothing.offset, nothing.timestamp) == (0, -1, -1)


async def test_list_offsets_finds_the_largest_timestamp(server: Server, client: RawClient) -> None:
    await make_topic(server)
    assert (await list_offsets(client, MAX_TIMESTAMP)).offset == -1
    await produce(client, "t", make_batch(3, timestamp_ms=5000))
    await produce(client, "t", make_batch(3, timestamp_ms=1000))
    found = await list_offsets(client, MAX_TIMESTAMP)
    assert (found.offset, found.timestamp) == (2, 5002)


async def test_list_offsets_knows_no_tiered_storage(server: Server, client: RawClient) -> None:
    await make_topic(server)
    await produce(client, "t", make_batch(3))
    assert (await list_offsets(client, EARLIEST_LOCAL)).offset == 0
    assert (await list_offsets(client, LATEST_TIERED)).offset == -1
    assert (await list_offsets(client, PENDING)).offset == -1


@pytest.mark.parametrize(
    ("timestamp", "version"), [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (PENDING, 10), (-9, 11)]
)
async def test_a_marker_the_version_does_not_know_is_refused(
    server: Server, client: RawClient, timestamp: int, version: int, refusals: list[str]
) -> None:
    await make_topic(server)
    assert (await list_offsets(client, timestamp, version=version)).error_code == 35


async def test_list_offsets_under_read_committed_ends_at_the_last_stable_offset(
    server: Server, client: RawClient
) -> None:
    await make_topic(server)
    partition = server.engine.partition("t", 0)
    partition.append(make_batch(2, timestamp_ms=1000))
    partition.append(make_batch(2, timestamp_ms=2000, producer_id=9, producer_epoch=0, sequence=0, transactional=True))
    assert (await list_offsets(client, LATEST, isolation_level=1)).offset == 2
    assert (await list_offsets(client, LATEST, isolation_level=0)).offset == 4
    assert (await list_offsets(client, 2000, isolation_level=1)).offset == -1
    assert (await list_offsets(client, 2000, isolation_level=0)).offset == 2


async def test_list_offsets_checks_topic_partition_and_epoch(
    server: Server, client: RawClient, refusals: list[str]
) -> None:
    assert (await list_offsets(client, LATEST)).error_code == 3
    await make_topic(server)
    epoch = server.engine.broker_epoch
    assert (await list_offsets(client, LATEST, current_leader_epoch=epoch)).leader_epoch == epoch
    assert (await list_offsets(client, LATEST, current_leader_epoch=epoch + 1)).error_code == 75
    twice = [{"partition_index": 0, "timestamp": LATEST}] * 2
    answer = await client.call(2, 11, replica_id=-1, topics=[{"name": "t", "partitions": twice}])
    assert [row.error_code for row in answer.topics[0].partitions] == [42, 42]


@pytest.mark.parametrize("version", range(2, 5))
async def test_the_end_of_a_leader_epoch_is_told(
    server: Server, client: RawClient, version: int, refusals: list[str]
) -> None:
    await make_topic(server)
    await produce(client, "t", make_batch(3))
    epoch = server.engine.broker_epoch
    asked = [
        {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch},
        {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch + 5},
        {"partition": 0, "current_leader_epoch": epoch + 1, "leader_epoch": epoch},
        {"partition": 9, "current_leader_epoch": -1, "leader_epoch": epoch},
    ]
    answer = await client.call(23, version, replica_id=-1, topics=[{"topic": "t", "partitions": asked}])
    rows = answer.topics[0].partitions
    assert [row.error_code for row in rows] == [0, 0, 75, 3]
    assert [(row.leader_epoch, row.end_offset) for row in rows[:2]] == [(epoch, 3), (-1, -1)]


# Cluster and topics


@pytest.mark.parametrize("version", range(3))
async def test_describe_cluster_names_this_broker(server: Server, client: RawClient, version: int) -> None:
    answer = await client.call(60, version, include_cluster_authorized_operations=True)
    host, port = server.addresses["kafka"]
    assert (answer.error_code, answer.controller_id, answer.cluster_id) == (0, 1, server.engine.cluster_id)
    assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [(1, host, port)]
    assert answer.cluster_authorized_operations == 8096


async def test_describe_cluster_has_no_controller_endpoint(client: RawClient) -> None:
    assert (await client.call(60, 1, endpoint_type=2)).error_code == 114
    assert (await client.call(60, 1, endpoint_type=9)).error_code == 115


async def test_describe_topic_partitions_goes_page_by_page(server: Server, client: RawClient) -> None:
    for name, partitions in (("a", 3), ("b", 2), ("c", 4)):
        await make_topic(server, name, partitions)
    seen: list[tuple[str, int]] = []
    cursor = None
    names = [{"name": name} for name in ("c", "a", "b", "nope")]
    for _ in range(20):
        answer = await client.call(75, 0, topics=names, response_partition_limit=2, cursor=cursor)
        seen += [(topic.name, each.partition_index) for topic in answer.topics for each in topic.partitions]
        if answer.next_cursor is None:
            break
        cursor = {"topic_name": answer.next_cursor.topic_name, "partition_index": answer.next_cursor.partition_index}
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0), ("c", 1), ("c", 2), ("c", 3)]
    assert [topic.error_code for topic in answer.topics] == [0, 3]


async def test_describe_topic_partitions_without_names_shows_all(server: Server, client: RawClient) -> None:
    await make_topic(server, "a", 3)
    answer = await client.call(75, 0, topics=[])
    shown = {topic.name: topic for topic in answer.topics}
    assert len(shown["a"].partitions) == 3
    assert list(shown["a"].partitions[0].eligible_leader_replicas) == []


# Connections


async def test_the_address_a_client_reached_us_at_is_advertised_where_all_are_bound(tmp_path: Path) -> None:
    async with running(tmp_path / "data", host="0.0.0.0") as server:
        _, port = server.addresses["kafka"]
        for host in ("127.0.0.1", "127.0.0.2"):
            reader, writer = await asyncio.open_connection(host, port)
            client = RawClient(reader, writer)
            answer = await client.call(3, 12, topics=[])
            assert (answer.brokers[0].host, answer.brokers[0].port) == (host, port)
            client.close()


async def test_idle_connections_are_closed(tmp_path: Path) -> None:
    async with running(tmp_path / "data", {"connections.max.idle.ms": "100"}) as server, connected(server) as client:
        await client.call(18, 0)
        assert await client.is_closed(2)


async def test_no_more_than_max_connections_are_taken(tmp_path: Path, refusals: list[str]) -> None:
    async with running(tmp_path / "data", {"max.connections": "1"}) as server, connected(server) as first:
        await first.call(18, 0)
        async with connected(server) as second:
            assert await second.is_closed()
        await first.call(18, 0)
    assert "max.connections=1" in refusals[0]


async def test_a_frame_above_the_limit_closes_its_connection_alone(tmp_path: Path, refusals: list[str]) -> None:
    settings = {"socket.request.max.bytes": "1000"}
    async with running(tmp_path / "data", settings) as server, connected(server) as good, connected(server) as bad:
        bad.writer.write(struct.pack(">i", 1001))
        assert await bad.is_closed()
        await good.call(18, 0)
    [line] = refusals
    assert "frame of 1001 bytes" in line


async def test_stopping_answers_a_waiting_fetch(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server, connected(server) as client:
        await make_topic(server)
        client.send_body(1, 11, fetch_body(11, "t", {0: 0}, max_wait_ms=60_000))
        await asyncio.sleep(0.05)
        began = asyncio.get_running_loop().time()
        await server.stop()
        assert asyncio.get_running_loop().time() - began < 30
        assert values(await fetched(client)) == []
        assert await client.is_closed()


def test_the_answer_of_a_produce_can_be_a_plain_tuple() -> None:
    assert produce_wire.write_response(9, [("t", [Produced(0, 0, 5)])]) == produce_wire.write_response(
        9, [("t", [(0, 0, 5)])]
    )


# Fetch sessions


async def fetch_in_session(
    client: RawClient, session_id: int, epoch: int, offsets: dict[int, int], *, max_wait_ms: int = 0
) -> Any:
    wanted = [(index, -1, offset, -1, -1, 1 << 20) for index, offset in offsets.items()]
    body = fetch_wire.write_request(
        12,
        [("t", wanted)] if wanted else [],
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
    )
    client.send_body(1, 12, body)
    return await client.expect()


def told(answer: Any) -> dict[int, int]:
    """Partition → number of records, of those the answer tells of."""
    return {row.partition_index: len(values([row])) for topic in answer.responses for row in topic.partitions}


async def test_a_session_tells_only_what_is_new(server: Server, client: RawClient) -> None:
    await make_topic(server, partitions=3)
    await produce(client, "t", make_batch(2), partition=1)
    answer = await fetch_in_session(client, 0, 0, {0: 0, 1: 0, 2: 0})
    number = answer.session_id
    assert number > 0
    assert told(answer) == {0: 0, 1: 2, 2: 0}
    answer = await fetch_in_session(client, number, 1, {1: 2})
    assert (answer.error_code, answer.session_id, told(answer)) == (0, number, {})
    await produce(client, "t", make_batch(3), partition=2)
    assert told(await fetch_in_session(client, number, 2, {})) == {2: 3}
    # The client did not say that it moved on, so it has not.
    assert told(await fetch_in_session(client, number, 3, {})) == {2: 3}
    assert told(await fetch_in_session(client, number, 4, {2: 3})) == {}
    assert (await fetch_in_session(client, number, 4, {})).error_code == 71


async def test_a_full_answer_leaves_the_other_partitions_their_turn(server: Server, client: RawClient) -> None:
    """What did not fit comes first next time, however large it is; partitions behind it are not looked at meanwhile."""
    await make_topic(server, partitions=4)
    sizes = {0: 600_000, 1: 700_000, 2: 10, 3: 700_000}
    for partition, size in sizes.items():
        await produce(client, "t", make_batch(1, value=b"v" * size), partition=partition)
    answer = await fetch_in_session(client, 0, 0, dict.fromkeys(sizes, 0))
    number, seen, epoch, moved = answer.session_id, told(answer), 1, {}
    assert seen == {0: 1, 1: 0, 2: 0, 3: 0}, "a first answer tells of every partition"
    while sum(seen.values()) < len(sizes):
        moved = {partition: 1 for partition, count in told(answer).items() if count}
        answer = await fetch_in_session(client, number, epoch, moved)
        assert told(answer), f"nothing came though only {seen} was seen"
        seen.update(told(answer))
        epoch += 1
    assert epoch <= len(sizes)


async def test_an_empty_request_within_a_session_waits_for_its_partitions(server: Server, client: RawClient) -> None:
    await make_topic(server)
    number = (await fetch_in_session(client, 0, 0, {0: 0, 1: 0})).session_id
    waiting = asyncio.ensure_future(fetch_in_session(client, number, 1, {}, max_wait_ms=60_000))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    async with connected(server) as other:
        await produce(other, "t", make_batch(1), partition=1)
    assert told(await asyncio.wait_for(waiting, 30)) == {1: 1}


async def test_a_session_sees_that_its_topic_went_and_came_back(server: Server, client: RawClient) -> None:
    await make_topic(server)
    number = (await fetch_in_session(client, 0, 0, {0: 0})).session_id
    await server.engine.delete("t")
    answer = await fetch_in_session(client, number, 1, {})
    assert answer.responses[0].partitions[0].error_code == 3
    await make_topic(server)
    await produce(client, "t", make_batch(1))
    assert told(await fetch_in_session(client, number, 2, {})) == {0: 1}


@pytest.mark.parametrize("isolation", [0, 1])
async def test_large_answers_come_from_the_files_and_are_the_same(
    server: Server, client: RawClient, isolation: int
) -> None:
    await make_topic(server, segment_bytes=str(1 << 20))
    for number in range(60):
        await produce(client, "t", make_batch(50, value=b"%d " % number * 200), partition=number % 2)
    partition = server.engine.partition("t", 0)
    offset, seen = 0, b""
    while offset < partition.end:
        rows = await fetch(client, "t", {0: offset, 1: 0}, isolation_level=isolation, partition_max_bytes=400_000)
        assert len(rows[1].records) > 128 * 1024
        *_, last = batches(rows[0].records)
        seen += rows[0].records
        offset = last.next_offset
    assert len(list(batches(seen))) == 30
    for batch in batches(seen):
        batch.check_crc()


async def test_small_answers_do_not_wait_for_more(server: Server, client: RawClient) -> None:
    await client.call(18, 0)
    assert server._listener is not None
    [connection] = server._listener.connections
    sock = connection._transport.get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_session_holds_no_records_between_fetches(server: Server, client: RawClient) -> None:
    await make_topic(server)
    await produce(client, "t", make_batch(5))
    number = (await fetch_in_session(client, 0, 0, {0: 0, 1: 0})).session_id
    assert server._listener is not None
    session = server._listener._node.sessions._sessions[number]
    assert [len(row.fetched.records) for row in session._known.values()] == [0, 0]
    # The client did not move on; limits count what this answer has, and nothing of the last one.
    assert told(await fetch_in_session(client, number, 1, {})) == {0: 5}


async def test_localhost_is_advertised_as_ipv4(tmp_path: Path) -> None:
    async with running(tmp_path / "data", host="localhost") as server, connected(server) as client:
        host, port = server.addresses["kafka"]
        assert host == "127.0.0.1"
        broker = (await client.call(3, 12, topics=[])).brokers[0]
        assert (broker.host, broker.port) == (host, port)


async def test_an_advertised_address_wins_over_the_bound_one(tmp_path: Path) -> None:
    config = replace(make_config(tmp_path / "data"), kafka_advertised="broker.example:19092")
    server = Server(config)
    await server.start()
    try:
        async with connected(server) as client:
            broker = (await client.call(3, 12, topics=[])).brokers[0]
            assert (broker.host, broker.port) == ("broker.example", 19092)
    finally:
        await server.stop()


async def test_stopping_does_not_wait_for_a_rebalance(tmp_path: Path) -> None:
    settings = {"group.initial.rebalance.delay.ms": "60000"}
    async with running(tmp_path / "data", settings) as server, connected(server) as client:
        client.send(
            11,
            2,
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )
        assert await client.nothing_comes()
        began = asyncio.get_running_loop().time()
        await server.stop()
        assert asyncio.get_running_loop().time() - began < 3
        assert (await client.expect()).error_code != 0


async def test_huge_requests_that_never_come_do_not_stop_the_others(
    tmp_path: Path, refusals: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_PRESS_S", 0.05)
    settings = {"queued.max.request.bytes": str(4 << 20)}
    async with running(tmp_path / "data", settings) as server, connected(server) as client, connected(server) as idle:
        await make_topic(server)
        idle.writer.write(struct.pack(">i", 100_000_000) + b"abcd")
        await asyncio.sleep(0.05)
        batch = make_batch(1, value=b"x" * 500_000)
        assert (await produce(client, "t", batch)).error_code == 0
        # Now it takes all there is: it has to get on, or go.
        idle.writer.write(b"x" * (4 << 20))
        await asyncio.sleep(0.05)
        assert (await produce(client, "t", batch)).error_code == 0
        assert await idle.is_closed()
    assert [line.split(": ")[-1] for line in refusals] == ["its request comes too slowly while others wait for memory"]
