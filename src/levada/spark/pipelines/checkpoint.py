"""A pipeline's checkpoint by name, and the epoch of its sinks.

<home>/checkpoints/<pipeline>/
    pipeline.json     {"epoch": 2, "id": "5f1c…", "sources": {"orders": "orders"}, "state": "rocksdb"}
    2/                Spark's checkpoint of this epoch

Batches are counted from 0 in each epoch, and sinks remember epoch and batch: a replayed batch is known again, and a checkpoint
that was begun anew on purpose is told from one that was lost. Lost with the directory, the epoch begins at 0 again, and sinks
that have seen more refuse.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from levada.spark.archive.place import make_directory, settle
from levada.spark.pipelines.declaration import Pipeline
from levada.spark.pipelines.errors import WrongCheckpoint

_NOTE: Final = "pipeline.json"


class Checkpoint:
    """One pipeline's. Nothing is written before `open`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def epoch(self) -> int:
        return int(self._note().get("epoch", 0))

    @property
    def location(self) -> Path:
        """Where Spark keeps it."""
        return self.directory / str(self.epoch)

    @property
    def id(self) -> str:
        """Which it is among those of the same name, on other clusters or in other homes; "" before `open`."""
        return str(self._note().get("id", ""))

    @property
    def planned(self) -> int:
        """The last micro-batch that Spark has planned; −1 for none."""
        offsets = self.location / "offsets"
        found = offsets.iterdir() if offsets.is_dir() else ()
        return max((int(one.name) for one in found if one.name.isdecimal()), default=-1)

    @property
    def begun(self) -> bool:
        """Whether a micro-batch was ever planned."""
        return self.planned >= 0

    def settle(self, batch: int) -> None:
        """Make durable what this micro-batch reads, which Spark does not: a sink that has it would pass over another of its number."""
        location = self.location
        settle(str(location), f"offsets/{batch}")
        if not batch:
            settle(str(self.directory), location.name)

    def check(self, pipeline: Pipeline) -> None:
        """WrongCheckpoint if it was made by another declaration than this."""
        note = self._note()
        if "sources" in note and self.begun:
            _check(pipeline, note)

    def open(self, pipeline: Pipeline, epoch: int) -> None:
        """Have it for this declaration and epoch. A newer epoch than it has begins anew."""
        if epoch > self.epoch:
            self.reset(epoch)
        known = self.id or uuid.uuid4().hex
        now = {"epoch": self.epoch, "id": known, "sources": _sources(pipeline), "state": pipeline.state}
        if now != self._note():
            self._write(now)

    def reset(self, epoch: int | None = None) -> int:
        """Forget how far it came, and its state. Its sinks count anew: what it reads again, it writes again."""
        before = self.epoch
        after = before + 1 if epoch is None else epoch
        self._write({"epoch": after})
        for old in self.directory.iterdir():
            if old.is_dir() and old.name.isdecimal() and int(old.name) < after:
                shutil.rmtree(old)
        return after

    def _note(self) -> dict[str, Any]:
        try:
            text = (self.directory / _NOTE).read_text()
        except FileNotFoundError:
            return {}
        try:
            found: dict[str, Any] = json.loads(text)
            return found
        except ValueError:
            raise WrongCheckpoint(f"{self.directory / _NOTE} is damaged: it is no JSON") from None

    def _write(self, note: Mapping[str, Any]) -> None:
        """Whole or not at all, and durable: an epoch must not be given out twice."""
        make_directory(str(self.directory), "")
        draft = self.directory / f"{_NOTE}.new"
        with draft.open("w") as file:
            json.dump(note, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.directory / _NOTE)
        settle(str(self.directory), _NOTE)


def _sources(pipeline: Pipeline) -> dict[str, str]:
    return {name: source.id for name, source in pipeline.sources.items()}


def _check(pipeline: Pipeline, note: Mapping[str, Any]) -> None:
    """Spark would take the offsets of one topic for another's."""
    before, now = note["sources"], _sources(pipeline)
    if before != now:
        raise WrongCheckpoint(
            f"the checkpoint of pipeline {pipeline.name!r} was made with {_told(before)}, and it now reads {_told(now)}: "
            f"{what_to_do(pipeline.name)}"
        )
    if note.get("state", pipeline.state) != pipeline.state:
        raise WrongCheckpoint(
            f"the checkpoint of pipeline {pipeline.name!r} has its state in {note['state']}, which cannot change to "
            f"{pipeline.state}: {what_to_do(pipeline.name)}"
        )


def what_to_do(name: str) -> str:
    """For the end of a sentence about a checkpoint that does not fit."""
    return f"undo the change, give the pipeline another name, or {begin_anew(name)}"


def begin_anew(name: str) -> str:
    return (
        f"begin anew with `levada pipeline reset {name}`, after which it reads from its starting offsets and writes what it "
        "makes of them again"
    )


def _told(sources: Mapping[str, str]) -> str:
    return ", ".join(
        f"source {name}" if name == topic else f"source {name} (topic {topic})" for name, topic in sources.items()
    )
