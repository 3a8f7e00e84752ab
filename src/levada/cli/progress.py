"""How far a long command has come, on stderr, where a person watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

#: How often the bar is drawn anew.
_EVERY_S: Final = 0.1

#: Told of each record: its bytes.
Advance = Callable[[int], None]


@contextmanager
def progress(name: str, total_bytes: int | None, *, shown: bool) -> Iterator[Advance]:
    """A bar with records and rate; without a total, only those."""
    if not shown or not sys.stderr.isatty():
        yield lambda _size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    known = [BarColumn(), TextColumn("{task.percentage:>3.0f} %")] if total_bytes else [SpinnerColumn()]
    columns = [TextColumn("{task.description}"), *known, TextColumn("{task.fields[said]}")]
    if total_bytes:
        columns.append(TimeRemainingColumn())
    began = drawn = time.perf_counter()
    records = done_bytes = 0
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total_bytes, said="")

        def advance(size: int) -> None:
            nonlocal records, done_bytes, drawn
            records += 1
            done_bytes += size
            if records & 0xFF and total_bytes:
                return
            now = time.perf_counter()
            if now - drawn >= _EVERY_S:
                drawn = now
                rate = records / (now - began)
                bar.update(task, completed=done_bytes, said=f"{records:,} records  {rate:,.0f}/s")

        yield advance
