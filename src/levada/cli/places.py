"""Where to start reading, as a person says it: earliest, latest, an offset, a time, so many further or back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from levada.cli.session import WrongUsage

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Place(NamedTuple):
    """One of four."""

    start: str | None = None
    offset: int | None = None
    timestamp_ms: int | None = None
    shift: int | None = None

    def seeking(self) -> dict[str, Any]:
        """As `manager.seek` takes it."""
        if self.timestamp_ms is not None:
            return {"timestamp_ms": self.timestamp_ms}
        if self.shift is not None:
            return {"shift": self.shift}
        return {"to": self.start if self.offset is None else self.offset}


def place(text: str, option: str, *, shifts: bool = False) -> Place:
    """WrongUsage, naming what can be said."""
    if text in ("earliest", "latest"):
        return Place(start=text)
    if shifts and text[:1] in ("+", "-") and text[1:].isdecimal():
        return Place(shift=int(text))
    if text.isdecimal():
        return Place(offset=int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        further = ", +N or -N records from where it is" if shifts else ""
        raise WrongUsage(
            f"{option} {text!r}: must be earliest, latest, an offset{further}, or a time such as 2026-01-31T12:00:00Z"
        ) from None
    return Place(timestamp_ms=timestamp_ms(moment))


def timestamp_ms(moment: datetime) -> int:
    """What names no zone is UTC, as everything that is printed."""
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // timedelta(milliseconds=1)
