import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.errors import MalformedFrame, UnsupportedVersion
from levada.wire import produce
from levada.wire.apis import ApiKey
from levada.wire.endpoints import Endpoint
from levada.wire.produce import Produced
from levada.wire.schema import ZERO_UUID
from support.kio_messages import kio_bytes, random_message

KEY = ApiKey.PRODUCE
every_version = pytest.mark.parametrize("version", range(3, 14))
seeds = st.integers(0, 2**32)


def name_of(topic, version):
    return topic["topic_id"] if version >= 13 else topic["name"]


def plain_topics(fields, version):
    return [
        (name_of(topic, version), [(data["index"], data["records"]) for data in topic["partition_data"]])
        for topic in fields["topic_data"]
    ]


@every_version
@settings(max_examples=40, deadline=None)
@given(seeds)
def test_a_request_is_read_and_written_as_kio_has_it(version, seed):
    fields = random_message(KEY, version, "request", random.Random(seed))
    body = kio_bytes(KEY, version, "request", fields)
    request = produce.read_request(version, memoryview(body))
    assert (request.transactional_id, request.acks, request.timeout_ms) == (
        fields["transactional_id"],
        fields["acks"],
        fields["timeout_ms"],
    )
    assert request.topics == plain_topics(fields, version)
    parts = produce.write_request(
        version,
        plain_topics(fields, version),
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        transactional_id=request.transactional_id,
    )
    assert b"".join(parts) == body


@every_version
def test_records_are_views_of_the_body_both_ways(version):
    records = b"r" * 5000
    topic = "t" if version < 13 else ZERO_UUID
    parts = produce.write_request(version, [(topic, [(0, records), (1, None)])], acks=1, timeout_ms=5)
    assert any(part is records for part in parts)
    body = bytearray(b"".join(parts))
    view = produce.read_request(version, memoryview(body)).topics[0][1][0][1]
    assert view.obj is body
    view[0:1] = b"R"
    assert b"Rrrr" in body


@every_version
@settings(max_examples=40, deadline=None)
@given(seeds)
def test_a_response_is_written_as_kio_writes_it(version, seed):
    fields = random_message(KEY, version, "response", random.Random(seed))
    topics = [
        (name_of(topic, version), [produced(partition) for partition in topic["partition_responses"]])
        for topic in fields["responses"]
    ]
    endpoints = [Endpoint(**endpoint) for endpoint in fields.get("node_endpoints", ())]
    body = produce.write_response(version, topics, throttle_ms=fields["throttle_time_ms"], endpoints=endpoints)
    assert body == kio_bytes(KEY, version, "response", fields)


def produced(partition):
    leader = partition.get("current_leader")
    return Produced(
        partition["index"],
        partition["error_code"],
        partition["base_offset"],
        partition["log_append_time_ms"],
        partition.get("log_start_offset", -1),
        [(error["batch_index"], error["batch_index_error_message"]) for error in partition.get("record_errors", ())],
        partition.get("error_message"),
        (leader["leader_id"], leader["leader_epoch"]) if leader else None,
    )


def test_a_short_tuple_answers_for_a_partition():
    assert produce.write_response(9, [("t", [(0, 0, 7)])]) == produce.write_response(9, [("t", [Produced(0, 0, 7)])])


@every_version
@settings(max_examples=20, deadline=None)
@given(seeds, st.binary(max_size=40))
def test_cut_and_garbled_requests_are_malformed_and_nothing_else(version, seed, garbage):
    rng = random.Random(seed)
    body = kio_bytes(KEY, version, "request", random_message(KEY, version, "request", rng))
    with pytest.raises(MalformedFrame):
        produce.read_request(version, memoryview(body)[: rng.randrange(len(body))])
    garbled = bytearray(body)
    for place in rng.choices(range(len(body)), k=4):
        garbled[place] = rng.choice((0, 1, 127, 128, 255))
    for data in (garbled, garbage):
        try:
            produce.read_request(version, memoryview(data))
        except MalformedFrame:
            pass


@pytest.mark.parametrize("version", [2, 14, -1])
def test_a_version_outside_the_range_is_unsupported(version):
    with pytest.raises(UnsupportedVersion):
        produce.read_request(version, memoryview(b""))
