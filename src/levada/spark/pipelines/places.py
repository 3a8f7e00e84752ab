"""Where a pipeline runs: its broker, its master, and the directory that keeps its checkpoints and lake tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOME: Final = Path("levada-pipelines")
BOOTSTRAP: Final = "127.0.0.1:9092"
MASTER: Final = "local[*]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """`home` must be the same directory for the driver and all executors: on a cluster, one that all of it sees.

    <home>/checkpoints/<pipeline>/   how far it came, and its state
    <home>/lake/<table>/             Delta tables of sinks that are named, not addressed
    """

    bootstrap: str = BOOTSTRAP
    home: Path = HOME
    master: str = MASTER

    def checkpoint(self, pipeline: str) -> Path:
        return self.home.absolute() / "checkpoints" / pipeline

    def table(self, name: str) -> str:
        """Where this lake table is: a name is a directory of the home, an absolute path or a URI is itself."""
        if "://" in name or name.startswith("/"):
            return name
        return str(self.home.absolute() / "lake" / name)
