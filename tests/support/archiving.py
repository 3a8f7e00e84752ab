"""An archiver in a process of its own, with no JVM, to be killed: python -m support.archiving BOOTSTRAP TOPIC."""

from __future__ import annotations

import sys
import time
from typing import Any

from levada.spark.archive.discovery import archives
from levada.spark.archive.running import Archiving
from support.archives import EAGER, NoSpark, cluster_of


def keep_archived(spark: Any, bootstrap: str, topic: str) -> None:
    """Small files, so that there are many commits, put together all the time."""
    limits = EAGER.limits._replace(task_rows=2_000, tasks_max=2)
    care = EAGER._replace(limits=limits, compact_every_s=0.2)
    cluster = cluster_of(bootstrap)
    with cluster.client() as client:
        [archive] = archives(client, [topic])
    archiving = Archiving(spark, cluster, archive, care).start()
    while archiving.active:
        time.sleep(0.1)
    raise RuntimeError(f"archiving ended: {archiving.failure}")


if __name__ == "__main__":
    keep_archived(NoSpark(), *sys.argv[1:])
