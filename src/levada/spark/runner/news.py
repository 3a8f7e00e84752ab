"""What is new about pipelines, and who is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from levada.spark.runner.records import Actual


class Teller(Protocol):
    """Whoever shows a person, or a machine, what happens."""

    def said(self, text: str) -> None:
        """Something about the runner itself."""
        ...

    def changed(self, name: str, before: Actual | None, after: Actual | None) -> None:
        """A pipeline came to be in another state; None where there was, or is, none."""
        ...

    def turned(self, pipelines: Mapping[str, Actual]) -> None:
        """All there are, after each look."""
        ...


def is_news(before: Actual | None, after: Actual | None) -> bool:
    """Whether a person should hear of it. That a version is known now, which was not looked at before, is none."""
    if before is None or after is None:
        return before is not after
    if before.version and before.version != after.version:
        return True
    told = ("state", "cause", "failures", "note", "epoch")
    return any(getattr(before, name) != getattr(after, name) for name in told)


def is_same(before: Actual, after: Actual, *, with_progress: bool) -> bool:
    """Whether there is nothing to write down; how far it came is only sometimes something."""
    alike = replace(before, updated_ms=0)
    return alike == after or (not with_progress and replace(alike, progress=after.progress) == after)
