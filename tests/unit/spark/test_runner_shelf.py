"""Where pipelines come from: files that are written, changed, moved and removed; and what parts of Levada ask for."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from levada.errors import InvalidConfig
from levada.spark.pipelines.errors import WrongFile
from levada.spark.pipelines.places import Places
from levada.spark.runner.runnable import Described, Query
from levada.spark.runner.shelf import Directory, Lookout, Managed
from support.wait import wait_until

ORDERS = """
from levada.spark import lake, pipeline, topic

@pipeline(source=topic("orders", starting="latest"), sink=[topic("copies"), lake("copies")], trigger="5 seconds")
def copies(orders):
    \"\"\"Every order, twice.\"\"\"
    return orders
"""


def names(found: object) -> list[str]:
    assert isinstance(found, dict)
    return sorted(Path(unit).name for unit in found)


def settled(shelf: Directory) -> dict[str, str]:
    """After two looks that find the same."""
    shelf.look()
    return dict(shelf.look())


def test_the_python_files_of_a_directory_are_units_but_for_private_ones(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "_c.py", ".d.py", "e.txt"):
        (tmp_path / name).write_text("# a pipeline")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "f.py").write_text("# a pipeline")
    shelf = Directory(tmp_path)
    assert names(shelf.look()) == ["a.py", "b.py"]
    assert shelf.label(str(tmp_path / "a.py")) == "a"


def test_a_version_is_the_content(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("# a pipeline")
    shelf = Directory(tmp_path)
    before = dict(shelf.look())
    os.utime(file, (1, 1))
    assert settled(shelf) == before
    file.write_text("# another pipeline")
    assert settled(shelf) != before
    file.write_text("# a pipeline")
    assert settled(shelf) == before


def test_a_change_counts_once_it_has_stayed_for_two_looks(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("# a pipeline")
    shelf = Directory(tmp_path)
    before = dict(shelf.look())
    file.write_text("# a pipeline, half wri")
    assert shelf.look() == before
    file.write_text("# a pipeline, half written no more")
    assert shelf.look() == before
    assert shelf.look() != before


def test_a_file_that_is_away_for_one_look_is_not_gone(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("# a pipeline")
    shelf = Directory(tmp_path)
    before = dict(shelf.look())
    file.rename(tmp_path / "a.bak")
    assert shelf.look() == before
    (tmp_path / "a.bak").rename(file)
    assert shelf.look() == before and shelf.look() == before
    file.unlink()
    assert shelf.look() == before
    assert shelf.look() == {}


@pytest.mark.parametrize(
    ("line", "helper"),
    [
        ("import _shared", "_shared.py"),
        ("from shared import RATE", "shared.py"),
        ("def late():\n    import shared", "shared.py"),
        ("import package.rates as rates", "package/rates.py"),
        ("from package import rates", "package/__init__.py"),
        ("import between", "shared.py"),
    ],
)
def test_what_a_file_imports_is_a_part_of_it_and_of_nobody_else(tmp_path: Path, line: str, helper: str) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "between.py").write_text("from shared import *")
    (tmp_path / "a.py").write_text(line)
    (tmp_path / "b.py").write_text("import json, levada.spark")
    (tmp_path / helper).write_text("RATE = 1")
    shelf = Directory(tmp_path)
    before = dict(shelf.look())
    (tmp_path / helper).write_text("RATE = 2")
    after = settled(shelf)
    assert after[str(tmp_path / "a.py")] != before[str(tmp_path / "a.py")]
    assert after[str(tmp_path / "b.py")] == before[str(tmp_path / "b.py")]


def test_a_file_that_comes_changes_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import json")
    shelf = Directory(tmp_path)
    before = dict(shelf.look())
    (tmp_path / "b.py").write_text("raise RuntimeError")
    (tmp_path / "c.py").write_text("def (")
    after = settled(shelf)
    assert len(after) == 3 and after.items() >= before.items()


def test_a_file_is_loaded_with_what_it_declares(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(ORDERS)
    [one] = Directory(tmp_path).load(str(tmp_path / "orders.py"))
    places = Places(home=tmp_path / "home")
    assert one.name == "copies"
    assert one.described(places) == Described(
        sources=[{"topic": "orders", "starting": "latest"}],
        sinks=[{"topic": "copies"}, {"table": str(tmp_path / "home" / "lake" / "copies")}],
        trigger="5 seconds",
        checkpoint=str(tmp_path / "home" / "checkpoints" / "copies"),
        about="Every order, twice.",
        epoch=0,
    )


def test_a_file_without_pipelines_is_there_for_others_and_one_that_raises_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "shared.py").write_text("RATE = 1")
    (tmp_path / "broken.py").write_text("RATE = 1 / 0")
    shelf = Directory(tmp_path)
    assert shelf.load(str(tmp_path / "shared.py")) == []
    with pytest.raises(WrongFile, match="line 1: ZeroDivisionError: division by zero"):
        shelf.load(str(tmp_path / "broken.py"))


def test_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="there is no such directory"):
        Directory(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfig, match="is not a directory"):
        Directory(tmp_path / "file")


def test_a_directory_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "pipelines"
    home.mkdir()
    (home / "a.py").write_text("# a pipeline")
    lookout = Lookout(Directory(home), 0.01)
    lookout.start()
    home.rename(tmp_path / "elsewhere")
    try:
        wait_until(lambda: lookout.error, 10, "that it is gone was not noticed")
        assert names(lookout.seen) == ["a.py"]
        (tmp_path / "elsewhere").rename(home)
        wait_until(lambda: lookout.error is None, 10, "that it is back was not noticed")
        assert names(lookout.seen) == ["a.py"]
    finally:
        lookout.stop()


@dataclass
class Wish:
    """Something a part of Levada wants kept."""

    name: str
    version: str

    def start(self, spark: Any, places: Places, epoch: int) -> Query:
        raise NotImplementedError

    def described(self, places: Places) -> Described:
        return Described()


def test_what_is_asked_for_is_polled_and_has_versions() -> None:
    wishes = [Wish("archive of orders", "1")]
    poll: Callable[[], list[Wish]] = lambda: wishes  # noqa: E731
    shelf = Managed(poll)
    assert shelf.look() == {"archive of orders": "1"}
    assert shelf.load("archive of orders") == [wishes[0]] and shelf.label("archive of orders") == "archive of orders"
    wishes[:] = [Wish("archive of orders", "2"), Wish("archive of users", "1")]
    assert shelf.look() == {"archive of orders": "2", "archive of users": "1"}
    wishes.clear()
    assert shelf.look() == {} and shelf.load("archive of orders") == []
