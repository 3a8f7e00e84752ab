"""Groups of other kinds under the same ids, as Kafka's clients and tools meet them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from levada.broker.groups.calls import Described, Listed


class Neighbour(Protocol):
    """Whoever rules the groups that are not classic ones.

    A group id that it `holds` cannot be joined. Any other can: `give_up` forgets what there was, its offsets excepted,
    and returns the last generation, from which the new group goes on.
    """

    def knows(self, group_id: str) -> bool: ...

    def holds(self, group_id: str) -> bool: ...

    def give_up(self, group_id: str, now_ms: int) -> int: ...

    def has_members(self, group_id: str) -> bool: ...

    def is_subscribed(self, group_id: str, topic: str) -> bool: ...

    def list(self) -> Sequence[Listed]: ...

    def describe(self, group_id: str) -> Described: ...

    def delete(self, group_id: str, now_ms: int) -> int:
        """Forget a group without members and return a receipt. GroupNotEmpty."""
        ...


class NoNeighbour:
    """All groups are classic ones."""

    def knows(self, group_id: str) -> bool:
        return False

    holds = has_members = knows

    def give_up(self, group_id: str, now_ms: int) -> int:
        return 0

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        return False

    def list(self) -> Sequence[Listed]:
        return ()

    def describe(self, group_id: str) -> Described:
        raise LookupError(group_id)

    def delete(self, group_id: str, now_ms: int) -> int:
        raise LookupError(group_id)
