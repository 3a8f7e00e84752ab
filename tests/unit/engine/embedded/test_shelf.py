"""Pieces of bytes on a shelf: whole or not there."""

from __future__ import annotations

from pathlib import Path
from random import Random

from levada.engine.embedded.shelf import DirectoryShelf
from levada.log.disk import Disk
from support.simulated_tree import SimulatedTree


def put(shelf: DirectoryShelf, name: str, *parts: bytes) -> None:
    piece = shelf.begin(name)
    for part in parts:
        piece.write(part)
    piece.finish()


def test_what_was_put_is_there_until_it_is_removed(tmp_path: Path) -> None:
    shelf = DirectoryShelf(tmp_path / "shelf", Disk())
    assert (shelf.names(), shelf.read("a"), list(shelf.parts("a"))) == ([], None, [])
    put(shelf, "a", b"one", b"two")
    put(shelf, "a", b"three" * 2_000_000)
    assert shelf.names() == ["a"]
    assert shelf.read("a") == b"".join(shelf.parts("a")) == b"three" * 2_000_000
    shelf.remove("a")
    shelf.remove("a")
    assert shelf.names() == []


def test_what_is_not_finished_changes_nothing(tmp_path: Path) -> None:
    shelf = DirectoryShelf(tmp_path / "shelf", Disk())
    put(shelf, "a", b"old")
    left = shelf.begin("a")
    left.write(b"new")
    assert (shelf.names(), shelf.read("a")) == (["a"], b"old")
    left.discard()
    again = shelf.begin("a")
    again.write(b"newer")
    again.finish()
    assert shelf.read("a") == b"newer"


def test_after_a_power_cut_it_is_the_old_or_the_new_one() -> None:
    for seed in range(50):
        tree = SimulatedTree()
        tree.mkdir("/data")
        tree.fsync_dir("/")
        shelf = DirectoryShelf(Path("/data/shelf"), tree)
        put(shelf, "a", b"old")
        tree.fsync_dir("/data")
        piece = shelf.begin("a")
        piece.write(b"new")
        if seed % 2:
            piece.finish()
        tree.crash(Random(seed))
        assert shelf.read("a") == (b"new" if seed % 2 else b"old")
