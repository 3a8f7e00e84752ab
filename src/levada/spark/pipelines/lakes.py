"""A lake table as the end of a pipeline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from levada.spark.pipelines.errors import WrongDeclaration
from levada.spark.pipelines.topics import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """See `lake`."""

    name: str
    partition_by: tuple[str, ...] = ()
    shape: Shape | None = None

    def using(self, shape: Shape) -> Lake:
        """The same sink, written with what this function makes of each micro-batch."""
        return replace(self, shape=shape)

    @property
    def id(self) -> str:
        """What it is called within its pipeline: the last part of a path."""
        return self.name.rstrip("/").rpartition("/")[2]

    def check_sink(self) -> None:
        """WrongDeclaration if this is no table to write to."""
        addressed = "://" in self.name or self.name.startswith("/")
        if not addressed and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", self.name):
            raise WrongDeclaration(
                f"lake {self.name!r}: must be a name of letters, digits and . _ -, an absolute path, or a URI"
            )


def lake(name: str, *, partition_by: Sequence[str] = ()) -> Lake:
    """A Delta table to append to: `name` in the home's lake/, an absolute path, or a URI. It is made when first written to."""
    return Lake(name=name, partition_by=tuple(partition_by))
