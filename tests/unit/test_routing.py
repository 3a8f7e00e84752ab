"""Key → partition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from levada.config import TOPIC_SETTINGS
from levada.routing import ROUTERS, fnv1a64, murmur2, partition_for


@pytest.mark.parametrize(
    ("partitions", "key", "partition"),
    [
        (3, b"user-123", 1),
        (3, b"user-456", 0),
        (12, b"user-123", 7),
        (12, b"user-456", 0),
        (12, b"order-123", 6),
        (12, b"user:1", 3),
    ],
)
def test_fnv1a64_sends_the_keys_of_the_contract_to_their_partitions(
    partitions: int, key: bytes, partition: int
) -> None:
    assert partition_for(key, "fnv1a64", partitions) == partition


@pytest.mark.parametrize(
    ("key", "digest"), [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)]
)
def test_fnv1a64_gives_the_published_digests(key: bytes, digest: int) -> None:
    assert fnv1a64(key) == digest


# The vectors of Kafka's own UtilsTest.
@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_what_java_gives(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=40), st.integers(1, 200))
def test_murmur2_agrees_with_kafka_python(key: bytes, partitions: int) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF
    assert partition_for(key, "murmur2", partitions) == (kafka_python_murmur2(key) & 0x7FFFFFFF) % partitions


@given(st.binary(min_size=1, max_size=20), st.sampled_from(sorted(ROUTERS)), st.integers(1, 1000))
def test_every_router_stays_within_the_partitions(key: bytes, router: str, partitions: int) -> None:
    assert 0 <= partition_for(key, router, partitions) < partitions


def test_every_router_can_be_set_on_a_topic() -> None:
    for router in ROUTERS:
        TOPIC_SETTINGS["levada.router"].validate(router)
