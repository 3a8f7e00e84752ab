"""Scenario 46, the hard way: the archiver's process is killed −9 at random moments while records come and retention deletes.

LEVADA_KILL_ROUNDS says how often.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from deltalake import DeltaTable

from support.archives import EAGER, IMPATIENT, cluster_of, fill, lag, make_archived, starts
from support.levada import LevadaBroker
from support.spark_process import SparkProcess
from support.wait import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = int(os.environ.get("LEVADA_KILL_ROUNDS", "2"))
PARTITIONS = 3


def keep_archived(spark: Any, bootstrap: str, archive: Any) -> None:
    """Runs in the process that is killed; small files, so that there are many commits, put together all the time."""
    import time

    from levada.spark.archive.running import Archiving
    from support.archives import EAGER, cluster_of

    limits = EAGER.limits._replace(task_rows=2_000, tasks_max=2)
    care = EAGER._replace(limits=limits, compact_every_s=0.2)
    archiving = Archiving(spark, cluster_of(bootstrap), archive, care).start()
    while archiving.active:
        time.sleep(0.1)
    raise RuntimeError(f"archiving ended: {archiving.failure}")


def version(place: str) -> int:
    return DeltaTable(place).version() if Path(place, "_delta_log").exists() else -1


@pytest.mark.timeout(60 + 60 * ROUNDS)
def test_each_offset_is_archived_once_however_often_the_archiver_is_killed(tmp_path: Path, spark: SparkSession) -> None:
    chance = random.Random(int(os.environ.get("LEVADA_KILL_SEED", "46")))
    with LevadaBroker(tmp_path / "broker", IMPATIENT) as broker:
        cluster = cluster_of(broker.bootstrap)
        archive = make_archived(cluster, tmp_path / "lake", PARTITIONS)
        count = 0
        ended = threading.Event()

        def produce() -> None:
            nonlocal count
            while not ended.is_set():
                fill(cluster, archive.topic, count, 3_000, PARTITIONS)
                count += 3_000
                time.sleep(0.05)

        producing = threading.Thread(target=produce)
        producing.start()
        try:
            for number in range(ROUNDS):
                before = version(archive.place)
                with SparkProcess(tmp_path / f"driver-{number}") as driver:
                    running = driver.submit(keep_archived, broker.bootstrap, archive)
                    wait_until(
                        lambda driver=driver, running=running, before=before: (  # type: ignore[misc]
                            running.done() or version(archive.place) > before
                        ),
                        120,
                        "nothing was committed",
                    )
                    assert not running.done(), running.exception()
                    time.sleep(chance.uniform(0, 2))
        finally:
            ended.set()
            producing.join()
        from levada.spark.archive.running import Archiving

        Archiving(spark, cluster, archive, EAGER).run_once()
        assert lag(cluster, archive) == 0
        wait_until(lambda: min(starts(cluster, archive.topic)) == count // PARTITIONS, 90, "retention does not go on")
        rows = pl.scan_delta(archive.place).select("partition", "offset", "value").sort("partition", "offset").collect()
        assert rows.height == count
        found = [(partition, offset, int(value)) for partition, offset, value in rows.rows()]
        assert found == sorted((number % PARTITIONS, number // PARTITIONS, number) for number in range(count))
        options = {"bootstrap": broker.bootstrap, "subscribe": archive.topic, "startingOffsets": "earliest"}
        assert spark.read.format("levada").options(**options, columns="offset").load().count() == count
