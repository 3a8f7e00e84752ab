"""AlterConfigs, versions 0–2.

The older form: the settings given replace all that was set on the topic or the broker; what is not named goes back to its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levada.errors import InvalidConfig
from levada.fronts.kafka.call import Call
from levada.fronts.kafka.incremental_alter_configs import Target, alter


async def handle(request: Any, call: Call) -> Mapping[str, Any]:
    return await alter(request, call, _replacement)


def _replacement(item: Any, target: Target, _call: Call) -> dict[str, str | None]:
    wanted: dict[str, str | None] = dict.fromkeys(target.settings)
    for config in item.configs:
        if config.value is None:
            raise InvalidConfig(f"{config.name}: a null value is not allowed")
        wanted[config.name] = config.value
    return wanted
