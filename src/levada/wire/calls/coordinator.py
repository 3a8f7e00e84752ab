"""Asking the broker that keeps a group or a transactional id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from levada.errors import BrokerRefused
from levada.wire.apis import ApiKey
from levada.wire.calls.core import Core
from levada.wire.codec import Message
from levada.wire.codes import ErrorCode, refused
from levada.wire.effects import Steps, call
from levada.wire.endpoints import Endpoint
from levada.wire.retry import Retry

T = TypeVar("T")

GROUP: Final = 0
TRANSACTION: Final = 1
_KINDS: Final = {GROUP: "group", TRANSACTION: "transactional id"}
_MOVED: Final = frozenset(
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
)


class CoordinatorCalls(Core):
    """Coordinators are looked for once, and again when they say they are none."""

    @call
    def find_coordinator(self, key: str, *, kind: int = GROUP, timeout_ms: int | None = None) -> Steps[Endpoint]:
        """The broker that keeps this group (or, with TRANSACTION, this transactional id)."""

        def attempt(retry: Retry) -> Steps[Endpoint]:
            self.cluster.coordinators.pop((kind, key), None)
            node = yield from self._coordinator(kind, key, retry)
            host, port = self.cluster.address(node)
            return Endpoint(node, host, port)

        return (yield from self._retried(attempt, self._retry(timeout_ms)))

    def _coordinator(self, kind: int, key: str, retry: Retry) -> Steps[int]:
        known = self.cluster.coordinators.get((kind, key))
        if known is not None:
            return known
        fields = {"key": key, "key_type": kind, "coordinator_keys": [key]}
        answer = yield from self._ask_any(ApiKey.FIND_COORDINATOR, fields, retry, low=kind)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            raise refused(found.error_code, f"{_KINDS[kind]} {key}", found.error_message)
        node: int = found.node_id
        self.cluster.brokers[node] = (found.host, found.port)
        self.cluster.coordinators[kind, key] = node
        return node

    def _ask_coordinator(
        self,
        kind: int,
        key: str,
        api_key: int,
        fields: Mapping[str, Any],
        read: Callable[[Message], T],
        retry: Retry,
        *,
        low: int | None = None,
        high: int | None = None,
    ) -> Steps[T]:
        """Ask until it is answered. `read` turns the answer into a value, or raises what `refused` made of its code."""

        def attempt(retry: Retry) -> Steps[T]:
            node = yield from self._coordinator(kind, key, retry)
            answer = yield from self._ask(node, api_key, fields, retry, low=low, high=high)
            try:
                return read(answer)
            except BrokerRefused as error:
                if error.code in _MOVED:
                    self.cluster.coordinators.pop((kind, key), None)
                raise

        return (yield from self._retried(attempt, retry))
