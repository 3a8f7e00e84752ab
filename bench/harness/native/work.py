"""What every client can be asked to do, and how it is timed: the same loops around three clients.

A client is a `Work`. The loops run in a process of their own (worker.py), so neither the harness nor another client's
garbage is in the way.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

#: As many as one pipeline of Redis, one call of publish_many, one window of NATS.
BATCH = 100
SIZE = 100
#: Of the messages that are followed to their consumer, one in so many comes first and does not count.
WARM_PART = 10
Payload = bytes
Publish = Callable[[str, Sequence[Payload]], Awaitable[None]]


class Work(Protocol):
    """One client, connected. Streams have one partition; reading is as a member of a group that acknowledges what it read."""

    async def create(self, stream: str) -> None: ...
    async def publish_many(self, stream: str, values: Sequence[Payload]) -> None:
        """Send; may return before it is acknowledged, but holds back when too much is under way."""
        ...

    async def publish_each(self, stream: str, values: Sequence[Payload]) -> None:
        """Send one call a message, without waiting for each; the client may put them together."""
        ...

    async def flush(self) -> None:
        """All that was sent is acknowledged."""
        ...

    async def publish_one(self, stream: str, value: Payload) -> None:
        """Acknowledged when it returns."""
        ...

    async def subscribe(self, stream: str) -> Callable[[], Awaitable[Sequence[Payload]]]:
        """Join a group, from the beginning. Each call of what is returned brings the next values, and acknowledges those before."""
        ...

    async def close(self) -> None: ...


def values(count: int) -> list[Payload]:
    """Different from one another, as messages are, and of one size."""
    return [f"{number:020d}".encode().ljust(SIZE, b".") for number in range(count)]


def quantiles(took_ms: list[float]) -> dict[str, float]:
    took_ms.sort()
    return {"p50_ms": took_ms[len(took_ms) // 2], "p99_ms": took_ms[int(len(took_ms) * 0.99)]}


async def batched(work: Work, stream: str, warm: int, count: int) -> dict[str, float]:
    """Publish in batches of a hundred as fast as it goes, until all is acknowledged."""
    return await _publish(work, work.publish_many, stream, warm, count)


async def awaited(work: Work, stream: str, warm: int, count: int) -> dict[str, float]:
    """The same, with each hundred acknowledged before the next."""

    async def publish(stream: str, batch: Sequence[Payload]) -> None:
        await work.publish_many(stream, batch)
        await work.flush()

    return await _publish(work, publish, stream, warm, count)


async def each(work: Work, stream: str, warm: int, count: int) -> dict[str, float]:
    """Publish with one call a message as fast as it goes, until all is acknowledged."""
    return await _publish(work, work.publish_each, stream, warm, count)


async def _publish(work: Work, publish: Publish, stream: str, warm: int, count: int) -> dict[str, float]:
    batch = values(BATCH)
    for _ in range(warm // BATCH):
        await publish(stream, batch)
    await work.flush()
    start = time.perf_counter()
    for _ in range(count // BATCH):
        await publish(stream, batch)
    await work.flush()
    return {"per_second": count / (time.perf_counter() - start)}


async def single(work: Work, stream: str, warm: int, count: int) -> dict[str, float]:
    """Publish one after the other, each acknowledged before the next."""
    took, payload = [], values(1)[0]
    for _ in range(warm):
        await work.publish_one(stream, payload)
    start = time.perf_counter()
    for _ in range(count):
        before = time.perf_counter()
        await work.publish_one(stream, payload)
        took.append((time.perf_counter() - before) * 1000)
    return {"per_second": count / (time.perf_counter() - start), **quantiles(took)}


async def consume(work: Work, stream: str, count: int) -> dict[str, float]:
    """Read everything there is. The clock starts with the first values: joining a group is not reading."""
    following = await work.subscribe(stream)
    seen = first = len(await following())
    start = time.perf_counter()
    while seen < count:
        seen += len(await following())
    return {"per_second": (seen - first) / (time.perf_counter() - start)}


async def receive(work: Work, stream: str, count: int, ready: Callable[[], None]) -> dict[str, float]:
    """How long each value was on its way. A value says when it should have been sent, in nanoseconds of the machine's own clock."""
    following = await work.subscribe(stream)
    ready()
    took: list[float] = []
    while len(took) < count:
        arrived = await following()
        now = time.monotonic_ns()
        took += [(now - int(value[:20])) / 1e6 for value in arrived]
    return quantiles(took[count // WARM_PART :])


async def send(work: Work, stream: str, count: int, rate: int) -> dict[str, float]:
    """Publish at a steady rate, each acknowledged, stamped with the time it was due. The first tenth is to get warm: one after the other."""
    for _ in range(count // WARM_PART):
        await work.publish_one(stream, _stamped(time.monotonic_ns()))
    start = time.monotonic_ns() + 10_000_000
    for number in range(count - count // WARM_PART):
        due = start + number * 1_000_000_000 // rate
        _sleep_until(due)
        await work.publish_one(stream, _stamped(due))
    return {}


def _stamped(due_ns: int) -> Payload:
    return f"{due_ns:020d}".encode().ljust(SIZE, b".")


def _sleep_until(due_ns: int) -> None:
    """Nothing else waits on this loop, and its own timers are too coarse."""
    while (left := due_ns - time.monotonic_ns()) > 0:
        time.sleep(left / 1e9)


async def drip(work: Work, stream: str, rate: int, seconds: float) -> dict[str, float]:
    """Publish a hundred at a time at a steady rate, for so long; says how many."""
    batch, sent = values(BATCH), 0
    start = time.monotonic()
    while (passed := time.monotonic() - start) < seconds:
        if sent <= passed * rate:
            await work.publish_many(stream, batch)
            await work.flush()
            sent += BATCH
        else:
            _sleep_until(time.monotonic_ns() + int((sent - passed * rate) / rate * 1e9))
    return {"sent": float(sent)}


async def drain(work: Work, stream: str, ready: Callable[[], None]) -> dict[str, float]:
    """Read until ended from outside."""
    following = await work.subscribe(stream)
    ready()
    while True:
        await following()
