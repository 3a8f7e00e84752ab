"""Many records on their way from a user into the accumulator, as far as there is room."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from levada.client.accumulator import Accumulator
from levada.client.draft import Draft
from levada.client.route import Route
from levada.records.pack import ROW_OVERHEAD

_NO_HEADERS: Final[list[tuple[str, bytes | None]]] = []


class Handover:
    """The records of one `publish_many`, how many were taken, and where those are."""

    def __init__(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> None:
        self.topic = topic
        self.largest = max((len(value) for value in values if value is not None), default=0)
        if keys is not None:
            self.largest += max((len(key) for key in keys if key is not None), default=0)
        #: Draft, the first record's place in it, and how many.
        self.parts: list[tuple[Draft, int, int]] = []
        self._values = values
        self._keys = keys
        self._partition = partition
        self._timestamp_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        self._taken = 0

    def advance(self, accumulator: Accumulator, route: Route) -> bool:
        """Give over what there is room for. True when that was all. UnknownPartition."""
        if self._keys is not None:
            return self._advance_keyed(accumulator, route, self._keys)
        where = route.partition(None, self._partition)
        while self._taken < len(self._values):
            found = accumulator.add_values(route, where, self._values, self._taken, self._timestamp_ms)
            if found is None:
                return False
            self.parts.append(found)
            self._taken += found[2]
        return True

    def _advance_keyed(self, accumulator: Accumulator, route: Route, keys: Sequence[bytes | None]) -> bool:
        values, stamp = self._values, self._timestamp_ms
        while (taken := self._taken) < len(values):
            key, value = keys[taken], values[taken]
            size = ROW_OVERHEAD + (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
            where = route.partition(key, self._partition)
            found = accumulator.add(route, where, (stamp, key, value, _NO_HEADERS), size)
            if found is None:
                return False
            self.parts.append((*found, 1))
            self._taken += 1
        return True
