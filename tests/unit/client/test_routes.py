"""Routes: those who ask together ask once, and none of them ends by another's doing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from levada.client.channel import Channel
from levada.client.routes import Routes
from levada.errors import ConnectionLost


@pytest.fixture
def silent() -> Routes:
    """Of a broker that does not answer."""

    async def call(*_: Any) -> None:
        await asyncio.Event().wait()

    return Routes(cast(Channel, SimpleNamespace(call=call)))


async def test_closing_the_client_is_a_lost_connection_to_who_asks(silent: Routes) -> None:
    asking = asyncio.create_task(silent.get("orders"))
    await asyncio.sleep(0)
    await silent.close()
    with pytest.raises(ConnectionLost, match="topic orders"):
        await asking


async def test_who_gives_up_takes_the_answer_from_nobody(silent: Routes) -> None:
    asking = [asyncio.create_task(silent.get("orders")) for _ in range(2)]
    await asyncio.sleep(0)
    asking[0].cancel()
    await asyncio.wait(asking[:1])
    assert asking[0].cancelled()
    assert not asking[1].done()
    await silent.close()
    with pytest.raises(ConnectionLost):
        await asking[1]
