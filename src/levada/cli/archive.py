"""`levada archive`: run, status, compact."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from levada.cli.cluster import size
from levada.cli.output import print_json, print_table
from levada.cli.session import AsJson, WrongUsage, count
from levada.cli.spark import (
    DEFAULT_MASTER,
    Bootstrap,
    Master,
    SparkServer,
    Verbose,
    bootstrap_of,
    interruptible,
    interruption_told,
    need_broker,
    need_spark,
)
from levada.cli.spark_session import spark_session
from levada.errors import UnknownTopic, nearest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from levada.spark.archive.running import Care
    from levada.spark.archive.wanted import Archive
    from levada.spark.options.cluster import Cluster

app = typer.Typer(
    help="Keep the whole history of topics in Delta tables.\n\nA topic is archived where its setting levada.archive says; its "
    "retention waits for that. A runner does it by itself. docs/archive.md says more.",
    no_args_is_help=True,
    add_completion=False,
)

_LOOK_S: Final = 0.5
_SOON_S: Final = 0.05
_WHOLE: Final = "interrupted; what is archived is whole: run it again, and it goes on"

Topics = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Which topics.", show_default="all with levada.archive")
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="PLACE", help="Where, for a topic without the setting, e.g. one of Apache Kafka."),
]


@app.command()
def run(
    topics: Topics = None,
    to: To = None,
    once: Annotated[bool, typer.Option("--once", help="Archive what is there now, and end.")] = False,
    min_rows: Annotated[
        int, typer.Option("--min-rows", min=1, help="Archive a partition when it has so many new records …")
    ] = 1_000_000,
    max_delay: Annotated[
        float, typer.Option("--max-delay", min=0, metavar="SECONDS", help="… or when any have waited so long.")
    ] = 600.0,
    master: Master = DEFAULT_MASTER,
    bootstrap: Bootstrap = None,
    server: SparkServer = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Archive topics, in the foreground.

    Each offset is archived once, whatever ends this and when. Ctrl-C ends it after the commit it is in.

    Examples:

      levada topic alter orders --config levada.archive=/data/lake/orders

      levada archive run

      levada archive run orders --to /data/lake/orders --once --bootstrap kafka.example:9092
    """
    need_spark()
    from levada.spark.archive.planning import Limits
    from levada.spark.archive.running import Archiving, Care

    care = Care(limits=Limits(rows_min=min_rows, delay_s_max=max_delay))
    cluster = _cluster(bootstrap, server)
    wanted = _wanted(cluster, topics, to)
    with interruption_told(_WHOLE), _spark(master, verbose=verbose) as spark:
        if not once:
            _keep(spark, cluster, topics, wanted if to is not None else None, care, as_json=as_json)
            return
        for one in wanted:
            archiving = Archiving(spark, cluster, one, care)
            archiving.run_once()
            done = archiving.progress()
            if as_json:
                print_json({"topic": one.topic, "place": one.place, **done.as_json()})
            else:
                print(f"{one.topic}: {count(done.rows_total, 'record')} archived to {one.place}")
                for lost in done.lost:
                    print(f"{one.topic}: lost: {lost}", file=sys.stderr)


@app.command()
def status(
    topics: Topics = None,
    to: To = None,
    bootstrap: Bootstrap = None,
    server: SparkServer = None,
    as_json: AsJson = False,
) -> None:
    """Show how far topics are archived.

    Example:

      levada archive status
    """
    cluster = _cluster(bootstrap, server)
    wanted = _wanted(cluster, topics, to)
    from levada.spark.archive.status import stands

    with closing(cluster.client()) as client:
        found = list(stands(client, wanted))
    if as_json:
        print_json([{**one._asdict(), "lag": one.lag} for one in found])
        return
    rows = [
        (
            one.topic,
            one.partition,
            _span(one.archived_start, one.archived_end),
            _span(one.log_start, one.log_end),
            one.lag,
            one.files,
            size(one.bytes),
            ", ".join(f"{low}–{high - 1}" for low, high in one.lost) or None,
        )
        for one in found
    ]
    print_table(("topic", "partition", "archived", "log", "lag", "files", "size", "lost"), rows, empty="no topics")


def _span(start: int | None, end: int | None) -> str | None:
    return None if start is None or end is None or start == end else f"{start}–{end - 1}"


@app.command()
def compact(
    topics: Topics = None,
    to: To = None,
    vacuum_hours: Annotated[
        int,
        typer.Option(
            "--vacuum-hours", min=1, help="Remove files that nothing has named for so long; readers may need them."
        ),
    ] = 168,
    master: Master = DEFAULT_MASTER,
    bootstrap: Bootstrap = None,
    server: SparkServer = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Make large files of small ones, now. The archiver does it every hour.

    Example:

      levada archive compact orders
    """
    need_spark()
    from levada.spark.archive.compaction import Sizes
    from levada.spark.archive.running import Care, tidy
    from levada.spark.archive.table import ArchiveTable, Whose

    cluster = _cluster(bootstrap, server)
    wanted = _wanted(cluster, topics, to)
    care = Care(sizes=Sizes(files_min=2), vacuum_hours=vacuum_hours)
    with (
        interruption_told("interrupted; files are as they were, or put together whole"),
        _spark(master, verbose=verbose) as spark,
        closing(cluster.client()) as client,
    ):
        for one in wanted:
            topic_id = client.topics([one.topic])[one.topic].topic_id
            table = ArchiveTable.open(one.place, Whose(one.topic, str(topic_id)), one.typed)
            done, removed = tidy(spark, table, one, care)
            if as_json:
                print_json({"topic": one.topic, **done._asdict(), "removed": removed})
            else:
                print(
                    f"{one.topic}: {count(done.files_before, 'file')} put together as {done.files_after:,} ({size(done.bytes)}), "
                    f"{count(removed, 'old file')} removed"
                )


def _cluster(bootstrap: str | None, server: str | None) -> Cluster:
    need_spark()
    from levada.spark.options.cluster import Cluster
    from levada.spark.options.reading import Given

    address = bootstrap_of(bootstrap, server)
    need_broker(address)
    return Cluster.of(Given({"bootstrap": address}), client_id="levada-archive")


def _wanted(cluster: Cluster, topics: list[str] | None, to: str | None) -> list[Archive]:
    """What the command is about. UnknownTopic; WrongUsage where nothing says where to."""
    from levada.spark.archive.discovery import archives
    from levada.spark.archive.wanted import Archive

    if to is not None and (topics is None or len(topics) != 1):
        raise WrongUsage("--to is the place of one topic: name it")
    with closing(cluster.client()) as client:
        if topics:
            refuse_unknown(topics, client.topics())
        if to is not None and topics:
            return [Archive(topics[0], to)]
        found = archives(client, topics or None)
    missing = [name for name in topics or () if name not in {one.topic for one in found}]
    if missing or not found:
        which = f"topic {missing[0]} has no levada.archive" if missing else "no topic has levada.archive"
        example = missing[0] if missing else "orders"
        raise WrongUsage(
            f"{which}: `levada topic alter {example} --config levada.archive=/path/of/a/table` sets it; for a topic of Apache "
            "Kafka, name it and give --to PLACE"
        )
    return found


def refuse_unknown(wanted: Iterable[str], known: Collection[str]) -> None:
    """UnknownTopic, with the one that may have been meant."""
    for name in wanted:
        if name not in known:
            raise UnknownTopic(f"there is no topic {name!r}{nearest(name, known)}")


def _spark(master: str, *, verbose: bool) -> AbstractContextManager[SparkSession]:
    return spark_session(master, "levada archive", verbose=verbose)


def _keep(
    spark: SparkSession,
    cluster: Cluster,
    topics: list[str] | None,
    given: list[Archive] | None,
    care: Care,
    *,
    as_json: bool,
) -> None:
    """What is given, or else what the settings of these topics say at any time, until Ctrl-C or SIGTERM."""
    from levada.errors import ClientError
    from levada.spark.archive.keeping import Keeping
    from levada.spark.archive.pipelines import ArchivePipeline, ArchivePipelines
    from levada.spark.archive.running import STOP_TIMEOUT_S

    everywhere = ArchivePipelines(cluster, care)

    def wanted() -> list[ArchivePipeline]:
        if given is not None:
            return [ArchivePipeline(cluster, one, care) for one in given]
        return [one for one in everywhere() if not topics or one.archive.topic in topics]

    def failed(name: str, cause: str) -> None:
        print(f"levada: {name} failed and is tried again: {cause}", file=sys.stderr, flush=True)

    keeping = Keeping(spark, wanted, failed)
    shown: dict[str, int] = {}
    with interruptible() as interrupted:
        while not interrupted.is_set():
            try:
                keeping.tick()
            except ClientError as error:
                failed("the broker", str(error))
            _show(keeping, shown, interrupted, as_json=as_json)
        keeping.stop()
        interrupted.clear()
        until = time.monotonic() + STOP_TIMEOUT_S
        while keeping.active and time.monotonic() < until and not interrupted.wait(_SOON_S):
            pass  # a second Ctrl-C: at once; what is not committed is archived the next time
    everywhere.close()
    if as_json:
        print_json({"event": "ended"})
    else:
        print("archiving ended: what is archived is whole", flush=True)


def _show(keeping: Any, shown: dict[str, int], interrupted: threading.Event, *, as_json: bool) -> None:
    """A line for each commit."""
    for name, done in keeping.progress().items():
        if done.batch > shown.get(name, -1):
            shown[name] = done.batch
            if as_json:
                print_json({"archive": name, **done.as_json()})
            else:
                print(f"{name}: {count(done.rows, 'record')}, {done.rows_s:,.0f}/s, lag {done.lag:,}", flush=True)
    interrupted.wait(_LOOK_S)
