"""Sends the orders: a day of them in a few minutes."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

import levada
from levada.spark.demo.orders import OrderStream

_PAUSE_S: Final = 0.1


class Feeding:
    """A thread that publishes a stream's orders while the `with` lasts; a second lasts `speed` seconds in the shops."""

    def __init__(self, client: levada.Client, topic: str, stream: OrderStream, *, speed: float) -> None:
        self.stream = stream
        self.failure: BaseException | None = None
        self._client = client
        self._topic = topic
        self._speed = speed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Send no more. What was sent is stored."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            with self._client.producer() as producer:
                while not self._stop.wait(_PAUSE_S):
                    now = self.stream.opened + timedelta(seconds=(time.monotonic() - began) * self._speed)
                    for key, value in self.stream.until(now):
                        producer.publish(self._topic, value, key=key)
                producer.flush()
        except BaseException as error:  # shown by whoever waits
            self.failure = error
