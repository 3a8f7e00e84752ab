import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.wire import codec, metadata
from levada.wire.apis import ApiKey
from levada.wire.endpoints import Endpoint
from levada.wire.metadata import NO_OPERATIONS, PartitionMetadata, TopicMetadata
from levada.wire.schema import ZERO_UUID
from support.kio_messages import kio_bytes, random_message

KEY = ApiKey.METADATA
every_version = pytest.mark.parametrize("version", range(14))


@every_version
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_a_response_is_written_as_kio_writes_it(version, seed):
    rng = random.Random(seed)
    fields = random_message(KEY, version, "response", rng)
    if rng.random() < 0.5:
        make_single_replicas(fields, rng)
    body = metadata.write_response(
        version,
        [Endpoint(one["node_id"], one["host"], one["port"], one.get("rack")) for one in fields["brokers"]],
        [topic_metadata(topic) for topic in fields["topics"]],
        cluster_id=fields.get("cluster_id"),
        controller_id=fields.get("controller_id", -1),
        error_code=fields.get("error_code", 0),
        throttle_ms=fields.get("throttle_time_ms", 0),
        cluster_authorized_operations=fields.get("cluster_authorized_operations", NO_OPERATIONS),
    )
    assert body == kio_bytes(KEY, version, "response", fields)


def make_single_replicas(fields, rng):
    for topic in fields["topics"]:
        for partition in topic["partitions"]:
            partition |= {
                "replica_nodes": [rng.randint(0, 9)],
                "isr_nodes": [rng.randint(0, 9)],
                "offline_replicas": [],
            }


def topic_metadata(topic):
    return TopicMetadata(
        topic["name"],
        [
            PartitionMetadata(
                one["partition_index"],
                one["leader_id"],
                one.get("leader_epoch", -1),
                one["replica_nodes"],
                one["isr_nodes"],
                one.get("offline_replicas", ()),
                one["error_code"],
            )
            for one in topic["partitions"]
        ],
        topic.get("topic_id", ZERO_UUID),
        topic.get("is_internal", False),
        topic["error_code"],
        topic.get("topic_authorized_operations", NO_OPERATIONS),
    )


@pytest.mark.parametrize(("version", "name"), [(10, ""), (11, ""), (12, None), (13, None)])
def test_a_topic_without_a_name_is_told_as_the_version_can(version, name):
    body = metadata.write_response(version, [], [TopicMetadata(None, error_code=100)])
    assert codec.read_response(KEY, version, body).topics[0].name == name
