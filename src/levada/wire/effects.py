"""Calls as generators: what a call wants done is yielded, a driver does it, and the outcome is sent or thrown back.

So each call is written once. `client` drives it with asyncio, `blocking` with plain sockets, a test with a list.

    Post(send)     begin a request; the outcome is a ticket, at once: requests to one node leave in the order posted
    Wait(ticket)   the answer to it, decoded
    Pause(ms)      nothing, for a while
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from functools import update_wrapper
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from levada.errors import LevadaError
from levada.wire.primitives import Buffer

T = TypeVar("T")
P = ParamSpec("P")


class Send(NamedTuple):
    """A request to one node, in whatever version both sides turn out to speak."""

    node: int
    api_key: int
    #: version → the body, in parts
    encode: Callable[[int], Sequence[Buffer]]
    #: version, body → the answer
    decode: Callable[[int, memoryview], Any]
    timeout_ms: int
    min_version: int | None = None
    max_version: int | None = None
    #: False for Produce with acks = 0, which gets no answer: the outcome is None once the bytes are handed over.
    answered: bool = True


class Post(NamedTuple):
    send: Send


class Wait(NamedTuple):
    ticket: Any


class Pause(NamedTuple):
    ms: float


Effect: TypeAlias = Post | Wait | Pause
Steps: TypeAlias = Generator[Effect, Any, T]


def ask(send: Send) -> Steps[Any]:
    """One request and its answer."""
    ticket = yield Post(send)
    return (yield Wait(ticket))


def ask_all(sends: Iterable[Send]) -> Steps[list[Any]]:
    """Many requests at once. What went wrong with one is in its place in the list."""
    outcomes: list[Any] = []
    for send in sends:
        try:
            outcomes.append((yield Post(send)))
        except LevadaError as error:
            outcomes.append(error)
    return (yield from wait_all(outcomes))


def wait_all(tickets: Iterable[Any]) -> Steps[list[Any]]:
    """The answers to requests under way, or what went wrong with them; a request that never left is its error already."""
    outcomes = list(tickets)
    for index, ticket in enumerate(outcomes):
        if not isinstance(ticket, LevadaError):
            try:
                outcomes[index] = yield Wait(ticket)
            except LevadaError as error:
                outcomes[index] = error
    return outcomes


class AsyncRunner(Protocol):
    """Whoever runs calls with asyncio: its calls are awaited."""

    def run_async(self, steps: Steps[T]) -> Coroutine[Any, Any, T]: ...


class BlockingRunner(Protocol):
    """Whoever runs calls with plain sockets: its calls return when done."""

    def run_blocking(self, steps: Steps[T]) -> T: ...


class call(Generic[P, T]):  # noqa: N801  # it is used as a decorator
    """A method written as steps. On an async client it is awaited, on a blocking one it simply returns."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self.steps = steps
        update_wrapper(self, steps)  # type: ignore[arg-type]  # for help() and the documentation

    @overload
    def __get__(self, runner: None, owner: type) -> call[P, T]: ...
    @overload
    def __get__(self, runner: BlockingRunner, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, runner: AsyncRunner, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, runner: Any, owner: type) -> Any:
        if runner is None:
            return self
        run = runner.run_async if hasattr(runner, "run_async") else runner.run_blocking
        return lambda *args, **kwargs: run(self.steps(runner, *args, **kwargs))
