"""Keeps all archives of a cluster, without a runner: starts what is new, stops what is no longer wanted, tries again what failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from levada.spark.archive.pipelines import ArchivePipeline
from levada.spark.archive.running import Archiving
from levada.spark.pipelines.places import Places
from levada.spark.pipelines.progress import Progress
from levada.spark.runner.backoff import HEALTHY_S, delay_s

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How often topics are asked for their settings.
ASK_EVERY_S: Final = 5.0


@dataclass
class _Kept:
    pipeline: ArchivePipeline
    archiving: Archiving | None = None
    began: float = 0.0
    failures: int = 0
    next_at: float = 0.0
    cause: str = ""


class Keeping:
    """For one thread. `wanted` says which archives there are to be."""

    def __init__(
        self, spark: SparkSession, wanted: Callable[[], Sequence[ArchivePipeline]], failed: Callable[[str, str], None]
    ) -> None:
        """`failed` is told the name of an archive that failed, and why."""
        self._spark = spark
        self._wanted = wanted
        self._failed = failed
        self._kept: dict[str, _Kept] = {}
        self._asked_at = float("-inf")

    def tick(self) -> None:
        """To be called often. What cannot be asked at the moment stays as it is: ClientError."""
        now = time.monotonic()
        for kept in self._kept.values():
            self._see(kept, now)
        if now - self._asked_at >= ASK_EVERY_S:
            self._asked_at = now
            self._follow({one.name: one for one in self._wanted()})
        for kept in self._kept.values():
            if kept.archiving is None and now >= kept.next_at:
                kept.archiving, kept.began = kept.pipeline.start(self._spark, Places(), 0), now

    def _see(self, kept: _Kept, now: float) -> None:
        running = kept.archiving
        if running is None or running.active:
            return
        kept.archiving = None
        kept.failures = 1 if now - kept.began >= HEALTHY_S else kept.failures + 1
        kept.next_at = now + delay_s(kept.failures)
        self._failed(kept.pipeline.name, f"{running.failure}")

    def _follow(self, wanted: dict[str, ArchivePipeline]) -> None:
        for name, kept in list(self._kept.items()):
            if name not in wanted or wanted[name].version != kept.pipeline.version:
                if kept.archiving is not None:
                    kept.archiving.stop()
                del self._kept[name]
        for name, pipeline in wanted.items():
            self._kept.setdefault(name, _Kept(pipeline))

    def progress(self) -> dict[str, Progress]:
        """Of those that run, by name."""
        return {name: kept.archiving.progress() for name, kept in self._kept.items() if kept.archiving is not None}

    def stop(self) -> None:
        """Have all end after the commits they are in; see `active`."""
        for kept in self._kept.values():
            if kept.archiving is not None:
                kept.archiving.stop(timeout_s=0)

    @property
    def active(self) -> bool:
        """Whether any is still in a commit."""
        return any(kept.archiving is not None and kept.archiving.active for kept in self._kept.values())
