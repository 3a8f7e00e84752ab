"""`levada pipeline list|status|start|stop|reset`: what is wanted of the pipelines that a runner keeps, and how they are.

All of it stands in a topic of the broker, so these commands need neither Spark nor a runner that is up.
"""

from __future__ import annotations

import getpass
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from levada.cli.output import print_json, print_pairs, print_table
from levada.cli.pipeline_awaited import Awaited, outcome, started, stopped
from levada.cli.pipeline_told import as_dict, described, no_runner, now_ms, rows
from levada.cli.session import AsJson, WrongUsage
from levada.cli.spark import Bootstrap, SparkServer, bootstrap_of, need_broker
from levada.errors import InvalidRequest, nearest

if TYPE_CHECKING:
    from levada.spark.runner.board import Board
    from levada.spark.runner.records import Actual, Wanted
    from levada.wire.blocking import BlockingClient

_TIMEOUT_MS: Final = 30_000
_LOOK_S: Final = 0.2

Name = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline.")]
Wait = Annotated[
    int, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for the runner to have done it.")
]


@contextmanager
def _board(bootstrap: str | None, server: str | None) -> Iterator[tuple[BlockingClient, Board]]:
    """The board as it is now."""
    from levada.spark.runner.board import Board
    from levada.wire.blocking import BlockingClient

    address = bootstrap_of(bootstrap, server)
    need_broker(address)
    with BlockingClient(address, client_id="levada-cli", timeout_ms=_TIMEOUT_MS, settle_ms=0) as client:
        board = Board(client)
        board.read()
        yield client, board


def list_pipelines(bootstrap: Bootstrap = None, server: SparkServer = None, as_json: AsJson = False) -> None:
    """List the pipelines that a runner keeps, or kept, and how they are.

    Example:

      levada pipeline list
    """
    with _board(bootstrap, server) as (_, board):
        ledger = board.ledger
    if as_json:
        print_json(as_dict(ledger))
        return
    print_table(
        ("pipeline", "state", "rows/s", "lag", "batch", "since", "why"),
        rows(ledger),
        empty="no pipelines yet; `levada runner --pipelines DIR` keeps those of a directory",
    )
    if ledger.actual and (said := no_runner(ledger)):
        print(f"\n{said}")


def status(name: Name, bootstrap: Bootstrap = None, server: SparkServer = None, as_json: AsJson = False) -> None:
    """Show all that is known of a pipeline: how it is and why, how far it came, what it reads and writes.

    Example:

      levada pipeline status revenue
    """
    with _board(bootstrap, server) as (_, board):
        ledger = board.ledger
        actual = _known(board, name)
    if as_json:
        [one] = [one for one in as_dict(ledger)["pipelines"] if one["pipeline"] == name]
        print_json(one)
        return
    print_pairs(described(name, actual, ledger))
    if actual.detail and actual.detail.strip() != actual.cause:
        print(f"\n{actual.detail.rstrip()}")
    if said := no_runner(ledger):
        print(f"\n{said}")


def start(
    name: Name,
    wait: Wait = 60,
    bootstrap: Bootstrap = None,
    server: SparkServer = None,
    as_json: AsJson = False,
) -> None:
    """Have a pipeline run, from where it was. One that waits for its next try after a failure is tried now.

    Example:

      levada pipeline start revenue
    """
    with _board(bootstrap, server) as (_, board):
        _known(board, name)
        wish = _ask(board, name, lambda held: replace(held, run=True, asked=held.asked + 1))
        _say(board, name, started(wish), wait, as_json=as_json)


def stop(
    name: Name,
    wait: Wait = 90,
    bootstrap: Bootstrap = None,
    server: SparkServer = None,
    as_json: AsJson = False,
) -> None:
    """Have a pipeline stop after the batch it is in, and stay so, whatever is restarted, until it is started.

    Example:

      levada pipeline stop revenue
    """
    with _board(bootstrap, server) as (_, board):
        _known(board, name)
        wish = _ask(board, name, lambda held: replace(held, run=False))
        _say(board, name, stopped(wish), wait, as_json=as_json)


def reset(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: Wait = 90,
    bootstrap: Bootstrap = None,
    server: SparkServer = None,
    as_json: AsJson = False,
) -> None:
    """Have a pipeline begin anew: forget how far it came, and its state. Says first what that means, and asks.

    Example:

      levada pipeline reset revenue
    """
    from levada.cli.pipeline_reset import begun_anew, consequences

    with _board(bootstrap, server) as (client, board):
        actual = _known(board, name)
        if actual.sources and not actual.checkpoint:
            raise InvalidRequest(f"{name} has no checkpoint that could be reset: how far it came is in what it writes")
        held = board.ledger.wanted.get(name)
        epoch = max(held.epoch if held else 0, actual.epoch) + 1
        if not yes or not as_json:
            for line in consequences(name, actual, epoch, board.ledger, client):
                print(line, file=sys.stderr)
        if not yes:
            if not sys.stdin.isatty():
                raise WrongUsage(f"nobody is there to ask whether to reset {name}: say --yes")
            typer.confirm(f"Reset {name}?", abort=True, err=True)
        wish = _ask(board, name, lambda held: begun_anew(name, held, epoch))
        _say(board, name, started(wish) if wish.run else stopped(wish), wait, as_json=as_json)


def _known(board: Board, name: str) -> Actual:
    """What is known of it. UnknownPipeline, with the one that may have been meant."""
    from levada.spark.pipelines.errors import UnknownPipeline

    ledger = board.ledger
    if name in ledger.actual:
        return ledger.actual[name]
    hint = nearest(name, ledger.actual) or "; `levada pipeline list` shows all"
    raise UnknownPipeline(f"no runner has a pipeline {name!r}{hint}")


def _ask(board: Board, name: str, change: Callable[[Wanted], Wanted]) -> Wanted:
    """Change what is wanted, as it is now: a person who was asked something may have thought for long."""
    from levada.spark.runner.records import Wanted

    held = board.read().wanted.get(name, Wanted())
    wish = replace(change(held), at_ms=now_ms(), by=_who())
    board.want(name, wish)
    return wish


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # a user without a name
        return socket.gethostname()


def _say(board: Board, name: str, awaited: Awaited, wait_s: int, *, as_json: bool) -> None:
    """Wait for the runner to have done it, where there is one, say how it is then, and end with an exit code that says so too."""
    deadline = time.monotonic() + wait_s
    while name in board.ledger.actual and board.ledger.is_attended(now_ms()):
        if awaited.is_over(board.ledger.actual[name]) or time.monotonic() >= deadline:
            break
        time.sleep(_LOOK_S)
        board.read()
    _known(board, name)
    came = outcome(name, awaited, board.ledger, wait_s)
    if as_json:
        [one] = [one for one in as_dict(board.ledger)["pipelines"] if one["pipeline"] == name]
        print_json({**one, "done": came.done})
    else:
        print(came.text)
    if came.exit_code:
        raise typer.Exit(came.exit_code)


def commands() -> Iterator[tuple[str, Any]]:
    """By their names."""
    yield from (("list", list_pipelines), ("status", status), ("start", start), ("stop", stop), ("reset", reset))
