from __future__ import annotations

import asyncio
import os
import random
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest
import uvloop

from levada.errors import MalformedFrame
from levada.fronts.kafka import connection as connection_module
from levada.fronts.kafka import notice
from levada.fronts.kafka.budget import Budget
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.connection import Connection
from levada.fronts.kafka.inbox import SCRATCH_BYTES, Buffers
from levada.fronts.kafka.reply import HangUp, Later, Running, framed, step
from levada.log.disk import _Handle
from levada.log.stretch import Stretch

pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy. fixture")

KiB = 1024
MiB = 1024 * KiB


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def call_of(correlation_id: int) -> Call:
    """A Heartbeat v0: its answer has a plain header."""
    return Call(None, 12, 0, correlation_id, "tester", "127.0.0.1")  # type: ignore[arg-type]


class Exclusive(Later):
    __slots__ = ()
    exclusive = True


class FakeListener:
    """What connections share, with a handler that a test gives."""

    def __init__(self, serve: Callable[[memoryview], Any], *, limit_bytes: int = 256 * MiB) -> None:
        self.dispatcher = SimpleNamespace(serve=lambda frame, node, host, peer: serve(frame))
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.buffers = Buffers()
        self.frame_bytes_max = 16 * MiB
        self.budget = Budget(limit_bytes)
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.pressed = False

    def press_soon(self) -> None:
        self.pressed = True

    def node_at(self, local: object) -> Any:
        return None

    def admit(self, connection: Connection) -> None:
        self.connections.add(connection)

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until it is so."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *bodies: bytes) -> None:
        self.writer.write(b"".join(map(frame, bodies)))

    async def receive(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def nothing_comes(self, wait_s: float = 0.05) -> bool:
        try:
            async with asyncio.timeout(wait_s):
                await self.reader.readexactly(1)
        except TimeoutError:
            return True
        return False

    async def is_closed(self) -> bool:
        async with asyncio.timeout(30):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True


@asynccontextmanager
async def connected(listener: FakeListener) -> AsyncIterator[Client]:
    others = set(listener.connections)
    server = await listener.loop.create_server(lambda: Connection(listener), "127.0.0.1", 0)  # type: ignore[arg-type]
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    await until(lambda: listener.connections - others)
    own = listener.connections - others
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        server.close()
        for connection in own:
            connection.abort()
        await until(lambda: not own & listener.connections)


@pytest.fixture(params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy], ids=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """Both loops: transports differ in what they call when."""
    return request.param()  # type: ignore[no-any-return]


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(client, cause) of every connection that was closed for what it sent."""
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(notice, "closed", lambda client, cause: seen.append((client, str(cause))))
    return seen


async def test_every_frame_is_answered_in_order() -> None:
    async with connected(FakeListener(lambda body: frame(bytes(body).upper()))) as client:
        client.send(b"one", b"two", b"three")
        assert [await client.receive() for _ in range(3)] == [b"ONE", b"TWO", b"THREE"]


async def test_frames_larger_than_the_scratch_buffer_arrive_whole() -> None:
    async with connected(FakeListener(lambda body: frame(struct.pack(">i", len(body)) + bytes(body[-3:])))) as client:
        client.send(b"x" * (3 * MiB) + b"end", b"small", b"y" * (200 * KiB) + b"fin")
        assert await client.receive() == struct.pack(">i", 3 * MiB + 3) + b"end"
        assert await client.receive() == struct.pack(">i", 5) + b"all"
        assert await client.receive() == struct.pack(">i", 200 * KiB + 3) + b"fin"


async def test_an_answer_that_comes_later_holds_back_those_behind_it() -> None:
    first = Later(call_of(1))
    begun: list[bytes] = []

    def serve(body: memoryview) -> Any:
        begun.append(bytes(body))
        return first if bytes(body) == b"first" else frame(bytes(body))

    async with connected(FakeListener(serve)) as client:
        client.send(b"first", b"second", b"third")
        assert await client.nothing_comes()
        assert begun == [b"first", b"second", b"third"]
        first.answer(b"late")
        assert [await client.receive() for _ in range(3)] == [b"\0\0\0\x01late", b"second", b"third"]


async def test_a_request_that_wants_no_answer_gets_none() -> None:
    async with connected(FakeListener(lambda body: None if bytes(body) == b"quiet" else frame(b"ok"))) as client:
        client.send(b"quiet", b"loud")
        assert await client.receive() == b"ok"
        assert await client.nothing_comes()


async def test_nothing_is_begun_behind_an_exclusive_request_until_it_is_answered() -> None:
    first = Exclusive(call_of(7))
    begun: list[bytes] = []

    def serve(body: memoryview) -> Any:
        begun.append(bytes(body))
        return first if len(begun) == 1 else frame(bytes(body))

    async with connected(FakeListener(serve)) as client:
        client.send(b"first", b"second")
        await asyncio.sleep(0.02)
        client.send(b"third", b"f" * (300 * KiB))
        assert await client.nothing_comes()
        assert begun == [b"first"]
        first.answer(b"")
        assert await client.receive() == b"\0\0\0\x07"
        assert [await client.receive() for _ in range(3)] == [b"second", b"third", b"f" * (300 * KiB)]


async def test_bytes_that_are_no_frame_close_the_connection_with_one_notice(notices: list[tuple[str, str]]) -> None:
    listener = FakeListener(lambda body: frame(b"ok"))
    async with connected(listener) as client:
        client.send(b"fine")
        client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await client.receive() == b"ok"
        assert await client.is_closed()
    [(who, cause)] = notices
    assert who.startswith("127.0.0.1:")
    assert "socket.request.max.bytes" in cause


async def test_a_malformed_request_closes_only_its_own_connection(notices: list[tuple[str, str]]) -> None:
    def serve(body: memoryview) -> bytes:
        if bytes(body) == b"bad":
            raise MalformedFrame("cannot be read")
        return frame(b"ok")

    listener = FakeListener(serve)
    async with connected(listener) as good, connected(listener) as bad:
        bad.send(b"bad")
        assert await bad.is_closed()
        good.send(b"hello")
        assert await good.receive() == b"ok"
    assert [cause for _, cause in notices] == ["cannot be read"]


async def test_a_later_answer_may_turn_out_to_be_the_end_of_the_connection(notices: list[tuple[str, str]]) -> None:
    first = Later(call_of(1))
    async with connected(FakeListener(lambda body: first)) as client:
        client.send(b"first")
        await asyncio.sleep(0.02)
        first.hang_up(HangUp("a bug"))
        assert await client.is_closed()
    assert [cause for _, cause in notices] == ["a bug"]


async def test_what_waits_is_dropped_when_the_connection_goes() -> None:
    dropped = asyncio.Event()

    class Watched(Later):
        def drop(self) -> None:
            super().drop()
            dropped.set()

    waiting = Watched(call_of(1))
    async with connected(FakeListener(lambda body: waiting)) as client:
        client.send(b"first")
        await asyncio.sleep(0.02)
        client.writer.close()
        await asyncio.wait_for(dropped.wait(), 30)
    waiting.answer(b"to nobody")


async def test_a_client_that_does_not_read_is_not_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = 0
    body = b"x" * MiB

    def serve(_: memoryview) -> list[bytes]:
        nonlocal begun
        begun += 1
        return [struct.pack(">i", len(body)), body]

    listener = FakeListener(serve)
    async with connected(listener) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(200):
            client.send(b"more")
        await asyncio.sleep(0.2)
        settled = begun
        # What the kernel's socket buffers took, and one answer that is ours to keep.
        assert settled < 30
        assert 0 < listener.budget.unsent_bytes <= 3 * MiB
        await asyncio.sleep(0.05)
        assert begun == settled
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(200):
            assert await client.receive() == body
        assert begun == 200
        assert listener.budget.unsent_bytes == 0


async def test_finished_answers_behind_a_waiting_one_are_bounded() -> None:
    first = Later(call_of(1))
    begun = 0

    def serve(_: memoryview) -> Any:
        nonlocal begun
        begun += 1
        return first if begun == 1 else [struct.pack(">i", MiB), b"x" * MiB]

    async with connected(FakeListener(serve)) as client:
        client.send(*[b"go"] * 50)
        assert await client.nothing_comes()
        assert begun <= 4
        first.answer(b"")
        for _ in range(50):
            await client.receive()
        assert begun == 50


async def test_requests_in_flight_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "IN_FLIGHT_MAX", 5)
    flying: list[Later] = []

    def serve(_: memoryview) -> Later:
        flying.append(Later(call_of(len(flying))))
        return flying[-1]

    async with connected(FakeListener(serve)) as client:
        client.send(*[b"go"] * 12)
        assert await client.nothing_comes()
        assert len(flying) == 5
        for number in range(12):
            await until(lambda: len(flying) > number)  # noqa: B023
            flying[number].answer(b"")
            assert await client.receive() == struct.pack(">i", number)


async def test_a_frame_waits_while_the_broker_holds_too_many_bytes() -> None:
    listener = FakeListener(lambda body: frame(struct.pack(">i", len(body))), limit_bytes=MiB)
    async with connected(listener) as greedy, connected(listener) as patient:
        greedy.writer.write(struct.pack(">i", 2 * MiB) + b"x" * MiB)
        await asyncio.sleep(0.05)
        patient.writer.write(frame(b"y" * MiB))
        assert await patient.nothing_comes()
        assert listener.pressed
        # Small requests still go: they hold nothing.
        async with connected(listener) as small:
            small.send(b"hi")
            assert await small.receive() == struct.pack(">i", 2)
        greedy.writer.write(b"x" * MiB)
        assert await greedy.receive() == struct.pack(">i", 2 * MiB)
        assert await patient.receive() == struct.pack(">i", MiB)
    assert listener.budget.taken_bytes == 0


async def test_whoever_goes_while_waiting_for_memory_is_forgotten() -> None:
    listener = FakeListener(lambda body: frame(b"ok"), limit_bytes=MiB)
    async with connected(listener) as greedy:
        greedy.writer.write(struct.pack(">i", 2 * MiB) + b"x" * MiB)
        await asyncio.sleep(0.05)
        async with connected(listener) as patient:
            patient.writer.write(frame(b"y" * MiB)[: 300 * KiB])
            await asyncio.sleep(0.05)
            assert listener.budget.is_scarce
        assert not listener.budget.is_scarce
        greedy.writer.write(b"x" * MiB)
        assert await greedy.receive() == b"ok"
    assert listener.budget.taken_bytes == 0


async def test_a_promise_takes_nothing_from_others() -> None:
    listener = FakeListener(lambda body: frame(struct.pack(">i", len(body))), limit_bytes=4 * MiB)
    async with connected(listener) as one, connected(listener) as two, connected(listener) as client:
        for liar in (one, two):
            liar.writer.write(struct.pack(">i", 16 * MiB) + b"abcd")
        await asyncio.sleep(0.05)
        assert 0 < listener.budget.taken_bytes <= MiB
        client.send(b"x" * MiB)
        assert await client.receive() == struct.pack(">i", MiB)
    assert listener.budget.taken_bytes == 0


async def test_frames_that_fill_the_memory_together_are_all_received() -> None:
    listener = FakeListener(lambda body: frame(struct.pack(">i", len(body))), limit_bytes=MiB)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(listener)) for _ in range(6)]
        for client in clients:
            client.writer.write(struct.pack(">i", 3 * MiB) + b"x" * MiB)
        await asyncio.sleep(0.05)
        assert listener.budget.taken_bytes <= 5 * MiB
        for client in clients:
            client.writer.write(b"x" * (2 * MiB))
        for client in clients:
            assert await client.receive() == struct.pack(">i", 3 * MiB)
    assert listener.budget.taken_bytes == 0


async def test_while_memory_is_scarce_whoever_does_not_get_on_is_closed(notices: list[tuple[str, str]]) -> None:
    listener = FakeListener(lambda body: frame(b"ok"), limit_bytes=MiB)
    async with connected(listener) as idle:
        [connection] = listener.connections
        idle.writer.write(struct.pack(">i", 8 * MiB) + b"x" * MiB)
        await asyncio.sleep(0.05)
        connection.press(64 * KiB)
        async with connected(listener) as patient:
            patient.writer.write(frame(b"y" * MiB))
            await asyncio.sleep(0.05)
            idle.writer.write(b"x" * MiB)
            await asyncio.sleep(0.05)
            connection.press(64 * KiB)
            assert not notices
            idle.writer.write(b"x" * (100 * KiB))
            await asyncio.sleep(0.05)
            for each in tuple(listener.connections):
                each.press(64 * KiB)
            [(_, cause)] = notices
            assert "too slowly" in cause
            assert await idle.is_closed()
            assert await patient.receive() == b"ok"
    assert listener.budget.taken_bytes == 0


async def test_an_idle_connection_is_closed_by_the_sweep() -> None:
    listener = FakeListener(lambda body: frame(b"ok"))
    async with connected(listener) as client:
        client.send(b"hi")
        assert await client.receive() == b"ok"
        [connection] = listener.connections
        for _ in range(3):
            connection.sweep(2)
        assert await client.is_closed()


async def test_a_connection_that_waits_for_an_answer_is_not_idle() -> None:
    waiting = Later(call_of(1))
    listener = FakeListener(lambda body: waiting)
    async with connected(listener) as client:
        client.send(b"hi")
        await asyncio.sleep(0.02)
        [connection] = listener.connections
        for _ in range(5):
            connection.sweep(2)
        waiting.answer(b"")
        assert await client.receive() == b"\0\0\0\x01"


async def test_finishing_answers_what_is_in_flight_and_begins_nothing_new() -> None:
    class Hurried(Later):
        def hurry(self) -> None:
            self.answer(b"at once")

    waiting = Hurried(call_of(1))
    begun: list[bytes] = []

    def serve(body: memoryview) -> Any:
        begun.append(bytes(body))
        return waiting

    listener = FakeListener(serve)
    async with connected(listener) as client:
        client.send(b"first")
        await asyncio.sleep(0.02)
        [connection] = listener.connections
        connection.finish()
        client.send(b"second")
        assert await client.receive() == b"\0\0\0\x01at once"
        assert await client.is_closed()
    assert begun == [b"first"]


async def test_a_handler_that_never_waits_makes_no_task() -> None:
    async def handler() -> bytes:
        return b"done"

    tasks: set[asyncio.Task[Any]] = set()
    assert step(handler(), tasks) == b"done"
    assert not tasks


async def test_a_handler_that_waits_goes_on_in_a_task() -> None:
    event = asyncio.Event()

    async def handler() -> bytes:
        await event.wait()
        await asyncio.sleep(0)
        return b"done"

    tasks: set[asyncio.Task[Any]] = set()
    task = step(handler(), tasks)
    assert isinstance(task, asyncio.Task)
    running = Running(call_of(3), task)
    event.set()
    assert await task == b"done"
    await asyncio.sleep(0)
    assert running.frame == framed(call_of(3), b"done")
    assert not tasks


async def test_a_waiting_handler_gets_the_errors_of_what_it_waits_for() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def handler() -> bytes:
        try:
            await future
        except ValueError as error:
            return str(error).encode()
        return b""

    task = step(handler(), set())
    assert isinstance(task, asyncio.Task)
    future.set_exception(ValueError("no"))
    assert await task == b"no"


def stretch_of(file: BinaryIO, position: int, size: int) -> Stretch:
    return Stretch(_Handle(os.dup(file.fileno())), position, size, 0)


async def test_records_are_sent_from_their_file(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(3 * MiB)
    (tmp_path / "segment").write_bytes(data)
    with (tmp_path / "segment").open("rb") as file:

        def serve(body: memoryview) -> list[Any]:
            start = int(bytes(body))
            stretch = stretch_of(file, start, 2 * MiB)
            return [struct.pack(">i", 2 * MiB + 9), b"head", stretch, b"tail!"]

        async with connected(FakeListener(serve)) as client:
            client.send(b"0", b"1000000", b"7")
            for start in (0, 1_000_000, 7):
                assert await client.receive() == b"head" + data[start : start + 2 * MiB] + b"tail!"


async def test_a_client_that_does_not_read_files_costs_no_memory(tmp_path: Path) -> None:
    data = random.Random(2).randbytes(8 * MiB)
    (tmp_path / "segment").write_bytes(data)
    begun = 0
    with (tmp_path / "segment").open("rb") as file:

        def serve(body: memoryview) -> list[Any]:
            nonlocal begun
            begun += 1
            return [struct.pack(">i", len(data) + 3), stretch_of(file, 0, len(data)), b"end"]

        listener = FakeListener(serve)
        async with connected(listener) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send(*[b"more"] * 20)
            await asyncio.sleep(0.1)
            assert begun <= 3
            assert listener.budget.unsent_bytes < KiB
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            for _ in range(20):
                assert await client.receive() == data + b"end"


async def test_small_answers_and_files_keep_their_order(tmp_path: Path) -> None:
    data = random.Random(3).randbytes(MiB)
    (tmp_path / "segment").write_bytes(data)
    with (tmp_path / "segment").open("rb") as file:

        def serve(body: memoryview) -> Any:
            if bytes(body) == b"file":
                return [struct.pack(">i", MiB), stretch_of(file, 0, MiB)]
            return frame(bytes(body))

        async with connected(FakeListener(serve)) as client:
            wanted = [b"a", b"file", b"b", b"c", b"file", b"file", b"d"] * 5
            client.send(*wanted)
            for each in wanted:
                assert await client.receive() == (data if each == b"file" else each)


async def test_a_file_that_became_shorter_ends_the_connection(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(b"x" * 100)
    with (tmp_path / "segment").open("rb") as file:
        serve = lambda body: [struct.pack(">i", 200), stretch_of(file, 0, 200)]  # noqa: E731
        async with connected(FakeListener(serve)) as client:
            client.send(b"go")
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await client.receive()
