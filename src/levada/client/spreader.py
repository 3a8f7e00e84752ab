"""Asks the broker where keyless records go: one call for each draft, several at once, and drafts leave in their order."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from levada.client.channel import STREAM, Backoff, Channel
from levada.client.draft import Draft
from levada.client.refusals import is_passing
from levada.client.tasks import end, start
from levada.errors import ConnectionLost, LevadaError, TimedOut
from levada.v1 import stream_pb2 as pb

#: Most questions on their way for one topic.
_ASKED_MAX: Final = 8


class Spreader:
    """`placed` is called with a draft, the first value of the counter and the number of partitions; `failed` with why not."""

    def __init__(
        self,
        channel: Channel,
        *,
        placed: Callable[[Draft, int, int], None],
        failed: Callable[[Draft, LevadaError], None],
    ) -> None:
        self._channel = channel
        self._placed = placed
        self._failed = failed
        self._lines: dict[str, deque[tuple[Draft, int]]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def add(self, draft: Draft, count: int) -> None:
        """Ask for so many places: one for each record, or one for all."""
        topic = draft.topic
        self._lines.setdefault(topic, deque()).append((draft, count))
        if topic not in self._tasks:
            self._tasks[topic] = start(
                self._run(topic), name="levada-spreader", died=lambda error: self._died(topic, error)
            )

    async def close(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        try:
            await end(*tasks)
        finally:
            error = ConnectionLost("the producer was closed before the record was sent")
            for topic in self._lines:
                self._fail(topic, error)

    def _died(self, topic: str, error: LevadaError) -> None:
        """What comes next begins anew."""
        self._tasks.pop(topic, None)
        self._fail(topic, error)

    def _fail(self, topic: str, error: LevadaError) -> None:
        line = self._lines[topic]
        while line:
            self._failed(line.popleft()[0], error)

    async def _run(self, topic: str) -> None:
        """Until the line is empty. Answers are used in the order of the drafts, whichever comes first."""
        line = self._lines[topic]
        asked: deque[asyncio.Task[pb.SpreadResponse]] = deque()
        try:
            while line:
                for draft, count in list(line)[len(asked) : _ASKED_MAX]:
                    asked.append(asyncio.ensure_future(self._ask(draft, count)))
                draft, _ = line[0]
                try:
                    answer = await asked[0]
                except LevadaError as error:
                    self._failed(draft, error)
                else:
                    self._placed(draft, answer.first, answer.partitions)
                asked.popleft()
                line.popleft()
        finally:
            for each in asked:
                each.cancel()
        del self._tasks[topic]

    async def _ask(self, draft: Draft, count: int) -> pb.SpreadResponse:
        backoff = Backoff()
        while True:
            try:
                answer: pb.SpreadResponse = await self._channel.call(
                    f"{STREAM}/Spread", pb.SpreadRequest(topic=draft.topic, count=count), pb.SpreadResponse
                )
                return answer
            except LevadaError as error:
                if not is_passing(error):
                    raise
                if time.monotonic() >= draft.deadline:
                    raise TimedOut(f"topic {draft.topic}: not delivered in time; the last try: {error}") from error
                await asyncio.sleep(backoff.after(error))
