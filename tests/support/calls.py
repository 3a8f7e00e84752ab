"""A Kafka front without sockets: requests go through their bytes to the handler, and its answer comes back through its own."""

from __future__ import annotations

import importlib
from typing import Any

from levada.broker.groups import GroupConfig, GroupCoordinator, now_ms
from levada.config import BrokerConfig
from levada.engine.embedded.engine import EmbeddedEngine
from levada.fronts.kafka.call import Call, Node
from levada.fronts.kafka.group_timer import GroupTimer
from levada.wire.apis import APIS, ApiKey
from levada.wire.codec import Message, read_request, read_response, write_request, write_response


class Front:
    """Handlers over a real engine. Open it with `async with`."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config

    async def __aenter__(self) -> Front:
        self.engine = engine = await EmbeddedEngine.open(self.config.data, self.config)
        store = engine.offset_store
        self.groups = GroupCoordinator(
            GroupConfig.of(engine.settings), store.save_group, store.forget_group, store.groups
        )
        self.groups.load(store.group_snapshots(), now_ms())
        self.timer = GroupTimer(self.groups, store)
        self.timer.start()
        self.node = Node(self.config, engine, self.groups, node_id=1, host="broker", port=9092)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.groups.close(now_ms())
        self.timer.stop()
        await self.engine.close()

    async def ask(self, key: ApiKey, version: int | None = None, /, **fields: Any) -> Message:
        """One request, in the newest version unless another is named."""
        api = APIS[key]
        version = api.max_version if version is None else version
        request = read_request(key, version, write_request(key, version, fields))
        handler = importlib.import_module(f"levada.fronts.kafka.{api.file}")
        answer = await handler.handle(request, Call(self.node, key, version, 7, "tester", "10.0.0.9"))
        return read_response(key, version, write_response(key, version, answer))
