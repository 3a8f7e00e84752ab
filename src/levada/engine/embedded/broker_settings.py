"""Broker-wide settings that were changed while running, kept in `__levada.topics` beside the topics.

One record for each broker and one for all of them, under keys that no topic can have: `config/brokers/<node id>` and
`config/brokers/`. The value is JSON, no value = nothing is set:

    {"settings": {"log.retention.ms": "3600000"}}
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Final

import structlog

from levada.engine.embedded.journal import Journal
from levada.engine.settings import Level, LiveSettings, check
from levada.errors import InvalidConfig

_PREFIX: Final = "config/brokers/"

_log = structlog.get_logger("levada.settings")


class BrokerSettings:
    """Changes settings: written first, true once that is durable."""

    def __init__(self, settings: LiveSettings, journal: Journal, node_id: int) -> None:
        self._settings = settings
        self._journal = journal
        self._keys = {Level.BROKER: f"{_PREFIX}{node_id}", Level.ALL_BROKERS: _PREFIX}
        self._changing = asyncio.Lock()

    def load(self, found: Mapping[str, bytes]) -> None:
        """Take what the registry says. What this version does not take is passed over and reported."""
        for level, key in self._keys.items():
            if key in found:
                self._settings.put(level, _usable(key, found[key]))

    async def alter(self, level: Level, changes: Mapping[str, str | None]) -> None:
        """Set, or with None unset. Durable and in effect when it returns; all or none. InvalidConfig."""
        async with self._changing:
            wanted = self._settings.changed(level, changes)
            if wanted == self._settings.at(level):
                return
            record = (self._keys[level].encode(), _encode(wanted) if wanted else None)
            await self._journal.durable(self._journal.append([record]))
            self._settings.put(level, wanted)


def _encode(settings: Mapping[str, str]) -> bytes:
    return json.dumps({"settings": settings}, separators=(",", ":")).encode()


def _usable(key: str, value: bytes) -> dict[str, str]:
    usable: dict[str, str] = {}
    try:
        given = {str(name): str(text) for name, text in json.loads(value)["settings"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        _log.error("broker settings cannot be read; those of the start hold", record=key, reason=str(reason))
        return usable
    for name, text in given.items():
        try:
            check(name, text)
            usable[name] = text
        except InvalidConfig as reason:
            _log.warning("broker setting passed over", record=key, reason=str(reason))
    return usable
