"""Where to start reading, as a person says it: earliest, latest, an offset, a time."""

from __future__ import annotations

from datetime import UTC, datetime

from levada.errors import InvalidRequest, OffsetOutOfRange, UnknownPartition
from levada.wire.answers import EARLIEST, LATEST, TopicInfo, TopicPartition
from levada.wire.blocking import BlockingClient


def resolve(client: BlockingClient, topic: TopicInfo, to: str, partition: int | None) -> dict[TopicPartition, int]:
    """The offset in each partition, or in the one that was named."""
    ats = _partitions(topic, partition)
    if to == "earliest":
        return {at: found.offset for at, found in client.list_offsets(dict.fromkeys(ats, EARLIEST)).items()}
    ends = {at: found.offset for at, found in client.list_offsets(dict.fromkeys(ats, LATEST)).items()}
    if to == "latest":
        return ends
    if to.isdecimal():
        return _checked(client, int(to), ends)
    found_at = client.list_offsets(dict.fromkeys(ats, _timestamp_ms(to)))
    # Nothing that late: the end.
    return {at: found.offset if found.offset >= 0 else ends[at] for at, found in found_at.items()}


def _partitions(topic: TopicInfo, partition: int | None) -> list[TopicPartition]:
    if partition is None:
        return [TopicPartition(topic.name, one.partition) for one in topic.partitions]
    if not 0 <= partition < len(topic.partitions):
        raise UnknownPartition(f"{topic.name} has partitions 0 to {len(topic.partitions) - 1}, not {partition}")
    return [TopicPartition(topic.name, partition)]


def _checked(client: BlockingClient, offset: int, ends: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    starts = client.list_offsets(dict.fromkeys(ends, EARLIEST))
    for at, end in ends.items():
        start = starts[at].offset
        if not start <= offset <= end:
            raise OffsetOutOfRange(f"{at}: offset {offset} is not within {start} to {end}", start=start, end=end)
    return dict.fromkeys(ends, offset)


def _timestamp_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"{text!r}: must be earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
