"""Carries out what the plan asks for, each in a thread, and tells what came of it.

Nothing here waits: a pipeline that takes long to start or to stop, or a file that takes long to load, holds up nobody else.
"""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from levada.errors import LevadaError
from levada.spark.pipelines.failures import cause
from levada.spark.pipelines.places import Places
from levada.spark.pipelines.progress import Progress
from levada.spark.runner.actions import Action, Load, Start, Stop
from levada.spark.runner.runnable import Described, Query, Runnable
from levada.spark.runner.shelf import Shelf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How often what runs is looked at.
_LOOK_S: Final = 0.5
_THREADS: Final = 32
#: What is kept of a traceback.
_DETAIL_MAX: Final = 4_000


class Loaded(NamedTuple):
    unit: str
    version: str
    names: Sequence[str]


class NotLoaded(NamedTuple):
    unit: str
    version: str
    cause: str
    detail: str


class Started(NamedTuple):
    name: str


class Failed(NamedTuple):
    name: str
    cause: str
    detail: str


class Ended(NamedTuple):
    name: str


class Lost(NamedTuple):
    """Spark itself is gone."""

    cause: str


Event = Loaded | NotLoaded | Started | Failed | Ended | Lost


class SparkLost(LevadaError):
    """The JVM that runs the pipelines has ended."""


class Keeper:
    """What runs in one Spark application."""

    def __init__(self, spark: SparkSession, places: Places) -> None:
        self._spark = spark
        self._places = places
        #: Wakes whoever waits for something to happen.
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="levada-runner")
        self._loading = threading.Lock()  # a file is run with sys.path changed for it
        self._telling = threading.Lock()  # that it was started is told before that it has ended
        self._declared: dict[tuple[str, str], Mapping[str, Runnable]] = {}
        self._running: dict[str, Query] = {}
        self._described: dict[str, Described] = {}
        self._progress: dict[str, Progress] = {}
        self._closing = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True, name="levada-runner-watch")
        self._watcher.start()

    def do(self, action: Action, shelves: Mapping[str, Shelf]) -> None:
        """Begin it. `shelves` has the one of every unit that is there."""
        match action:
            case Load(unit):
                self._pool.submit(self._load, action, shelves[unit])
            case Start():
                self._pool.submit(self._start, action)
            case Stop(name):
                query = self._running.get(name)
                if query is not None and self._take_out(name, query):
                    self._pool.submit(self._stop, name, query)

    def _take_out(self, name: str, query: Query) -> bool:
        """Whoever takes it out tells how it ended: who was to stop it, or the watcher, who found that it had ended by itself."""
        with self._telling:
            if self._running.get(name) is not query:
                return False
            del self._running[name]
            return True

    def progress(self, name: str) -> Progress | None:
        """The last that was heard of a running pipeline."""
        return self._progress.get(name)

    def described(self, name: str) -> Described | None:
        """As it was when it was last loaded or started."""
        return self._described.get(name)

    def _load(self, load: Load, shelf: Shelf) -> None:
        try:
            with self._loading:
                found = {one.name: one for one in shelf.load(load.unit)}
            self._described |= {name: one.described(self._places) for name, one in found.items()}
        except Exception as error:
            self.events.put(NotLoaded(*load, *_told(error)))
            return
        with self._loading:
            # The one before may just be on its way to being started.
            for old in [key for key in self._declared if key[0] == load.unit][:-1]:
                del self._declared[old]
            self._declared[load.unit, load.version] = found
        self.events.put(Loaded(*load, tuple(found)))

    def _start(self, start: Start) -> None:
        try:
            runnable = self._declared[start.unit, start.version][start.name]
            self._progress.pop(start.name, None)
            # Its jobs share the executors with everybody else's, job by job: see `shared_by_many`.
            self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", start.name)
            query = runnable.start(self._spark, self._places, start.epoch)
            self._described[start.name] = runnable.described(self._places)
        except Exception as error:
            self.events.put(self._lost() or Failed(start.name, *_told(error)))
            return
        with self._telling:
            self._running[start.name] = query
            self.events.put(Started(start.name))

    def _stop(self, name: str, query: Query) -> None:
        try:
            query.stop()
        except Exception as error:
            self.events.put(self._lost() or Failed(name, *_told(error)))
            return
        self.events.put(Ended(name))

    def _watch(self) -> None:
        while not self._closing.wait(_LOOK_S):
            if lost := self._lost():
                self.events.put(lost)
                return
            for name, query in list(self._running.items()):
                try:
                    self._look(name, query)
                except Exception:  # it is being stopped, or Spark is going: the next look says which
                    continue

    def _look(self, name: str, query: Query) -> None:
        if query.active:
            self._progress[name] = query.progress()
            return
        failure = query.failure
        if self._take_out(name, query):
            self.events.put(Ended(name) if failure is None else Failed(name, *_told(failure)))
            query.stop()

    def _lost(self) -> Lost | None:
        """Whether Spark's process has ended, which nobody asked it to."""
        gateway = self._spark.sparkContext._gateway
        process = getattr(gateway, "proc", None)
        code = process.poll() if process is not None else None
        if code is None or self._closing.is_set():
            return None
        return Lost(f"Spark's JVM ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}")

    def close(self) -> None:
        """Stop all that runs, each after its batch; then Spark."""
        stops = [self._pool.submit(query.stop) for query in self._running.values()]
        self._running.clear()
        for stop in stops:
            stop.exception()
        self._closing.set()
        self._pool.shutdown(cancel_futures=True)
        with suppress(Exception):  # where Spark is gone already
            self._spark.stop()


def shared_by_many() -> dict[str, str]:
    """Settings of a session that many pipelines share.

    None waits until another's jobs are through. Java does not write a page for each failure of a pipeline, which may be failing for
    days: states have what matters of it.
    """
    return {"spark.scheduler.mode": "FAIR", "spark.log.level": "FATAL"}


def _told(error: Exception) -> tuple[str, str]:
    """In one line, and with where it was."""
    said = cause(error).strip() or type(error).__name__
    shown = error.__cause__ or error
    detail = "".join(traceback.format_exception(shown)) if not isinstance(shown, LevadaError) else said
    return said.splitlines()[0], detail[:_DETAIL_MAX]
