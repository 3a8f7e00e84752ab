from __future__ import annotations

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st

from levada.broker.groups.subscription import topics_of
from support.groups import subscription


def test_topics_are_read_from_a_subscription_that_a_client_wrote() -> None:
    written = ConsumerProtocolMemberMetadata(version=0, subscription=["a", "ü"], user_data=b"x").encode()
    assert topics_of(written) == {"a", "ü"}


@pytest.mark.parametrize("version", [0, 1, 2, 3, 99])
def test_topics_are_read_whatever_later_versions_add(version: int) -> None:
    assert topics_of(subscription("a", "b", version=version, rest=b"\xff\xff\xff\xff more")) == {"a", "b"}


def test_a_subscription_to_nothing_is_no_topics() -> None:
    assert topics_of(subscription()) == frozenset()


@pytest.mark.parametrize("garbage", [b"", b"\0\0\0", b"\0\0\0\0\0\5\0\1a", b"\0\0\0\0\0\1\0\2\xff\xfe", b"meta"])
def test_bytes_that_are_no_subscription_give_none(garbage: bytes) -> None:
    assert topics_of(garbage) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_survived(data: bytes) -> None:
    topics_of(data)
