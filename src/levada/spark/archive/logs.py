"""What the logs of a topic hold, asked of the brokers."""

from __future__ import annotations

from collections.abc import Sequence

from levada.spark.archive.planning import Held
from levada.wire.answers import EARLIEST, LATEST, READ_COMMITTED, TopicInfo, TopicPartition
from levada.wire.blocking import BlockingClient


def epochs_of(info: TopicInfo) -> dict[int, int]:
    """The leader epochs of the partitions, where the brokers tell them."""
    return {one.partition: one.leader_epoch for one in info.partitions if one.leader_epoch >= 0}


def before(log: Held, end: int) -> Held:
    """As if the log ended here, if it goes further."""
    return Held(log.start, max(log.start, min(log.end, end)))


def held(client: BlockingClient, topic: str, partitions: Sequence[int]) -> dict[int, Held]:
    """What the log of each partition holds, committed records only."""
    ats = [TopicPartition(topic, one) for one in partitions]
    starts = client.list_offsets(dict.fromkeys(ats, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(ats, LATEST), isolation=READ_COMMITTED)
    return {at.partition: Held(starts[at].offset, max(starts[at].offset, ends[at].offset)) for at in ats}
