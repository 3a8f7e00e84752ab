"""`levada pipeline`: run one here, in the foreground."""

from __future__ import annotations

import typer

from levada.cli.pipeline_run import run

app = typer.Typer(
    help="Run pipelines on Spark.\n\nA pipeline is a Python file with functions of frames, declared with where their rows come from "
    "and go to. docs/pipelines.md says how to write one.",
    no_args_is_help=True,
    add_completion=False,
)
app.command()(run)


@app.callback()
def root() -> None:
    """Keeps `run` a command of its own name."""
