"""`levada pipeline`: run one here, in the foreground; and command those that a runner keeps."""

from __future__ import annotations

import typer

from levada.cli import pipeline_kept
from levada.cli.pipeline_run import run

app = typer.Typer(
    help="Run pipelines on Spark, and command those that a runner keeps.\n\nA pipeline is a Python file with functions of frames, declared with where their rows come from "
    "and go to. docs/pipelines.md says how to write one.",
    no_args_is_help=True,
    add_completion=False,
)
app.command()(run)
for _name, _command in pipeline_kept.commands():
    app.command(_name)(_command)
