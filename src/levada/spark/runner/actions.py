"""What the plan has done, by whoever carries it out."""

from __future__ import annotations

from typing import NamedTuple


class Load(NamedTuple):
    """Read what the unit declares."""

    unit: str
    version: str


class Start(NamedTuple):
    """Run the pipeline as this version of the unit declares it."""

    name: str
    unit: str
    version: str
    epoch: int


class Stop(NamedTuple):
    """End it after the batch it is in."""

    name: str


Action = Load | Start | Stop
