"""Archives as a runner keeps them: one for each topic with `levada.archive`, under the name `archive.<topic>`.

shelf = Managed(ArchivePipelines(Cluster.of(Given({"bootstrap": places.bootstrap}))))
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from levada.errors import LevadaError
from levada.spark.archive.discovery import archives
from levada.spark.archive.running import Archiving, Care
from levada.spark.archive.wanted import Archive
from levada.spark.options.cluster import Cluster
from levada.spark.pipelines.places import Places
from levada.spark.runner.runnable import Described
from levada.wire.blocking import BlockingClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class ArchivePipeline:
    """The archiving of one topic. How far it came is in its table: it has no checkpoint, and nothing to reset."""

    cluster: Cluster
    archive: Archive
    care: Care

    @property
    def name(self) -> str:
        return f"archive.{self.archive.topic}"

    @property
    def version(self) -> str:
        return hashlib.sha256(repr((self.archive, self.care)).encode()).hexdigest()[:12]

    def start(self, spark: SparkSession, places: Places, epoch: int) -> Archiving:
        return Archiving(spark, self.cluster, self.archive, self.care).start()

    def described(self, places: Places) -> Described:
        limits = self.care.limits
        return Described(
            sources=[{"topic": self.archive.topic, "starting": "earliest"}],
            sinks=[{"table": self.archive.place}],
            trigger=f"{limits.rows_min:,} records of a partition, or {limits.delay_s_max:g} seconds",
            about=f"The history of topic {self.archive.topic}",
        )


class ArchivePipelines:
    """Asks a cluster which archives there are to be, each time it is called. For one thread."""

    def __init__(self, cluster: Cluster, care: Care | None = None) -> None:
        self._cluster = cluster
        self._care = care or Care()
        self._client: BlockingClient | None = None

    def __call__(self) -> Sequence[ArchivePipeline]:
        """By topic. ClientError while the broker is away."""
        if self._client is None:
            self._client = self._cluster.client()
        try:
            return [ArchivePipeline(self._cluster, one, self._care) for one in archives(self._client)]
        except LevadaError:
            self.close()
            raise

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
