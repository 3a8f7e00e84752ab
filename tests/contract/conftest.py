"""One suite for every engine, written against the port alone. A side of the port joins it by a Home in `support.homes`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from levada.engine.port import At, Engine, TopicSpec
from support.homes import HOMES, Home, MakeTopic


@pytest.fixture(params=HOMES)
async def home(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Home]:
    home = HOMES[request.param](tmp_path)
    yield home
    await home.stop()


@pytest.fixture
async def engine(home: Home) -> Engine:
    return await home.start()


@pytest.fixture
def make_topic(engine: Engine) -> MakeTopic:
    async def make(name: str = "t", partitions: int = 1, **settings: str) -> At:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        await engine.create(TopicSpec(name=name, partitions=partitions, settings=given))
        return At(name, 0)

    return make
