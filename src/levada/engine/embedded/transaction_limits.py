"""What the coordinator is told."""

from __future__ import annotations

from dataclasses import dataclass

from levada.config import DAY_MS, MINUTE_MS
from levada.engine.settings import LiveSettings
from levada.errors import InvalidTransactionTimeout


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLimits:
    """How long a transaction may stay open, and how long an idle transactional id is remembered."""

    timeout_ms_max: int = 15 * MINUTE_MS
    id_expiration_ms: int = 7 * DAY_MS

    @classmethod
    def of(cls, settings: LiveSettings) -> TransactionLimits:
        return cls(
            timeout_ms_max=settings.number("transaction.max.timeout.ms"),
            id_expiration_ms=settings.number("transactional.id.expiration.ms"),
        )

    def check_timeout(self, timeout_ms: int) -> None:
        """InvalidTransactionTimeout."""
        if not 0 < timeout_ms <= self.timeout_ms_max:
            raise InvalidTransactionTimeout(
                f"transaction timeout {timeout_ms} ms: must be from 1 to transaction.max.timeout.ms={self.timeout_ms_max}"
            )
