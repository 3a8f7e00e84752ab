"""One runner for each cluster: whoever holds the transactional id `__levada.runner` writes the states, in transactions.

Taking it over fences the one before, whose next write fails and never becomes visible. A runner that is alive is not taken
over: the newcomer watches for a sign of life first, which asks nothing of anybody's clock.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from levada.errors import BrokerRefused, LevadaError
from levada.records.build import build
from levada.spark.runner.board import ABSENT_AFTER_MS, AT, Board, now_ms
from levada.spark.runner.records import RUNNER, RunnerSeen, encoded
from levada.wire.blocking import BlockingClient
from levada.wire.codes import ErrorCode

TRANSACTIONAL_ID: Final = "__levada.runner"
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
    """A runner's right to write states. `me` is its sign of life, but for the time."""

    def __init__(self, client: BlockingClient, board: Board, me: RunnerSeen) -> None:
        self._board = board
        self._me = me
        self._producer = client.transactional_producer(TRANSACTIONAL_ID, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
        #: Ends what the last write may have left open: a commit whose answer was lost is asked for again.
        self._settle: Callable[[], None] = _nothing

    def take(self, waiting: Callable[[str], None], patience_s: float = ABSENT_AFTER_MS / 1000) -> None:
        """Be the runner of this cluster. RunnerIsUp, where one gives a sign of life within `patience_s`."""
        holder = self._board.read().runner
        if holder is not None and not holder.left_ms and not _is_dead(holder):
            waiting(f"there may be a runner, {holder}: watching {patience_s:.0f} s for a sign of life")
            deadline = time.monotonic() + patience_s
            while time.monotonic() < deadline:
                now = self._board.read().runner
                if now is None or now.left_ms:
                    break
                if now != holder:
                    raise RunnerIsUp(
                        f"a runner is up already: {now}, with {now.pipelines or 'no directory'} on {now.master}. "
                        "A cluster has one; stop that one first"
                    )
                time.sleep(_LOOK_EVERY_S)
        self._producer.init()
        self.write(())

    def write(self, records: Sequence[tuple[bytes, bytes | None]], *, leaving: bool = False) -> None:
        """All of these with a sign of life, or none. Replaced, when somebody else has the seat; other errors may pass."""
        try:
            self._write(records, leaving)
        except BrokerRefused as refusal:
            if refusal.code not in _FENCED:
                raise
            seen = self._board.read().runner
            if seen is None or seen.id != self._me.id:
                who = f": {seen}" if seen is not None else ""
                raise Replaced(f"another runner has taken over this cluster's pipelines{who}") from refusal
            # Nobody else has written: it was the broker that gave our transaction up, since it took too long.
            self._producer.init()
            self._settle = _nothing
            self._write(records, leaving)

    def _write(self, records: Sequence[tuple[bytes, bytes | None]], leaving: bool) -> None:
        now = now_ms()
        sign = replace(self._me, seen_ms=now, left_ms=now if leaving else None)
        self._settle()
        self._settle = self._producer.abort
        self._producer.send({AT: build([*records, (RUNNER.encode(), encoded(sign))], timestamp_ms=now)})
        self._settle = self._producer.commit
        self._producer.commit()
        self._settle = _nothing


def _nothing() -> None:
    return


def _is_dead(holder: RunnerSeen) -> bool:
    """Whether that is certain: it was a process of this machine, and there is none of that number."""
    if holder.host != socket.gethostname():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
