"""What a job cannot do by its words alone: refused when they are put together, before anything is looked at."""

from __future__ import annotations

from typing import Any

import pytest

from levada.errors import InvalidRequest
from levada.spark.jobs.audit.audit import Audit
from levada.spark.jobs.dedup import Dedup
from levada.spark.jobs.repartition import Repartition
from levada.spark.jobs.replay import Replay
from levada.spark.jobs.snapshot import Snapshot


@pytest.mark.parametrize(
    ("job", "words", "said"),
    [
        (Replay, {"source": "t", "target": "t"}, "DEST t: it is the source itself"),
        (Replay, {"source": "t", "target": "x", "rate": 0.0}, "--rate 0: must be more than 0"),
        (Replay, {"source": "t", "target": "x", "rate": float("inf")}, "--rate inf: must be more than 0"),
        (Repartition, {"topic": "t", "partitions": 2, "into": "t"}, "--into t: it is the source itself"),
        (Dedup, {"topic": "t", "into": "t"}, "--into t: it is the source itself"),
        (Dedup, {"topic": "t", "into": "x", "by": "colour"}, "--by 'colour': must be id"),
        (Audit, {"topic": "t", "by": "header:"}, "--by 'header:': must be id"),
        (Snapshot, {"topic": "t"}, "one of --to PATH and --into TOPIC is needed"),
        (Snapshot, {"topic": "t", "to": "x", "into": "y"}, "one of --to PATH and --into TOPIC is needed"),
        (Snapshot, {"topic": "t", "into": "t"}, "--into t: it is the source itself"),
        (Snapshot, {"topic": "t", "to": "x", "form": "xml"}, "--format 'xml': must be parquet, delta, csv"),
    ],
)
def test_what_contradicts_itself_is_refused(job: Any, words: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        job(**words)
    assert said in str(refused.value)
