"""What a client of a group is told when something is refused.

A client retries COORDINATOR_NOT_AVAILABLE by itself, and gives up on codes that it does not expect of a group call; so a
disk that is full is told in that way, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from levada.errors import (
    CoordinatorUnavailable,
    IllegalGeneration,
    LevadaError,
    MemberIdRequired,
    RebalanceInProgress,
    StorageError,
    UnknownMember,
)
from levada.fronts.kafka import notice
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.codes import KAFKA_CODE, NONE, code_of
from levada.wire.apis import APIS

#: The steps of the protocol, and what every member hears after a rebalance it was too late for.
_ORDINARY: Final = (MemberIdRequired, RebalanceInProgress, UnknownMember, IllegalGeneration)


def group_code(call: Call, error: LevadaError | None) -> int:
    """The code of a group's answer, and one log line where it is more than a step of the protocol."""
    return group_codes(call, [error])[0]


def group_codes(call: Call, errors: Sequence[LevadaError | None]) -> list[int]:
    """The codes of an answer with many parts, and one log line for all of them."""
    causes = dict.fromkeys(str(error) for error in errors if error is not None and not isinstance(error, _ORDINARY))
    if causes:
        first, *others = causes
        notice.refused(call, APIS[call.api_key].name, f"{first} (and {len(others)} more)" if others else first)
    return [_code(error) for error in errors]


def _code(error: LevadaError | None) -> int:
    if error is None:
        return NONE
    return KAFKA_CODE[CoordinatorUnavailable] if isinstance(error, StorageError) else code_of(error)


async def not_kept(receipt: int, call: Call) -> StorageError | None:
    """Wait until what gave this receipt is durable, and say why if it never will be."""
    try:
        if receipt > 0:
            await call.node.engine.offset_store.durable(receipt)
    except StorageError as error:
        return error
    return None
