"""Which rules a group id follows. It follows one kind of them at a time."""

from __future__ import annotations

import enum
from typing import Protocol


class Kind(enum.Enum):
    """Who says which member reads what."""

    #: Members come and go, and share the partitions evenly.
    DYNAMIC = "dynamic"
    #: A number of consumers is registered; consumer i has every partition with partition % consumers == i.
    FIXED = "fixed"
    #: Kafka's classic protocol: the members' leader says it.
    CLASSIC = "classic"
    #: Nobody: the group has offsets, and no member ever came.
    OFFSETS = "offsets"


class Rival(Protocol):
    """A coordinator of groups of other kinds, under the same ids.

    A group id that `holds` its kind cannot be had. Any other can: `give_up` forgets what there was, its offsets
    excepted, and returns the last generation, so that the next ruler goes on from there.
    """

    def holds(self, group_id: str) -> bool: ...

    def give_up(self, group_id: str, now_ms: int) -> int: ...


class NoRival:
    """There are no other kinds of groups."""

    def holds(self, group_id: str) -> bool:
        return False

    def give_up(self, group_id: str, now_ms: int) -> int:
        return 0
