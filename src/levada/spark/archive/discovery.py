"""Which topics are to be archived, and where: their settings, asked of the broker."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from levada.spark.archive.wanted import Archive, Typed
from levada.wire.apis import ApiKey
from levada.wire.blocking import BlockingClient
from levada.wire.calls.admin import TOPIC

PLACE: Final = "levada.archive"
FORMAT: Final = "levada.archive.format"
SCHEMA: Final = "levada.archive.schema"
#: So many topics are asked about at a time.
_TOPICS: Final = 500


def archives(client: BlockingClient, topics: Collection[str] | None = None) -> list[Archive]:
    """The topics with `levada.archive`, of these or of all, by name. Apache Kafka has no such setting, so there are none."""
    names = sorted(client.topics() if topics is None else topics)
    some = (names[begin : begin + _TOPICS] for begin in range(0, len(names), _TOPICS))
    return [one for asked in some for one in _described(client, asked)]


def _described(client: BlockingClient, topics: Collection[str]) -> Iterator[Archive]:
    keys = [PLACE, FORMAT, SCHEMA]
    wanted = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": keys} for name in topics]
    answer = client.request(ApiKey.DESCRIBE_CONFIGS, {"resources": wanted}, repeatable=True)
    for result in answer.results:
        values = {one.name: one.value for one in result.configs}
        if not result.error_code and values.get(PLACE):  # one that was deleted meanwhile has an error
            yield Archive(result.resource_name, values[PLACE], Typed(values[FORMAT] or "raw", values[SCHEMA] or ""))
