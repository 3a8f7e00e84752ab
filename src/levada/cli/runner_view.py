"""What a runner shows of its pipelines: a table on a terminal, lines in a file, JSON objects for machines."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from levada.cli.output import print_json
from levada.cli.pipeline_told import ago, is_told, why
from levada.cli.session import count

if TYPE_CHECKING:
    from rich.console import Group

    from levada.spark.runner.records import Actual

_STYLES: Final = {"running": "green", "failed": "red", "gone": "dim", "stopped": "dim", "finished": "blue"}


class View(Protocol):
    """See `levada.spark.runner.news.Teller`; and what a command shows before and after."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: Any, error: Any, trace: Any) -> None: ...
    def ready(self, about: Mapping[str, Any], took_ms: int) -> None: ...
    def said(self, text: str) -> None: ...
    def changed(self, name: str, before: Actual | None, after: Actual | None) -> None: ...
    def turned(self, pipelines: Mapping[str, Actual]) -> None: ...


def told(name: str, after: Actual | None) -> str:
    """A change of state in a line. Why it failed is told once, when it does."""
    if after is None:
        return f"{name} is no longer known"
    again = f" after {count(after.failures, 'failure')}" if after.failures and not is_told(after) else ""
    reason = why(after if is_told(after) else replace(after, cause=""))
    return f"{name} {after.state}{again}{f': {reason}' if reason else ''}"


class Lines:
    """A line when something happens."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        pass

    def ready(self, about: Mapping[str, Any], took_ms: int) -> None:
        of = about["pipelines"] or "no directory"
        self.said(f"levada runner ready: {of} on {about['master']}, home {about['home']}; {took_ms} ms")

    def said(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)

    def changed(self, name: str, before: Actual | None, after: Actual | None) -> None:
        self.said(told(name, after))

    def turned(self, pipelines: Mapping[str, Actual]) -> None:
        pass


class JsonLines(Lines):
    """The same for machines."""

    def ready(self, about: Mapping[str, Any], took_ms: int) -> None:
        print_json({"event": "ready", **about, "ms": took_ms})

    def said(self, text: str) -> None:
        print_json({"event": "runner", "message": text})

    def changed(self, name: str, before: Actual | None, after: Actual | None) -> None:
        known: dict[str, Any] = {"state": None}
        if after is not None:
            known = {
                "state": str(after.state),
                "cause": after.cause if is_told(after) else "",
                "failures": after.failures,
                "next_try_ms": after.next_try_ms,
                "note": after.note,
                "file": after.file,
                "version": after.version,
                "epoch": after.epoch,
            }
        print_json({"event": "pipeline", "pipeline": name, **known})


class Live:
    """A table that is drawn anew, with the last that was said under it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._live = RichLive(console=Console(), refresh_per_second=2, transient=True)
        self._said: deque[str] = deque(maxlen=6)
        self._pipelines: Mapping[str, Actual] = {}
        self._title = "levada runner"

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def ready(self, about: Mapping[str, Any], took_ms: int) -> None:
        self._title = f"levada runner · {about['pipelines'] or 'no directory'} · {about['master']} · Ctrl-C ends it"
        self._draw()

    def said(self, text: str) -> None:
        self._said.append(f"{time.strftime('%H:%M:%S')} {text}")
        self._draw()

    def changed(self, name: str, before: Actual | None, after: Actual | None) -> None:
        self.said(told(name, after))

    def turned(self, pipelines: Mapping[str, Actual]) -> None:
        self._pipelines = pipelines
        self._draw()

    def _draw(self) -> None:
        self._live.update(self._drawn())

    def _drawn(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(title=self._title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
        table.add_column("pipeline", no_wrap=True)
        table.add_column("state", no_wrap=True)
        for figure in ("rows/s", "batch ms", "lag", "state rows"):
            table.add_column(figure, justify="right", no_wrap=True)
        table.add_column("since", justify="right", no_wrap=True)
        table.add_column("why", overflow="fold")
        for name, one in self._pipelines.items():
            figures = [_figure(one, field) for field in ("rows_s", "batch_ms", "lag", "state_rows")]
            state = Text(str(one.state), style=_STYLES.get(one.state, "yellow"))
            table.add_row(name, state, *figures, ago(one.since_ms), Text(why(one)))
        return Group(table, Text("\n".join(self._said), style="dim"))


def _figure(one: Actual, field: str) -> str:
    value = one.progress.get(field)
    return "-" if value is None or one.progress.get("batch", -1) < 0 else f"{value:,.0f}"
