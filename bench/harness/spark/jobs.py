"""Levada's own jobs, as its commands run them, on a session that is there already. Each says so if it has not seen every record."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def audit(spark: Any, bootstrap: str, topic: str, rows: int) -> None:
    from levada.spark.jobs.audit.audit import Audit, audit, prepare
    from levada.spark.jobs.frames import Connection
    from levada.spark.jobs.running import Silent

    connection = Connection.of(bootstrap)
    with connection.cluster.client() as client:
        figures = audit(spark, connection, prepare(client, Audit(topic=topic)), Silent())
    _check("the audit saw", figures.records, rows)


def archive(spark: Any, bootstrap: str, topic: str, place: Path, rows: int) -> None:
    from deltalake import DeltaTable

    from levada.spark.archive.running import Archiving
    from levada.spark.archive.wanted import Archive
    from levada.spark.jobs.frames import Connection

    Archiving(spark, Connection.of(bootstrap).cluster, Archive(topic, str(place))).run_once()
    _check("the archive holds", DeltaTable(str(place)).count(), rows)


def _check(what: str, found: int, rows: int) -> None:
    if found != rows:
        raise RuntimeError(f"{what} {found} records of {rows}")
