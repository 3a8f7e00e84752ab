"""What a group answers to each call, code by code. Runs as it is against Apache Kafka: `LEVADA_TEST_BROKER=kafka`.

The messages are written and read by our codec, which tests/unit/wire compares with kio's byte for byte.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest

from levada.wire.apis import ApiKey
from levada.wire.codec import Message, read_response, read_response_header, write_request, write_request_header
from support.brokers import Broker
from support.driver import Client
from support.groups import subscription
from support.wait import wait_until

LOADING = {14, 15, 16}
NONE, UNKNOWN_TOPIC, TOO_LARGE, ILLEGAL_GENERATION, INCONSISTENT, INVALID_GROUP = 0, 3, 12, 22, 23, 24
UNKNOWN_MEMBER, INVALID_SESSION, REBALANCING, INVALID_REQUEST = 25, 26, 27, 42
NOT_EMPTY, NOT_FOUND, MEMBER_ID_REQUIRED, FENCED, SUBSCRIBED, UNKNOWN_ID = 68, 69, 79, 82, 86, 100
AGREED = {"protocol_type": "consumer", "protocol_name": "range"}


class Peer:
    """One connection, one group."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.stream = self.socket.makefile("rb")
        self.group, self.topic = group, topic

    def send(self, key: ApiKey, version: int, /, **fields: Any) -> None:
        frame = write_request_header(key, version, 1, "peer") + write_request(key, version, fields)
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self, key: ApiKey, version: int) -> Message:
        answer = self.stream.read(struct.unpack(">i", self.stream.read(4))[0])
        _, start = read_response_header(key, version, answer)
        return read_response(key, version, answer[start:])

    def ask(self, key: ApiKey, version: int, /, **fields: Any) -> Message:
        self.send(key, version, **fields)
        return self.receive(key, version)

    def joining(self, member_id: str = "", **more: Any) -> dict[str, Any]:
        protocols = [{"name": "range", "metadata": subscription(self.topic)}]
        request = {"group_id": self.group, "session_timeout_ms": 15_000, "rebalance_timeout_ms": 15_000}
        return {**request, "member_id": member_id, "protocol_type": "consumer", "protocols": protocols, **more}

    def join(self, member_id: str = "", version: int = 9, **more: Any) -> Message:
        return self.ask(ApiKey.JOIN_GROUP, version, **self.joining(member_id, **more))

    def sync(self, joined: Message, assignment: bytes | None = None, version: int = 5, **more: Any) -> Message:
        shares = [] if assignment is None else [{"member_id": joined.member_id, "assignment": assignment}]
        who = {"group_id": self.group, "generation_id": joined.generation_id, "member_id": joined.member_id, **AGREED}
        return self.ask(ApiKey.SYNC_GROUP, version, **{**who, "assignments": shares, **more})

    def beat(self, joined: Message, **more: Any) -> int:
        return self.beat_as(joined.member_id, joined.generation_id, **more)

    def beat_as(self, member_id: str, generation: int, **more: Any) -> int:
        who = {"group_id": self.group, "generation_id": generation, "member_id": member_id}
        code: int = self.ask(ApiKey.HEARTBEAT, 4, **{**who, **more}).error_code
        return code

    def commit(self, joined: Message | None = None, version: int = 9, **more: Any) -> dict[tuple[str, int], int]:
        """Partitions 0 (good), 1 (metadata too long) and 7 (not there), and a topic that is not there."""
        who = {"group_id": self.group, "member_id": ""}
        if joined is not None:
            who |= {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
        rows = [
            {"partition_index": 0, "committed_offset": 1},
            {"partition_index": 1, "committed_offset": 1, "committed_metadata": "x" * 5000},
            {"partition_index": 7, "committed_offset": 1},
        ]
        topics = [{"name": self.topic, "partitions": rows}, {"name": "nowhere", "partitions": rows[:1]}]
        answer = self.ask(ApiKey.OFFSET_COMMIT, version, **{**who, "topics": topics, **more})
        return {("t" if one.name == self.topic else "nowhere", row.partition_index): row.error_code
                for one in answer.topics for row in one.partitions}  # fmt: skip

    def new_member(self, **more: Any) -> Message:
        """Join as a dynamic member, in both steps."""
        first = self.join(**more)
        assert first.error_code == MEMBER_ID_REQUIRED
        return self.join(first.member_id, **more)

    def stable(self, **more: Any) -> Message:
        joined = self.join(**more) if "group_instance_id" in more else self.new_member(**more)
        assert self.sync(joined, b"share", **more).error_code == NONE
        return joined


def refused(code: int) -> dict[tuple[str, int], int]:
    """What a commit answers that the group refuses."""
    return {("t", 0): code, ("t", 1): code, ("t", 7): UNKNOWN_TOPIC, ("nowhere", 0): UNKNOWN_TOPIC}


TAKEN = {("t", 0): NONE, ("t", 1): TOO_LARGE, ("t", 7): UNKNOWN_TOPIC, ("nowhere", 0): UNKNOWN_TOPIC}


@pytest.fixture
def peers(broker: Broker, admin: Client, topic: str) -> Iterator[list[Peer]]:
    """Two connections to the coordinator of one new group, once it is there."""
    admin.create(topic, 2)
    with ExitStack() as stack:
        made = [Peer(broker.bootstrap, topic, topic) for _ in range(2)]
        for peer in made:
            stack.callback(peer.socket.close)
        first = made[0]
        wait_until(lambda: first.ask(ApiKey.FIND_COORDINATOR, 3, key=topic).error_code == NONE, 30, "a coordinator")
        wait_until(lambda: first.beat_as("x", 0) not in LOADING, 30, "it is loaded")
        yield made


@pytest.fixture
def peer(peers: list[Peer]) -> Peer:
    return peers[0]


def test_joins_that_cannot_be(peer: Peer) -> None:
    assert peer.join(protocol_type="").error_code == INCONSISTENT
    assert peer.join(protocols=[]).error_code == INCONSISTENT
    assert peer.join(session_timeout_ms=1).error_code == INVALID_SESSION
    assert peer.join(group_id="").error_code == INVALID_GROUP
    assert peer.join("stranger").error_code == UNKNOWN_MEMBER
    for version in range(10):
        told = peer.join(version=version, session_timeout_ms=1)
        assert (told.generation_id, told.protocol_type, told.leader, told.members) == (-1, None, "", [])
        assert told.protocol_name == (None if version >= 7 else "")


def test_a_member_that_has_only_its_id(peer: Peer) -> None:
    first = peer.join()
    assert (first.error_code, first.generation_id) == (MEMBER_ID_REQUIRED, -1)
    assert peer.beat(first, generation_id=0) == UNKNOWN_MEMBER
    assert peer.sync(first, generation_id=0).error_code == UNKNOWN_MEMBER
    groups = [peer.group, "nowhere"]
    described = peer.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=groups).groups
    assert [(one.error_code, one.group_state) for one in described] == [(NONE, "Empty"), (NONE, "Dead")]
    (gone,) = peer.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=groups[1:]).groups
    assert (gone.error_code, gone.group_state) == (NOT_FOUND, "Dead")


def test_a_group_that_waits_for_its_assignment(peer: Peer) -> None:
    joined = peer.new_member()
    assert (joined.error_code, joined.generation_id, joined.leader) == (NONE, 1, joined.member_id)
    assert peer.commit(joined) == refused(REBALANCING)
    assert peer.commit() == refused(UNKNOWN_MEMBER)
    assert peer.beat(joined) == NONE
    again = peer.join(joined.member_id)
    assert (again.error_code, again.generation_id, len(again.members)) == (NONE, 1, 1)
    assert peer.sync(joined, protocol_name="other").error_code == INCONSISTENT
    assert peer.sync(joined, protocol_name=None).error_code == INCONSISTENT
    assert peer.sync(joined, generation_id=2).error_code == ILLEGAL_GENERATION
    assert peer.sync(joined, group_id="nowhere").error_code == UNKNOWN_MEMBER
    told = peer.sync(joined, b"share")
    assert (told.error_code, told.protocol_type, told.protocol_name, told.assignment) == (
        NONE, "consumer", "range", b"share",
    )  # fmt: skip


def test_commits_to_a_stable_group(peer: Peer) -> None:
    joined = peer.stable()
    assert peer.commit(joined) == TAKEN
    assert peer.commit(joined, generation_id_or_member_epoch=9) == refused(ILLEGAL_GENERATION)
    assert peer.commit(joined, generation_id_or_member_epoch=-1) == refused(ILLEGAL_GENERATION)
    assert peer.commit(joined, member_id="x") == refused(UNKNOWN_MEMBER)
    assert peer.commit(joined, group_instance_id="x") == refused(UNKNOWN_MEMBER)
    assert peer.commit() == refused(UNKNOWN_MEMBER)
    assert peer.commit(joined, 8, group_id=f"{peer.group}-x") == refused(ILLEGAL_GENERATION)
    assert peer.commit(joined, 9, group_id=f"{peer.group}-x") == refused(NOT_FOUND)
    row = {"partition_index": 0, "committed_offset": 1}
    unknown = [{"topic_id": uuid4(), "partitions": [row]}]
    answer = peer.ask(ApiKey.OFFSET_COMMIT, 10, group_id=peer.group, member_id="", topics=unknown)
    assert answer.topics[0].partitions[0].error_code == UNKNOWN_ID


def test_strangers_to_a_stable_group(peer: Peer) -> None:
    joined = peer.stable()
    assert peer.join(protocol_type="connect").error_code == INCONSISTENT
    assert peer.join(protocols=[{"name": "other", "metadata": b""}]).error_code == INCONSISTENT
    assert peer.beat(joined, generation_id=0) == ILLEGAL_GENERATION
    assert peer.beat(joined, group_id="") == INVALID_GROUP
    leaving = [{"member_id": "x"}, {"member_id": "", "group_instance_id": "i"}, {"member_id": ""}]
    left = peer.ask(ApiKey.LEAVE_GROUP, 5, group_id=peer.group, members=leaving)
    assert (left.error_code, [one.error_code for one in left.members]) == (NONE, [UNKNOWN_MEMBER] * 3)
    assert peer.ask(ApiKey.LEAVE_GROUP, 2, group_id=peer.group, member_id="x").error_code == UNKNOWN_MEMBER
    nowhere = peer.ask(ApiKey.LEAVE_GROUP, 5, group_id="nowhere", members=leaving[:1])
    assert (nowhere.error_code, nowhere.members[0].error_code) == (NONE, UNKNOWN_MEMBER)
    assert peer.ask(ApiKey.LEAVE_GROUP, 5, group_id="", members=leaving).error_code == INVALID_GROUP


def test_what_an_administrator_hears_of_a_stable_group(peer: Peer) -> None:
    joined = peer.stable()
    peer.commit(joined)
    (shown,) = peer.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[peer.group], include_authorized_operations=True).groups
    (member,) = shown.members
    assert (shown.group_state, shown.protocol_type, shown.protocol_data) == ("Stable", "consumer", "range")
    assert (member.client_id, member.client_host, member.member_assignment) == ("peer", "/127.0.0.1", b"share")
    assert shown.authorized_operations == 3400
    filters = {"states_filter": ["STABLE"], "types_filter": ["Classic"]}
    listed = {one.group_id: one for one in peer.ask(ApiKey.LIST_GROUPS, 5, **filters).groups}[peer.group]
    assert (listed.protocol_type, listed.group_state, listed.group_type) == ("consumer", "Stable", "classic")
    results = peer.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[peer.group, "nowhere"]).results
    assert {one.group_id: one.error_code for one in results} == {peer.group: NOT_EMPTY, "nowhere": NOT_FOUND}

    def delete(group: str, topic: str) -> tuple[int, dict[int, int]]:
        rows = [{"partition_index": 0}, {"partition_index": 9}]
        asked = [{"name": topic, "partitions": rows}]
        told = peer.ask(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=asked)
        return told.error_code, {row.partition_index: row.error_code for one in told.topics for row in one.partitions}

    assert delete(peer.group, peer.topic) == (NONE, {0: SUBSCRIBED, 9: UNKNOWN_TOPIC})
    assert delete(peer.group, "nowhere") == (NONE, {0: UNKNOWN_TOPIC, 9: UNKNOWN_TOPIC})
    assert delete("nowhere", peer.topic) == (NOT_FOUND, {})


def test_a_static_member_comes_back(peer: Peer) -> None:
    who = {"group_instance_id": "i"}
    old = peer.stable(**who)
    assert old.member_id.startswith("i-")
    new = peer.join(**who)
    assert (new.error_code, new.generation_id, new.skip_assignment, len(new.members)) == (NONE, 1, True, 1)
    assert new.leader == new.member_id != old.member_id
    newer = peer.join(version=8, **who)
    assert (newer.error_code, newer.leader, newer.members) == (NONE, new.member_id, [])
    assert peer.sync(newer, **who).assignment == b"share"
    assert peer.beat(old, **who) == FENCED
    assert peer.join(old.member_id, **who).error_code == FENCED
    assert peer.commit(old, **who) == refused(FENCED)
    leaving = [{"member_id": old.member_id, **who}, {"member_id": "", **who}]
    left = peer.ask(ApiKey.LEAVE_GROUP, 5, group_id=peer.group, members=leaving)
    assert [one.error_code for one in left.members] == [FENCED, NONE]


def test_an_empty_group(peer: Peer) -> None:
    joined = peer.stable()
    peer.ask(ApiKey.LEAVE_GROUP, 5, group_id=peer.group, members=[{"member_id": joined.member_id}])
    (shown,) = peer.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[peer.group]).groups
    assert (shown.group_state, shown.protocol_type, shown.members) == ("Empty", "consumer", [])
    assert peer.beat(joined) == UNKNOWN_MEMBER
    assert peer.sync(joined).error_code == UNKNOWN_MEMBER
    assert peer.commit(joined) == refused(UNKNOWN_MEMBER)
    assert peer.commit() == TAKEN
    assert peer.new_member().generation_id == 3
    assert peer.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[peer.group]).results[0].error_code == NOT_EMPTY


def test_offsets_nobody_committed(peer: Peer) -> None:
    asked = [{"name": peer.topic, "partition_indexes": [0]}]
    for version in range(1, 8):
        told = peer.ask(ApiKey.OFFSET_FETCH, version, group_id=peer.group, topics=asked)
        (row,) = told.topics[0].partitions
        assert (told.error_code, row.committed_offset, row.metadata, row.error_code) == (NONE, -1, "", NONE)
    everything = peer.ask(ApiKey.OFFSET_FETCH, 9, groups=[{"group_id": peer.group, "topics": None}]).groups[0]
    assert (everything.error_code, everything.topics) == (NONE, [])
    by_id = [{"topic_id": uuid4(), "partition_indexes": [0]}]
    unknown = peer.ask(ApiKey.OFFSET_FETCH, 10, groups=[{"group_id": peer.group, "topics": by_id}]).groups[0]
    assert unknown.topics[0].partitions[0].error_code == UNKNOWN_ID


@pytest.mark.parametrize("version", [1, 3, 6])
def test_coordinators(peer: Peer, version: int) -> None:
    for key_type, code in (0, NONE), (2, INVALID_REQUEST), (5, INVALID_REQUEST):
        told = peer.ask(ApiKey.FIND_COORDINATOR, version, key="k", coordinator_keys=["k"], key_type=key_type)
        assert (told.coordinators[0] if version >= 4 else told).error_code == code


def test_two_members_from_one_generation_to_the_next(peers: list[Peer]) -> None:
    one, two = peers
    leader = one.stable()
    first = two.join()
    assert first.error_code == MEMBER_ID_REQUIRED
    assert one.beat(leader) == NONE
    two.send(ApiKey.JOIN_GROUP, 9, **two.joining(first.member_id))
    wait_until(lambda: one.beat(leader) == REBALANCING, 10, "the leader is told to join again")
    assert one.commit(leader) == TAKEN
    assert one.sync(leader).error_code == REBALANCING
    again = one.join(leader.member_id)
    joined = two.receive(ApiKey.JOIN_GROUP, 9)
    assert (again.generation_id, joined.generation_id, joined.leader) == (2, 2, leader.member_id)
    assert {member.member_id for member in again.members} == {leader.member_id, joined.member_id}
    assert joined.members == []

    who = {"group_id": two.group, "generation_id": 2, "member_id": joined.member_id, **AGREED}
    two.send(ApiKey.SYNC_GROUP, 5, **who)
    shares = [{"member_id": joined.member_id, "assignment": b"2"}, {"member_id": leader.member_id, "assignment": b"1"}]
    assert one.sync(again, assignments=shares).assignment == b"1"
    assert two.receive(ApiKey.SYNC_GROUP, 5).assignment == b"2"
    follower = two.join(joined.member_id)
    assert (follower.error_code, follower.generation_id) == (NONE, 2)
    assert one.commit(leader) == refused(ILLEGAL_GENERATION)

    one.ask(ApiKey.LEAVE_GROUP, 5, group_id=one.group, members=[{"member_id": leader.member_id}])
    assert two.beat(joined) == REBALANCING
    alone = two.join(joined.member_id)
    assert (alone.generation_id, alone.leader, len(alone.members)) == (3, joined.member_id, 1)


def test_a_follower_that_waits_is_sent_back_when_somebody_joins(peers: list[Peer]) -> None:
    one, two = peers
    leader = one.stable()
    first = two.join()
    two.send(ApiKey.JOIN_GROUP, 9, **two.joining(first.member_id))
    wait_until(lambda: one.beat(leader) == REBALANCING, 10, "the leader is told to join again")
    again = one.join(leader.member_id)
    joined = two.receive(ApiKey.JOIN_GROUP, 9)
    two.send(
        ApiKey.SYNC_GROUP, 5, group_id=two.group, generation_id=2, member_id=joined.member_id, **AGREED, assignments=[]
    )
    third = one.join()
    one.send(ApiKey.JOIN_GROUP, 9, **one.joining(third.member_id))
    assert two.receive(ApiKey.SYNC_GROUP, 5).error_code == REBALANCING
    assert again.generation_id == 2
