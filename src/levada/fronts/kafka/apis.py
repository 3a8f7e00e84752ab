"""Which calls this front answers, and where.

Each call is one module of this package, named like the call (`OffsetCommit` is `offset_commit.py`) and loaded when it is
first asked for, so that starting the broker imports none of them. A module has one of

    async def handle(request: Message, call: Call) -> Mapping[str, Any] | bytes | None
    def serve(body: memoryview, call: Call) -> Body | Later | None          the hot ones: no task, no message objects

Versions are those of Kafka 4.3. Produce is advertised from 0, though 0–2 are refused: older librdkafka else stops
compressing (KAFKA-18659).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from levada.errors import LevadaError
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.reply import Body, Later
from levada.wire.apis import APIS, Api, ApiKey
from levada.wire.message import Message
from levada.wire.schema import message

_OFFERED: Final = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_GROUPS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
)

#: Versions that are advertised below what is answered.
_ADVERTISED_FROM: Final[Mapping[int, int]] = {ApiKey.PRODUCE: 0}


class Handler:
    """One call as it is answered here."""

    __slots__ = ("_module", "advertised_from", "api", "handle", "loaded", "serve")

    def __init__(self, api: Api) -> None:
        self.api = api
        self.advertised_from = _ADVERTISED_FROM.get(api.key, api.min_version)
        self._module = f"{__package__}.{api.file}"
        self.loaded = False
        #: One of these is there once `load` has been called.
        self.serve: Callable[[memoryview, Call], Body | Later | None] | None = None
        self.handle: Callable[[Message, Call], Coroutine[Any, Any, Mapping[str, Any] | bytes | None]] | None = None

    def load(self) -> None:
        module = importlib.import_module(self._module)
        self.serve = getattr(module, "serve", None)
        self.handle = getattr(module, "handle", None)
        self.loaded = True

    def refusal(self, version: int, error: LevadaError, code: int) -> Mapping[str, Any] | None:
        """The answer that refuses the whole request, where this call has a place for that."""
        names = {field.name for field in message(self.api.key, "response").fields if version in field.versions}
        if "error_code" not in names:
            return None
        return {"error_code": code, **({"error_message": str(error)} if "error_message" in names else {})}


@functools.cache
def offered() -> Mapping[int, Handler]:
    """Every call that is answered here, by its key."""
    return {key: Handler(APIS[key]) for key in _OFFERED}
