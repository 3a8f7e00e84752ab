"""When micro-batches begin."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from levada.spark.pipelines.errors import WrongDeclaration

AVAILABLE_NOW: Final = "available now"
_UNITS_MS: Final = {"millisecond": 1, "ms": 1, "second": 1_000, "s": 1_000, "minute": 60_000, "min": 60_000, "hour": 3_600_000, "h": 3_600_000}  # fmt: skip

_SAID: Final = ((3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))


class Trigger(NamedTuple):
    """Every so many milliseconds; None for all that is there now, and then the end."""

    every_ms: int | None

    def __str__(self) -> str:
        """As one would say it: "2 seconds", not "2000 milliseconds"."""
        if self.every_ms is None:
            return AVAILABLE_NOW
        size, unit = next((one for one in _SAID if self.every_ms and self.every_ms % one[0] == 0), (1, "millisecond"))
        count = self.every_ms // size
        return f"{count:,} {unit}{'' if count == 1 else 's'}"


def trigger_of(text: str) -> Trigger:
    """WrongDeclaration, naming what can be said."""
    if text == AVAILABLE_NOW:
        return Trigger(None)
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]+)\s*", text)
    unit_ms = found and (_UNITS_MS.get(found[2]) or _UNITS_MS.get(found[2].removesuffix("s")))
    if not found or not unit_ms:
        raise WrongDeclaration(
            f'trigger={text!r} is not allowed; a time such as "10 seconds", "500 ms", "1 minute", or "{AVAILABLE_NOW}" is'
        )
    return Trigger(int(found[1]) * unit_ms)
