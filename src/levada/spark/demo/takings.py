"""What came out: the rows of the pipeline's topic, added up, and compared with the ledger."""

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self

import levada
from levada.spark.demo.orders import OrderStream

#: Sums of amounts are floating-point numbers on the way.
_CENT: Final = 1


class Results:
    """Follows the topic in a thread while the `with` lasts. A group of its own reads it from the start."""

    def __init__(self, client: levada.Client, topic: str) -> None:
        self.rows: dict[tuple[datetime, str], tuple[int, int]] = {}
        #: Rows that came although one of the same minute and user had come already.
        self.repeated = 0
        self.failure: BaseException | None = None
        self._client = client
        self._topic = topic
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="revenue", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with self._client.consumer(self._topic, group="demo", start="earliest") as consumer:
                while not self._stop.is_set():
                    for record in consumer.poll(max_records=1000, timeout_ms=200):
                        self.add(record.value)
        except BaseException as error:  # shown by whoever waits
            self.failure = error

    def add(self, value: bytes) -> None:
        row = json.loads(value)
        place = (datetime.fromisoformat(row["minute"]).astimezone(UTC), row["user"])
        with self._lock:
            self.repeated += place in self.rows
            self.rows[place] = (row["orders"], round(row["revenue"] * 100))

    def by_minute(self) -> dict[datetime, int]:
        """Cents, oldest minute first."""
        sums: Counter[datetime] = Counter()
        with self._lock:
            for (minute, _), (_, cents) in self.rows.items():
                sums[minute] += cents
        return dict(sorted(sums.items()))

    def by_user(self) -> list[tuple[str, int]]:
        """Cents, who spent most first."""
        sums: Counter[str] = Counter()
        with self._lock:
            for (_, user), (_, cents) in self.rows.items():
                sums[user] += cents
        return sums.most_common()

    def wrong(self, stream: OrderStream) -> list[str]:
        """Each row that is not what the ledger says, and how."""
        found = [f"{self.repeated} rows came twice"] if self.repeated else []
        with self._lock:
            for (minute, user), (orders, cents) in sorted(self.rows.items()):
                due = stream.ledger.get((minute, user))
                if due is None or due.orders != orders or abs(due.cents - cents) > _CENT:
                    said = f"{due.orders} orders, {due.cents / 100:.2f}" if due else "nothing"
                    found.append(f"{minute:%H:%M} {user}: {orders} orders, {cents / 100:.2f}; the ledger has {said}")
        return found
