"""DescribeConfigs, versions 1–4.

- Every setting with its value, where it comes from, its type and documentation, for topics and for this broker.
- A topic setting's synonyms lead from its own value over the broker's default to ours.
- Broker loggers and client metrics are not kept here: an empty list.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from levada.config import BROKER_SETTINGS, TOPIC_SETTINGS, Setting, topic_names_by_synonym
from levada.errors import InvalidRequest, LevadaError, UnknownTopic
from levada.fronts.kafka.answers import OK, refused
from levada.fronts.kafka.call import Call, Node

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32

FROM_TOPIC: Final = 1
FROM_FILE: Final = 4
FROM_DEFAULT: Final = 5

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
            if resource.resource_name not in ("", str(call.node.node_id)):
                raise InvalidRequest(f"broker {resource.resource_name!r}: this is broker {call.node.node_id}")
            return broker_entries(call.node)
        case 8 | 16 | 32:
            return ()
        case other:
            raise InvalidRequest(f"resource type {other}: must be {TOPIC} (topic) or {BROKER} (broker)")


def topic_entries(node: Node, overrides: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """Every topic setting as it stands for a topic with these overrides."""
    return [_topic_entry(setting, node, overrides) for setting in TOPIC_SETTINGS.values()]


def _topic_entry(setting: Setting, node: Node, overrides: Mapping[str, str]) -> Mapping[str, Any]:
    chain = []
    if setting.name in overrides:
        chain.append((setting.name, overrides[setting.name], FROM_TOPIC))
    if setting.name in node.config.topic:
        chain.append((setting.synonym or setting.name, node.config.topic[setting.name], FROM_FILE))
    chain.append((setting.synonym or setting.name, setting.default, FROM_DEFAULT))
    return _entry(setting, setting.name, chain, read_only=False)


def broker_entries(node: Node) -> list[Mapping[str, Any]]:
    """Every broker setting, and the topic defaults under the broker-wide names Kafka gives them."""
    entries = [_broker_entry(setting, node) for setting in BROKER_SETTINGS.values()]
    for synonym, name in topic_names_by_synonym().items():
        setting = TOPIC_SETTINGS[name]
        chain = [(synonym, setting.default, FROM_DEFAULT)]
        if name in node.config.topic:
            chain.insert(0, (synonym, node.config.topic[name], FROM_FILE))
        entries.append(_entry(setting, synonym, chain, read_only=True))
    return sorted(entries, key=lambda entry: str(entry["name"]))


#: Settings whose value is known only at run time.
_LIVE: Final[Mapping[str, Callable[[Node], str]]] = {
    "advertised.listeners": lambda node: f"PLAINTEXT://{node.host}:{node.port}",
    "listeners": lambda node: f"PLAINTEXT://{node.config.host}:{node.port}",
    "log.dirs": lambda node: str(node.config.data.absolute()),
    "cluster.id": lambda node: node.engine.cluster_id,
    "node.id": lambda node: str(node.node_id),
    "broker.id": lambda node: str(node.node_id),
}


def _broker_entry(setting: Setting, node: Node) -> Mapping[str, Any]:
    chain = [(setting.name, setting.default, FROM_DEFAULT)]
    if setting.name in _LIVE:
        chain = [(setting.name, _LIVE[setting.name](node), FROM_FILE)]
    elif setting.name in node.config.settings:
        chain.insert(0, (setting.name, node.config.settings[setting.name], FROM_FILE))
    return _entry(setting, setting.name, chain, read_only=True)


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
