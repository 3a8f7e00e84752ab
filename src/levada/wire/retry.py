"""Whether to try again, and when: the one place that knows which failures pass by themselves."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from ssl import SSLContext
from typing import Final, TypedDict

from levada.errors import BrokerRefused, ConnectionLost, LevadaError, TimedOut, Unreachable
from levada.wire.codes import RETRIABLE, ErrorCode

#: Kafka calls these retriable; here they are answers. TCP does not corrupt a batch, so the batch itself is wrong.
_FINAL: Final = frozenset((ErrorCode.CORRUPT_MESSAGE, ErrorCode.ELECTION_NOT_NEEDED))
_UNKNOWN_TOPIC: Final = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))
#: The broker may have done it and could not say so.
_AMBIGUOUS: Final = frozenset((ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client behaves towards its brokers."""

    client_id: str = "levada"
    #: How long a call may take in all, retries included, unless the call is told otherwise.
    timeout_ms: int = 60_000
    #: How long one request may go unanswered before its connection is given up.
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    #: Between tries: this, doubling up to the maximum, give or take a fifth.
    backoff_ms: int = 50
    backoff_ms_max: int = 1_000
    #: A topic may be new and not known everywhere yet: so long is "unknown topic" not taken for an answer.
    settle_ms: int = 2_000
    #: Let brokers create topics that are asked about, where they are set to.
    auto_create: bool = False
    #: TLS, where given.
    ssl: SSLContext | None = None


class ClientSettings(TypedDict, total=False):
    """The settings of `ClientConfig` as keyword arguments."""

    client_id: str
    timeout_ms: int
    request_timeout_ms: int
    connect_timeout_ms: int
    backoff_ms: int
    backoff_ms_max: int
    settle_ms: int
    auto_create: bool
    ssl: SSLContext | None


class Retry:
    """The tries of one call. `repeatable` calls may be sent again although the first may have been carried out; those that `settle` take
    "unknown topic" for an answer only after a while."""

    def __init__(
        self,
        config: ClientConfig,
        now: Callable[[], float],
        timeout_ms: int | None,
        *,
        repeatable: bool = True,
        settle: bool = True,
    ) -> None:
        self._config = config
        self._now = now
        self._started = now()
        self._timeout_ms = config.timeout_ms if timeout_ms is None else timeout_ms
        self._repeatable = repeatable
        self._settle_ms = config.settle_ms if settle else 0
        self._backoff_ms = float(config.backoff_ms)

    def left_ms(self) -> float:
        return self._timeout_ms - self._passed_ms()

    def _passed_ms(self) -> float:
        return (self._now() - self._started) * 1000

    def after(self, error: LevadaError) -> float:
        """How many milliseconds to pause before the next try; raises the error where it is the answer, or time is up."""
        pause = self._backoff_ms * random.uniform(0.8, 1.2)
        if not self.passes(error) or pause >= self.left_ms():
            raise error
        self._backoff_ms = min(self._backoff_ms * 2, self._config.backoff_ms_max)
        return pause

    def passes(self, error: LevadaError) -> bool:
        """Whether the same request may succeed a moment later."""
        match error:
            case Unreachable():
                return True
            case ConnectionLost() | TimedOut():
                return self._repeatable
            case BrokerRefused(code=code) if code in _UNKNOWN_TOPIC:
                return self._passed_ms() < self._settle_ms
            case BrokerRefused(code=code) if code in _AMBIGUOUS:
                return self._repeatable
            case BrokerRefused(code=code):
                return code in RETRIABLE and code not in _FINAL
        return False
