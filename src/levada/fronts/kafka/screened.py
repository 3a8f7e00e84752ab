"""Producing to a topic that remembers messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from levada.broker.dedup import Dedup
from levada.engine.embedded.partition import Partition
from levada.engine.port import Appended, At
from levada.errors import LevadaError, StorageFailed
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.reply import Body, HangUp, Later
from levada.records.batch import Batch


def is_cold(partition: Partition, call: Call) -> bool:
    """Whether the memory must be loaded before anything is written."""
    dedup = call.node.dedup
    return dedup is not None and dedup.applies(partition) and not dedup.ready(partition)


def append(batch: Batch, partition: Partition, call: Call) -> tuple[Appended, list[asyncio.Future[None]]]:
    """Append what is new in the batch, now. Also what the answer must wait for: first copies that are not durable yet."""
    dedup = call.node.dedup
    if dedup is None or not dedup.applies(partition):
        return partition.append(batch), []
    stored = dedup.append(partition, batch)
    assert stored.appended is not None, "a batch of repeats is kept empty"
    return stored.appended, dedup.waits(stored)


class Opening(Later):
    """The answer of a request that waits for a topic's memory. No other of its connection is begun before it."""

    __slots__ = ("_go_on", "_task")

    exclusive = True

    def __init__(self, call: Call, at: At, go_on: Callable[[LevadaError | None], Body | Later | None]) -> None:
        super().__init__(call)
        assert call.node.dedup is not None
        self._go_on = go_on
        self._task = asyncio.ensure_future(_open(call.node.dedup, at))
        self._task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        reason = asyncio.CancelledError() if task.cancelled() else task.exception()
        if reason is not None and not isinstance(reason, LevadaError):
            self.hang_up(HangUp(f"the memory of messages could not be loaded: {reason!r}"))
            return
        try:
            answer = self._go_on(reason)
        except HangUp as refusal:
            self.hang_up(refusal)
            return
        if not isinstance(answer, Later):
            self.answer(answer)
        elif answer.frame is not None:
            self._take(answer)
        else:
            answer.notify = self._take

    def _take(self, inner: Later) -> None:
        self.reason, self.frame = inner.reason, inner.frame
        if self.notify is not None:
            self.notify(self)


async def _open(dedup: Dedup, at: At) -> None:
    try:
        await dedup.at_hand(at)
    except OSError as reason:
        raise StorageFailed(f"the memory of messages of topic {at.topic} could not be loaded: {reason}") from reason
