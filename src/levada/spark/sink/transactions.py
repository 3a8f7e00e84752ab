"""What became of a transaction, as its coordinator tells it."""

from __future__ import annotations

import time
from typing import Final

from levada.wire.apis import ApiKey
from levada.wire.blocking import BlockingClient
from levada.wire.calls.coordinator import TRANSACTION

_COMMITTING: Final = "PrepareCommit"
_COMMITTED: Final = "CompleteCommit"
_PAUSE_S: Final = 0.005
_PAUSE_S_MAX: Final = 0.1


def is_committed(client: BlockingClient, transactional_id: str) -> bool:
    """Whether the last transaction of this id is, or is about to be."""
    return _state(client, transactional_id) in (_COMMITTING, _COMMITTED)


def await_visible(client: BlockingClient, transactional_id: str, timeout_s: float) -> None:
    """Wait until every partition has heard of a commit. Apache Kafka answers `EndTxn` before that, and whoever reads at once might miss it."""
    deadline, pause_s = time.monotonic() + timeout_s, _PAUSE_S
    while _state(client, transactional_id) == _COMMITTING and time.monotonic() < deadline:
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)


def _state(client: BlockingClient, transactional_id: str) -> str:
    """Empty where nobody knows it."""
    node = client.find_coordinator(transactional_id, kind=TRANSACTION).node_id
    fields = {"transactional_ids": [transactional_id]}
    (found,) = client.request(ApiKey.DESCRIBE_TRANSACTIONS, fields, node=node, repeatable=True).transaction_states
    state: str = "" if found.error_code else found.transaction_state
    return state
