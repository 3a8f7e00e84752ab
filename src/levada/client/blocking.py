"""How code that does not await uses what is written once, for those that do.

The async classes are the implementation. A blocking face names their methods, and each becomes one that runs the coroutine on
the client's own event loop, in a thread of its own, and waits:

    class Producer(Face[AsyncProducer]):
        flush = blocking(AsyncProducer.flush)      # same arguments, same docstring; returns instead of being awaited

All blocking clients of a process share the thread. It is a daemon: a program ends without waiting for it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from levada.client import forks
from levada.errors import InvalidRequest

A = TypeVar("A")
T = TypeVar("T")
P = ParamSpec("P")


class LoopThread:
    """An event loop in a thread of its own, begun when it is first needed."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._forked = False
        forks.watch(self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                import uvloop

                self._loop = uvloop.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name="levada-client", daemon=True)
                self._thread.start()
            return self._loop

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this on the loop, and wait for it. Interrupted, it is cancelled there too."""
        if self._forked or threading.current_thread() is self._thread:
            work.close()
            if self._forked:
                raise InvalidRequest(forks.FORKED)
            raise InvalidRequest(
                "a blocking call was made on the client's own thread, in a callback of a delivery perhaps: it would wait for "
                "itself. Hand the work to a thread of your own"
            )
        loop = self.loop
        if self._thread is not None and not self._thread.is_alive():
            work.close()
            raise InvalidRequest("the thread of this process's clients has ended; start a new process")
        return _Errand(work, loop).outcome()

    def forked(self) -> None:
        self._forked = True


class _Raised(NamedTuple):
    """What a coroutine raised."""

    error: BaseException


class _Errand(Generic[T]):
    """A coroutine that runs on the loop while this thread waits.

    `run_coroutine_threadsafe` does the same through a Condition: whoever waits is woken while it is still held, sleeps again, and
    is 0.2 ms later.
    """

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._loop = loop
        self._task: asyncio.Task[T | _Raised] | None = None
        self._latch = threading.Lock()
        self._latch.acquire()
        loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(lambda _: self._latch.release())

    async def _run(self) -> T | _Raised:
        try:
            return await self._work
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # raised here, sys.exit of a handler would end the loop and its thread
            return _Raised(error)

    def outcome(self) -> T:
        try:
            self._latch.acquire()
        except BaseException:  # Ctrl-C
            self._loop.call_soon_threadsafe(self._cancel)
            raise
        assert self._task is not None
        outcome = self._task.result()
        if isinstance(outcome, _Raised):
            raise outcome.error
        return outcome

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


_shared: LoopThread | None = None
_shared_lock = threading.Lock()


def loop_thread() -> LoopThread:
    """The one of this process; a child that was forked gets its own."""
    global _shared
    with _shared_lock:
        if _shared is None or _shared._forked:
            _shared = LoopThread()
        return _shared


class Face(Generic[A]):
    """The blocking side of an object that lives on the loop."""

    def __init__(self, inner: A, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Face[A], P], T]:
    """The same method for those who wait."""

    @functools.wraps(method)
    def wait(face: Face[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return face._thread.run(method(face._inner, *args, **kwargs))

    speak_of(wait, method)
    return wait


def plain(method: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[Face[A], P], T]:
    """The same method, done on the loop's thread because what it touches lives there."""

    @functools.wraps(method)
    def wait(face: Face[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def there() -> T:
            return method(face._inner, *args, **kwargs)

        return face._thread.run(there())

    speak_of(wait, method)
    return wait


def speak_of(wait: Callable[..., Any], method: Callable[..., Any]) -> None:
    """Have help(…) say the same of `wait` as of `method`, for those who do not await."""
    wait.__name__, wait.__qualname__, wait.__module__ = method.__name__, method.__qualname__, method.__module__
    wait.__qualname__ = wait.__qualname__.removeprefix("Async")
    wait.__doc__ = without_await(method.__doc__)
    signature = inspect.signature(method)
    returns = signature.return_annotation
    if isinstance(returns, str):
        signature = signature.replace(return_annotation=returns.removeprefix("Async"))
    wait.__signature__ = signature  # type: ignore[attr-defined]


def without_await(doc: str | None) -> str | None:
    """An example for those who await, for those who do not.

    >>> without_await('await client.manager.topics()')
    'client.manager.topics()'
    >>> without_await('positions = await (await producer.publish_many("orders", values))')
    'positions = producer.publish_many("orders", values).result()'
    """
    if doc is None:
        return None
    doc = re.sub(r"await \(await (.*)\)$", r"\1.result()", doc, flags=re.MULTILINE)
    return re.sub(r"\b(await|async) (?=\w+[.(]|with |for )", "", doc)
