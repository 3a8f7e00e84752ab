"""`levada job`: replay, repartition, dedup, audit, snapshot. Each looks at everything, starts Spark, does it, and ends."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from levada.cli import job_told as told
from levada.cli.job_run import NOT_WHOLE, NOTHING_DONE, Place, words
from levada.cli.output import print_json
from levada.cli.session import AsJson
from levada.cli.spark import DEFAULT_HOME, DEFAULT_MASTER, Bootstrap, Home, Master, SparkServer, Verbose

app = typer.Typer(
    help="Heavy work on topics, as Spark jobs.\n\nA job that was interrupted is run again: it goes on where it was, and repeats nothing.",
    no_args_is_help=True,
    add_completion=False,
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]
From = Annotated[str, typer.Option("--from", help="earliest, latest, an offset, offsets as JSON, or a time.")]
To = Annotated[str, typer.Option("--to", help="The same, for where it ends.")]
Batch = Annotated[
    int | None, typer.Option("--batch", min=1, help="Records in one transaction.", show_default="by their size")
]
By = Annotated[
    str | None,
    typer.Option(
        "--by",
        help="What tells a repeat: id (header message_id), payload, key, header:NAME, or a path into JSON such as $.order.id.",
        show_default="the topic's levada.dedup, else id",
    ),
]
SkipLost = Annotated[
    bool,
    typer.Option("--skip-lost", help="Go on behind what was deleted before it was copied, and name it."),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="NAME=VALUE", help="A setting of Kafka's clients, such as kafka.security.protocol=SSL."
    ),
]


@app.command()
def replay(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The topic to read.")],
    target: Annotated[
        str, typer.Argument(metavar="DEST", help="The topic to write; made like SOURCE if it is not there.")
    ],
    start: From = "earliest",
    end: To = "latest",
    rate: Annotated[
        float | None, typer.Option("--rate", help="Records a second, at most.", show_default="no limit")
    ] = None,
    keep_partitions: Annotated[
        bool, typer.Option("--keep-partitions", help="To the partition they were in, not by DEST's router.")
    ] = False,
    keep_timestamps: Annotated[
        bool, typer.Option("--keep-timestamps", help="With the time they had, not now.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="From the beginning, although it was done before.")] = False,
    skip_lost: SkipLost = False,
    batch: Batch = None,
    master: Master = DEFAULT_MASTER,
    bootstrap: Bootstrap = None,
    server: SparkServer = None,
    option: Options = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Write records of one topic to another once more, each partition in its order.

    Run again with the same words it goes on where it was: with what it had not written, and with what has come since.

    Examples:

      levada job replay orders orders-test --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z --rate 5000

      levada job replay orders orders-copy --keep-partitions --keep-timestamps
    """
    with words():
        from levada.spark.jobs import replay as job
        from levada.spark.jobs.extent import where

        wanted = job.Replay(
            source=source,
            target=target,
            start=where(start, "--from"),
            end=where(end, "--to"),
            rate=rate,
            keep_partitions=keep_partitions,
            keep_timestamps=keep_timestamps,
            again=again,
            batch_rows=batch,
            skip_lost=skip_lost,
        )
    place = Place(master, bootstrap, server, option, as_json=as_json, verbose=verbose)
    _, done = place.run(f"levada replay {source}", lambda client: job.prepare(client, wanted), job.replay)
    if as_json:
        lost = [one.to_json() for one in done.lost]
        print_json(told.plain(done, source=source, target=target, lost=lost, seconds=round(place.seconds, 3)))
    else:
        told.replayed(source, target, done, place.seconds)


@app.command()
def repartition(
    topic: Topic,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="How many; more or fewer than now.")],
    into: Annotated[str | None, typer.Option("--into", help="The new topic.", show_default="TOPIC.vPARTITIONS")] = None,
    finish: Annotated[
        bool, typer.Option("--finish", help="The last run, when producers and consumers are stopped.")
    ] = False,
    batch: Batch = None,
    master: Master = DEFAULT_MASTER,
    bootstrap: Bootstrap = None,
    server: SparkServer = None,
    option: Options = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Copy a topic into a new one with another number of partitions, and place its groups there.

    Each key's records stay in order. The copy is compared with the topic, record by record; then groups without members are placed
    in it so that they skip nothing. TOPIC is only read. Run it as often as you like: it copies what has come since. Nothing is
    deleted from the new topic, or compacted, until --finish gives it the settings of TOPIC: when producers and consumers are stopped.
    Ends with 1 where it could not finish.

    Examples:

      levada job repartition orders --partitions 6

      levada job repartition orders --partitions 6 --finish

      levada job repartition orders -p 2 --into orders-small
    """
    with words():
        from levada.spark.jobs import repartition as job

        wanted = job.Repartition(topic=topic, partitions=partitions, into=into, batch_rows=batch, finish=finish)
    place = Place(master, bootstrap, server, option, as_json=as_json, verbose=verbose)
    ready, done = place.run(f"levada repartition {topic}", lambda client: job.prepare(client, wanted), job.repartition)
    if as_json:
        groups = [one._asdict() for one in done.groups]
        print_json(told.plain(done, topic=topic, groups=groups, seconds=round(place.seconds, 3)))
    else:
        told.repartitioned(ready, done, place.seconds)
    if finish and not done.finished:
        raise typer.Exit(1)


@app.command()
def dedup(
    topic: Topic,
    into: Annotated[str, typer.Option("--into", help="The new topic.")],
    by: By = None,
    skip_lost: SkipLost = False,
    batch: Batch = None,
    master: Master = DEFAULT_MASTER,
    bootstrap: Bootstrap = None,
    server: SparkServer = None,
    option: Options = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Copy a topic into a new one without its repeats: exactly, over the whole history, the first of each stays.

    Partitions, order and timestamps are kept. A record that has nothing to be told by is kept.

    Examples:

      levada job dedup orders --into orders-clean

      levada job dedup orders --into orders-clean --by '$.order.id'
    """
    with words():
        from levada.spark.jobs import dedup as job

        wanted = job.Dedup(topic=topic, into=into, by=by, batch_rows=batch, skip_lost=skip_lost)
    place = Place(master, bootstrap, server, option, as_json=as_json, verbose=verbose)
    _, done = place.run(f"levada dedup {topic}", lambda client: job.prepare(client, wanted), job.dedup)
    if as_json:
        lost = [one.to_json() for one in done.lost]
        print_json(told.plain(done, topic=topic, repeats=done.repeats, lost=lost, seconds=round(place.seconds, 3)))
    else:
        told.deduplicated(topic, done, place.seconds)


@app.command()
def snapshot(
    topic: Topic,
    at: Annotated[str, typer.Option("--at", help="latest, an offset, offsets as JSON, or a time.")] = "latest",
    to: Annotated[str | None, typer.Option("--to", metavar="PATH", help="Files, or a Delta table.")] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="parquet, delta or csv.", show_default="as PATH ends, else parquet")
    ] = None,
    into: Annotated[
        str | None, typer.Option("--into", metavar="TOPIC", help="A topic; made, compacted, if not there.")
    ] = None,
    master: Master = DEFAULT_MASTER,
    bootstrap: Bootstrap = None,
    server: SparkServer = None,
    option: Options = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Write the latest record of each key, as it was at an offset or a time. Deleted keys are left out.

    Examples:

      levada job snapshot accounts --to accounts.parquet

      levada job snapshot accounts --at 2026-01-31T00:00:00Z --into accounts-january
    """
    with words():
        from levada.spark.jobs import snapshot as job
        from levada.spark.jobs.extent import where

        wanted = job.Snapshot(topic=topic, at=where(at, "--at"), to=to, form=cast(Any, form), into=into)
    place = Place(master, bootstrap, server, option, as_json=as_json, verbose=verbose)
    _, done = place.run(
        f"levada snapshot {topic}",
        lambda client: job.prepare(client, wanted),
        job.snapshot,
        interrupted=NOT_WHOLE.format(where=to or into),
    )
    if as_json:
        print_json(told.plain(done, topic=topic, seconds=round(place.seconds, 3)))
    else:
        told.snapshotted(topic, done, place.seconds)


@app.command()
def audit(
    topic: Topic,
    start: From = "earliest",
    end: To = "latest",
    by: By = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="The page.", show_default="in HOME/audits")
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no page.")] = False,
    master: Master = DEFAULT_MASTER,
    bootstrap: Bootstrap = None,
    server: SparkServer = None,
    home: Home = DEFAULT_HOME,
    option: Options = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Is a topic as it should be? Gaps, repeats, keys and where they belong, balance, a checksum of each partition.

    Ends with 1 where something is wrong. The report is one HTML file.

    Examples:

      levada job audit orders

      levada job audit orders --by payload --report orders.html --json
    """
    with words():
        from levada.spark.jobs.audit import audit as job
        from levada.spark.jobs.audit.findings import findings, verdict
        from levada.spark.jobs.extent import where

        wanted = job.Audit(topic=topic, start=where(start, "--from"), end=where(end, "--to"), by=by)
    place = Place(master, bootstrap, server, option, as_json=as_json, verbose=verbose)
    _, figures = place.run(
        f"levada audit {topic}",
        lambda client: job.prepare(client, wanted),
        lambda spark, _client, connection, ready, shown: job.audit(spark, connection, ready, shown),
        interrupted=NOTHING_DONE,
    )
    found = findings(figures)
    page = None if no_report else _reported(report or home / "audits" / f"{topic}-{_now()}.html", figures, found)
    if as_json:
        print_json(told.as_json(figures, found, verdict(found), page))
    else:
        told.audited(figures, found, verdict(found), page)
    if verdict(found) == "wrong":
        raise typer.Exit(1)


def _now() -> str:
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}"


def _reported(file: Path, figures: Any, found: Any) -> str:
    from levada.spark.jobs.audit.page import page

    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page(figures, found), encoding="utf-8")
    return str(file)
