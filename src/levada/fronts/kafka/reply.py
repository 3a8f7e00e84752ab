"""Answers: how one is framed, and one that is not there yet.

A handler gives the body: bytes, or a list of buffers where records are sent from where they lie. `framed` puts the size
and the response header before it. A handler that cannot answer at once gives a `Later`, which keeps the request's place
in its connection's line: answers leave in the order of the requests.
"""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from struct import Struct
from typing import Any, ClassVar, Final

from levada.fronts.kafka.call import Call
from levada.log.stretch import Stretch
from levada.wire.apis import APIS

Buffer = bytes | bytearray | memoryview
#: What a handler gives: the answer without its header.
Body = bytes | Sequence[Buffer | Stretch]
#: What goes out: size, header and body.
Frame = bytes | list[Buffer | Stretch]


_PLAIN: Final = Struct(">ii")
_TAGGED: Final = Struct(">iib")
_NEVER: Final = 1 << 15
#: Call → the first version whose answer has a header with (no) tagged fields.
_TAGGED_FROM: Final = {
    api.key: next((v for v in range(api.max_version + 1) if api.response_header(v)), _NEVER) for api in APIS.values()
}


def framed(call: Call, body: Body) -> Frame:
    """The answer as it goes out."""
    joined = type(body) is bytes
    size = len(body) if joined else sum(map(len, body))  # type: ignore[arg-type]  # a sequence of buffers
    if call.version >= _TAGGED_FROM[call.api_key]:
        head = _TAGGED.pack(size + 5, call.correlation_id, 0)
    else:
        head = _PLAIN.pack(size + 4, call.correlation_id)
    return head + body if joined else [head, *body]  # type: ignore[operator]


class HangUp(Exception):
    """The request cannot be answered: its connection is to be closed, for this reason."""


class Later:
    """An answer that comes later. `frame` is None until it is there, and empty where there is nothing to send."""

    __slots__ = ("call", "frame", "notify", "reason")

    #: No other request of the connection is begun before this one is answered, as Kafka has it for every request.
    exclusive: ClassVar[bool] = False

    def __init__(self, call: Call) -> None:
        self.call = call
        self.frame: Frame | None = None
        #: Why the connection is to be closed instead.
        self.reason: HangUp | None = None
        #: Who is told that the answer is there.
        self.notify: Callable[[Later], None] | None = None

    def answer(self, body: Body | None) -> None:
        """Give the answer; None where the client expects none."""
        self.frame = b"" if body is None else framed(self.call, body)
        if self.notify is not None:
            self.notify(self)

    def hang_up(self, reason: HangUp) -> None:
        """Have the connection closed instead of an answer."""
        self.reason = reason
        self.answer(None)

    def hurry(self) -> None:
        """The broker is closing: answer as soon as possible."""

    def drop(self) -> None:
        """The connection is gone: nobody waits for this any more."""
        self.notify = None


class Running(Later):
    """The answer of a handler that is waiting for something. It runs to its end even when the connection goes."""

    __slots__ = ("task",)

    exclusive = True

    def __init__(self, call: Call, task: asyncio.Task[Body | None]) -> None:
        super().__init__(call)
        self.task = task
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[Body | None]) -> None:
        try:
            body = task.result()
        except asyncio.CancelledError:
            self.hang_up(HangUp("the broker is closing"))
        except HangUp as reason:
            self.hang_up(reason)
        else:
            self.answer(body)


def step(
    handler: Coroutine[Any, Any, Body | None], tasks: set[asyncio.Task[Body | None]]
) -> Body | asyncio.Task[Body | None] | None:
    """Run a handler up to where it first waits: most never do, and a task costs more than they.

    Gives its result or, where it waits, the task that goes on with it. Before Python 3.12 the handler is not yet in a
    task until it waits, so it cannot begin with `asyncio.timeout()`.
    """
    if sys.version_info >= (3, 12):
        task = asyncio.Task(handler, loop=asyncio.get_running_loop(), eager_start=True)
        if task.done():
            return task.result()
    else:
        try:
            waits_for = handler.send(None)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        task = asyncio.get_running_loop().create_task(_go_on(handler, waits_for))
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


async def _go_on(handler: Coroutine[Any, Any, Body | None], waits_for: Any) -> Body | None:
    return await _rest(handler, waits_for)


@types.coroutine
def _rest(handler: Coroutine[Any, Any, Body | None], waits_for: Any) -> Generator[Any, Any, Body | None]:
    """What is left of a coroutine that was stepped once, as something a task can await."""
    while True:
        try:
            value = yield waits_for
        except BaseException as error:
            resume: Callable[[Any], Any] = handler.throw
            value = error
        else:
            resume = handler.send
        try:
            waits_for = resume(value)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
