import random
import struct
import tracemalloc
from contextlib import nullcontext
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.errors import MalformedFrame, UnsupportedVersion
from levada.wire import codec
from levada.wire.apis import APIS, ApiKey
from levada.wire.codec import Message, as_dict
from levada.wire.schema import ZERO_UUID, message
from support.kio_messages import kio_bytes, random_message

KINDS = ("request", "response")
READ = {"request": codec.read_request, "response": codec.read_response}
WRITE = {"request": codec.write_request, "response": codec.write_response}

every_call = pytest.mark.parametrize("key", APIS, ids=lambda key: APIS[key].name)
seeds = st.integers(0, 2**32)


def forms(key):
    """Every version of both messages of a call."""
    api = APIS[key]
    return [(version, kind) for version in range(api.min_version, api.max_version + 1) for kind in KINDS]


def carried(value):
    """A message as nested dicts, without the fields its version lacks."""
    if isinstance(value, Message):
        return {name: carried(item) for name, item in vars(value).items()}
    return [carried(item) for item in value] if isinstance(value, list | tuple) else value


@every_call
@settings(max_examples=8, deadline=None)
@given(seeds)
def test_every_version_is_written_as_kio_writes_it_and_read_back(key, seed):
    for version, kind in forms(key):
        fields = random_message(key, version, kind, random.Random(seed))
        body = WRITE[kind](key, version, fields)
        assert body == kio_bytes(key, version, kind, fields)
        assert carried(READ[kind](key, version, memoryview(body))) == fields


@every_call
@settings(max_examples=4, deadline=None)
@given(seeds)
def test_what_was_read_can_be_written_in_any_other_version(key, seed):
    rng = random.Random(seed)
    for version, kind in forms(key):
        api = APIS[key]
        read = READ[kind](key, version, WRITE[kind](key, version, random_message(key, version, kind, rng)))
        other = rng.randint(api.min_version, api.max_version)
        fields = without_nulls(as_dict(read), message(key, kind).fields, other)
        assert READ[kind](key, other, WRITE[kind](key, other, fields)).names == read.names


def without_nulls(fields, schema, version):
    """The fields, less those whose null this version cannot say."""
    kept = {}
    for field in schema:
        value = fields[field.name]
        if value is None and not (field.nullable and version in field.nullable):
            continue
        if field.type == "struct" and isinstance(value, list):
            value = [without_nulls(item, field.fields, version) for item in value]
        elif field.type == "struct" and value is not None:
            value = without_nulls(value, field.fields, version)
        kept[field.name] = value
    return kept


@every_call
@settings(max_examples=3, deadline=None)
@given(seeds)
def test_any_cut_of_a_message_is_malformed(key, seed):
    rng = random.Random(seed)
    for version, kind in forms(key):
        body = WRITE[kind](key, version, random_message(key, version, kind, rng))
        for cut in {0, len(body) // 2, max(0, len(body) - 1), rng.randrange(len(body) + 1)}:
            with pytest.raises(MalformedFrame) if cut < len(body) else nullcontext():
                READ[kind](key, version, body[:cut])


@every_call
@settings(max_examples=6, deadline=None)
@given(seeds, st.binary(max_size=60))
def test_garbage_is_malformed_and_nothing_else(key, seed, garbage):
    rng = random.Random(seed)
    for version, kind in forms(key):
        body = bytearray(WRITE[kind](key, version, random_message(key, version, kind, rng)))
        for place in rng.choices(range(len(body)), k=4) if body else ():
            body[place] = rng.choice((0, 1, 127, 128, 255))
        for data in (garbage, bytes(body)):
            try:
                READ[kind](key, version, data)
            except MalformedFrame:
                pass


@pytest.mark.parametrize("count", [2**31 - 1, 2**24])
@pytest.mark.parametrize(
    ("key", "version"), [(ApiKey.METADATA, 4), (ApiKey.CREATE_TOPICS, 3), (ApiKey.DELETE_TOPICS, 1)]
)
def test_a_claimed_length_allocates_nothing(key, version, count):
    body = struct.pack(">i", count) + bytes(100)
    tracemalloc.start()
    with pytest.raises(MalformedFrame, match="claims"):
        codec.read_request(key, version, body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_bytes_after_the_message_are_ignored_as_kafka_ignores_them():
    body = codec.write_request(ApiKey.HEARTBEAT, 4, {"group_id": "g"})
    assert codec.read_request(ApiKey.HEARTBEAT, 4, body + b"more").group_id == "g"


def test_a_field_of_another_version_reads_as_its_default():
    request = codec.read_request(
        ApiKey.OFFSET_COMMIT, 2, codec.write_request(ApiKey.OFFSET_COMMIT, 2, {"topics": [{"name": "t"}]})
    )
    assert request.group_instance_id is None
    assert request.retention_time_ms == -1
    assert request.topics[0].topic_id == ZERO_UUID
    assert (
        codec.read_request(ApiKey.FETCH, 4, codec.write_request(ApiKey.FETCH, 4, {})).replica_state.replica_epoch == -1
    )


def test_a_retention_of_all_time_is_an_ordinary_number():
    body = codec.write_request(ApiKey.OFFSET_COMMIT, 3, {"retention_time_ms": 2**63 - 1})
    assert codec.read_request(ApiKey.OFFSET_COMMIT, 3, body).retention_time_ms == 2**63 - 1


def test_a_field_this_version_lacks_is_dropped():
    fields = {"error_code": 0, "throttle_time_ms": 5, "member_id": "m"}
    assert (
        codec.read_response(ApiKey.JOIN_GROUP, 0, codec.write_response(ApiKey.JOIN_GROUP, 0, fields)).member_id == "m"
    )


def test_a_name_no_version_has_is_refused():
    with pytest.raises(ValueError, match="Heartbeat response has no field eror_code"):
        codec.write_response(ApiKey.HEARTBEAT, 4, {"eror_code": 0})
    with pytest.raises(ValueError, match="topics has no field nmae"):
        codec.write_request(ApiKey.METADATA, 9, {"topics": [{"nmae": "t"}]})


@pytest.mark.parametrize(
    "fields", [{"group_id": None}, {"generation_id": 2**31}, {"group_id": "x" * 40_000}, {"group_id": 5}]
)
@pytest.mark.parametrize("version", [3, 4])
def test_what_cannot_be_written_is_a_value_error(version, fields):
    with pytest.raises(ValueError, match=r"Heartbeat|group_id"):
        codec.write_request(ApiKey.HEARTBEAT, version, fields)


@pytest.mark.parametrize("version", [3, 4])
def test_null_where_the_schema_forbids_it_is_malformed(version):
    body = {3: struct.pack(">h", -1), 4: b"\0"}[version] + codec.write_request(ApiKey.HEARTBEAT, version, {})[1:]
    with pytest.raises(MalformedFrame, match="group_id may not be null"):
        codec.read_request(ApiKey.HEARTBEAT, version, body)


def test_text_that_is_not_utf8_is_read_as_kafka_reads_it():
    body = codec.write_request(ApiKey.HEARTBEAT, 3, {"group_id": "ab"}).replace(b"ab", b"a\xff")
    assert codec.read_request(ApiKey.HEARTBEAT, 3, body).group_id == "a\N{REPLACEMENT CHARACTER}"


def test_unknown_tags_are_skipped():
    body = codec.write_request(ApiKey.HEARTBEAT, 4, {"group_id": "g"})
    assert body.endswith(b"\0")
    tagged = body[:-1] + b"\x02" + b"\x07\x03abc" + b"\xac\x02\x00"
    assert codec.read_request(ApiKey.HEARTBEAT, 4, tagged).group_id == "g"
    with pytest.raises(MalformedFrame):
        codec.read_request(ApiKey.HEARTBEAT, 4, body[:-1] + b"\x01\x07\x7fabc")


def test_a_struct_that_means_its_default_is_not_written_as_a_tag():
    plain = codec.write_response(ApiKey.FETCH, 16, {"responses": [{"partitions": [{"records": b""}]}]})
    named = {"leader_id": -1, "leader_epoch": -1}
    same = {"responses": [{"partitions": [{"records": b"", "current_leader": named}]}], "node_endpoints": []}
    assert codec.write_response(ApiKey.FETCH, 16, same) == plain


def test_a_message_is_equal_by_its_fields_and_shows_them():
    body = codec.write_request(ApiKey.HEARTBEAT, 4, {"group_id": "g", "member_id": "m"})
    one, other = (codec.read_request(ApiKey.HEARTBEAT, 4, body) for _ in range(2))
    assert one == other
    assert repr(one) == "HeartbeatRequest(group_id='g', generation_id=0, member_id='m', group_instance_id=None)"


def test_topic_ids_are_uuids():
    topic_id = UUID("10000000-2000-3000-4000-500000000000")
    body = codec.write_request(ApiKey.METADATA, 12, {"topics": [{"topic_id": topic_id, "name": None}]})
    assert codec.read_request(ApiKey.METADATA, 12, body).topics[0].topic_id == topic_id


@pytest.mark.parametrize("version", [-1, 5, 32767])
def test_an_unknown_version_is_said_to_be_unsupported(version):
    with pytest.raises(UnsupportedVersion):
        codec.read_request(ApiKey.HEARTBEAT, version, b"")
    with pytest.raises(UnsupportedVersion):
        codec.write_response(ApiKey.HEARTBEAT, version, {})


@given(st.sampled_from(sorted(APIS)), st.data(), st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=300))
def test_headers_come_back_as_they_were_written(key, data, correlation_id, client_id):
    api = APIS[key]
    version = data.draw(st.integers(api.min_version, api.max_version))
    try:
        head = codec.write_request_header(key, version, correlation_id, client_id)
    except UnicodeEncodeError:
        return
    frame = head + b"body"
    for form in (frame, bytearray(frame), memoryview(frame)):
        assert codec.read_request_header(form) == (key, version, correlation_id, client_id, len(head))
    answer = codec.write_response_header(key, version, correlation_id)
    assert codec.read_response_header(key, version, answer + b"body") == (correlation_id, len(answer))
    for cut in range(len(head)):
        with pytest.raises(MalformedFrame):
            codec.read_request_header(memoryview(head)[:cut])


def test_a_flexible_header_may_carry_tags():
    head = codec.write_request_header(ApiKey.METADATA, 12, 1, "c")
    assert codec.read_request_header(head[:-1] + b"\x01\x00\x02hi" + b"body").body_start == len(head) + 4


def test_a_header_of_an_unknown_call_is_malformed():
    with pytest.raises(MalformedFrame, match="999"):
        codec.read_request_header(struct.pack(">hhih", 999, 0, 1, -1))


@settings(max_examples=200)
@given(st.binary(max_size=30))
def test_a_garbage_header_is_malformed_and_nothing_else(data):
    try:
        codec.read_request_header(data)
    except MalformedFrame:
        pass
