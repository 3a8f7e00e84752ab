"""When is a broker ready? When it answers, with the right end, for every partition it holds.

A port that is open is not enough: a broker may listen before it has looked at its data. Requests are by kio.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from support import raw


def wait_for_ends(bootstrap: str, ends: Mapping[str, list[int]], timeout_s: float = 600) -> None:
    """Ask for the latest offset of each partition until all are what they were."""
    deadline = time.perf_counter() + timeout_s
    while time.perf_counter() < deadline:
        try:
            if all(_ends(bootstrap, topic, len(wanted)) == wanted for topic, wanted in ends.items()):
                return
        except OSError:
            pass
        time.sleep(0.005)
    raise TimeoutError(f"{bootstrap} does not have {ends} after {timeout_s} s")


def _ends(bootstrap: str, topic: str, partitions: int) -> list[int]:
    module = raw.schema("list_offsets", 7)
    places = tuple(
        module.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=-1)
        for index in range(partitions)
    )
    request = module.ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=(module.ListOffsetsTopic(name=topic, partitions=places),)
    )
    with raw.Raw(bootstrap) as connection:
        answer = connection.ask(request)
    found = {place.partition_index: place.offset for place in answer.topics[0].partitions if place.error_code == 0}
    return [found.get(index, -1) for index in range(partitions)]


def ends(bootstrap: str, topic: str, partitions: int) -> list[int]:
    return _ends(bootstrap, topic, partitions)


def wait_for_metadata(bootstrap: str, timeout_s: float = 120) -> None:
    """Ask for the list of topics until it comes with a broker in it."""
    module = raw.schema("metadata", 9)
    request = module.MetadataRequest(
        topics=None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    deadline = time.perf_counter() + timeout_s
    while time.perf_counter() < deadline:
        try:
            with raw.Raw(bootstrap) as connection:
                if connection.ask(request).brokers:
                    return
        except OSError:
            pass
        time.sleep(0.002)
    raise TimeoutError(f"{bootstrap} is not ready after {timeout_s} s")
