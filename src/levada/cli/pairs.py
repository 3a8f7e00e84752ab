"""NAME=VALUE options."""

from __future__ import annotations

from collections.abc import Iterable

from levada.cli.session import WrongUsage


def pairs(given: Iterable[str] | None, option: str) -> dict[str, str]:
    """NAME=VALUE, repeated → a mapping."""
    found: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise WrongUsage(f"{option} {text!r}: must be NAME=VALUE")
        found[name] = value
    return found
