from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levada.engine.histogram import FIRST, LAST, Histogram


@given(st.lists(st.integers(0, 2**62)))
def test_every_bucket_counts_what_took_less(durations_ns: list[int]) -> None:
    histogram = Histogram()
    for duration_ns in durations_ns:
        histogram.observe(duration_ns)
    buckets = list(histogram.buckets())
    assert len(buckets) == LAST - FIRST + 2
    assert [count for _, count in buckets] == [
        sum(duration_ns / 1e9 < bound for duration_ns in durations_ns) for bound, _ in buckets
    ]
    assert histogram.count == len(durations_ns)
    assert histogram.total_ns == sum(durations_ns)
