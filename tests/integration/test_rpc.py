"""The gRPC front: every call with good and with bad input, over a real connection."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog

from levada.errors import CannotListen
from levada.fronts.rpc.call import MESSAGE_BYTES_MAX, READS_MAX
from levada.fronts.rpc.memory import BYTES_MAX
from levada.fronts.rpc.parts import REQUEST_BYTES_MAX
from levada.log.disk import File
from levada.records.build import build
from levada.server import Server
from levada.v1 import stream_pb2 as pb
from support.broker import make_config, running
from support.rpc import Stubs, connect_async, failure, record, refused

A_LONG_WAIT_MS = 60_000


def address(server: Server) -> str:
    host, port = server.addresses["grpc"]
    return f"{host}:{port}"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Stubs]:
    async with connect_async(address(server)) as client:
        yield client


async def create(client: Stubs, name: str = "t", partitions: int = 4, **settings: str) -> pb.CreateTopicResponse:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return await client.stream.CreateTopic(pb.CreateTopicRequest(name=name, partitions=partitions, settings=given))


async def publish(client: Stubs, *records: pb.Record, topic: str = "t", **more: Any) -> list[tuple[int, int]]:
    answer = await client.stream.Publish(pb.PublishRequest(topic=topic, records=records, **more))
    return [(each.partition, each.offset) for each in answer.positions]


async def read(client: Stubs, partition: int = 0, offset: int = 0, *, topic: str = "t", **more: Any) -> pb.ReadResponse:
    return await client.stream.Read(pb.ReadRequest(topic=topic, partition=partition, offset=offset, **more))


async def values(client: Stubs, partition: int = 0, topic: str = "t") -> list[bytes]:
    return [each.value for each in (await read(client, partition, topic=topic)).records]


# Topics


async def test_creating_says_what_came_of_it(client: Stubs) -> None:
    made = await create(client, "t", 4, retention_ms="1000")
    assert made.outcome == pb.CreateTopicResponse.CREATED
    assert (made.topic.name, made.topic.partitions, len(made.topic.id)) == ("t", 4, 16)
    assert dict(made.topic.settings) == {"retention.ms": "1000", "levada.router": "fnv1a64"}
    assert (made.topic.router, made.topic.keyless, made.topic.dedup) == ("fnv1a64", "round_robin", "off")
    assert made.topic.max_message_bytes == 1024 * 1024 + 12
    assert (await create(client, "t", 4)).outcome == pb.CreateTopicResponse.SAME
    more = await create(client, "t", 6)
    assert (more.outcome, more.topic.partitions, more.topic.id) == (pb.CreateTopicResponse.EXPANDED, 6, made.topic.id)
    with refused("PartitionsCannotShrink", "6 partitions", grpc.StatusCode.FAILED_PRECONDITION):
        await create(client, "t", 3)
    assert (await create(client, "t", 0)).topic.partitions == 6


async def test_a_topic_made_without_a_number_has_the_brokers(tmp_path: Path) -> None:
    async with running(tmp_path, {"num.partitions": "3"}) as server, connect_async(address(server)) as client:
        assert (await create(client, "t", 0)).topic.partitions == 3


async def test_the_router_can_be_chosen(client: Stubs) -> None:
    assert (await create(client, levada_router="murmur2")).topic.router == "murmur2"


@pytest.mark.parametrize(
    ("request_", "reason", "match"),
    [
        (pb.CreateTopicRequest(name="", partitions=1), "InvalidTopicName", "at least one character"),
        (pb.CreateTopicRequest(name="a/b", partitions=1), "InvalidTopicName", "a/b"),
        (pb.CreateTopicRequest(name="dlq.x", partitions=1), "ReservedName", "dlq"),
        (pb.CreateTopicRequest(name="t", partitions=-1), "InvalidPartitions", "-1"),
        (pb.CreateTopicRequest(name="t", partitions=200_000), "InvalidPartitions", "200000"),
        (
            pb.CreateTopicRequest(name="t", settings={"retention.mss": "1"}),
            "InvalidConfig",
            "did you mean retention.ms",
        ),
        (pb.CreateTopicRequest(name="t", settings={"retention.ms": "x"}), "InvalidConfig", "whole number"),
    ],
)
async def test_what_cannot_be_created_is_refused_and_leaves_nothing(
    client: Stubs, request_: pb.CreateTopicRequest, reason: str, match: str
) -> None:
    with refused(reason, match):
        await client.stream.CreateTopic(request_)
    assert (await client.stream.ListTopics(pb.ListTopicsRequest())).topics == []


async def test_topics_are_listed_and_described(client: Stubs) -> None:
    await create(client, "b", 1)
    await create(client, "a", 2, retention_ms="5000")
    await publish(client, record(partition=1), record(partition=1), topic="a")
    listed = await client.stream.ListTopics(pb.ListTopicsRequest())
    assert [(each.name, each.partitions) for each in listed.topics] == [("a", 2), ("b", 1)]
    everything = await client.stream.ListTopics(pb.ListTopicsRequest(internal=True))
    assert "__levada.topics" in {each.name for each in everything.topics if each.internal}
    about = await client.stream.DescribeTopic(pb.DescribeTopicRequest(name="a"))
    assert [(each.index, each.start, each.end) for each in about.partitions] == [(0, 0, 0), (1, 0, 2)]
    settings = {each.name: each for each in about.settings}
    assert (settings["retention.ms"].value, settings["retention.ms"].set) == ("5000", True)
    assert (settings["segment.bytes"].value, settings["segment.bytes"].set) == (str(1 << 30), False)
    assert settings["levada.durability"].value == "os", "the broker's default"
    assert all(each.doc for each in about.settings)


async def test_expanding_and_altering(client: Stubs) -> None:
    await create(client, "t", 2)
    more = await client.stream.ExpandTopic(pb.ExpandTopicRequest(name="t", partitions=5))
    assert more.topic.partitions == 5
    with refused("PartitionsCannotShrink"):
        await client.stream.ExpandTopic(pb.ExpandTopicRequest(name="t", partitions=4))
    with refused("InvalidPartitions"):
        await client.stream.ExpandTopic(pb.ExpandTopicRequest(name="t", partitions=0))
    changed = await client.stream.AlterTopic(pb.AlterTopicRequest(name="t", set={"retention.ms": "9"}))
    assert changed.topic.settings["retention.ms"] == "9"
    with refused("InvalidConfig"):
        await client.stream.AlterTopic(pb.AlterTopicRequest(name="t", set={"segment.ms": "9", "retention.ms": "x"}))
    with refused("InvalidConfig", "did you mean retention.ms"):
        await client.stream.AlterTopic(pb.AlterTopicRequest(name="t", unset=["retention.m"]))
    with refused("InvalidRequest", "set and unset"):
        await client.stream.AlterTopic(pb.AlterTopicRequest(name="t", set={"segment.ms": "9"}, unset=["segment.ms"]))
    changed = await client.stream.AlterTopic(pb.AlterTopicRequest(name="t", unset=["retention.ms"]))
    assert dict(changed.topic.settings) == {"levada.router": "fnv1a64"}


async def test_deleting(client: Stubs) -> None:
    made = await create(client)
    await client.stream.DeleteTopic(pb.DeleteTopicRequest(name="t"))
    with refused("UnknownTopic", "'t'", grpc.StatusCode.NOT_FOUND):
        await client.stream.DeleteTopic(pb.DeleteTopicRequest(name="t"))
    with refused("PolicyViolation"):
        await client.stream.DeleteTopic(pb.DeleteTopicRequest(name="__levada.topics"))
    assert (await create(client)).topic.id != made.topic.id


async def test_deleting_can_be_forbidden(tmp_path: Path) -> None:
    settings = {"delete.topic.enable": "false"}
    async with running(tmp_path, settings) as server, connect_async(address(server)) as client:
        await create(client)
        with refused("PolicyViolation", "delete.topic.enable"):
            await client.stream.DeleteTopic(pb.DeleteTopicRequest(name="t"))


@pytest.mark.parametrize(
    ("call", "request_"),
    [
        ("DeleteTopic", pb.DeleteTopicRequest(name="nope")),
        ("DescribeTopic", pb.DescribeTopicRequest(name="nope")),
        ("ExpandTopic", pb.ExpandTopicRequest(name="nope", partitions=3)),
        ("AlterTopic", pb.AlterTopicRequest(name="nope", set={"retention.ms": "9"})),
        ("Publish", pb.PublishRequest(topic="nope", records=[record()])),
        ("Read", pb.ReadRequest(topic="nope")),
        ("Spread", pb.SpreadRequest(topic="nope", count=1)),
    ],
)
async def test_a_topic_that_is_not_there(client: Stubs, call: str, request_: Any) -> None:
    with refused("UnknownTopic", "nope", grpc.StatusCode.NOT_FOUND):
        await getattr(client.stream, call)(request_)


async def test_topics_created_at_once_by_many_are_one(client: Stubs) -> None:
    made = await asyncio.gather(*(create(client, "t", 1 + number % 3) for number in range(12)), return_exceptions=True)
    assert not [each for each in made if isinstance(each, BaseException) and not isinstance(each, grpc.RpcError)]
    outcomes = [each.outcome for each in made if isinstance(each, pb.CreateTopicResponse)]
    assert outcomes.count(pb.CreateTopicResponse.CREATED) == 1
    assert (await create(client, "t", 0)).topic.partitions == 3


# Publishing


async def test_records_are_stored_as_they_were_sent(client: Stubs) -> None:
    await create(client)
    headers = [pb.Header(key="h", value=b"1"), pb.Header(key="h", value=b""), pb.Header(key="n")]
    sent = record(b"v", key=b"k", headers=headers, timestamp_ms=1234, partition=2)
    nothing = pb.Record(partition=2, message_id="m-1")
    assert await publish(client, sent, nothing) == [(2, 0), (2, 1)]
    first, second = (await read(client, 2)).records
    assert (first.offset, first.timestamp_ms, first.key, first.value) == (0, 1234, b"k", b"v")
    assert [(each.key, each.value, each.HasField("value")) for each in first.headers] == [
        ("h", b"1", True),
        ("h", b"", True),
        ("n", b"", False),
    ]
    assert (second.offset, second.HasField("key"), second.HasField("value")) == (1, False, False)
    assert [(each.key, each.value) for each in second.headers] == [("message_id", b"m-1")]


async def test_the_answers_id_is_the_requests(client: Stubs) -> None:
    await create(client)
    answer = await client.stream.Publish(pb.PublishRequest(topic="t", records=[record()], id=77))
    assert answer.id == 77
    assert not answer.HasField("error")


async def test_without_acks_there_is_an_answer_too(client: Stubs) -> None:
    await create(client, partitions=1)
    assert await publish(client, record(), record(), acks=pb.ACKS_NONE) == [(0, 0), (0, 1)]


async def test_batches_go_where_they_say(client: Stubs) -> None:
    await create(client)
    batch = bytes(build([(None, b"1"), (None, b"2")]))
    sent = [pb.Batch(partition=3, data=batch), pb.Batch(partition=1, data=batch), pb.Batch(partition=3, data=batch)]
    assert await publish(client, batches=sent) == [(3, 0), (1, 0), (3, 2)]
    assert await values(client, 3) == [b"1", b"2", b"1", b"2"]


@pytest.mark.parametrize(
    ("fields", "reason", "match"),
    [
        ({}, "InvalidRequest", "no records"),
        ({"records": [record()], "batches": [pb.Batch(data=b"x")]}, "InvalidRequest", "not both"),
        ({"records": [record()], "acks": 7}, "InvalidRequest", "acks 7"),
        ({"records": [record(), record(partition=4)]}, "UnknownPartition", "0 to 3, not 4"),
        ({"records": [record(), record(partition=-1)]}, "UnknownPartition", "not -1"),
        ({"batches": [pb.Batch(partition=9, data=bytes(build([(None, b"")])))]}, "UnknownPartition", "not 9"),
        ({"batches": [pb.Batch(data=b"garbage")]}, "CorruptBatch", "cut short"),
        ({"batches": [pb.Batch(data=bytes(build([(None, b"")])) + b"x")]}, "CorruptBatch", "bytes"),
        ({"records": [record(), record(b"x" * 2_000_000)]}, "RecordTooLarge", "record 1 .* 1048588"),
        ({"records": [record(timestamp_ms=-7)]}, "InvalidTimestamp", "record 0"),
    ],
)
async def test_what_cannot_be_published_stores_nothing(
    client: Stubs, fields: dict[str, Any], reason: str, match: str
) -> None:
    await create(client)
    with refused(reason, match):
        await client.stream.Publish(pb.PublishRequest(topic="t", **fields))
    about = await client.stream.DescribeTopic(pb.DescribeTopicRequest(name="t"))
    assert [each.end for each in about.partitions] == [0, 0, 0, 0]


async def test_the_brokers_bookkeeping_takes_no_records(client: Stubs) -> None:
    with refused("InvalidTopicName", "bookkeeping"):
        await publish(client, record(), topic="__levada.topics")


async def test_a_stream_answers_in_order_and_outlives_a_refusal(client: Stubs) -> None:
    await create(client, partitions=1)
    requests = [pb.PublishRequest(topic="t", records=[record(b"%d" % number)], id=number) for number in range(500)]
    requests[250] = pb.PublishRequest(topic="t", records=[record(partition=9)], id=250)
    requests[251] = pb.PublishRequest(topic="nope", records=[record()], id=251)
    answers = [answer async for answer in client.stream.PublishStream(iter(requests))]
    assert [answer.id for answer in answers] == list(range(500))
    refusals = {answer.id: answer.error for answer in answers if answer.HasField("error")}
    assert {number: error.reason for number, error in refusals.items()} == {
        250: "UnknownPartition",
        251: "UnknownTopic",
    }
    assert refusals[251].code == grpc.StatusCode.NOT_FOUND.value[0]
    assert [answer.positions[0].offset for answer in answers if answer.positions] == list(range(498))
    stored = (await read(client, limit=10_000)).records
    assert [each.value for each in stored] == [b"%d" % number for number in range(500) if number not in (250, 251)]


@pytest.fixture
def unstick(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """The disk of t-0 gets nothing done until this is called."""
    stuck, sync = threading.Event(), File.sync

    def waits(self: File) -> None:
        if "/t-0/" in self.path:
            stuck.wait(20)
        sync(self)

    monkeypatch.setattr(File, "sync", waits)
    yield stuck.set
    stuck.set()


async def until_written(client: Stubs, count: int) -> None:
    """The log of t-0 has so many records, durable or not: a record without acks lands behind them."""
    async with asyncio.timeout(60):
        while (await publish(client, record(b"probe"), acks=pb.ACKS_NONE))[0][1] < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_stream_begins_the_next_request_before_the_first_is_durable(
    client: Stubs, unstick: Callable[[], None]
) -> None:
    """No answer can come while the disk is stuck; the requests arrive all the same."""
    await create(client, partitions=1, levada_durability="fsync")
    call = client.stream.PublishStream()
    for number in range(10):
        await call.write(pb.PublishRequest(topic="t", records=[record(b"%d" % number)], id=number))
    await until_written(client, 10)
    assert await values(client) == [], "nothing is durable"
    unstick()
    await call.done_writing()
    assert [answer.id async for answer in call] == list(range(10))


async def test_a_caller_that_gives_up_takes_nothing_back(client: Stubs, unstick: Callable[[], None]) -> None:
    await create(client, partitions=1, levada_durability="fsync")
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await client.stream.Publish(pb.PublishRequest(topic="t", records=[record(b"kept")]), timeout=0.2)
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    stream = client.stream.PublishStream()
    await stream.write(pb.PublishRequest(topic="t", records=[record(b"kept too")]))
    await until_written(client, 2)
    stream.cancel()
    unstick()
    await publish(client, record(b"later"))
    assert [value for value in await values(client) if value != b"probe"] == [b"kept", b"kept too", b"later"]


async def test_a_stream_that_breaks_off_keeps_what_was_sent(client: Stubs) -> None:
    await create(client, partitions=1)
    call = client.stream.PublishStream()
    await call.write(pb.PublishRequest(topic="t", records=[record(b"kept")], id=1))
    assert (await call.read()).id == 1
    call.cancel()
    assert await values(client) == [b"kept"]


async def test_concurrent_streams_are_spread_evenly(client: Stubs) -> None:
    await create(client)

    async def publishes() -> list[int]:
        requests = [pb.PublishRequest(topic="t", records=[record()]) for _ in range(50)]
        return [answer.positions[0].partition async for answer in client.stream.PublishStream(iter(requests))]

    landed = [partition for each in await asyncio.gather(*(publishes() for _ in range(8))) for partition in each]
    assert Counter(landed) == {0: 100, 1: 100, 2: 100, 3: 100}


# Requests in parts


def in_parts(request: pb.PublishRequest, part_bytes: int = MESSAGE_BYTES_MAX // 2) -> list[pb.PublishRequest]:
    """A request as any client would cut it."""
    whole = request.SerializeToString()
    pieces = [whole[start : start + part_bytes] for start in range(0, len(whole), part_bytes)]
    sizes = [len(whole), *[0] * (len(pieces) - 1)]
    return [pb.PublishRequest(part=pb.Part(size=size, data=piece)) for size, piece in zip(sizes, pieces, strict=True)]


async def test_a_request_larger_than_a_message_is_sent_in_parts_and_answered_once(client: Stubs) -> None:
    await create(client, partitions=1, max_message_bytes=str(REQUEST_BYTES_MAX))
    value = bytes(3 * MESSAGE_BYTES_MAX)
    large = pb.PublishRequest(topic="t", records=[record(value)], id=2)
    small = [pb.PublishRequest(topic="t", records=[record(b"%d" % number)], id=number) for number in (1, 3)]
    refused_one = in_parts(pb.PublishRequest(topic="nope", records=[record(b"x" * 1000)], id=4), 100)
    answers = [
        answer
        async for answer in client.stream.PublishStream(
            iter([small[0], *in_parts(large), small[1], *refused_one, *in_parts(small[0], 1)])
        )
    ]
    assert [(answer.id, answer.error.reason) for answer in answers] == [
        (1, ""), (2, ""), (3, ""), (4, "UnknownTopic"), (1, "")
    ]  # fmt: skip
    stored = (await read(client, bytes_max=4 * MESSAGE_BYTES_MAX)).records
    assert [each.value for each in stored][:3] == [b"1", value, b"3"]


@pytest.mark.parametrize(
    ("sent", "reason", "match"),
    [
        ([pb.Part(data=b"x")], "InvalidRequest", "first part of a request says how many bytes"),
        ([pb.Part(size=REQUEST_BYTES_MAX + 1, data=b"x")], "RecordTooLarge", f"at most {REQUEST_BYTES_MAX}"),
        ([pb.Part(size=10, data=b"x" * 11)], "InvalidRequest", "of 10 bytes have 11"),
        ([pb.Part(size=10, data=b"x"), None], "InvalidRequest", "there is something else"),
        ([pb.Part(size=10, data=b"x"), pb.Part()], "InvalidRequest", "there is something else"),
        ([pb.Part(size=10, data=b"x")], "InvalidRequest", "ended within a request"),
        ([pb.Part(size=3, data=b"\xff\xff\xff")], "InvalidRequest", "cannot be read"),
    ],
)
async def test_parts_that_make_no_request_end_the_call_and_hold_nothing(
    server: Server, client: Stubs, sent: list[pb.Part | None], reason: str, match: str
) -> None:
    await create(client, partitions=1)
    call = client.stream.PublishStream(
        iter(
            [pb.PublishRequest(topic="t", records=[record(b"before")])]
            + [pb.PublishRequest(part=part) for part in sent]
        )
    )
    assert (await call.read()).positions
    with refused(reason, match):
        await call.read()
        raise await failure(call)
    assert server._rpc is not None
    assert server._rpc.calls.memory.held_bytes == 0
    assert await values(client) == [b"before"]


async def test_parts_are_for_streams_and_cut_once(client: Stubs) -> None:
    await create(client, partitions=1)
    request = pb.PublishRequest(part=pb.Part(size=1, data=b"x"))
    with refused("InvalidRequest", "over PublishStream, and cut once"):
        await client.stream.Publish(request)
    [answer] = [answer async for answer in client.stream.PublishStream(iter(in_parts(request, 3)))]
    assert answer.error.reason == "InvalidRequest"


async def test_only_the_first_part_is_read_before_there_is_room_for_the_whole(server: Server, client: Stubs) -> None:
    await create(client, partitions=1)
    assert server._rpc is not None
    memory = server._rpc.calls.memory
    stream = client.stream.PublishStream()
    await stream.write(pb.PublishRequest(topic="t", records=[record()], id=1))
    assert (await stream.read()).id == 1  # the next is waited for
    memory.take(BYTES_MAX)
    first, *rest = in_parts(pb.PublishRequest(topic="t", records=[record(b"x" * 900_000)], id=2), 100_000)

    async def send() -> None:
        for part in (first, *rest):
            await stream.write(part)

    sending, answer = asyncio.ensure_future(send()), asyncio.ensure_future(stream.read())
    done, _ = await asyncio.wait([sending, answer], timeout=0.2)
    assert not done, "more than gRPC itself takes in stays with the client"
    assert memory.held_bytes == BYTES_MAX
    memory.give(BYTES_MAX)
    assert (await answer).id == 2
    await sending
    async with asyncio.timeout(30):  # it is given back when the answer has been written, and may have been read by then
        while memory.held_bytes:  # noqa: ASYNC110  nobody else wants to know
            await asyncio.sleep(0.01)


async def test_a_request_whose_next_part_does_not_come_makes_room_for_others(
    server: Server, client: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levada.fronts.rpc.parts.READ_TIMEOUT_S", 0.05)
    await create(client, partitions=1)
    assert server._rpc is not None
    stream = client.stream.PublishStream()
    await stream.write(pb.PublishRequest(part=pb.Part(size=1000, data=b"x")))
    with refused("TimedOut", "did not come whole"):
        await stream.read()
        raise await failure(stream)
    assert server._rpc.calls.memory.held_bytes == 0


async def test_places_of_the_counter_are_handed_out_once(client: Stubs) -> None:
    await create(client)
    first = await client.stream.Spread(pb.SpreadRequest(topic="t", count=10))
    assert (first.first, first.partitions) == (0, 4)
    assert (await publish(client, record()))[0][0] == 10 % 4
    assert (await client.stream.Spread(pb.SpreadRequest(topic="t", count=1))).first == 11
    for count in (0, -1, 2_000_000_000):
        with refused("InvalidRequest", str(count)):
            await client.stream.Spread(pb.SpreadRequest(topic="t", count=count))


async def test_a_producers_repeat_is_stored_once(client: Stubs) -> None:
    await create(client)
    one = await client.stream.InitProducer(pb.InitProducerRequest())
    other = await client.stream.InitProducer(pb.InitProducerRequest())
    assert one.producer_id != other.producer_id
    batch = build([(None, b"1")], producer_id=one.producer_id, producer_epoch=one.epoch, base_sequence=0)
    request = pb.PublishRequest(topic="t", batches=[pb.Batch(data=bytes(batch))])
    first = await client.stream.Publish(request)
    again = await client.stream.Publish(request)
    assert [(each.offset, each.duplicate) for each in (*first.positions, *again.positions)] == [(0, False), (0, True)]
    gap = build([(None, b"3")], producer_id=one.producer_id, producer_epoch=one.epoch, base_sequence=5)
    with refused("OutOfOrderSequence"):
        await publish(client, batches=[pb.Batch(data=bytes(gap))])
    assert await values(client) == [b"1"]


# Reading


async def test_reading_some(client: Stubs) -> None:
    await create(client, partitions=1)
    await publish(client, *(record(b"%d" % number) for number in range(1000)))
    some = await read(client, offset=9, limit=5)
    assert [(each.offset, each.value) for each in some.records] == [(n, b"%d" % n) for n in range(9, 14)]
    assert (some.start, some.end, some.next_offset) == (0, 1000, 14)
    assert len((await read(client)).records) == 100
    assert len((await read(client, limit=10_000)).records) == 1000
    assert 0 < len((await read(client, limit=10_000, bytes_max=1000)).records) < 100
    assert len((await read(client, bytes_max=1)).records) == 1


@pytest.mark.parametrize(
    ("fields", "reason", "match"),
    [
        ({"partition": 1}, "UnknownPartition", "0 to 0, not 1"),
        ({"partition": -1}, "UnknownPartition", "not -1"),
        ({"offset": 11}, "OffsetOutOfRange", "0 to 10"),
        ({"offset": -1}, "OffsetOutOfRange", "0 to 10"),
        ({"limit": 10_001}, "InvalidRequest", "10000"),
        ({"limit": -1}, "InvalidRequest", "-1"),
        ({"bytes_max": -1}, "InvalidRequest", "-1"),
        ({"wait_ms": -1}, "InvalidRequest", "-1"),
        ({"out_of_range": 9}, "InvalidRequest", "out_of_range 9"),
    ],
)
async def test_what_cannot_be_read(client: Stubs, fields: dict[str, Any], reason: str, match: str) -> None:
    await create(client, partitions=1)
    await publish(client, *[record()] * 10)
    with refused(reason, match) as refusal:
        await client.stream.Read(pb.ReadRequest(topic="t", **fields))
    if reason == "OffsetOutOfRange":
        assert refusal.code == grpc.StatusCode.OUT_OF_RANGE
        assert refusal.metadata == {"start": "0", "end": "10"}


async def test_reading_outside_by_policy(client: Stubs) -> None:
    await create(client, partitions=1)
    await publish(client, *(record(b"%d" % number) for number in range(3)))
    earliest = await read(client, offset=99, out_of_range=pb.TO_EARLIEST)
    assert [each.offset for each in earliest.records] == [0, 1, 2]
    latest = await read(client, offset=99, out_of_range=pb.TO_LATEST)
    assert (list(latest.records), latest.next_offset) == ([], 3)


async def test_reading_waits_for_the_first_record(client: Stubs) -> None:
    await create(client, partitions=1)
    waiting = asyncio.ensure_future(read(client, wait_ms=A_LONG_WAIT_MS))
    await asyncio.sleep(0.05)
    await publish(client, record(b"now"))
    assert [each.value for each in (await waiting).records] == [b"now"]
    assert list((await read(client, offset=1, wait_ms=10)).records) == []


# Life


async def test_a_deadline_ends_the_wait(client: Stubs) -> None:
    await create(client, partitions=1)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await client.stream.Read(pb.ReadRequest(topic="t", wait_ms=A_LONG_WAIT_MS), timeout=0.05)
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    await publish(client, record())


async def test_a_message_beyond_the_limit_is_refused_and_the_connection_lives(client: Stubs) -> None:
    await create(client, partitions=1)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await publish(client, record(b"x" * (64 * 1024 * 1024)))
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    await publish(client, record())


async def test_bytes_that_are_no_message_are_refused_and_the_connection_lives(client: Stubs) -> None:
    raw = client.channel.unary_unary("/levada.v1.StreamService/Publish")
    with refused("InvalidRequest", "Publish cannot be read", grpc.StatusCode.INVALID_ARGUMENT):
        await raw(b"\xff\xff\xff\xff")
    stream = client.channel.stream_stream("/levada.v1.StreamService/PublishStream")(iter([b"\xff\xff"]))
    with refused("InvalidRequest", "PublishStream cannot be read"):
        await stream.read()
        raise await failure(stream)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await client.channel.unary_unary("/levada.v1.StreamService/Nope")(b"")
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
    await create(client)


async def test_health(client: Stubs) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    health: Any = health_pb2_grpc.HealthStub(client.channel)
    for name in ("", "levada.v1.StreamService", "levada.v1.ClusterService"):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await health.Check(health_pb2.HealthCheckRequest(service="nope"))
    assert error.value.code() == grpc.StatusCode.NOT_FOUND


async def test_reflection_tells_the_services_and_their_files(client: Stubs) -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    reflection: Any = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="levada.v1.StreamService"),
    ]
    services, file = [answer async for answer in reflection.ServerReflectionInfo(iter(asked))]
    names = {each.name for each in services.list_services_response.service}
    assert {"levada.v1.StreamService", "levada.v1.ClusterService", "grpc.health.v1.Health"} <= names
    assert b"PublishStream" in file.file_descriptor_response.file_descriptor_proto[0]


async def until_in_flight(server: Server, count: int) -> None:
    assert server._rpc is not None
    async with asyncio.timeout(60):
        while len(server._rpc.calls) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_stopping_answers_what_is_in_flight_and_tells_the_others(tmp_path: Path) -> None:
    server = Server(make_config(tmp_path))
    await server.start()
    async with connect_async(address(server)) as client:
        await create(client, partitions=1)
        stream = client.stream.PublishStream()
        await stream.write(pb.PublishRequest(topic="t", records=[record(b"kept")], id=1))
        assert (await stream.read()).id == 1
        waiting = asyncio.ensure_future(read(client, offset=1, wait_ms=A_LONG_WAIT_MS))
        await until_in_flight(server, 2)
        began = asyncio.get_running_loop().time()
        await server.stop(grace_s=20)
        assert asyncio.get_running_loop().time() - began < 10, "nobody has to be waited for"
        with refused("ShuttingDown", code=grpc.StatusCode.UNAVAILABLE):
            await waiting
        with refused("ShuttingDown"):
            assert await stream.read() is grpc.aio.EOF
            raise await failure(stream)


async def test_a_port_that_is_taken_is_named(tmp_path: Path, server: Server) -> None:
    from dataclasses import replace

    taken = server.addresses["grpc"][1]
    other = Server(replace(make_config(tmp_path / "other"), grpc_port=taken))
    with pytest.raises(CannotListen, match=rf"127\.0\.0\.1:{taken} for gRPC: something listens there already"):
        await other.start()


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0", ""])
async def test_hosts_with_several_addresses(tmp_path: Path, host: str) -> None:
    async with (
        running(tmp_path, host=host) as server,
        connect_async(f"127.0.0.1:{server.addresses['grpc'][1]}") as client,
    ):
        await create(client)


async def test_a_broker_can_do_without(tmp_path: Path) -> None:
    from dataclasses import replace

    server = Server(replace(make_config(tmp_path), grpc_port=None))
    await server.start()
    try:
        assert "grpc" not in server.addresses
    finally:
        await server.stop()


async def test_a_bug_of_ours_is_logged_and_told_without_its_words(
    server: Server, client: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_args: object) -> None:
        raise ValueError("secret")

    monkeypatch.setattr(server.engine, "create", broken)
    with structlog.testing.capture_logs() as lines, refused("InternalError", code=grpc.StatusCode.INTERNAL) as refusal:
        await create(client)
    assert "secret" not in refusal.message
    [line] = [each for each in lines if each["event"] == "failed"]
    assert (line["request"], line["cause"]) == ("CreateTopic", "ValueError('secret')")


async def test_refusals_are_logged_with_client_and_cause(client: Stubs) -> None:
    request = pb.PublishRequest(topic="nope", records=[record()])
    with structlog.testing.capture_logs() as lines, refused("UnknownTopic"):
        await client.stream.Publish(request, metadata=(("levada-client-id", "me"),))
    [line] = [each for each in lines if each["event"] == "refused"]
    assert line["request"] == "Publish"
    assert line["client"].startswith("client me at 127.0.0.1:")
    assert "nope" in line["cause"]


# How many


async def test_a_request_of_too_many_is_refused_and_stores_nothing(client: Stubs) -> None:
    await create(client, partitions=1)
    with refused("InvalidRequest", "10001 records; at most 10000", grpc.StatusCode.INVALID_ARGUMENT):
        await publish(client, *[pb.Record()] * 10_001)
    with refused("InvalidRequest", "20001 batches; at most 20000", grpc.StatusCode.INVALID_ARGUMENT):
        await publish(client, batches=[pb.Batch()] * 20_001)
    many = [pb.PartitionOffset()] * 100_001
    with refused("InvalidRequest", "100001 offsets; at most 100000", grpc.StatusCode.INVALID_ARGUMENT):
        await client.stream.Commit(pb.CommitRequest(group="g", offsets=many))
    with refused("InvalidRequest", "100001 partitions; at most 100000", grpc.StatusCode.INVALID_ARGUMENT):
        await client.stream.Seek(pb.SeekRequest(group="g", topic="t", partitions=[0] * 100_001, shift=1))
    for what, opening in (
        ("topics", pb.SubscribeRequest.Open(topics=["t"] * 100_001, group="g")),
        ("partitions", pb.SubscribeRequest.Open(partitions=[pb.TopicPartition()] * 100_001)),
        ("offsets", pb.SubscribeRequest.Open(topics=["t"], offsets=many)),
    ):
        call = client.stream.Subscribe(iter([pb.SubscribeRequest(open=opening)]))
        with refused("InvalidRequest", f"100001 {what}; at most 100000", grpc.StatusCode.INVALID_ARGUMENT):
            await call.read()
    assert await values(client) == []


async def test_a_message_that_is_too_large_is_refused(client: Stubs) -> None:
    await create(client, partitions=1)
    large = pb.CommitRequest(group="g", offsets=[pb.PartitionOffset(topic="t", metadata="x" * MESSAGE_BYTES_MAX)])
    with refused("", "larger than max", grpc.StatusCode.RESOURCE_EXHAUSTED):
        await client.stream.Commit(large)
    opening = pb.SubscribeRequest.Open(topics=["t"], group="g", client_id="x" * MESSAGE_BYTES_MAX)
    call = client.stream.Subscribe(iter([pb.SubscribeRequest(open=opening)]))
    with refused("", "larger than max", grpc.StatusCode.RESOURCE_EXHAUSTED):
        await call.read()


async def test_only_some_calls_are_read_at_a_time_and_the_others_have_their_turn(server: Server, client: Stubs) -> None:
    await create(client, partitions=1)
    assert server._rpc is not None
    reads = server._rpc.calls.reads
    for _ in range(READS_MAX):
        await reads.begin_read(0)
    waiting = asyncio.ensure_future(client.stream.ListTopics(pb.ListTopicsRequest()))
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    reads.end_read()
    assert [each.name for each in (await waiting).topics] == ["t"]
