"""`levada doctor`: is everything here that Spark needs, and if not, what to do."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from levada.cli import EXIT_FAILED
from levada.cli.output import print_json
from levada.cli.session import AsJson
from levada.cli.spark import DEFAULT_BOOTSTRAP, Bootstrap, SparkServer, bootstrap_of
from levada.errors import LevadaError

if TYPE_CHECKING:
    from levada.spark.doctor import Check

app = typer.Typer(add_completion=False)


@app.command()
def doctor(
    master: Annotated[
        str | None,
        typer.Option(
            "--master", help="Start Spark there too, and look at its executors.", show_default="no Spark is started"
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    server: SparkServer = None,
    as_json: AsJson = False,
) -> None:
    """Check Java, Spark, packages and the broker, and say what to do.

    Ends with 1 when something is wrong.

    Examples:

      levada doctor

      levada doctor --master 'local[*]'

      levada doctor --master spark://10.0.0.1:7077 --bootstrap 10.0.0.2:9092 --json
    """
    seen: list[Check] = []
    for check in _checks(master, bootstrap, server):
        seen.append(check)
        if not as_json:
            _show(check)
    well = all(check.ok for check in seen)
    if as_json:
        print_json({"ok": well, "checks": [check.as_json() for check in seen]})
    if not well:
        raise typer.Exit(EXIT_FAILED)


def _checks(master: str | None, bootstrap: str | None, server: str | None) -> Iterator[Check]:
    from levada.spark import doctor as look

    try:
        where = bootstrap_of(bootstrap, server)
    except LevadaError as error:
        yield look.Check("broker", False, str(error), "--bootstrap HOST:PORT names it")
        where = DEFAULT_BOOTSTRAP
    well = True
    for check in look.here(where):
        well = well and (check.ok or check.name == "broker")
        yield check
    if master is None:
        return
    if not well:
        yield look.Check("executors", False, "were not looked at", "first the above")
        return
    yield from _on(master)


def _on(master: str) -> Iterator[Check]:
    from levada.spark import doctor as look
    from levada.spark.pipelines.failures import cause
    from levada.spark.session import session

    log = Path(tempfile.mkdtemp(prefix="levada-doctor-")) / "spark.log"
    try:
        spark = session(master, "levada doctor", log=log)
    except Exception as error:
        yield look.Check("Spark", False, cause(error), "is the master up, and does this machine reach it?")
        return
    try:
        yield from look.cluster(spark, look.NEEDED)
    finally:
        spark.stop()
        shutil.rmtree(log.parent, ignore_errors=True)


def _show(check: Check) -> None:
    on_terminal = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    mark, colour = ("✓", "\x1b[32m") if check.ok else ("✗", "\x1b[31m")
    shown = f"{colour}{mark}\x1b[0m" if on_terminal else mark
    print(f"{shown} {check.name:<16}  {check.found}", flush=True)
    if check.to_do:
        print(f"  {'':<16}  → {check.to_do}", flush=True)
