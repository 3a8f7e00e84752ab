"""Whatever is sent, the broker stays up, nobody else is disturbed, and memory stays bounded."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
import uvloop

from levada.engine.port import TopicSpec
from levada.fronts.kafka import notice
from levada.fronts.kafka.apis import offered
from levada.server import Server
from levada.wire.codec import write_request, write_request_header
from support.batches import make_batch
from support.broker import running
from support.kio_messages import random_message
from support.raw_client import RawClient, connected

MiB = 1 << 20
#: Answers to these may take as long as the request says.
ANSWER_WITHIN_S = 0.2
CALLS = sorted((key, version) for key, each in offered().items() for version in range(each.advertised_from, each.api.max_version + 1))  # fmt: skip
ROUNDS = 3


pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy. fixture")


@pytest.fixture
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    """As the broker runs."""
    return uvloop.EventLoopPolicy()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    settings = {"group.min.session.timeout.ms": "1", "socket.request.max.bytes": str(4 * MiB)}
    async with running(tmp_path / "data", settings, grace_s=0.5) as broker:
        await broker.engine.create(TopicSpec(name="t", partitions=2))
        broker.engine.partition("t", 0).append(make_batch(10))
        yield broker


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The causes of closed connections, instead of a page of log lines. A bug of ours is an error."""
    causes: list[str] = []
    monkeypatch.setattr(notice, "refused", lambda call, request, cause: None)
    monkeypatch.setattr(notice, "closed", lambda client, cause: causes.append(str(cause)))

    def failed(call: object, request: str, error: BaseException) -> None:
        causes.append(f"BUG in {request}: {error!r}")

    monkeypatch.setattr(notice, "failed", failed)
    return causes


def bugs(causes: list[str]) -> set[str]:
    return {cause for cause in causes if cause.startswith("BUG")}


def legal(body: bytes, rng: random.Random) -> bytes:
    return body


def truncated(body: bytes, rng: random.Random) -> bytes:
    return body[: rng.randrange(len(body) + 1)]


def longer(body: bytes, rng: random.Random) -> bytes:
    return body + rng.randbytes(rng.randrange(1, 100))


def flipped(body: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(body or b"\0")
    for _ in range(rng.choice((1, 2, 5))):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def huge_lengths(body: bytes, rng: random.Random) -> bytes:
    """Counts and sizes that promise gigabytes."""
    at = rng.randrange(len(body) + 1)
    return body[:at] + rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x7f\xff")) + body[at:]


def noise(body: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(300))


async def send_and_see(server: Server, frame: bytes) -> None:
    """Send one frame; it is answered, or the connection is closed, or the broker waits as the request may have asked."""
    async with connected(server) as client:
        client.send_frame(frame)
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await client.receive()
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionResetError):
            pass


async def check_alive(bystander: RawClient) -> None:
    answer = await bystander.call(18, 0)
    assert answer.error_code == 0


@pytest.mark.parametrize("damage", [legal, truncated, longer, flipped, huge_lengths, noise])
async def test_no_body_of_any_call_and_version_does_harm(
    server: Server, damage: Callable[[bytes, random.Random], bytes], quiet: list[str]
) -> None:
    rng = random.Random(damage.__name__)
    process = psutil.Process()
    before = process.memory_info().rss
    async with connected(server) as bystander:
        for key, version in CALLS:
            if version < offered()[key].api.min_version:
                continue
            frames = []
            for _ in range(ROUNDS):
                body = write_request(key, version, random_message(key, version, "request", rng))
                frames.append(write_request_header(key, version, 1, "fuzz") + damage(body, rng))
            await asyncio.gather(*(send_and_see(server, frame) for frame in frames))
            await check_alive(bystander)
    assert bugs(quiet) == set()
    assert process.memory_info().rss - before < 200 * MiB


async def test_no_header_does_harm(server: Server, quiet: list[str]) -> None:
    rng = random.Random(1)
    async with connected(server) as bystander:
        for _ in range(200):
            key, version = rng.choice((*CALLS, (rng.randrange(-(2**15), 2**15), rng.randrange(-(2**15), 2**15))))
            frame = struct.pack(">hhi", key, version, 1) + rng.randbytes(rng.randrange(40))
            await send_and_see(server, frame[: rng.randrange(len(frame) + 1)])
        await check_alive(bystander)
    assert bugs(quiet) == set()


async def test_no_stream_of_bytes_does_harm(server: Server, quiet: list[str]) -> None:
    rng = random.Random(2)
    async with connected(server) as bystander:
        for _ in range(100):
            async with connected(server) as client:
                for _ in range(rng.randrange(1, 5)):
                    if not client.writer.is_closing():
                        client.writer.write(rng.randbytes(rng.randrange(1, 5000)))
                    await asyncio.sleep(0)
        await check_alive(bystander)
    assert bugs(quiet) == set()


async def test_a_frame_that_never_ends_holds_no_more_than_was_sent(server: Server) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    clients = []
    for _ in range(100):
        client = RawClient(*await asyncio.open_connection(*server.addresses["kafka"]))
        client.writer.write(struct.pack(">i", 4 * MiB) + b"x")
        clients.append(client)
    await asyncio.sleep(0.1)
    async with connected(server) as bystander:
        await check_alive(bystander)
    assert process.memory_info().rss - before < 100 * MiB
    for client in clients:
        client.close()


async def test_a_frame_longer_than_allowed_is_cut_off_at_its_first_bytes(server: Server, quiet: list[str]) -> None:
    async with connected(server) as client, connected(server) as bystander:
        client.writer.write(struct.pack(">i", 4 * MiB + 1))
        assert await client.is_closed()
        await check_alive(bystander)
    assert quiet == [f"frame of {4 * MiB + 1} bytes: socket.request.max.bytes is {4 * MiB}"]
