"""Which segments a log does not have to keep, by Kafka's rules: whole segments, oldest first.

- What lies below the start offset (records were deleted, or an earlier run was stopped half-way).
- What is too much for `retention.bytes`, as long as what is left has at least that size.
- What is older than `retention.ms`, by the largest timestamp of the segment; without timestamps, by when it was written.

Nothing goes that somebody still needs, but what lies below the start offset: nobody can read that.
The active segment can be among them: the log is rolled first.
"""

from __future__ import annotations

from collections.abc import Sequence

from levada.config import TopicConfig
from levada.log.segment import Segment


def expired(
    segments: Sequence[Segment],
    config: TopicConfig,
    *,
    start_offset: int,
    end_offset: int,
    now_ms: int,
    floor: int | None,
) -> int:
    """How many segments, from the oldest on, may go. None that reaches beyond `floor` and can be read."""
    surplus = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        is_last = number + 1 == len(segments)
        breached = not is_last and following <= start_offset
        needed = floor is not None and following > floor and not breached
        if needed or (is_last and segment.size == 0):
            break
        too_much = config.delete and config.retention_bytes >= 0 and surplus >= segment.size
        if not (breached or too_much or (config.delete and _too_old(segment, config.retention_ms, now_ms))):
            break
        surplus -= segment.size
        count += 1
    return count


def _too_old(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    if retention_ms < 0:
        return False
    largest = segment.largest_timestamp()[0]
    return now_ms - (largest if largest >= 0 else segment.modified_ms()) > retention_ms
