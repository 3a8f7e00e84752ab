"""A running pipeline on the terminal: a panel that is drawn anew, or a line for each micro-batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from levada.cli.cluster import size
from levada.cli.session import count
from levada.cli.spark_session import once_each

if TYPE_CHECKING:
    from levada.spark.pipelines.declaration import Pipeline
    from levada.spark.pipelines.progress import Progress


class View(Protocol):
    """What is shown of one pipeline, while the `with` lasts."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: Any, error: Any, trace: Any) -> None: ...
    def starting(self, master: str) -> None: ...
    def show(self, progress: Progress) -> None: ...
    def waiting(self, text: str, /) -> None:
        """What it cannot go on without, if anything."""
        ...

    def stopping(self) -> None: ...
    def ended(self) -> None: ...


def route(pipeline: Pipeline) -> str:
    """ "orders → revenue, lake revenue"."""
    from levada.spark.pipelines.lakes import Lake

    sources = ", ".join(source.id for source in pipeline.sources.values())
    sinks = ", ".join(f"lake {sink.id}" if isinstance(sink, Lake) else sink.id for sink in pipeline.sinks)
    return f"{sources} → {sinks}"


def figures(progress: Progress) -> list[tuple[str, str]]:
    """What a person wants to know, named."""
    if progress.batch < 0:
        return [("micro-batches", "none yet")]
    told = [
        ("micro-batch", f"{progress.batch:,}"),
        ("rows/s", f"{progress.rows_s:,.0f}  ({progress.rows:,} rows in {progress.batch_ms:,} ms)"),
        ("rows read", f"{progress.rows_total:,}"),
        ("lag", "unknown: the broker does not answer" if progress.lag is None else f"{progress.lag:,} records"),
    ]
    if progress.state_rows or progress.state_bytes:
        told.append(("state", f"{progress.state_rows:,} rows, {size(progress.state_bytes)}"))
    if progress.watermark and not progress.watermark.startswith("1970-01-01T00:00:00"):
        told.append(("watermark", progress.watermark))
    if progress.late_rows:
        told.append(("too late", f"{progress.late_rows:,} rows left out"))
    return told + [("lost", one) for one in progress.lost]


class Lines:
    """A line when a micro-batch is done; for machines, a JSON object."""

    def __init__(self, pipeline: Pipeline, print_json: Callable[[dict[str, Any]], None] | None) -> None:
        self._pipeline = pipeline
        self._print_json = print_json
        self._last: Progress | None = None
        self.waiting = once_each(self._tell_waiting)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        pass

    def starting(self, master: str) -> None:
        if self._print_json is None:
            print(f"{self._pipeline.name}: {route(self._pipeline)}, on {master}", flush=True)

    def show(self, progress: Progress) -> None:
        if progress.batch < 0 or (self._last is not None and progress.batch == self._last.batch):
            return
        self._last = progress
        if self._print_json is not None:
            self._print_json({"event": "progress", "pipeline": self._pipeline.name, **progress.as_json()})
        else:
            print("  ".join(f"{name} {value}" for name, value in figures(progress)), flush=True)

    def _tell_waiting(self, text: str) -> None:
        if self._print_json is not None:
            self._print_json({"event": "waiting", "pipeline": self._pipeline.name, "reason": text})
        else:
            print(f"{self._pipeline.name} waiting: {text}", flush=True)

    def stopping(self) -> None:
        pass

    def ended(self) -> None:
        rows = self._last.rows_total if self._last else 0
        if self._print_json is not None:
            self._print_json({"event": "ended", "pipeline": self._pipeline.name, "rows_total": rows})
        else:
            print(f"{self._pipeline.name} ended: {count(rows, 'row')} read", flush=True)


class Live:
    """A panel on stderr, drawn anew while it runs, and a line at the end."""

    def __init__(self, pipeline: Pipeline) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._pipeline = pipeline
        self._console = Console(stderr=True)
        self._live = RichLive(console=self._console, refresh_per_second=4, transient=True)
        self._began = time.monotonic()
        self._doing = self._waiting = ""
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def starting(self, master: str) -> None:
        self._doing = f"starting Spark on {master} …"
        self._draw()

    def show(self, progress: Progress) -> None:
        self._progress = progress
        if not self._doing.startswith("stopping"):
            self._doing = f"running for {time.monotonic() - self._began:,.0f} s · Ctrl-C ends it after a micro-batch"
        self._draw()

    def waiting(self, text: str) -> None:
        if text != self._waiting:
            self._waiting = text
            self._draw()

    def stopping(self) -> None:
        self._doing = "stopping after this micro-batch … Ctrl-C once more: at once"
        self._draw()

    def ended(self) -> None:
        rows = self._progress.rows_total if self._progress else 0
        took = time.monotonic() - self._began
        self._console.print(f"[bold]{self._pipeline.name}[/bold] ended: {count(rows, 'row')} read in {took:,.0f} s")

    def _draw(self) -> None:
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        for name, value in figures(self._progress) if self._progress else ():
            grid.add_row(Text(name, style="dim"), Text(value, style="red" if name == "lost" else ""))
        if self._waiting:
            grid.add_row(Text("waiting", style="dim"), Text(self._waiting, style="yellow"))
        grid.add_row(Text(""), Text(self._doing, style="dim"))
        title = f"[bold]{self._pipeline.name}[/bold]  {route(self._pipeline)}"
        self._live.update(Panel(grid, title=title, title_align="left", expand=False))
