import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.errors import MalformedFrame, UnsupportedVersion
from levada.wire import codec, fetch
from levada.wire.apis import ApiKey
from levada.wire.endpoints import Endpoint
from levada.wire.fetch import Fetched
from levada.wire.schema import ZERO_UUID
from support.kio_messages import kio_bytes, random_message

KEY = ApiKey.FETCH
every_version = pytest.mark.parametrize("version", range(4, 19))
seeds = st.integers(0, 2**32)


def name_of(topic, version):
    return topic["topic_id"] if version >= 13 else topic["topic"]


def wanted(partition):
    names = ("current_leader_epoch", "fetch_offset", "last_fetched_epoch", "log_start_offset", "partition_max_bytes")
    return (partition["partition"], *(partition.get(name, -1) for name in names))


@every_version
@settings(max_examples=40, deadline=None)
@given(seeds)
def test_a_request_is_read_as_kio_wrote_it(version, seed):
    fields = random_message(KEY, version, "request", random.Random(seed))
    request = fetch.read_request(version, memoryview(kio_bytes(KEY, version, "request", fields)))
    assert request == (
        fields["replica_id"] if version < 15 else fields["replica_state"]["replica_id"],
        fields["max_wait_ms"],
        fields["min_bytes"],
        fields["max_bytes"],
        fields["isolation_level"],
        fields.get("session_id", 0),
        fields.get("session_epoch", -1),
        [(name_of(topic, version), [wanted(one) for one in topic["partitions"]]) for topic in fields["topics"]],
        [(name_of(topic, version), topic["partitions"]) for topic in fields.get("forgotten_topics_data", ())],
        fields.get("rack_id", ""),
    )


@every_version
@settings(max_examples=30, deadline=None)
@given(seeds)
def test_a_consumers_request_is_written_as_kio_writes_it(version, seed):
    fields = random_message(KEY, version, "request", random.Random(seed))
    fields |= {"cluster_id": None, "replica_id": -1, "replica_state": {"replica_id": -1, "replica_epoch": -1}}
    for topic in fields["topics"]:
        for partition in topic["partitions"]:
            partition |= {"replica_directory_id": ZERO_UUID, "high_watermark": 2**63 - 1}
    body = kio_bytes(KEY, version, "request", fields)
    request = fetch.read_request(version, body)
    limits = ("max_wait_ms", "min_bytes", "max_bytes", "isolation_level", "session_id", "session_epoch", "rack_id")
    kept = {name: getattr(request, name) for name in limits}
    assert fetch.write_request(version, request.topics, forgotten=request.forgotten, **kept) == body


@every_version
@settings(max_examples=40, deadline=None)
@given(seeds)
def test_a_response_is_written_and_read_as_kio_has_it(version, seed):
    fields = random_message(KEY, version, "response", random.Random(seed))
    topics = [
        (name_of(topic, version), [fetched(partition, version) for partition in topic["partitions"]])
        for topic in fields["responses"]
    ]
    endpoints = [Endpoint(**endpoint) for endpoint in fields.get("node_endpoints", ())]
    head = (fields["throttle_time_ms"], fields.get("error_code", 0), fields.get("session_id", 0))
    parts = fetch.write_response(
        version, topics, throttle_ms=head[0], error_code=head[1], session_id=head[2], endpoints=endpoints
    )
    body = b"".join(parts)
    assert body == kio_bytes(KEY, version, "response", fields)
    assert fetch.read_response(version, memoryview(body)) == (*head, topics, endpoints)


def fetched(partition, version):
    """The partition as we have it; what Levada never says, it is made not to say here."""
    partition["records"] = partition["records"] or b""
    if version >= 12:
        partition["snapshot_id"] = {"end_offset": -1, "epoch": -1}
    aborted = partition["aborted_transactions"]
    diverging, leader = partition.get("diverging_epoch"), partition.get("current_leader")
    return Fetched(
        partition["partition_index"],
        partition["error_code"],
        partition["high_watermark"],
        partition["last_stable_offset"],
        partition.get("log_start_offset", -1),
        partition["records"],
        None if aborted is None else [(one["producer_id"], one["first_offset"]) for one in aborted],
        partition.get("preferred_read_replica", -1),
        (diverging["epoch"], diverging["end_offset"]) if diverging else None,
        (leader["leader_id"], leader["leader_epoch"]) if leader else None,
    )


@every_version
def test_records_are_not_copied(version):
    records = memoryview(b"r" * 3000)
    topic = "t" if version < 13 else ZERO_UUID
    parts = fetch.write_response(version, [(topic, [(0, 0, 5, 5, 0, records), (1, 1), (2, 0, 5, 5, 0, records)])])
    assert sum(part is records for part in parts) == 2
    answer = codec.read_response(KEY, version, b"".join(parts))
    assert [one.records for one in answer.responses[0].partitions] == [records, b"", records]


def test_a_leader_that_is_not_known_is_not_told():
    nobody = Fetched(0, current_leader=(-1, -1), diverging_epoch=(-1, -1))
    assert fetch.write_response(16, [(ZERO_UUID, [nobody])]) == fetch.write_response(16, [(ZERO_UUID, [Fetched(0)])])


@every_version
@settings(max_examples=20, deadline=None)
@given(seeds, st.binary(max_size=40))
def test_cut_and_garbled_messages_are_malformed_and_nothing_else(version, seed, garbage):
    rng = random.Random(seed)
    for kind, read in (("request", fetch.read_request), ("response", fetch.read_response)):
        body = kio_bytes(KEY, version, kind, random_message(KEY, version, kind, rng))
        with pytest.raises(MalformedFrame):
            read(version, memoryview(body)[: rng.randrange(len(body))])
        garbled = bytearray(body)
        for place in rng.choices(range(len(body)), k=4):
            garbled[place] = rng.choice((0, 1, 127, 128, 255))
        for data in (garbled, garbage):
            try:
                read(version, memoryview(data))
            except MalformedFrame:
                pass


@pytest.mark.parametrize("version", [3, 19])
def test_a_version_outside_the_range_is_unsupported(version):
    with pytest.raises(UnsupportedVersion):
        fetch.read_request(version, b"")
