"""Where the engines of the contract suite live: each can be started, stopped and started again on the same data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from levada.config import BrokerConfig
from levada.engine.embedded.engine import EmbeddedEngine
from levada.engine.port import At, Engine


class Home(Protocol):
    """Where an engine lives."""

    async def start(self) -> Engine: ...

    async def stop(self) -> None: ...


class EmbeddedHome:
    def __init__(self, path: Path) -> None:
        self._config = BrokerConfig(data=path / "data")
        self._engine: EmbeddedEngine | None = None

    async def start(self) -> Engine:
        assert self._engine is None
        self._engine = await EmbeddedEngine.open(self._config.data, self._config)
        return self._engine

    async def stop(self) -> None:
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.close()


#: Every side of the port.
HOMES: Final[Mapping[str, Callable[[Path], Home]]] = {"embedded": EmbeddedHome}


class MakeTopic(Protocol):
    """Makes a topic and gives its first partition. Settings with `_` for `.`."""

    async def __call__(self, name: str = "t", partitions: int = 1, **settings: str) -> At: ...
