"""What `levada demo` shows: a panel that is drawn anew, or a line now and then."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from levada.cli.pipeline_view import figures

if TYPE_CHECKING:
    from rich.console import Console

    from levada.spark.demo.orders import OrderStream
    from levada.spark.pipelines.progress import Progress

_BARS: Final = "▁▂▃▄▅▆▇█"
_MINUTES: Final = 44
_USERS: Final = 5
_LINE_S: Final = 5.0


class Look(NamedTuple):
    """How everything stands."""

    stream: OrderStream
    progress: Progress
    by_minute: Mapping[datetime, int]
    by_user: list[tuple[str, int]]


def bars(values: list[int]) -> str:
    """
    >>> bars([0, 50, 100])
    '▁▅█'
    """
    most = max(values, default=0) or 1
    return "".join(_BARS[round(value / most * (len(_BARS) - 1))] for value in values)


def sent(stream: OrderStream) -> str:
    count = stream.sent
    return (
        f"{count['orders'] + count['late']:,} orders · {count['late']:,} of them late · {count['twice']:,} sent again · "
        f"{count['broken']:,} no orders at all"
    )


class View:
    """For machines: nothing until the end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def started(self, grpc: str, kafka: str) -> None:
        pass

    def show(self, look: Look) -> None:
        pass

    def ending(self) -> None:
        pass

    def summary(self, found: Mapping[str, Any], *, kept: Path | None) -> None:
        pass


class Lines(View):
    """A line every few seconds, and what came of it."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console: Console = Console(stderr=True, soft_wrap=True, highlight=False)
        self._last = 0.0

    def started(self, grpc: str, kafka: str) -> None:
        self._console.print(f"a broker listens: Kafka {kafka}, gRPC {grpc}; the pipeline is starting …")

    def show(self, look: Look) -> None:
        if time.monotonic() - self._last >= _LINE_S:
            self._last = time.monotonic()
            revenue = sum(look.by_minute.values()) / 100
            self._console.print(
                f"{look.stream.now:%H:%M} in the shops · {sent(look.stream)} · {look.progress.rows_total:,} read · "
                f"revenue of {len(look.by_minute)} minutes: {revenue:,.2f}"
            )

    def ending(self) -> None:
        self._console.print("ending after this micro-batch …")

    def summary(self, found: Mapping[str, Any], *, kept: Path | None) -> None:
        say, went = self._console.print, found["sent"]
        say(
            f"  sent     {went['orders'] + went['late']:,} orders, {went['late']:,} of them late; {went['twice']:,} again, and "
            f"{went['broken']:,} that are none (those that cannot be read are in dlq.orders)"
        )
        say(
            f"  revenue  {found['revenue']:,.2f} in {found['minutes']:,} minutes by {found['users']:,} users: "
            f"{found['rows']:,} rows in topic revenue, {found['rows_in_table']:,} in the Delta table"
        )
        if not found["rows"]:
            say("  checked  no minute was final yet: let it run for half a minute")
        elif not found["wrong"]:
            say("  checked  each order counted once and in its own minute, every row right to the cent", style="green")
        if kept is None:
            say("Nothing is left behind; --keep DIR would keep data, table and checkpoints.", style="dim")
        else:
            say(
                f"Kept: {kept}/data (levada up --data), {kept}/lake/revenue (a Delta table), {kept}/checkpoints",
                style="dim",
            )


class Live(Lines):
    """A panel on stderr."""

    def __init__(self) -> None:
        super().__init__()
        from rich.live import Live as RichLive

        self._live = RichLive(console=self._console, refresh_per_second=4, transient=True)
        self._where = ("", "")
        self._look: Look | None = None
        self._doing = "starting Spark …"

    def __enter__(self) -> Self:
        self._live.__enter__()
        self._draw()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._live.__exit__(*raised)

    def started(self, grpc: str, kafka: str) -> None:
        self._where = (grpc, kafka)
        self._doing = "the pipeline is starting …"
        self._draw()

    def show(self, look: Look) -> None:
        self._look = look
        self._doing = "" if look.by_minute else "a minute is final when its half hour for latecomers is over: soon"
        self._draw()

    def ending(self) -> None:
        self._doing = "ending after this micro-batch …"
        self._draw()

    def _draw(self) -> None:
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", justify="right")
        grid.add_column()
        if (look := self._look) is not None:
            grid.add_row("in the shops", f"{look.stream.now:%A %H:%M}, two minutes a second")
            grid.add_row("sent", sent(look.stream))
            grid.add_row("", "")
            for name, value in figures(look.progress):
                grid.add_row(name, value)
            if look.by_minute:
                self._add_revenue(grid, look)
        if self._doing:
            grid.add_row("", Text(self._doing, style="yellow"))
        grpc, kafka = self._where
        if grpc:
            grid.add_row("", "")
            grid.add_row("listens", f"Kafka {kafka}, gRPC {grpc}")
            grid.add_row("look", f"levada consume revenue --follow --server {grpc}   (in another terminal)")
        title = "[bold]levada demo[/bold]  orders → each once → revenue by minute and user → topic and Delta table"
        self._live.update(
            Panel(
                grid,
                title=title,
                title_align="left",
                subtitle="Ctrl-C ends it",
                subtitle_align="left",
                expand=False,
            )
        )

    def _add_revenue(self, grid: Any, look: Look) -> None:
        from rich.text import Text

        minutes = list(look.by_minute.items())[-_MINUTES:]
        grid.add_row("", "")
        grid.add_row("revenue", Text(bars([cents for _, cents in minutes]), style="cyan"))
        first, last = minutes[0][0], minutes[-1][0]
        grid.add_row("", Text(f"{first:%H:%M} to {last:%H:%M}, by minute", style="dim"))
        most = look.by_user[0][1] or 1
        for user, cents in look.by_user[:_USERS]:
            grid.add_row(user, Text.assemble(("█" * max(1, round(cents / most * 30)), "cyan"), f" {cents / 100:,.2f}"))


def view_of(*, as_json: bool, live: bool) -> View:
    return View() if as_json else Live() if live else Lines()
