"""Whether a cluster gives a session anything to run on. Spark itself waits without a word where nobody reads its log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from levada.spark.session import local_cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Executors are processes that take some seconds to start.
PATIENCE_S: Final = 15.0


def waiting(master: str, executors: int, without_s: float) -> str:
    """What a session waits for, in a sentence; empty while it has something to run on, or may still get it."""
    if executors or without_s < PATIENCE_S or local_cores(master) is not None:
        return ""
    return (
        f"the cluster at {master} gives no executor: its cores may all be taken by another application, or none of its workers is alive "
        "or has the memory; as soon as there is one, this goes on"
    )


class Executors:
    """Those of one session, looked at again and again, by one thread."""

    def __init__(self, spark: SparkSession, master: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._spark, self._master, self._clock = spark, master, clock
        self._is_local = local_cores(master) is not None
        self._seen = clock()

    def waiting(self) -> str:
        """See `waiting`; empty where Spark has ended, of which others tell."""
        if self._is_local:
            return ""
        try:
            executors, now = count(self._spark), self._clock()
        except Exception:
            return ""
        if executors:
            self._seen = now
        return waiting(self._master, executors, now - self._seen)


def count(spark: SparkSession) -> int:
    """How many there are. Whoever holds blocks of data is known to the driver: every executor, and the driver itself."""
    context: Any = spark.sparkContext._jsc
    return int(context.sc().getExecutorMemoryStatus().size()) - 1
