"""The vectors were written by Kafka 4.3's own generated classes."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levada.engine.embedded import internal_records as ir
from levada.engine.embedded.group_snapshot import GroupSnapshot, MemberSnapshot
from levada.errors import CorruptBatch

OFFSET = {
    "offset": 1234567890123,
    "leader_epoch": 5,
    "metadata": "möp",
    "commit_timestamp": 1700000000000,
    "expire_timestamp": 1700000001000,
}
MEMBER = {
    "member_id": "m-1",
    "group_instance_id": "i-1",
    "client_id": "c",
    "client_host": "/127.0.0.1",
    "rebalance_timeout": 300000,
    "session_timeout": 45000,
    "subscription": b"\1\2\3",
    "assignment": b"",
}
GROUP = {
    "protocol_type": "consumer",
    "generation": 3,
    "protocol": "range",
    "leader": "m-1",
    "current_state_timestamp": 1700000000000,
    "members": [MEMBER],
}
TRANSACTION = {
    "producer_id": 4000,
    "producer_epoch": 3,
    "transaction_timeout_ms": 60000,
    "transaction_status": 1,
    "transaction_partitions": [{"topic": "a", "partition_ids": [0, 1]}, {"topic": "b", "partition_ids": [9]}],
    "transaction_last_update_timestamp_ms": 1700000000000,
    "transaction_start_timestamp_ms": 1699999999000,
}
ENDING = {
    **TRANSACTION,
    "previous_producer_id": 3999,
    "next_producer_id": 4001,
    "producer_epoch": 32767,
    "transaction_status": 2,
    "transaction_partitions": [],
    "client_transaction_version": 2,
}
EMPTY = {
    **TRANSACTION,
    "previous_producer_id": 4000,
    "producer_epoch": 0,
    "transaction_status": 0,
    "transaction_partitions": None,
    "transaction_start_timestamp_ms": -1,
}

KAFKA_WROTE = [
    (
        ir.OFFSET_COMMIT_KEY,
        1,
        {"group": "g1", "topic": "orders", "partition": 7},
        "00010002673100066f726465727300000007",
    ),
    (
        ir.OFFSET_COMMIT_KEY,
        0,
        {"group": "g1", "topic": "orders", "partition": 7},
        "00000002673100066f726465727300000007",
    ),
    (ir.GROUP_METADATA_KEY, 2, {"group": "grüße"}, "000200076772c3bcc39f65"),
    (ir.TRANSACTION_KEY, 0, {"transactional_id": "tx-1"}, "0000000474782d31"),
    (ir.OFFSET_COMMIT_VALUE, 0, OFFSET, "00000000011f71fb04cb00046dc3b6700000018bcfe56800"),
    (ir.OFFSET_COMMIT_VALUE, 1, OFFSET, "00010000011f71fb04cb00046dc3b6700000018bcfe568000000018bcfe56be8"),
    (ir.OFFSET_COMMIT_VALUE, 2, OFFSET, "00020000011f71fb04cb00046dc3b6700000018bcfe56800"),
    (ir.OFFSET_COMMIT_VALUE, 3, OFFSET, "00030000011f71fb04cb0000000500046dc3b6700000018bcfe56800"),
    (ir.OFFSET_COMMIT_VALUE, 4, OFFSET, "00040000011f71fb04cb00000005056dc3b6700000018bcfe5680000"),
    (
        ir.OFFSET_COMMIT_VALUE,
        4,
        {"offset": 1, "metadata": "", "commit_timestamp": 2, "topic_id": UUID(int=(1 << 64) + 2)},
        "00040000000000000001ffffffff01000000000000000201001000000000000000010000000000000002",
    ),
    (
        ir.GROUP_METADATA_VALUE,
        0,
        GROUP,
        "00000008636f6e73756d657200000003000572616e676500036d2d310000000100036d2d31000163000a2f3132372e302e302e310000afc8"
        "0000000301020300000000",
    ),
    (
        ir.GROUP_METADATA_VALUE,
        1,
        GROUP,
        "00010008636f6e73756d657200000003000572616e676500036d2d310000000100036d2d31000163000a2f3132372e302e302e31000493e0"
        "0000afc80000000301020300000000",
    ),
    (
        ir.GROUP_METADATA_VALUE,
        2,
        GROUP,
        "00020008636f6e73756d657200000003000572616e676500036d2d310000018bcfe568000000000100036d2d31000163000a2f3132372e30"
        "2e302e31000493e00000afc80000000301020300000000",
    ),
    (
        ir.GROUP_METADATA_VALUE,
        3,
        GROUP,
        "00030008636f6e73756d657200000003000572616e676500036d2d310000018bcfe568000000000100036d2d310003692d31000163000a2f"
        "3132372e302e302e31000493e00000afc80000000301020300000000",
    ),
    (
        ir.GROUP_METADATA_VALUE,
        4,
        GROUP,
        "000409636f6e73756d6572000000030672616e6765046d2d310000018bcfe5680002046d2d3104692d3102630b2f3132372e302e302e3100"
        "0493e00000afc804010203010000",
    ),
    (
        ir.GROUP_METADATA_VALUE,
        4,
        {"protocol": None, "leader": None, "current_state_timestamp": 9},
        "00040100000000000000000000000000090100",
    ),
    (
        ir.TRANSACTION_VALUE,
        0,
        TRANSACTION,
        "00000000000000000fa000030000ea600100000002000161000000020000000000000001000162000000010000000900000"
        "18bcfe568000000018bcfe56418",
    ),
    (
        ir.TRANSACTION_VALUE,
        1,
        TRANSACTION,
        "00010000000000000fa000030000ea60010302610300000000000000010002620200000009000000018bcfe568000000018bcfe5641800",
    ),
    (
        ir.TRANSACTION_VALUE,
        1,
        ENDING,
        "00010000000000000fa07fff0000ea6002010000018bcfe568000000018bcfe564180300080000000000000f9f01080000000000000fa1"
        "02020002",
    ),
    (
        ir.TRANSACTION_VALUE,
        1,
        EMPTY,
        "00010000000000000fa000000000ea6000000000018bcfe56800ffffffffffffffff0100080000000000000fa0",
    ),
]


@pytest.mark.parametrize(("schema", "version", "fields", "expected"), KAFKA_WROTE)
def test_what_is_written_is_what_kafka_writes(schema, version, fields, expected):
    assert ir.write(schema, version, fields).hex() == expected


@pytest.mark.parametrize(("schema", "version", "fields", "expected"), KAFKA_WROTE)
def test_what_kafka_wrote_is_read_and_written_again_the_same(schema, version, fields, expected):
    found = ir.read(schema, bytes.fromhex(expected))
    assert ir.write(schema, version, found).hex() == expected
    present = {field.name for field in schema.fields if version in field.versions}
    assert {name: found[name] for name in fields if name in present and name != "members"} == {
        name: fields[name] for name in fields if name in present and name != "members"
    }


def test_a_field_the_version_lacks_has_its_default():
    found = ir.read(ir.OFFSET_COMMIT_VALUE, ir.write(ir.OFFSET_COMMIT_VALUE, 0, OFFSET))
    assert (found["leader_epoch"], found["expire_timestamp"], found["topic_id"]) == (-1, -1, UUID(int=0))


def test_a_tag_of_a_newer_kafka_is_passed_over():
    written = ir.write(ir.TRANSACTION_VALUE, 1, TRANSACTION)
    newer = written[:-1] + b"\x01\x63\x03abc"
    assert ir.read(ir.TRANSACTION_VALUE, newer) == ir.read(ir.TRANSACTION_VALUE, written)


def test_a_version_of_a_newer_kafka_is_unknown_and_not_corrupt():
    with pytest.raises(ir.Unknown):
        ir.read(ir.OFFSET_COMMIT_VALUE, b"\0\x05" + b"\0" * 40)


@pytest.mark.parametrize(("schema", "version", "fields", "expected"), KAFKA_WROTE)
def test_a_cut_record_is_corrupt_wherever_it_is_cut(schema, version, fields, expected):
    whole = bytes.fromhex(expected)
    for end in range(len(whole)):
        with pytest.raises(CorruptBatch):
            ir.read(schema, whole[:end])


@given(st.sampled_from([row[0] for row in KAFKA_WROTE]), st.binary(max_size=80))
def test_random_bytes_are_read_or_refused_and_nothing_else(schema, data):
    try:
        ir.read(schema, data)
    except (CorruptBatch, ir.Unknown):
        pass


def test_a_group_survives_being_written():
    members = [
        MemberSnapshot(member_id="a", instance_id="i", client_id="c", client_host="h", rebalance_timeout_ms=5,
                       session_timeout_ms=6, subscription=b"s", assignment=b"a"),
        MemberSnapshot(member_id="b", rebalance_timeout_ms=1),
    ]  # fmt: skip
    group = GroupSnapshot(
        group_id="g", protocol_type="consumer", generation=7, protocol_name="range", leader_id="a", since_ms=12,
        members=tuple(members),
    )  # fmt: skip
    assert GroupSnapshot.of("g", group.value()) == group
    assert GroupSnapshot.of("g", GroupSnapshot(group_id="g").value()) == GroupSnapshot(group_id="g")
