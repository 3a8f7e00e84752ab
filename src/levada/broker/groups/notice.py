"""The log lines of the coordinator: one per rebalance and generation, and one for what could not be kept."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from levada.broker.groups.group import Group


@functools.cache
def _log() -> Any:
    # Loaded at the first line: importing structlog takes longer than opening a data directory.
    import structlog

    return structlog.get_logger("levada.groups")


def rebalances(group: Group, reason: str) -> None:
    _log().info("rebalances", group=group.id, generation=group.generation, reason=reason)


def generation(group: Group) -> None:
    _log().info("generation", group=group.id, generation=group.generation, members=len(group.members))


def not_saved(group: Group, what: str, reason: object) -> None:
    _log().warning(f"{what} is not saved", group=group.id, generation=group.generation, reason=str(reason))
