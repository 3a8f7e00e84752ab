"""The line of one connection's requests: answers leave in the order in which the requests came."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from levada.fronts.kafka.reply import Frame, Later
from levada.log.stretch import Stretch

if TYPE_CHECKING:
    from levada.fronts.kafka.outbox import Outbox


class Line:
    """Requests in flight, and finished answers behind them."""

    __slots__ = ("_answers", "_outbox", "_ready", "held_by", "unsent_bytes")

    def __init__(self, outbox: Outbox, ready: Callable[[Later], None]) -> None:
        self._outbox = outbox
        self._ready = ready
        self._answers: deque[Frame | Later] = deque()
        #: The request that has to be answered before another is begun.
        self.held_by: Later | None = None
        #: Memory of answers that are finished and wait for those before them.
        self.unsent_bytes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def add(self, answer: Frame | Later) -> None:
        """The answer to the newest request, or its place until it comes."""
        if isinstance(answer, Later):
            answer.notify = self._finished
            if answer.exclusive:
                self.held_by = answer
            self._answers.append(answer)
        elif self._answers:
            self.unsent_bytes += memory_of(answer)
            self._answers.append(answer)
        else:
            self._outbox.put(answer)

    def _finished(self, later: Later) -> None:
        if later is self.held_by:
            self.held_by = None
        assert later.frame is not None
        self.unsent_bytes += memory_of(later.frame)
        self._ready(later)

    def flush(self) -> None:
        """Send what is finished at the head of the line."""
        answers = self._answers
        while answers:
            head = answers[0]
            frame = head.frame if isinstance(head, Later) else head
            if frame is None:
                break
            answers.popleft()
            self.unsent_bytes -= memory_of(frame)
            self._outbox.put(frame)
        self._outbox.flush()

    def hurry(self) -> None:
        """Have everything answered as soon as can be."""
        for answer in tuple(self._answers):
            if isinstance(answer, Later):
                answer.hurry()

    def drop(self) -> None:
        """Nobody waits for the answers any more."""
        for answer in self._answers:
            if isinstance(answer, Later):
                answer.drop()
        self._answers.clear()
        self.unsent_bytes = 0


def memory_of(frame: Frame) -> int:
    """Bytes of memory in an answer; a stretch of a file takes none."""
    if isinstance(frame, bytes):
        return len(frame)
    return sum(len(part) for part in frame if not isinstance(part, Stretch))
