"""Groups of real clients through what happens to a broker and its members: restarts, freezes, hang-ups, administrators.

What clients do with one another while all goes well is in tests/acceptance/test_groups.py.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient  # type: ignore[attr-defined]

from levada.engine.port import TopicSpec
from levada.wire.apis import ApiKey
from levada.wire.codec import Message, read_response, read_response_header, write_request, write_request_header
from support import clients
from support.broker import running
from support.driver import Client, Driver, Member, Sent
from support.groups import subscription
from support.levada import LevadaBroker
from support.raw_client import connected
from support.wait import wait_until

CLIENTS = ("librdkafka", "kafka-python", "aiokafka")
#: Long enough to live through a restart, short enough to wait for.
SESSION_MS = 12_000
PATIENCE_S = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LevadaBroker]:
    with LevadaBroker(tmp_path / "broker", {"group.min.session.timeout.ms": "1000"}) as running:
        yield running


@pytest.fixture
def client(tmp_path: Path, broker: LevadaBroker) -> Iterator[Callable[[str], Client]]:
    """A client by name, each in a process of its own."""
    with ExitStack() as stack:

        def start(name: str) -> Client:
            driver: Driver = clients.driver(name, tmp_path / f"{name}.txt")
            stack.callback(driver.kill)
            return Client(driver, broker.bootstrap)

        yield start


def fill(admin: Client, each: int, start: int = 0) -> set[tuple[int, int]]:
    """`each` records for each of the four partitions, and where they are."""
    admin.produce("t", [Sent(b"%d" % turn, None, index) for turn in range(each) for index in range(4)])
    return {(index, offset) for index in range(4) for offset in range(start, start + each)}


def got(*members: Member) -> set[tuple[int, int]]:
    return {(seen.partition, seen.offset) for member in members for seen in member.look()[1]}


def owned(*members: Member) -> list[set[int]]:
    return [member.look()[0] for member in members]


def shared_out(*members: Member) -> bool:
    parts = owned(*members)
    return all(parts) and sorted(index for part in parts for index in part) == [0, 1, 2, 3]


def ask(bootstrap: str, key: ApiKey, version: int, **fields: Any) -> Message:
    """One request on a connection of its own."""
    host, _, port = bootstrap.rpartition(":")
    frame = write_request_header(key, version, 1, "test") + write_request(key, version, fields)
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        stream = connection.makefile("rb")
        answer = stream.read(struct.unpack(">i", stream.read(4))[0])
    _, start = read_response_header(key, version, answer)
    return read_response(key, version, answer[start:])


def members_of(bootstrap: str) -> dict[str, bytes]:
    """Member id → assignment."""
    (group,) = ask(bootstrap, ApiKey.DESCRIBE_GROUPS, 5, groups=["g"]).groups
    return {member.member_id: member.member_assignment for member in group.members}


def generation_of(bootstrap: str, member_id: str) -> int:
    """The one in which this member's heartbeat is taken."""
    for generation in range(100):
        beat = ask(bootstrap, ApiKey.HEARTBEAT, 4, group_id="g", generation_id=generation, member_id=member_id)
        if beat.error_code == 0:
            return generation
    raise AssertionError(f"{member_id} is in no generation below 100")


def commit_code(bootstrap: str, member_id: str, generation: int) -> int:
    partitions = [{"partition_index": 0, "committed_offset": 0}]
    answer = ask(
        bootstrap,
        ApiKey.OFFSET_COMMIT,
        9,
        group_id="g",
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[{"name": "t", "partitions": partitions}],
    )
    code: int = answer.topics[0].partitions[0].error_code
    return code


# -- the broker goes and comes back ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("name", CLIENTS)
def test_members_go_on_through_a_restart_without_a_rebalance(
    name: str, how: str, broker: LevadaBroker, client: Callable[[str], Client]
) -> None:
    admin = client(name)
    admin.create("t", 4)
    wanted = fill(admin, 5)
    members = [client(name).join(f"m{number}", "g", "t", session_ms=SESSION_MS) for number in range(2)]
    wait_until(lambda: shared_out(*members), PATIENCE_S, lambda: f"shared out: {owned(*members)}")
    wait_until(lambda: got(*members) >= wanted, PATIENCE_S, "all read before")
    before, parts = members_of(broker.bootstrap), owned(*members)
    generation = generation_of(broker.bootstrap, next(iter(before)))

    getattr(broker, how)()
    broker.start()
    wanted |= fill(client(name), 5, start=5)
    wait_until(lambda: got(*members) >= wanted, PATIENCE_S, lambda: f"all read after: {wanted - got(*members)}")
    assert members_of(broker.bootstrap) == before
    assert owned(*members) == parts
    assert generation_of(broker.bootstrap, next(iter(before))) == generation
    for member in members:
        member.leave()


@pytest.mark.parametrize("name", CLIENTS)
def test_a_member_that_died_while_the_broker_was_down_is_missed_after_its_session(
    name: str, broker: LevadaBroker, client: Callable[[str], Client]
) -> None:
    client(name).create("t", 4)
    lives, dies = (client(name).join(f"m{number}", "g", "t", session_ms=6_000) for number in range(2))
    wait_until(lambda: shared_out(lives, dies), PATIENCE_S, "shared out")
    broker.kill()
    dies.driver.kill()
    broker.start()
    wait_until(lambda: owned(lives) == [{0, 1, 2, 3}], PATIENCE_S, lambda: f"taken over: {owned(lives)}")
    lives.leave()


def test_a_broker_does_not_wait_for_members_that_wait_to_join(tmp_path: Path) -> None:
    async def scene() -> tuple[int, float]:
        async with running(tmp_path) as server, connected(server) as first, connected(server) as second:
            await join_raw(first)
            waiting = asyncio.ensure_future(join_raw(second))
            await asyncio.sleep(0.1)
            begun = time.monotonic()
            await server.stop(grace_s=60)
            return (await waiting).error_code, time.monotonic() - begun

    code, took_s = asyncio.run(scene())
    assert code == 15  # COORDINATOR_NOT_AVAILABLE
    assert took_s < 30


# -- members that freeze or hang up ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLIENTS)
def test_a_frozen_member_loses_its_partitions_and_its_late_commit_is_refused(
    name: str, broker: LevadaBroker, client: Callable[[str], Client]
) -> None:
    """12, over the Kafka wire. When it thaws it finds its way back by itself."""
    client(name).create("t", 4)
    stays, freezes = (client(name).join(f"m{number}", "g", "t", session_ms=3_000) for number in range(2))
    wait_until(lambda: shared_out(stays, freezes), PATIENCE_S, "shared out")
    all_ids = set(members_of(broker.bootstrap))
    generation = generation_of(broker.bootstrap, next(iter(all_ids)))

    freezes.driver.pause()
    frozen_at = time.monotonic()
    wait_until(lambda: owned(stays) == [{0, 1, 2, 3}], PATIENCE_S, lambda: f"taken over: {owned(stays)}")
    assert time.monotonic() - frozen_at < 3 + 30
    (gone,) = all_ids - set(members_of(broker.bootstrap))
    assert commit_code(broker.bootstrap, gone, generation) == 25  # UNKNOWN_MEMBER_ID
    (there,) = members_of(broker.bootstrap)
    assert commit_code(broker.bootstrap, there, generation) == 22  # ILLEGAL_GENERATION

    freezes.driver.resume()
    wait_until(lambda: shared_out(stays, freezes), PATIENCE_S, lambda: f"shared out: {owned(stays, freezes)}")
    stays.leave()
    freezes.leave()


async def join_raw(client: Any, member_id: str = "", *, version: int = 3, **fields: Any) -> Message:
    answer: Message = await client.call(
        ApiKey.JOIN_GROUP,
        version,
        group_id="g",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": subscription("t")}],
        **fields,
    )
    return answer


async def test_a_client_that_hangs_up_while_it_joins_is_forgotten(tmp_path: Path) -> None:
    settings = {"group.min.session.timeout.ms": "100"}
    async with running(tmp_path, settings) as server, connected(server) as client:
        await server.engine.create(TopicSpec(name="t", partitions=1))
        first = await join_raw(client)
        async with connected(server) as other:
            other.send(
                ApiKey.JOIN_GROUP,
                3,
                group_id="g",
                session_timeout_ms=100,
                rebalance_timeout_ms=100,
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": subscription("t")}],
            )
            assert await other.nothing_comes()
        again = await join_raw(client, first.member_id)
        assert len(again.members) == 2
        async with asyncio.timeout(60):
            while True:  # the one that hung up never synced nor sent a heartbeat, so the other is asked to join again
                beat = await client.call(
                    ApiKey.HEARTBEAT,
                    3,
                    group_id="g",
                    generation_id=again.generation_id,
                    member_id=first.member_id,
                )
                if beat.error_code == 27:
                    break
                await asyncio.sleep(0.02)
        alone = await join_raw(client, first.member_id)
        assert [member.member_id for member in alone.members] == [first.member_id]


async def test_a_hundred_clients_that_hang_up_while_they_join_leave_no_request_behind(tmp_path: Path) -> None:
    async with running(tmp_path) as server, connected(server) as client:
        first = await join_raw(client)
        for _ in range(100):
            async with connected(server) as other:
                other.send(
                    ApiKey.JOIN_GROUP,
                    5,
                    group_id="g",
                    session_timeout_ms=6_000,
                    rebalance_timeout_ms=60_000,
                    member_id=first.member_id,
                    protocol_type="consumer",
                    protocols=[{"name": "range", "metadata": subscription("t", "u")}],
                )
                await asyncio.sleep(0)
        answer = await join_raw(client, first.member_id)
        assert answer.error_code == 0
        assert len(answer.members) == 1


# -- administrators -------------------------------------------------------------------------------------------------


def test_an_administrator_sees_and_removes_groups_with_librdkafka(
    broker: LevadaBroker, client: Callable[[str], Client]
) -> None:
    user = client("librdkafka")
    user.create("t", 4)
    wanted = fill(user, 3)
    member = user.join("m", "g", "t", session_ms=SESSION_MS)
    wait_until(lambda: got(member) >= wanted, PATIENCE_S, "all read")
    wait_until(lambda: user.committed("g", "t") == dict.fromkeys(range(4), 3), PATIENCE_S, "all committed")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    stable = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result()
    assert [(one.group_id, one.state) for one in stable.valid] == [("g", ConsumerGroupState.STABLE)]
    assert admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result().valid == []
    described = admin.describe_consumer_groups(["g"])["g"].result()
    assert described.state is ConsumerGroupState.STABLE
    assert {one.partition for one in described.members[0].assignment.topic_partitions} == {0, 1, 2, 3}
    assert described.members[0].host == "/127.0.0.1"

    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["g"])["g"].result()
    zero = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 0)])
    refused = admin.alter_consumer_group_offsets([zero])["g"].result()
    assert refused.topic_partitions[0].error.name() == "UNKNOWN_MEMBER_ID"

    member.leave()
    wait_until(
        lambda: admin.describe_consumer_groups(["g"])["g"].result().state is ConsumerGroupState.EMPTY, 10, "empty"
    )
    admin.alter_consumer_group_offsets([zero])["g"].result()
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])["g"].result()
    assert {one.partition: one.offset for one in offsets.topic_partitions} == {0: 0, 1: 3, 2: 3, 3: 3}
    admin.delete_consumer_groups(["g"])["g"].result()
    assert admin.list_consumer_groups().result().valid == []
    assert user.committed("g", "t") == dict.fromkeys(range(4))


def test_an_administrator_sees_and_removes_groups_with_kafka_python(
    broker: LevadaBroker, client: Callable[[str], Client]
) -> None:
    user = client("kafka-python")
    user.create("t", 4)
    member = user.join("m", "g", "t", session_ms=SESSION_MS)
    wait_until(lambda: owned(member) == [{0, 1, 2, 3}], PATIENCE_S, "all owned")
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        assert [one["group_id"] for one in admin.list_groups()] == ["g"]
        described = admin.describe_groups(["g"])["g"]
        assert described["group_state"] == "Stable"
        assert len(described["members"]) == 1
        member.leave()
        wait_until(lambda: admin.describe_groups(["g"])["g"]["group_state"] == "Empty", 10, "empty")
        admin.delete_groups(["g"])
        assert admin.list_groups() == []
    finally:
        admin.close()
