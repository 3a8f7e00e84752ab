from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.delivery import World
from support.delivery import world as open_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(tmp_path / "data") as made:
        yield made
