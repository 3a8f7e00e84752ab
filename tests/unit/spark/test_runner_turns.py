"""The runner's own loop and its threads, with shelves that change under its eyes, no broker and no Spark."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from levada.errors import Unreachable
from levada.spark.pipelines.places import Places
from levada.spark.runner import keeper as keepers
from levada.spark.runner.actions import Action, Load, Start
from levada.spark.runner.keeper import Event, Failed, Keeper, Loaded, NotLoaded, Started
from levada.spark.runner.records import Actual, RunnerSeen
from levada.spark.runner.runnable import Described, Runnable
from levada.spark.runner.runner import Runner
from levada.spark.runner.shelf import Shelf
from support.wait import wait_until


class Away:
    """A client of a broker that does not answer."""

    def transactional_producer(self, *_: Any, **__: Any) -> Away:
        return self

    def __getattr__(self, name: str) -> Any:
        def unanswered(*_: Any, **__: Any) -> Any:
            raise Unreachable("nobody there")

        return unanswered


class Flickering:
    """A lookout whose thread has looked again whenever somebody looks twice: the file is there, and then it is not."""

    error: Exception | None = None

    def __init__(self, shelf: Shelf, *looks: Mapping[str, str]) -> None:
        self.shelf = shelf
        self._looks = [*looks]

    @property
    def seen(self) -> Mapping[str, str]:
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]


class Named:
    """A shelf of a name, whose units declare nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def look(self) -> Mapping[str, str]:
        return {}

    def load(self, unit: str) -> Sequence[Runnable]:
        return []

    def label(self, unit: str) -> str:
        return f"{unit} of {self.name}"


class Kept:
    """A keeper that notes what it is to do, and with which shelf."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.loads: list[tuple[str, str, Shelf]] = []

    def do(self, action: Action, shelves: Mapping[str, Shelf]) -> None:
        assert isinstance(action, Load)
        self.loads.append((*action, shelves[action.unit]))

    def described(self, name: str) -> None: ...

    def progress(self, name: str) -> None: ...


class Told:
    """What the runner would show."""

    def __init__(self) -> None:
        self.pipelines: Mapping[str, Actual] = {}

    def said(self, text: str) -> None: ...

    def changed(self, name: str, before: Actual | None, after: Actual | None) -> None: ...

    def turned(self, pipelines: Mapping[str, Actual]) -> None:
        self.pipelines = pipelines


def runner(told: Told, *lookouts: Flickering) -> Any:
    me = RunnerSeen(id="r1", host="h1", pid=7, since_ms=1, seen_ms=1)
    client: Any = Away()
    watched: Any = lookouts
    return Runner(client, me, watched, lambda: None, told)  # type: ignore[arg-type, return-value]


def test_a_file_that_goes_in_the_middle_of_a_turn_is_gone_in_the_next() -> None:
    files, kept = Named("files"), Kept()
    made = runner(Told(), Flickering(files, {"a.py": "1"}, {}))
    made._turn(kept)
    assert kept.loads == [("a.py", "1", files)]
    made._turn(kept)
    assert kept.loads == [("a.py", "1", files)]


def test_each_unit_is_of_the_shelf_that_showed_it() -> None:
    files, archives, kept, told = Named("files"), Named("archives"), Kept(), Told()
    made = runner(told, Flickering(files, {"a": "1"}), Flickering(archives, {"b": "2"}))
    made._turn(kept)
    assert kept.loads == [("a", "1", files), ("b", "2", archives)]
    for unit, version in (("a", "1"), ("b", "2")):
        made._take(NotLoaded(unit, version, "boom", "boom"))
    made._turn(kept)
    assert sorted(told.pipelines) == ["a of files", "b of archives"]


class Crowded(dict[tuple[str, str], Any]):
    """What is declared, where another wants to add to it while one goes through it."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__({("z.py", "1"): {}})
        self._meanwhile = meanwhile

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for key in super().__iter__():
            self._meanwhile()
            yield key


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Keeper]:
    """A real one, whose Spark does nothing."""
    monkeypatch.setattr(keepers, "_LOOK_S", 0.01)
    context = SimpleNamespace(_gateway=None, setLocalProperty=lambda *_: None)
    spark: Any = SimpleNamespace(sparkContext=context, stop=lambda: None)
    made = Keeper(spark, Places(home=tmp_path))
    yield made
    made.close()


def test_two_files_that_are_loaded_at_once_are_both_told(keeper: Keeper) -> None:
    shelf, first = Named("files"), threading.Event()
    shelves = {"a.py": shelf, "b.py": shelf}

    def meanwhile() -> None:
        if not first.is_set():
            first.set()
            keeper.do(Load("b.py", "1"), shelves)
            with contextlib.suppress(queue.Empty):
                keeper.events.put(keeper.events.get(timeout=0.3))

    keeper._declared = Crowded(meanwhile)
    keeper.do(Load("a.py", "1"), shelves)
    heard = {keeper.events.get(timeout=10) for _ in shelves}
    assert heard == {Loaded("a.py", "1", ()), Loaded("b.py", "1", ())}


class Brief:
    """A pipeline that has failed by the time anybody looks."""

    name, active, failure = "a", False, ValueError("boom")

    def start(self, *_: Any) -> Brief:
        return self

    def stop(self) -> None: ...

    def described(self, _: Places) -> Described:
        return Described()


class Hesitant:
    """Events, of which that something was started is told with hesitation."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._ended = threading.Event()

    def put(self, event: Event) -> None:
        if isinstance(event, Started):
            self._ended.wait(0.3)
        self.told.append(type(event).__name__)
        if isinstance(event, Failed):
            self._ended.set()


def test_that_it_was_started_is_told_before_that_it_failed(keeper: Keeper) -> None:
    """The other way round it would be taken for running ever after."""
    events: Any = Hesitant()
    brief: Any = Brief()
    keeper.events = events
    keeper._declared["a.py", "1"] = {"a": brief}
    keeper.do(Start("a", "a.py", "1", 0), {})
    wait_until(lambda: len(events.told) == 2, 10, lambda: str(events.told))
    assert events.told == ["Started", "Failed"]
