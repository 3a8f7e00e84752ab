"""How large and how old a segment may become."""

from __future__ import annotations

import pytest

from levada.config import TopicConfig
from levada.log.limits import Limits


@pytest.mark.parametrize("index_bytes", [16, 23, 24, 100, 10 * 2**20])
def test_no_index_file_outgrows_segment_index_bytes(index_bytes: int) -> None:
    limits = Limits(TopicConfig(segment_index_bytes=index_bytes), jitter_ms=0)
    # An offset index entry has 8 bytes, one of the time index 12; that gets one more when its segment is closed.
    assert 8 * limits.offset_entries_max <= index_bytes < 8 * (limits.offset_entries_max + 1)
    assert 12 * (limits.time_entries_max + 1) <= index_bytes < 12 * (limits.time_entries_max + 2)


def test_jitter_makes_a_segment_younger() -> None:
    assert Limits(TopicConfig(segment_ms=1000), jitter_ms=100).age_max_ms == 900


def test_a_compacted_topic_closes_its_segments_in_time_to_be_compacted() -> None:
    config = TopicConfig(segment_ms=1000, max_compaction_lag_ms=300, compact=True)
    assert Limits(config, jitter_ms=0).age_max_ms == 300
