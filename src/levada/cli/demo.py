"""`levada demo`: a broker, a stream of orders, the example pipeline, and what comes out of it, live."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from levada.cli.output import print_json
from levada.cli.session import AsJson
from levada.cli.spark import Verbose, interruptible, interruption_told, need_spark
from levada.errors import InvalidConfig, LevadaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from levada.cli.demo_view import Look, View
    from levada.spark.demo.feeding import Feeding
    from levada.spark.demo.takings import Results
    from levada.spark.pipelines.running import Running
    from levada.spark.pipelines.starting import Patient

#: A second here lasts two minutes in the shops: the first minute's revenue is final after a quarter of a minute.
SPEED: Final = 120.0
_MASTER: Final = "local[2]"
_LOOK_S: Final = 0.25
_PATIENCE_S: Final = 30.0

app = typer.Typer(add_completion=False)


class DemoFailed(LevadaError):
    """What came out is not what went in."""


@app.command()
def demo(
    seconds: Annotated[
        float | None, typer.Option(min=1, help="End after so long.", show_default="when Ctrl-C is pressed")
    ] = None,
    a_minute: Annotated[
        float, typer.Option("--orders", min=1, max=10_000, help="Orders a minute in the shops; here, in half a second.")
    ] = 120.0,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep the broker's data, the table and the checkpoints there.",
            show_default="nothing is kept",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Other orders.")] = 7,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """See it work: orders go in late and twice, and what each user spent in each minute comes out right.

    Starts a broker on free ports, sends it orders, runs the example pipeline on Spark, and shows what comes out. At the end every
    row is compared with what was ordered. Ctrl-C ends it; nothing is left behind.

    Examples:

      levada demo

      levada demo --seconds 60 --json

      levada demo --keep ./demo
    """
    need_spark()
    from levada.spark.java import java

    java()
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise InvalidConfig(f"--keep {keep}: the directory is not empty")
    from levada.cli.demo_view import view_of

    home = keep or Path(tempfile.mkdtemp(prefix="levada-demo-"))
    try:
        with (
            interruption_told("interrupted before the pipeline began; nothing is left behind"),
            view_of(as_json=as_json, live=sys.stderr.isatty()) as view,
        ):
            summary = _run(home, view, seconds=seconds, a_minute=a_minute, seed=seed, verbose=verbose)
    finally:
        if keep is None:
            shutil.rmtree(home, ignore_errors=True)
    if as_json:
        print_json(summary)
    else:
        view.summary(summary, kept=keep)
    if summary["wrong"]:
        raise DemoFailed(f"{len(summary['wrong'])} rows are not what was ordered; the first: {summary['wrong'][0]}")


def _run(home: Path, view: View, *, seconds: float | None, a_minute: float, seed: int, verbose: bool) -> dict[str, Any]:
    import levada
    from levada.spark.demo.feeding import Feeding
    from levada.spark.demo.orders import OrderStream
    from levada.spark.demo.takings import Results
    from levada.testing import broker

    stream = OrderStream(seed=seed, a_minute=a_minute)
    with (
        # First of all: Java is started by a fork, which gRPC takes ill once it has begun.
        _spark(home, verbose=verbose) as spark,
        interruptible() as interrupted,
        broker(data=home / "data") as running,
        levada.connect(running.grpc) as client,
    ):
        client.manager.create_topic("orders", partitions=4)
        client.manager.create_topic("revenue", partitions=2)
        view.started(running.grpc, running.bootstrap)
        patient = _started(spark, home, running.bootstrap)
        with (
            Results(client, "revenue") as results,
            Feeding(client, "orders", stream, speed=SPEED) as feeding,
        ):
            until = None if seconds is None else time.monotonic() + seconds
            while not interrupted.is_set() and (until is None or time.monotonic() < until):
                view.show(_look(patient.running, feeding, results))
                _check(patient.running.failure if patient.ended() else None, feeding.failure, results.failure)
                interrupted.wait(_LOOK_S)
            view.ending()
            feeding.end()
            patient.running.stop()
            _check(patient.running.failure, feeding.failure, results.failure)
            return _summary(home, patient.running, feeding, results, interrupted)


@contextlib.contextmanager
def _spark(home: Path, *, verbose: bool) -> Iterator[SparkSession]:
    from levada.spark.session import session

    spark = session(_MASTER, "levada demo", log=None if verbose else home / "spark.log")
    try:
        yield spark
    finally:
        with interruptible():
            spark.stop()


def _started(spark: SparkSession, home: Path, bootstrap: str) -> Patient:
    from levada.spark.pipelines.loading import declared
    from levada.spark.pipelines.places import Places
    from levada.spark.pipelines.running import Running
    from levada.spark.pipelines.starting import Patient

    (pipeline,) = declared(example())
    places = Places(bootstrap=bootstrap, home=home, master=_MASTER)
    return Patient(lambda: Running.start(spark, pipeline, places))


def example() -> Path:
    """The example pipeline: in the package where it was installed, beside src/ where it is worked on."""
    package = Path(__file__).parent.parent
    for path in (package / "examples" / "orders.py", package.parent.parent / "examples" / "orders.py"):
        if path.exists():
            return path
    raise LevadaError("the example pipeline orders.py is not where it was installed")


def _check(*failures: BaseException | None) -> None:
    """Whatever failed in another thread fails here."""
    for failure in failures:
        if failure is not None:
            raise failure


def _look(pipeline: Running, feeding: Feeding, results: Results) -> Look:
    from levada.cli.demo_view import Look

    return Look(feeding.stream, pipeline.progress(), results.by_minute(), results.by_user())


def _summary(
    home: Path, pipeline: Running, feeding: Feeding, results: Results, interrupted: threading.Event
) -> dict[str, Any]:
    """What went in, what came out, and whether that is right."""
    from deltalake import DeltaTable

    path = str(home / "lake" / "revenue")
    in_table = DeltaTable(path).to_pyarrow_dataset().count_rows() if DeltaTable.is_deltatable(path) else 0
    # What the last micro-batch wrote may be on its way to us.
    patience = time.monotonic() + _PATIENCE_S
    while len(results.rows) + results.repeated < in_table and time.monotonic() < patience:
        time.sleep(_LOOK_S / 5)
    wrong = results.wrong(feeding.stream)
    if len(results.rows) + results.repeated != in_table:
        wrong.append(f"the table has {in_table} rows, the topic {len(results.rows) + results.repeated}")
    sent = feeding.stream.sent
    return {
        "sent": {"orders": sent["orders"], "twice": sent["twice"], "late": sent["late"], "broken": sent["broken"]},
        "read": pipeline.progress().rows_total,
        "rows": len(results.rows),
        "rows_in_table": in_table,
        "minutes": len(results.by_minute()),
        "users": len(results.by_user()),
        "revenue": sum(results.by_minute().values()) / 100,
        "wrong": wrong,
        "interrupted": interrupted.is_set(),
    }
