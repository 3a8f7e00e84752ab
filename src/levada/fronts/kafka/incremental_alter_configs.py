"""IncrementalAlterConfigs, versions 0–1.

- Set, delete, and for lists append and subtract; all changes of one resource together or none.
- Of topics, and of brokers: this one by its id, all of them by "". A broker's settings count over what it was started with, at once
  and after every restart; what can only be given at start is refused by name.
- Deleting what is not set is fine. Unlike Kafka, which keeps broker settings it does not know, an unknown name is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from levada.config import TOPIC_SETTINGS, check_change, check_topic_settings, topic_config
from levada.engine.settings import Level, known
from levada.errors import InvalidConfig, InvalidRequest, LevadaError, UnknownTopic
from levada.fronts.kafka.answers import OK, refused, repeated
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.describe_configs import BROKER, TOPIC, broker_level

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3


class Target(NamedTuple):
    """What is altered: a topic, or the settings of brokers at one level."""

    topic: str | None
    level: Level
    #: What is set on it now.
    settings: Mapping[str, str]


#: What a request asks of a target: the settings to set, and with None to unset.
Changes = Callable[[Any, Target, Call], Mapping[str, str | None]]


async def handle(request: Any, call: Call) -> Mapping[str, Any]:
    return await alter(request, call, _changes)


async def alter(request: Any, call: Call, changes: Changes) -> Mapping[str, Any]:
    """Carry out the changes resource by resource; AlterConfigs shares this."""
    twice = repeated(f"{item.resource_type} {item.resource_name}" for item in request.resources)
    return {"responses": [await _alter(item, request, call, changes, twice) for item in request.resources]}


async def _alter(item: Any, request: Any, call: Call, changes: Changes, twice: set[str]) -> Mapping[str, Any]:
    named = {"resource_type": item.resource_type, "resource_name": item.resource_name}
    engine = call.node.engine
    try:
        if f"{item.resource_type} {item.resource_name}" in twice:
            raise InvalidRequest(f"{item.resource_name!r} stands more than once in the request")
        target = _target(item, call)
        wanted = changes(item, target, call)
        if target.topic is not None:
            check_topic_settings({name: value for name, value in wanted.items() if value is not None})
            if request.validate_only:
                after = {name: value for name, value in {**target.settings, **wanted}.items() if value is not None}
                topic_config(after)
                check_change(target.settings, after)
            else:
                await engine.alter(target.topic, wanted)
        else:
            _check_broker(target.level, wanted, call)
            if not request.validate_only:
                await engine.alter_broker(target.level, wanted)
        return {**named, **OK}
    except LevadaError as error:
        return {**named, **refused(call, item.resource_name, error)}


def _check_broker(level: Level, wanted: Mapping[str, str | None], call: Call) -> None:
    try:
        call.node.settings.changed(level, wanted)
    except InvalidConfig as error:
        # What Kafka says of a broker's settings; INVALID_CONFIG is for those of topics.
        raise InvalidRequest(str(error)) from None


def _target(item: Any, call: Call) -> Target:
    if item.resource_type == BROKER:
        level = broker_level(item.resource_name, call.node.node_id)
        return Target(None, level, call.node.settings.at(level))
    if item.resource_type != TOPIC:
        raise InvalidRequest(
            f"resource type {item.resource_type}: only topics ({TOPIC}) and brokers ({BROKER}) can be altered"
        )
    info = call.node.engine.view.get(item.resource_name)
    if info is None:
        raise UnknownTopic(f"there is no topic {item.resource_name!r}")
    return Target(info.name, Level.START, info.settings)


def _changes(item: Any, target: Target, call: Call) -> dict[str, str | None]:
    names = repeated(config.name for config in item.configs)
    if names:
        raise InvalidRequest(f"settings given more than once: {', '.join(sorted(names))}")
    return {config.name: _change(config, target, call) for config in item.configs}


def _change(config: Any, target: Target, call: Call) -> str | None:
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
    setting = TOPIC_SETTINGS.get(config.name) if target.topic is not None else known(config.name)
    if setting is None or setting.kind != "list":
        raise InvalidConfig(f"{config.name}: append and subtract are for lists only")
    now = target.settings.get(config.name) or call.node.settings.text(setting.synonym or config.name)
    items = [part.strip() for part in now.split(",") if part.strip()]
    given = [part.strip() for part in config.value.split(",") if part.strip()]
    if config.config_operation == APPEND:
        return ",".join([*items, *(part for part in given if part not in items)])
    return ",".join(part for part in items if part not in given)
