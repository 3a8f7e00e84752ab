import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.wire import list_offsets
from levada.wire.apis import ApiKey
from levada.wire.list_offsets import ListedOffset
from support.kio_messages import kio_bytes, random_message


@pytest.mark.parametrize("version", range(1, 12))
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_a_response_is_written_as_kio_writes_it(version, seed):
    fields = random_message(ApiKey.LIST_OFFSETS, version, "response", random.Random(seed))
    topics = [(topic["name"], [listed(partition) for partition in topic["partitions"]]) for topic in fields["topics"]]
    body = list_offsets.write_response(version, topics, throttle_ms=fields.get("throttle_time_ms", 0))
    assert body == kio_bytes(ApiKey.LIST_OFFSETS, version, "response", fields)


def listed(partition):
    names = ("partition_index", "error_code", "timestamp", "offset")
    return ListedOffset(*(partition[name] for name in names), partition.get("leader_epoch", -1))
