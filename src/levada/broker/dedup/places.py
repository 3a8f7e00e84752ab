"""Where first copies lie: the partitions a memory has heard of, as small numbers."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from levada.broker.dedup.slots import PLACES_MAX
from levada.engine.port import At


class Place(NamedTuple):
    """A partition of a topic that exists or existed: one that is made anew under the same name is another."""

    topic_id: UUID
    at: At


class Places:
    """Place ⇄ number. Numbers of places that are gone are not used again."""

    def __init__(self) -> None:
        self._numbers: dict[Place, int] = {}
        self.all: list[Place] = []
        #: Not 0 for numbers of places that are gone.
        self.dead: NDArray[np.uint8] = np.zeros(64, np.uint8)

    def number(self, place: Place) -> int:
        found = self._numbers.get(place)
        if found is None:
            found = self._numbers[place] = len(self.all)
            assert found < PLACES_MAX, "no broker has had this many partitions"
            self.all.append(place)
            if found >= len(self.dead):
                self.dead = np.concatenate((self.dead, np.zeros(len(self.dead), np.uint8)))
        return found

    def forget(self, topic_id: UUID) -> None:
        """All partitions of a topic are gone, or no longer looked at."""
        for place, number in list(self._numbers.items()):
            if place.topic_id == topic_id:
                self.dead[number] = 1
                del self._numbers[place]
