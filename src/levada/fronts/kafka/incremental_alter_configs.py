"""IncrementalAlterConfigs, versions 0–1.

- Set, delete, and for lists append and subtract, on a topic's settings; all changes of one resource together or none.
- Broker settings come from the configuration file and the flags; they are not changed over the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from levada.config import TOPIC_SETTINGS, check_topic_settings
from levada.engine.port import TopicInfo
from levada.errors import InvalidConfig, InvalidRequest, LevadaError, UnknownTopic
from levada.fronts.kafka.answers import OK, refused, repeated
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.describe_configs import BROKER, TOPIC

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3

#: What a request asks of a topic: the settings to set, and with None to unset.
Changes = Callable[[Any, TopicInfo, Call], Mapping[str, str | None]]


async def handle(request: Any, call: Call) -> Mapping[str, Any]:
    return await alter(request, call, _changes)


async def alter(request: Any, call: Call, changes: Changes) -> Mapping[str, Any]:
    """Carry out the changes resource by resource; AlterConfigs shares this."""
    twice = repeated(f"{item.resource_type} {item.resource_name}" for item in request.resources)
    return {"responses": [await _alter(item, request, call, changes, twice) for item in request.resources]}


async def _alter(item: Any, request: Any, call: Call, changes: Changes, twice: set[str]) -> Mapping[str, Any]:
    named = {"resource_type": item.resource_type, "resource_name": item.resource_name}
    try:
        if f"{item.resource_type} {item.resource_name}" in twice:
            raise InvalidRequest(f"{item.resource_name!r} stands more than once in the request")
        info = _topic(item, call)
        wanted = changes(item, info, call)
        check_topic_settings({name: value for name, value in wanted.items() if value is not None})
        if not request.validate_only:
            await call.node.engine.alter(info.name, wanted)
        return {**named, **OK}
    except LevadaError as error:
        return {**named, **refused(call, item.resource_name, error)}


def _topic(item: Any, call: Call) -> TopicInfo:
    if item.resource_type == BROKER:
        names = ", ".join(sorted(config.name for config in item.configs))
        raise InvalidRequest(f"cannot update these configs dynamically: {names}; set them in levada.toml and restart")
    if item.resource_type != TOPIC:
        raise InvalidRequest(f"resource type {item.resource_type}: only topics ({TOPIC}) can be altered")
    info = call.node.engine.view.get(item.resource_name)
    if info is None:
        raise UnknownTopic(f"there is no topic {item.resource_name!r}")
    return info


def _changes(item: Any, info: TopicInfo, call: Call) -> dict[str, str | None]:
    names = repeated(config.name for config in item.configs)
    if names:
        raise InvalidRequest(f"settings given more than once: {', '.join(sorted(names))}")
    return {config.name: _change(config, info, call) for config in item.configs}


def _change(config: Any, info: TopicInfo, call: Call) -> str | None:
    setting = TOPIC_SETTINGS.get(config.name)
    if setting is None:
        raise InvalidConfig(f"unknown topic setting {config.name!r}")
    if config.config_operation == DELETE:
        return None
    if config.value is None:
        raise InvalidRequest(f"{config.name}: a null value is only for delete")
    if config.config_operation == SET:
        return str(config.value)
    if config.config_operation not in (APPEND, SUBTRACT):
        raise InvalidRequest(
            f"operation {config.config_operation}: must be 0 (set), 1 (delete), 2 (append) or 3 (subtract)"
        )
    if setting.kind != "list":
        raise InvalidConfig(f"{config.name}: append and subtract are for lists only")
    now = info.settings.get(config.name) or call.node.config.topic.get(config.name, setting.default)
    items = [part.strip() for part in now.split(",") if part.strip()]
    given = [part.strip() for part in config.value.split(",") if part.strip()]
    if config.config_operation == APPEND:
        return ",".join([*items, *(part for part in given if part not in items)])
    return ",".join(part for part in items if part not in given)
