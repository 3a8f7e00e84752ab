"""One runner for each cluster: whoever holds the transactional id `__levada.runner` writes the states, in transactions.

Taking it over fences the one before, whose next write fails and never becomes visible. A runner that is alive is not taken
over: the newcomer watches for a sign of life first, which asks nothing of anybody's clock.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

from levada.errors import BrokerRefused, LevadaError
from levada.records.build import build
from levada.spark.runner.board import ABSENT_AFTER_MS, AT, Board, now_ms
from levada.spark.runner.records import RunnerSeen
from levada.wire.blocking import BlockingClient
from levada.wire.codes import ErrorCode

TRANSACTIONAL_ID: Final = "__levada.runner"
#: A runner shows that it is there so often.
SIGN_EVERY_S: Final = 3.0
#: What a runner that died in the middle of writing leaves open keeps readers waiting for so long at most.
_TRANSACTION_TIMEOUT_MS: Final = 10_000
_LOOK_EVERY_S: Final = 0.25
_FENCED: Final = frozenset(
    (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
)


class RunnerIsUp(LevadaError):
    """The cluster has a runner, and can have one only."""


class Replaced(LevadaError):
    """Another runner has taken over."""


class Seat:
    """This runner's right to write states."""

    def __init__(self, client: BlockingClient) -> None:
        self._producer = client.transactional_producer(TRANSACTIONAL_ID, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)

    def take(self, board: Board, waiting: Callable[[str], None], patience_s: float = ABSENT_AFTER_MS / 1000) -> None:
        """Be the runner of this cluster. RunnerIsUp where there is one: after a sign of life of it, or none for `patience_s`."""
        holder = board.read().runner
        if holder is not None and not holder.left_ms and not _is_dead(holder):
            waiting(f"the last runner ({holder}) did not say goodbye: watching {patience_s:.0f} s for a sign of life")
            deadline = time.monotonic() + patience_s
            while time.monotonic() < deadline:
                now = board.read().runner
                if now is None or now.left_ms:
                    break
                if now != holder:
                    raise RunnerIsUp(
                        f"a runner is up already: {now}, with {now.pipelines or 'no directory'} on {now.master}. "
                        "A cluster has one; stop that one first"
                    )
                time.sleep(_LOOK_EVERY_S)
        self._producer.init()

    def write(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """All of these, or none. Replaced, when somebody else has the seat; any other error may pass: write again later."""
        try:
            self._producer.abort()  # where the last one failed half way
            self._producer.send({AT: build(records, timestamp_ms=now_ms())})
            self._producer.commit()
        except BrokerRefused as refusal:
            if refusal.code in _FENCED:
                raise Replaced("another runner has taken over this cluster's pipelines") from refusal
            raise


def _is_dead(holder: RunnerSeen) -> bool:
    """Whether it is certain: it was a process of this machine, and there is none of that number."""
    if holder.host != socket.gethostname():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
