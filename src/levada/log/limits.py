"""When a segment is full, as Kafka has it: worked out once per segment and settings, because every append asks."""

from __future__ import annotations

from levada.config import TopicConfig
from levada.log.index import OffsetIndex, TimeIndex


class Limits:
    """How large and how old one segment may become under these settings."""

    __slots__ = ("age_max_ms", "bytes_max", "config", "offset_entries_max", "time_entries_max")

    def __init__(self, config: TopicConfig, jitter_ms: int) -> None:
        self.config = config
        self.bytes_max = config.segment_bytes
        # Only a closed segment can be compacted.
        age_max_ms = min(config.segment_ms, config.max_compaction_lag_ms) if config.compact else config.segment_ms
        self.age_max_ms = age_max_ms - jitter_ms
        #: No index file becomes larger than segment.index.bytes; the time index keeps an entry for its end.
        self.offset_entries_max = config.segment_index_bytes // OffsetIndex.ENTRY_SIZE
        self.time_entries_max = config.segment_index_bytes // TimeIndex.ENTRY_SIZE - 1
