"""How far a pipeline is behind the ends of its topics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from levada.errors import LevadaError
from levada.spark.pipelines.progress import behind
from levada.wire.answers import LATEST, TopicPartition
from levada.wire.blocking import BlockingClient

#: How old an answer may be.
_FRESH_S: Final = 1.0
#: A broker that does not answer in this time has no ends to tell: the figures of a terminal do not wait for it.
_TIMEOUT_MS: Final = 2_000


class Lag:
    """Asks the broker, at most once a second. For one thread at a time."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._client: BlockingClient | None = None
        self._ends: dict[tuple[str, int], int] | None = None
        self._asked = float("-inf")

    def of(self, at: Mapping[tuple[str, int], int]) -> int | None:
        """Of a pipeline that stands here; None where the broker does not say."""
        if time.monotonic() - self._asked > _FRESH_S:
            self._ends = self._ask(at)
            self._asked = time.monotonic()
        return None if self._ends is None else behind(self._ends, at)

    def _ask(self, at: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int] | None:
        try:
            if self._client is None:
                self._client = BlockingClient(
                    self._bootstrap,
                    client_id="levada-pipelines",
                    timeout_ms=_TIMEOUT_MS,
                    connect_timeout_ms=_TIMEOUT_MS,
                )
            answers = self._client.list_offsets({TopicPartition(*one): LATEST for one in at})
        except LevadaError:
            return None
        return {(where.topic, where.partition): answer.offset for where, answer in answers.items()}

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
