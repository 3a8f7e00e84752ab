"""The log lines of native groups: one per generation, and one for what could not be kept."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from levada.broker.streams.group import Group


@functools.cache
def _log() -> Any:
    # Loaded at the first line: importing structlog takes longer than opening a data directory.
    import structlog

    return structlog.get_logger("levada.streams")


def generation(group: Group, reason: str) -> None:
    _log().info(
        "generation",
        group=group.id,
        kind=group.kind.value,
        generation=group.generation,
        members=len(group.members),
        reason=reason,
    )


def not_saved(group: Group, reason: object) -> None:
    _log().warning("generation is not saved", group=group.id, generation=group.generation, reason=str(reason))


def not_told(reason: object) -> None:
    _log().error("members may not know what became of their topics", reason=str(reason), kind=type(reason).__name__)
