"""A job on the terminal: what it is doing, how far it is, and how many of Spark's tasks are done."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S: Final = 0.25


class Tasks(NamedTuple):
    """Of the Spark jobs that run now."""

    done: int
    total: int


def tasks(tracker: Any) -> Tasks:
    """Out of Spark's status tracker, which forgets at will what it has said before."""
    done = total = 0
    for job in tracker.getActiveJobsIds():
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            seen = tracker.getStageInfo(stage)
            if seen is not None:
                done, total = done + seen.numCompletedTasks, total + seen.numTasks
    return Tasks(done, total)


class Hidden:
    """For machines, and where nobody watches."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def starting(self, master: str) -> None:
        pass

    @contextlib.contextmanager
    def watching(self, spark: SparkSession) -> Iterator[None]:
        yield

    def doing(self, what: str, total: int | None = None) -> None:
        pass

    def came(self, offsets: int) -> None:
        pass

    def lost(self, what: str) -> None:
        """Said at once: who is killed before the end has said it."""
        print(f"lost: {what}", file=sys.stderr, flush=True)


class Live(Hidden):
    """A bar on stderr while the `with` lasts: by records where those are told, else by tasks."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[said]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, said="")
        self._lock = threading.Lock()
        self._total: int | None = None
        self._done = 0
        self._began = time.monotonic()
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def starting(self, master: str) -> None:
        self._progress.update(self._task, description=f"starting Spark on {master}")

    @contextlib.contextmanager
    def watching(self, spark: SparkSession) -> Iterator[None]:
        """Look at Spark's tasks while this lasts."""
        tracker = spark.sparkContext.statusTracker()
        thread = threading.Thread(target=self._look, args=(tracker,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def doing(self, what: str, total: int | None = None) -> None:
        with self._lock:
            self._total, self._done, self._began = total, 0, time.monotonic()
        self._progress.reset(self._task, description=what, total=None, said="")

    def came(self, offsets: int) -> None:
        with self._lock:
            self._done += offsets

    def lost(self, what: str) -> None:
        self._progress.console.print(f"lost: {what}", highlight=False, markup=False, soft_wrap=True)

    def _look(self, tracker: Any) -> None:
        while not self._ended.wait(_LOOK_S):
            # Between two looks the session may be stopped, and then there is nothing to be seen.
            with contextlib.suppress(Exception):
                self._draw(tasks(tracker))

    def _draw(self, now: Tasks) -> None:
        with self._lock:
            done, total, took = self._done, self._total, time.monotonic() - self._began
        running = f"tasks {now.done}/{now.total}" if now.total else ""
        if done and total:
            said = f"{done:,} of {total:,}  {done / took:,.0f}/s  {running}"
            self._progress.update(self._task, total=total, completed=done, said=said)
        else:
            about = f"{total:,} offsets  " if total else ""
            self._progress.update(self._task, total=now.total or None, completed=now.done, said=about + running)


def view(*, as_json: bool) -> Hidden:
    return Live() if not as_json and sys.stderr.isatty() else Hidden()
