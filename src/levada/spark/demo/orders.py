"""A stream of orders as shops and phones send them: some late, some twice, some no orders at all; and the ledger of what they come to.

stream = OrderStream(seed=7)
for key, value in stream.until(stream.opened + timedelta(minutes=5)):
    producer.publish("orders", value, key=key)
stream.ledger[minute, user]       # Takings(orders=2, cents=3150): what the pipeline has to find
"""

from __future__ import annotations

import heapq
import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

USERS: Final = (
    "ada", "alan", "barbara", "claude", "donald", "edsger", "frances", "grace", "hedy", "ida",
    "jean", "john", "katherine", "ken", "leslie", "linus", "margaret", "niklaus", "radia", "tim",
)  # fmt: skip
#: Of a hundred orders so many are sent again, come late, or are not orders at all.
_TWICE, _LATE, _BROKEN = 6, 4, 1
#: The pipeline waits for half an hour; nothing here is later.
_LATEST: Final = timedelta(minutes=20)
_AGAIN_WITHIN: Final = timedelta(minutes=8)
_BROKEN_VALUES: Final = (b"", b"{", b'{"id": 17, "amount": "a lot"}', b"\xff\xfe")


@dataclass(slots=True)
class Takings:
    """Of one user in one minute."""

    orders: int = 0
    cents: int = 0


class OrderStream:
    """Orders of one day, in the order they are sent. The clock is the caller's: `until` says how far it has come."""

    def __init__(self, *, seed: int, a_minute: float = 120.0, opened: datetime | None = None) -> None:
        self.opened = opened or datetime(2026, 3, 1, 8, tzinfo=UTC)
        self.now = self.opened
        #: What was sent, by kind: orders, twice, late, broken.
        self.sent: Counter[str] = Counter()
        #: What each user spent in each minute, each order once.
        self.ledger: dict[tuple[datetime, str], Takings] = {}
        self._random = random.Random(seed)
        self._every_s = 60 / a_minute
        self._number = 0
        self._next = self.opened
        #: (when it is sent, tie-breaker, kind, key, value)
        self._delayed: list[tuple[datetime, int, str, bytes, bytes]] = []

    def until(self, now: datetime) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of what is sent until then."""
        while self._next <= now:
            yield from self._due(self._next)
            yield from self._order(self._next)
            self._next += timedelta(seconds=self._random.expovariate(1 / self._every_s))
        yield from self._due(now)
        self.now = now

    def _due(self, now: datetime) -> Iterator[tuple[bytes, bytes]]:
        while self._delayed and self._delayed[0][0] <= now:
            _, _, kind, key, value = heapq.heappop(self._delayed)
            self.sent[kind] += 1
            yield key, value

    def _order(self, at: datetime) -> Iterator[tuple[bytes, bytes]]:
        chance = self._random
        self._number += 1
        user = USERS[min(int(chance.expovariate(0.25)), len(USERS) - 1)]
        kind = chance.randrange(100)
        if kind < _BROKEN:
            self.sent["broken"] += 1
            yield user.encode(), chance.choice(_BROKEN_VALUES)
            return
        cents = max(50, int(math.exp(chance.gauss(7.6, 0.8))))
        order = {"id": f"o-{self._number}", "user": user, "amount": cents / 100, "at": at.isoformat()}
        key, value = user.encode(), json.dumps(order).encode()
        self._enter(at, user, cents)
        if kind < _BROKEN + _LATE:
            self._delay("late", at, _LATEST, key, value)
            return
        self.sent["orders"] += 1
        yield key, value
        if kind < _BROKEN + _LATE + _TWICE:
            self._delay("twice", at, _AGAIN_WITHIN, key, value)

    def _delay(self, kind: str, at: datetime, most: timedelta, key: bytes, value: bytes) -> None:
        due = at + most * self._random.uniform(0.05, 1.0)
        heapq.heappush(self._delayed, (due, self._number, kind, key, value))

    def _enter(self, at: datetime, user: str, cents: int) -> None:
        takings = self.ledger.setdefault((at.replace(second=0, microsecond=0), user), Takings())
        takings.orders += 1
        takings.cents += cents
