"""DescribeConfigs, versions 1–4.

- Every setting with its value, where it comes from, its type and documentation, for topics and for this broker.
- A setting's synonyms lead from the value that counts to our default: the topic's own, changed for this broker, changed for
  all brokers, given at start, default. Broker "" is what was changed for all of them, and nothing else.
- Broker loggers and client metrics are not kept here: an empty list.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from levada.config import BROKER_SETTINGS, TOPIC_SETTINGS, Setting, topic_names_by_synonym
from levada.engine.settings import Level, is_changeable, known
from levada.errors import InvalidRequest, LevadaError, UnknownTopic
from levada.fronts.kafka.answers import OK, refused
from levada.fronts.kafka.call import Call, Node

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32

FROM_TOPIC: Final = 1
FROM_START: Final = 4
_SOURCE: Final = {Level.BROKER: 2, Level.ALL_BROKERS: 3, Level.START: FROM_START, Level.DEFAULT: 5}

_TYPE: Final = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}


async def handle(request: Any, call: Call) -> Mapping[str, Any]:
    return {"results": [_describe(resource, request, call) for resource in request.resources]}


def _describe(resource: Any, request: Any, call: Call) -> Mapping[str, Any]:
    named = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    try:
        entries = _entries(resource, call)
    except LevadaError as error:
        return {**named, **refused(call, resource.resource_name, error), "configs": []}
    keys: Container[str] | None = None if resource.configuration_keys is None else set(resource.configuration_keys)
    shown = [dict(entry) for entry in entries if keys is None or entry["name"] in keys]
    for entry in shown:
        if not request.include_synonyms:
            entry["synonyms"] = []
        if not request.include_documentation:
            entry["documentation"] = None
    return {**named, **OK, "configs": shown}


def _entries(resource: Any, call: Call) -> Sequence[Mapping[str, Any]]:
    match resource.resource_type:
        case 2:
            info = call.node.engine.view.get(resource.resource_name)
            if info is None:
                raise UnknownTopic(f"there is no topic {resource.resource_name!r}")
            return topic_entries(call.node, info.settings)
        case 4:
            if broker_level(resource.resource_name, call.node.node_id) is Level.ALL_BROKERS:
                return default_entries(call.node)
            return broker_entries(call.node)
        case 8 | 16 | 32:
            return ()
        case other:
            raise InvalidRequest(f"resource type {other}: must be {TOPIC} (topic) or {BROKER} (broker)")


def broker_level(name: str, node_id: int) -> Level:
    """Which settings a broker resource stands for: "" those of all brokers. InvalidRequest for another broker's."""
    if name not in ("", str(node_id)):
        raise InvalidRequest(f"unexpected broker id, expected {node_id} or empty string, but received {name!r}")
    return Level.BROKER if name else Level.ALL_BROKERS


def topic_entries(node: Node, overrides: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """Every topic setting as it stands for a topic with these overrides."""
    return [_topic_entry(setting, node, overrides) for setting in TOPIC_SETTINGS.values()]


def _topic_entry(setting: Setting, node: Node, overrides: Mapping[str, str]) -> Mapping[str, Any]:
    synonym = setting.synonym or setting.name
    chain = _chain(node, synonym)
    if setting.name in overrides:
        chain.insert(0, (setting.name, overrides[setting.name], FROM_TOPIC))
    return _entry(setting, setting.name, chain, read_only=False)


def broker_entries(node: Node) -> list[Mapping[str, Any]]:
    """Every broker setting, and the topic defaults under the broker-wide names Kafka gives them."""
    return [_broker_entry(name, node) for name in sorted({*BROKER_SETTINGS, *topic_names_by_synonym()})]


def default_entries(node: Node) -> list[Mapping[str, Any]]:
    """What was changed for all brokers."""
    return [
        _entry(known(name), name, [(name, value, _SOURCE[Level.ALL_BROKERS])], read_only=False)
        for name, value in sorted(node.settings.at(Level.ALL_BROKERS).items())
    ]


#: Settings whose value is known only at run time.
_LIVE: Final[Mapping[str, Callable[[Node], str]]] = {
    "advertised.listeners": lambda node: f"PLAINTEXT://{node.host}:{node.port}",
    "listeners": lambda node: f"PLAINTEXT://{node.config.host}:{node.port}",
    "log.dirs": lambda node: str(node.config.data.absolute()),
    "cluster.id": lambda node: node.engine.cluster_id,
    "node.id": lambda node: str(node.node_id),
    "broker.id": lambda node: str(node.node_id),
}


def _broker_entry(name: str, node: Node) -> Mapping[str, Any]:
    live = _LIVE.get(name)
    chain = _chain(node, name) if live is None else [(name, live(node), FROM_START)]
    return _entry(known(name), name, chain, read_only=not is_changeable(name))


def _chain(node: Node, name: str) -> list[tuple[str, str, int]]:
    return [(name, value, _SOURCE[level]) for level, value in node.settings.chain(name)]


def _entry(setting: Setting, name: str, chain: Sequence[tuple[str, str, int]], *, read_only: bool) -> Mapping[str, Any]:
    """One setting; `chain` leads from the value that counts down to the default."""
    return {
        "name": name,
        "value": chain[0][1],
        "read_only": read_only,
        "config_source": chain[0][2],
        "is_sensitive": False,
        "synonyms": [{"name": at, "value": value, "source": source} for at, value, source in chain],
        "config_type": _TYPE[setting.kind],
        "documentation": setting.doc,
    }
