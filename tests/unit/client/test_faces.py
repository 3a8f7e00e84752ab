"""What a user of the client sees: both faces alike, documented, with examples that work, and cheap to import."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from typing import Any

import grpc
import pytest

import levada
import levada.client
from levada import errors
from levada.client import aio, faces, refusals
from levada.client.channel import Backoff
from levada.errors import InvalidRequest, OffsetOutOfRange, Overloaded, RecordTooLarge, Unreachable

PAIRS = [
    (aio.Client, faces.Client),
    (aio.Producer, faces.Producer),
    (aio.Consumer, faces.Consumer),
    (aio.Manager, faces.Manager),
]
#: What only the machinery uses.
INNER = {"offer", "handover", "advance", "until_possible", "poll_now", "take_chunk", "until_arrived", "forked"}


@pytest.mark.parametrize(("written", "face"), PAIRS)
def test_the_blocking_face_has_every_method_with_the_same_arguments(written: type[Any], face: type[Any]) -> None:
    for name, method in inspect.getmembers(written, callable):
        if name.startswith("_") or name in INNER or (written is aio.Client and name == "ready"):
            continue
        ours = getattr(face, name)
        assert list(inspect.signature(ours).parameters)[1:] == list(inspect.signature(method).parameters)[1:], name
        assert not inspect.iscoroutinefunction(ours), name
        assert ours.__doc__, f"{face.__name__}.{name} has no docstring"


def test_importing_levada_loads_neither_grpc_nor_the_client() -> None:
    code = "import sys, levada; print([name for name in ('grpc', 'levada.client', 'asyncio') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_name_is_there() -> None:
    for name in levada.__all__:
        assert getattr(levada, name) is not None
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = levada.nothing_of_the_kind


@pytest.mark.parametrize("name", [each.name for each in pkgutil.iter_modules(levada.client.__path__)])
def test_examples_in_docstrings_are_right(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"levada.client.{name}")).failed == 0


# Errors


def test_an_error_is_rebuilt_with_what_there_is_to_know() -> None:
    error = refusals.rebuild("OffsetOutOfRange", "too low", {"start": "5", "end": "9", "unheard": "of"})
    assert isinstance(error, OffsetOutOfRange) and (str(error), error.start, error.end) == ("too low", 5, 9)
    overloaded = refusals.rebuild("Overloaded", "", {"retry_after_ms": "250"})
    assert isinstance(overloaded, Overloaded) and overloaded.retry_after_ms == 250
    assert str(refusals.rebuild("FromTheFuture", "news", {})) == "FromTheFuture: news"


#: Those a broker can answer with; other rooms have some of their own, which never travel.
ANSWERS = [kind for kind in errors.all_errors() if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", ANSWERS, ids=lambda kind: kind.__name__)
def test_every_error_can_be_rebuilt(kind: type[errors.LevadaError]) -> None:
    assert type(refusals.rebuild(kind.__name__, "said", {})) is kind


class Ended(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode, details: str = "connection refused") -> None:
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> tuple[()]:
        return ()


def test_what_grpc_says_by_itself_gets_a_meaning() -> None:
    gone = refusals.of_rpc(Ended(grpc.StatusCode.UNAVAILABLE), "host:1")
    assert isinstance(gone, Unreachable) and "host:1" in str(gone) and "levada up" in str(gone)
    for code in grpc.StatusCode:
        assert isinstance(refusals.of_rpc(Ended(code), "host:1"), errors.LevadaError)
    assert refusals.is_passing(refusals.of_rpc(Ended(grpc.StatusCode.INTERNAL), "host:1"))


def test_the_pause_grows_and_honours_the_brokers_hint() -> None:
    backoff = Backoff(first_ms=10, most_ms=40, jitter=0)
    assert [backoff.after(Unreachable()) for _ in range(4)] == [0.01, 0.02, 0.04, 0.04]
    assert backoff.after(Overloaded(retry_after_ms=700)) == 0.7
    backoff.reset()
    assert backoff.after(Unreachable()) == 0.01


def test_a_blocking_call_on_the_clients_own_thread_is_refused_instead_of_waiting_for_ever() -> None:
    from levada.client.blocking import LoopThread

    thread = LoopThread()

    async def inner() -> None:
        async def nothing() -> None: ...

        thread.run(nothing())

    with pytest.raises(InvalidRequest, match="wait for itself"):
        thread.run(inner())


@pytest.mark.parametrize("face", [face for _, face in PAIRS])
def test_the_blocking_face_speaks_of_nothing_that_is_awaited(face: type[Any]) -> None:
    for name, method in inspect.getmembers(face, callable):
        if not name.startswith("_"):
            said = f"{method.__doc__} {inspect.signature(method)} {method.__qualname__}"
            assert not re.search(r"\bawait\b|\basync\b|Async", said), f"{face.__name__}.{name}: {said}"


def test_too_large_a_message_is_not_taken_for_a_busy_broker() -> None:
    said = "CLIENT: Received message larger than max (73400504 vs. 67108864)"
    error = refusals.of_rpc(Ended(grpc.StatusCode.RESOURCE_EXHAUSTED, said), "localhost:9094")
    assert isinstance(error, RecordTooLarge)
    assert not refusals.is_passing(error)
