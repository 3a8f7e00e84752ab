"""Sender: whatever happens to its conversation, each delivery is settled."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from levada.client.channel import Channel
from levada.client.draft import Draft
from levada.client.lanes import Lanes
from levada.client.parcel import parcels_of
from levada.client.sender import Sender
from levada.client.tasks import end, start
from levada.errors import ConnectionLost, LevadaError
from levada.v1 import stream_pb2 as pb


class Faulty:
    """Answers like a broker, until it does what it was told to do."""

    def __init__(self, *, write: Callable[[], Any] | None = None, read: Callable[[], Any] | None = None) -> None:
        self._write = write
        self._read = read
        self._written: asyncio.Queue[pb.PublishRequest] = asyncio.Queue()
        self.cancelled = asyncio.Event()

    async def write(self, request: pb.PublishRequest) -> None:
        self._written.put_nowait(request)
        if self._write is not None:
            await self._write()

    async def read(self) -> pb.PublishResponse | None:
        request = await self._written.get()
        if self._read is not None:
            return cast(pb.PublishResponse | None, await self._read())
        positions = [pb.Position(partition=each.partition, offset=0) for each in request.batches]
        return pb.PublishResponse(id=request.id, positions=positions)

    def cancel(self) -> None:
        self.cancelled.set()


def cancelled_by_another() -> asyncio.Future[Any]:
    """What it is to wait for something that is cancelled."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    return future


def fault() -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    future.set_exception(ZeroDivisionError("a fault of ours"))
    return future


def make_sender(*talks: Any) -> tuple[Sender, Callable[[], Draft]]:
    lanes = Lanes(
        acks=pb.ACKS_ALL,
        settled=lambda _: None,
        answered=lambda _: None,
        doubted=lambda _: None,
        grown=lambda *_: None,
    )
    following = iter(talks)
    channel = cast(Channel, SimpleNamespace(address="here:1"))
    sender = Sender(channel, lambda: next(following), lanes, identified=False, request_timeout_s=30)

    def publish() -> Draft:
        draft = Draft("t", 0, time.monotonic() + 60, threading.Lock(), lambda draft: None)
        draft.records = [(1, None, b"v", [])]
        sender.add(parcels_of(draft, 0))
        return draft

    return sender, publish


async def outcome(draft: Draft) -> None:
    async with asyncio.timeout(5):
        await draft.future()


@pytest.mark.parametrize("where", ["write", "read"])
async def test_what_is_cancelled_by_another_is_a_lost_connection(where: str) -> None:
    broken: dict[str, Any] = {where: cancelled_by_another}
    sender, publish = make_sender(Faulty(**broken), Faulty())
    draft = publish()
    await outcome(draft)
    assert draft.error is None
    await sender.close()


@pytest.mark.parametrize("broken", [{"write": fault}, {"read": fault}], ids=["write", "read"])
async def test_a_sender_that_fails_says_so_and_begins_anew(broken: dict[str, Any]) -> None:
    sender, publish = make_sender(Faulty(**broken), Faulty())
    first = publish()
    await outcome(first)
    assert isinstance(first.error, ConnectionLost)
    assert "levada-sender failed: ZeroDivisionError" in str(first.error)
    assert "may be stored or not" in str(first.error)
    second = publish()
    await outcome(second)
    assert second.error is None
    await sender.close()


async def test_who_waits_to_write_is_told_when_nobody_reads_any_more() -> None:
    class Stuck(Faulty):
        async def write(self, request: pb.PublishRequest) -> None:
            await super().write(request)
            await self.cancelled.wait()
            raise ConnectionLost("the conversation was ended")

    async def wrong_answer() -> pb.PublishResponse:
        return pb.PublishResponse(id=77)

    sender, publish = make_sender(Stuck(read=wrong_answer), Faulty())
    draft = publish()
    await outcome(draft)
    assert draft.error is None
    await sender.close()


async def test_what_others_cancel_has_died() -> None:
    told: list[LevadaError] = []
    task = start(asyncio.sleep(60), name="idle", died=told.append)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert [str(error) for error in told] == ["idle failed: CancelledError('it was cancelled')"]


async def test_what_is_told_to_end_has_not_died() -> None:
    told: list[LevadaError] = []
    task = start(asyncio.sleep(60), name="idle", died=told.append)
    await asyncio.sleep(0)
    await end(task)
    task = start(asyncio.sleep(0), name="done", died=told.append)
    await task
    await asyncio.sleep(0)
    assert told == []
