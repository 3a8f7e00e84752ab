from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from levada.errors import InvalidRequest, MalformedFrame
from levada.fronts.kafka import notice
from levada.fronts.kafka.apis import Handler
from levada.fronts.kafka.dispatch import Dispatcher
from levada.fronts.kafka.reply import HangUp, Later, Running, framed
from levada.wire.apis import APIS, ApiKey
from levada.wire.codec import read_response, write_request, write_request_header


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    monkeypatch.setattr(notice, "refused", lambda call, request, cause: seen.append(f"{request}: {cause}"))
    monkeypatch.setattr(notice, "failed", lambda call, request, error: seen.append(f"{request}: {error!r}"))
    return seen


def dispatcher(key: int, **functions: Any) -> Dispatcher:
    """One that knows a single call, answered by the functions given."""
    made = Dispatcher()
    handler = Handler(APIS[key])
    handler.loaded = True
    handler.serve = functions.get("serve")
    handler.handle = functions.get("handle")
    made.handlers = {key: handler}
    return made


def heartbeat(version: int = 4, body: bytes | None = None) -> memoryview:
    fields = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    given = write_request(ApiKey.HEARTBEAT, version, fields) if body is None else body
    return memoryview(write_request_header(ApiKey.HEARTBEAT, version, 9, "tester") + given)


def serve(made: Dispatcher, frame: memoryview) -> Any:
    return made.serve(frame, None, "127.0.0.1")  # type: ignore[arg-type]


async def test_a_handler_gets_the_message_and_its_fields_are_written() -> None:
    async def handle(request: Any, call: Any) -> dict[str, Any]:
        assert (request.group_id, call.client_id, call.correlation_id) == ("g", "tester", 9)
        return {"error_code": 27}

    frame = serve(dispatcher(ApiKey.HEARTBEAT, handle=handle), heartbeat())
    assert struct.unpack_from(">iib", frame) == (len(frame) - 4, 9, 0)
    assert read_response(ApiKey.HEARTBEAT, 4, frame[9:]).error_code == 27


async def test_a_handler_may_write_its_answer_itself_or_give_none() -> None:
    async def written(request: Any, call: Any) -> bytes:
        return b"written"

    async def none(request: Any, call: Any) -> None:
        return None

    assert serve(dispatcher(ApiKey.HEARTBEAT, handle=written), heartbeat()).endswith(b"written")
    assert serve(dispatcher(ApiKey.HEARTBEAT, handle=none), heartbeat()) is None


async def test_a_handler_that_waits_keeps_its_place() -> None:
    event = asyncio.Event()

    async def handle(request: Any, call: Any) -> dict[str, Any]:
        await event.wait()
        return {"error_code": 0}

    made = dispatcher(ApiKey.HEARTBEAT, handle=handle)
    later = serve(made, heartbeat())
    assert isinstance(later, Running) and later.frame is None
    event.set()
    await asyncio.wait(made.tasks)
    await asyncio.sleep(0)
    assert later.frame is not None and not made.tasks


async def test_a_refusal_is_answered_with_its_code_and_one_line(lines: list[str]) -> None:
    async def handle(request: Any, call: Any) -> dict[str, Any]:
        raise InvalidRequest("not like this")

    frame = serve(dispatcher(ApiKey.HEARTBEAT, handle=handle), heartbeat())
    assert read_response(ApiKey.HEARTBEAT, 4, frame[9:]).error_code == 42
    assert lines == ["Heartbeat: not like this"]


async def test_a_refusal_that_fits_nowhere_closes_the_connection(lines: list[str]) -> None:
    async def handle(request: Any, call: Any) -> dict[str, Any]:
        raise InvalidRequest("not like this")

    body = write_request(ApiKey.CREATE_TOPICS, 7, {"topics": []})
    frame = memoryview(write_request_header(ApiKey.CREATE_TOPICS, 7, 1, None) + body)
    with pytest.raises(HangUp, match="not like this"):
        serve(dispatcher(ApiKey.CREATE_TOPICS, handle=handle), frame)


@pytest.mark.parametrize("kind", ["handle", "serve"])
async def test_a_bug_of_ours_is_logged_and_closes_the_connection(lines: list[str], kind: str) -> None:
    async def handle(request: Any, call: Any) -> dict[str, Any]:
        raise ZeroDivisionError("ours")

    def plain(body: memoryview, call: Any) -> bytes:
        raise ZeroDivisionError("ours")

    functions = {"handle": handle} if kind == "handle" else {"serve": plain}
    with pytest.raises(HangUp, match="Heartbeat v4 failed"):
        serve(dispatcher(ApiKey.HEARTBEAT, **functions), heartbeat())
    assert lines == ["Heartbeat: ZeroDivisionError('ours')"]


async def test_a_bug_after_waiting_closes_the_connection_too(lines: list[str]) -> None:
    async def handle(request: Any, call: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        raise ZeroDivisionError("ours")

    made = dispatcher(ApiKey.HEARTBEAT, handle=handle)
    later = serve(made, heartbeat())
    await asyncio.wait(made.tasks)
    await asyncio.sleep(0)
    assert isinstance(later.reason, HangUp)


async def test_a_body_that_cannot_be_read_is_malformed() -> None:
    async def handle(request: Any, call: Any) -> dict[str, Any]:
        raise AssertionError("not reached")

    with pytest.raises(MalformedFrame):
        serve(dispatcher(ApiKey.HEARTBEAT, handle=handle), heartbeat(body=b"\x05ab"))


async def test_a_fast_handler_gets_the_body_where_it_lies() -> None:
    frame = heartbeat(body=b"the body")

    def plain(body: memoryview, call: Any) -> bytes:
        assert body.obj is frame.obj
        return bytes(body)

    answer = serve(dispatcher(ApiKey.HEARTBEAT, serve=plain), frame)
    assert answer.endswith(b"the body")


async def test_a_fast_handler_may_answer_later() -> None:
    made: list[Later] = []

    def plain(body: memoryview, call: Any) -> Later:
        made.append(Later(call))
        return made[-1]

    later = serve(dispatcher(ApiKey.HEARTBEAT, serve=plain), heartbeat())
    assert later is made[0]
    later.answer([b"in ", memoryview(b"parts")])
    assert b"".join(later.frame) == framed(later.call, b"in parts")
