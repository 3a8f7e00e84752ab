"""Both faces of the Python client under one roof: a test awaits, whichever it was given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any, Final

import levada

FACES: Final = ("sync", "async")
_END: Final = object()


@asynccontextmanager
async def connected(face: str, address: str, **options: Any) -> AsyncIterator[Any]:
    """A client whose calls are awaited, whichever face it has."""
    if face == "async":
        async with levada.aio.connect(address, **options) as client:
            yield client
        return
    client = await asyncio.to_thread(levada.connect, address, **options)
    try:
        yield Awaited(client)
    finally:
        await asyncio.to_thread(client.close)


class Awaited:
    """A blocking object, whose calls are made in a thread and awaited."""

    def __init__(self, face: Any) -> None:
        self._face = face

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._face, name)
        if name in ("producer", "consumer"):
            return lambda *args, **kwargs: Awaited(found(*args, **kwargs))
        if name in ("stop", "add_callback") or not callable(found):
            return _wrapped(found)
        return _in_thread(found)

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.to_thread(self._face.result).__await__()

    async def __aenter__(self) -> Awaited:
        await asyncio.to_thread(self._face.__enter__)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await asyncio.to_thread(self._face.__exit__, *error)

    async def __aiter__(self) -> AsyncIterator[Any]:
        records = iter(self._face)
        while (record := await asyncio.to_thread(next, records, _END)) is not _END:
            yield _wrapped(record)

    def __len__(self) -> int:
        return len(self._face)


def _in_thread(call: Callable[..., Any]) -> Callable[..., Any]:
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return _wrapped(await asyncio.to_thread(call, *args, **kwargs))

    return awaited


def _wrapped(found: Any) -> Any:
    kinds = (levada.Delivery, levada.Deliveries)
    return Awaited(found) if isinstance(found, kinds) or type(found).__name__ == "Manager" else found
