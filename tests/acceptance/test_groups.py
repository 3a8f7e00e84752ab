"""Consumer groups with every client: members join, leave, are killed and come back; offsets stay."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from support import clients, raw
from support.brokers import Broker
from support.driver import Client, Driver, Member, Seen, Sent
from support.wait import wait_until

SESSION_MS = 2000
#: A session, the rebalance after it, and room for a slow machine.
TAKEOVER_S = 60.0


def owned(*members: Member) -> list[set[int]]:
    return [member.look()[0] for member in members]


def shared_out(partitions: int, *members: Member) -> bool:
    """Whether each partition has exactly one owner and no member is idle."""
    parts = owned(*members)
    return all(parts) and sorted(index for part in parts for index in part) == list(range(partitions))


def got(*members: Member) -> set[tuple[int, int]]:
    """Every (partition, offset) that one of these members has got."""
    return {(seen.partition, seen.offset) for member in members for seen in member.look()[1]}


def has_got(member: Member, wanted: set[tuple[int, int]]) -> bool:
    return got(member) >= wanted


def kill(member: Member) -> None:
    """kill −9 the member. kcat runs beside its driver, so the driver does it."""
    if member.driver.name == "kcat":
        member.driver.call("murder", name=member.name)
    else:
        member.driver.kill()


def fill(admin: Client, topic: str, partitions: int, each: int, start: int = 0) -> set[tuple[int, int]]:
    """Write `each` records to every partition, and give the places of all that are there then."""
    admin.produce(topic, [Sent(b"%d" % turn, None, index) for turn in range(each) for index in range(partitions)])
    return {(index, offset) for index in range(partitions) for offset in range(start, start + each)}


@pytest.mark.parametrize("name", clients.ALL)
def test_a_joining_member_gets_its_share_and_a_killed_ones_share_moves_on(
    name: str,
    topic: str,
    admin: Client,
    with_client: Callable[[str], Client],
    member_processes: Callable[[str], Driver],
) -> None:
    """11 and 12, over the Kafka wire."""
    admin.create(topic, 4)
    wanted = fill(admin, topic, 4, 10)
    client = with_client(name)
    first = client.join(f"{topic}-first", topic, topic, session_ms=SESSION_MS)
    wait_until(lambda: owned(first) == [{0, 1, 2, 3}], TAKEOVER_S, "the only member owns everything")
    wait_until(lambda: got(first) >= wanted, TAKEOVER_S, "the only member gets everything")

    doomed = Client(member_processes(name), client.bootstrap).join("doomed", topic, topic, session_ms=SESSION_MS)
    wait_until(lambda: shared_out(4, first, doomed), TAKEOVER_S, lambda: f"shared out: {owned(first, doomed)}")
    wanted |= fill(admin, topic, 4, 10, start=10)
    wait_until(lambda: got(first, doomed) >= wanted, TAKEOVER_S, "both together get everything")

    kill(doomed)
    killed_at = time.monotonic()
    wanted_after = fill(admin, topic, 4, 10, start=20)
    wait_until(lambda: owned(first) == [{0, 1, 2, 3}], TAKEOVER_S, lambda: f"taken over: {owned(first)}")
    assert time.monotonic() - killed_at < SESSION_MS / 1000 + 30
    wait_until(lambda: got(first) >= wanted_after, TAKEOVER_S, "what the killed member would have got arrives")
    first.leave()


@pytest.mark.parametrize("name", clients.ALL)
def test_two_groups_each_get_everything(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    """11, over the Kafka wire."""
    admin.create(topic, 3)
    wanted = fill(admin, topic, 3, 20)
    members = [with_client(name).join(f"{topic}-{group}", f"{topic}-{group}", topic) for group in "ab"]
    for member in members:
        wait_until(partial(has_got, member, wanted), TAKEOVER_S, f"{member.name} got everything")
    for member in members:
        assert len(member.look()[1]) == len(wanted), "each record once"
        member.leave()


@pytest.mark.parametrize("name", clients.ALL)
def test_a_group_goes_on_where_it_left_off(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    admin.create(topic, 2)
    wanted = fill(admin, topic, 2, 15)
    client = with_client(name)
    member = client.join(f"{topic}-1", topic, topic)
    wait_until(lambda: got(member) >= wanted, TAKEOVER_S, "everything read")
    wait_until(lambda: admin.committed(topic, topic) == {0: 15, 1: 15}, TAKEOVER_S, "everything committed")
    member.leave()
    more = fill(admin, topic, 2, 5, start=15)
    again = client.join(f"{topic}-2", topic, topic)
    wait_until(lambda: got(again) >= more, TAKEOVER_S, "the rest read")
    assert got(again) == more, "nothing twice"
    again.leave()


@pytest.mark.parametrize("name", clients.able("cooperative rebalancing"))
def test_a_cooperative_group_keeps_partitions_while_it_rebalances(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    admin.create(topic, 4)
    client = with_client(name)
    options = {"assignor": "cooperative-sticky", "session_ms": SESSION_MS}
    first = client.join(f"{topic}-1", topic, topic, **options)
    wait_until(lambda: owned(first) == [{0, 1, 2, 3}], TAKEOVER_S, "the first owns all")
    second = client.join(f"{topic}-2", topic, topic, **options)
    wait_until(lambda: shared_out(4, first, second), TAKEOVER_S, lambda: f"shared out: {owned(first, second)}")
    wanted = fill(admin, topic, 4, 10)
    wait_until(lambda: got(first, second) >= wanted, TAKEOVER_S, "both together get everything")
    second.leave()
    wait_until(lambda: owned(first) == [{0, 1, 2, 3}], TAKEOVER_S, "the first owns all again")
    first.leave()


@pytest.mark.parametrize("name", clients.able("static membership"))
def test_a_static_member_that_returns_in_time_gets_its_partitions_back_without_a_rebalance(
    name: str,
    topic: str,
    admin: Client,
    with_client: Callable[[str], Client],
    member_processes: Callable[[str], Driver],
) -> None:
    admin.create(topic, 4)
    client = with_client(name)
    options = {"session_ms": 9_000}
    stays = client.join(f"{topic}-1", topic, topic, instance="one", **options)
    returns = Client(member_processes(name), client.bootstrap).join("r", topic, topic, instance="two", **options)
    wait_until(lambda: shared_out(4, stays, returns), TAKEOVER_S, lambda: f"shared out: {owned(stays, returns)}")
    before = owned(stays, returns)
    generation = generation_of(client.bootstrap, topic)
    kill(returns)
    again = Client(member_processes(name), client.bootstrap).join("again", topic, topic, instance="two", **options)
    wait_until(lambda: owned(stays, again) == before, 10, lambda: f"as before: {owned(stays, again)} {before}")
    assert generation_of(client.bootstrap, topic) == generation
    again.leave()
    stays.leave()


def generation_of(bootstrap: str, group: str) -> int:
    """The group's generation. No request tells it to outsiders, so heartbeat as a member with each until it is right."""
    describe, heartbeat = raw.schema("describe_groups", 5), raw.schema("heartbeat", 3)
    with raw.Raw(bootstrap) as connection:
        answer = connection.ask(describe.DescribeGroupsRequest(groups=(group,), include_authorized_operations=False))
        member = answer.groups[0].members[0]
        for generation in range(100):
            beat = heartbeat.HeartbeatRequest(
                group_id=group,
                generation_id=generation,
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
            )
            if connection.ask(beat).error_code == 0:
                return generation
    raise AssertionError(f"{group} is in no generation below 100: {answer}")


@pytest.mark.parametrize("name", clients.ALL)
def test_a_group_outlives_its_broker(
    name: str, topic: str, own_broker: Broker, drivers: Callable[[str], Driver]
) -> None:
    """13: kill −9 and a restart cost the members nothing but the wait. Some clients rejoin then, of their own accord."""
    admin, client = Client(drivers("librdkafka"), own_broker.bootstrap), Client(drivers(name), own_broker.bootstrap)
    admin.create(topic, 4)
    before = fill(admin, topic, 4, 10)
    members = [client.join(f"{topic}-{number}", topic, topic, session_ms=9_000) for number in (1, 2)]
    wait_until(lambda: shared_out(4, *members), TAKEOVER_S, lambda: f"shared out: {owned(*members)}")
    wait_until(lambda: got(*members) >= before, TAKEOVER_S, "read before the crash")
    everything_read = dict.fromkeys(range(4), 10)
    wait_until(lambda: admin.committed(topic, topic) == everything_read, TAKEOVER_S, "committed before the crash")
    own_broker.kill()
    own_broker.start()
    after = fill(admin, topic, 4, 10, start=10)
    wait_until(lambda: got(*members) >= after, 2 * TAKEOVER_S, lambda: f"read after the crash: {owned(*members)}")
    assert len([seen for member in members for seen in member.look()[1]]) == 80, "each record once"
    for member in members:
        member.leave()


@pytest.mark.parametrize("name", clients.able("committing for a group"))
def test_an_offset_committed_by_hand_is_where_the_group_resumes(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    """13, over the Kafka wire: commit 15 after reading 10–14."""
    admin.create(topic)
    fill(admin, topic, 1, 20)
    client = with_client(name)
    assert [seen.offset for seen in client.consume(topic, {0: 10})][:5] == [10, 11, 12, 13, 14]
    client.commit(topic, topic, {0: 15})
    assert client.committed(topic, topic) == {0: 15}
    member = client.join(f"{topic}-m", topic, topic)
    wait_until(lambda: len(member.look()[1]) >= 5, TAKEOVER_S, "the rest read")
    assert [seen.offset for seen in member.look()[1]] == [15, 16, 17, 18, 19]
    member.leave()


@pytest.mark.parametrize("name", clients.ALL)
def test_partitions_added_while_a_group_runs_are_read_by_it(
    name: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    """1, over the Kafka wire: at the consumers' next metadata refresh."""
    admin.create(topic, 2)
    before = fill(admin, topic, 2, 5)
    member = with_client(name).join(f"{topic}-m", topic, topic)
    wait_until(lambda: got(member) >= before, TAKEOVER_S, "the first partitions are read")
    admin.expand(topic, 4)
    wait_until(lambda: admin.topics()[topic] == 4, TAKEOVER_S, "expanded")
    admin.produce(topic, [Sent(b"new", None, 2), Sent(b"new", None, 3)])
    wait_until(lambda: got(member) >= {(2, 0), (3, 0)}, TAKEOVER_S, lambda: f"added ones are read: {owned(member)}")
    member.leave()


def test_a_member_of_every_client_joins_one_group(
    topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    """Six clients, twelve partitions, two each: all agree on `range`."""
    admin.create(topic, 12)
    members = [with_client(name).join(f"{topic}-{name}", topic, topic, assignor="range") for name in clients.ALL]
    wait_until(lambda: shared_out(12, *members), 30, lambda: f"shared out: {owned(*members)}")
    assert [len(part) for part in owned(*members)] == [2] * len(members)
    wanted = fill(admin, topic, 12, 20)
    wait_until(lambda: got(*members) >= wanted, TAKEOVER_S, "all together get everything")
    places: list[Seen] = [seen for member in members for seen in member.look()[1]]
    assert len(places) == len(wanted), "each record once"
    for member in members:
        member.leave()


def test_a_late_commit_of_a_member_that_was_thrown_out_is_refused(topic: str, admin: Client) -> None:
    """12: over Kafka, what Kafka answers."""
    admin.create(topic)
    with raw.Raw(admin.bootstrap) as connection:
        member, generation = join_raw(connection, topic)
        assert commit_raw(connection, topic, topic, member, generation) == {0: 0}
        assert commit_raw(connection, topic, topic, member, generation + 1) == {0: 22}  # ILLEGAL_GENERATION
        assert commit_raw(connection, topic, topic, "nobody", generation) == {0: 25}  # UNKNOWN_MEMBER_ID
        leave = raw.schema("leave_group", 4)
        identity = leave.MemberIdentity(member_id=member, group_instance_id=None)
        connection.ask(leave.LeaveGroupRequest(group_id=topic, members=(identity,)))
        assert commit_raw(connection, topic, topic, member, generation) == {0: 25}  # UNKNOWN_MEMBER_ID
    assert admin.committed(topic, topic) == {0: 7}


def test_one_bad_entry_of_a_commit_is_refused_by_name_and_the_others_are_kept(topic: str, admin: Client) -> None:
    """13."""
    admin.create(topic, 2)
    with raw.Raw(admin.bootstrap) as connection:
        assert commit_raw(connection, topic, topic, "", -1, partitions=(0, 99, 1)) == {0: 0, 99: 3, 1: 0}
        too_long = commit_raw(connection, topic, topic, "", -1, partitions=(0,), metadata="m" * 5000)
        assert too_long == {0: 12}  # OFFSET_METADATA_TOO_LARGE
    assert admin.committed(topic, topic) == {0: 7, 1: 7}


def join_raw(connection: raw.Raw, group: str) -> tuple[str, int]:
    """Join and sync as the only member → (member id, generation)."""
    module = raw.schema("join_group", 5)
    protocol = module.JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0\xff\xff\xff\xff")
    member = ""
    for _ in range(2):  # the first answer gives the member id
        request = module.JoinGroupRequest(
            group_id=group,
            session_timeout=timedelta(seconds=10),
            rebalance_timeout=timedelta(seconds=10),
            member_id=member,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=(protocol,),
        )
        answer = wait_until(partial(raw.ask_patiently, connection, request), 20, "joined")
        member = answer.member_id
    assert answer.error_code == 0, answer
    sync = raw.schema("sync_group", 3)
    assignment = sync.SyncGroupRequestAssignment(member_id=member, assignment=b"")
    synced = connection.ask(
        sync.SyncGroupRequest(
            group_id=group,
            generation_id=answer.generation_id,
            member_id=member,
            group_instance_id=None,
            assignments=(assignment,),
        )
    )
    assert synced.error_code == 0
    return member, answer.generation_id


def commit_raw(
    connection: raw.Raw,
    group: str,
    topic: str,
    member: str,
    generation: int,
    *,
    partitions: tuple[int, ...] = (0,),
    metadata: str | None = None,
) -> dict[int, int]:
    """OffsetCommit v7 of offset 7 → the error code of each partition."""
    module = raw.schema("offset_commit", 7)
    places = tuple(
        module.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=7, committed_leader_epoch=-1, committed_metadata=metadata
        )
        for index in partitions
    )
    request = module.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=None,
        topics=(module.OffsetCommitRequestTopic(name=topic, partitions=places),),
    )
    answer = wait_until(lambda: not_loading(connection.ask(request)), 20, "the coordinator has loaded")
    return {partition.partition_index: int(partition.error_code) for partition in answer.topics[0].partitions}


def not_loading(answer: Any) -> Any:
    codes = {int(partition.error_code) for partition in answer.topics[0].partitions}
    return None if codes & {14, 15, 16} else answer
