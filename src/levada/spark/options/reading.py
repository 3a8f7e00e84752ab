"""Options as a user gave them, taken one by one in their types; what nobody took is refused.

    given = Given(options)
    rows = given.number("maxOffsetsPerTrigger", low=1)
    given.refuse_the_rest()

Spark hands options over with their names in lower case: names are matched without regard to it, and told as they are documented.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NoReturn, TypeVar, overload

from levada.errors import LevadaError, nearest

T = TypeVar("T", bound=str)

_TRUE: Final = ("true", "1", "yes")
_FALSE: Final = ("false", "0", "no")
_DURATION: Final = re.compile(r"(\d+)\s*(ms|milliseconds?|s|seconds?|m|min|minutes?|h|hours?|d|days?)?")
_OF_A_TABLE: Final = frozenset(("provider", "owner", "comment", "location", "external", "is_managed_location"))
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class WrongOption(LevadaError, ValueError):
    """An option does not exist, is missing, or its value is not allowed. Nothing has been done."""

    def __init__(self, option: str, value: str | None, allowed: str) -> None:
        """`value` is None where the option is not there; `allowed` says what may stand there."""
        said = f"{value!r} is not allowed" if value is not None else "it is missing"
        super().__init__(f"{option}: {said}; {allowed}")
        self.option = option
        self.value = value
        self.allowed = allowed

    def __reduce__(self) -> Any:
        return WrongOption, (self.option, self.value, self.allowed)


class UnknownOption(WrongOption):
    """There is no such option."""

    def __init__(self, option: str, hint: str) -> None:
        LevadaError.__init__(self, f"{option}: there is no such option{hint}")
        self.option = option
        self.value = None
        self.allowed = hint

    def __reduce__(self) -> Any:
        return UnknownOption, (self.option, self.allowed)


class Given:
    """The options of one read or write. Whoever takes one makes its name known, whether it is there or not."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower(): str(value) for name, value in options.items()}
        self._values = {name: value for name, value in given.items() if not _is_of_a_table(name)}
        #: By their names in lower case, as they are documented.
        self._known: dict[str, str] = {}

    @overload
    def text(self, name: str) -> str | None: ...
    @overload
    def text(self, name: str, default: str) -> str: ...
    def text(self, name: str, default: str | None = None) -> str | None:
        """What was given, without the blanks around it; the default where nothing was, or nothing but blanks."""
        self._known[name.lower()] = name
        return self._values.get(name.lower(), "").strip() or default

    def required(self, *names: str, allowed: str) -> str:
        """The one of these names that was given. They mean the same."""
        found = {name: value for name in names if (value := self.text(name)) is not None}
        if not found:
            raise WrongOption(" or ".join(names), None, allowed)
        if len(set(found.values())) > 1:
            raise WrongOption(" and ".join(found), ", ".join(found.values()), "they mean the same; give one of them")
        return next(iter(found.values()))

    def choice(self, name: str, allowed: Collection[T], default: T) -> T:
        """One of a few words, in any case."""
        value = self.text(name)
        if value is None:
            return default
        for one in allowed:
            if value.lower() == one.lower():
                return one
        raise WrongOption(name, value, f"{_either(allowed)} is")

    @overload
    def number(self, name: str, *, low: int = ..., high: int = ...) -> int | None: ...
    @overload
    def number(self, name: str, default: int, *, low: int = ..., high: int = ...) -> int: ...
    def number(self, name: str, default: int | None = None, *, low: int = 0, high: int = 2**63 - 1) -> int | None:
        """A whole number from `low` to `high`."""
        value = self.text(name)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            limits = f"from {low} to {high}" if high < 2**31 else f"from {low} on"
            raise WrongOption(name, value, f"a whole number {limits} is")
        return number

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in (*_TRUE, *_FALSE):
            raise WrongOption(name, value, "true or false is")
        return value.lower() in _TRUE

    def duration_ms(self, name: str, default: int) -> int:
        """A time as Spark writes it: `500ms`, `10s`, `15m`, `2h`, `1d`; a bare number is milliseconds."""
        value = self.text(name)
        if value is None:
            return default
        found = _DURATION.fullmatch(value.lower())
        if found is None:
            raise WrongOption(name, value, "a number with ms, s, m, h or d is, e.g. 15m")
        unit = found[2] or "ms"
        return int(found[1]) * (1 if unit.startswith(("ms", "mil")) else _UNITS_MS[unit[0]])

    def json_object(self, name: str, example: str) -> dict[str, Any] | None:
        """A JSON object."""
        value = self.text(name)
        if value is None:
            return None
        try:
            found = json.loads(value)
        except ValueError as error:
            raise WrongOption(name, value, f"JSON like {example} is ({error})") from None
        if not isinstance(found, dict):
            raise WrongOption(name, value, f"JSON like {example} is")
        return found

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """All that were given under this prefix, by their names without it, in lower case. It takes none of them."""
        return {name[len(prefix) :]: value for name, value in self._values.items() if name.startswith(prefix.lower())}

    def refuse(self, name: str, allowed: str) -> None:
        """Raise if this option is given: it exists, and is not for this."""
        value = self.text(name)
        if value is not None:
            raise WrongOption(name, value, allowed)

    def refuse_the_rest(self) -> None:
        """Raise for the first option that nobody took, with what is most like it."""
        for name in self._values:
            if name not in self._known:
                self._unknown(name)

    def _unknown(self, name: str) -> NoReturn:
        hint = nearest(name, self._known)
        for known, documented in self._known.items():
            hint = hint.replace(f"did you mean {known}?", f"did you mean {documented}?")
        raise UnknownOption(name, hint or f"; {', '.join(sorted(self._known.values(), key=str.lower))} are")


def _is_of_a_table(name: str) -> bool:
    """Whether Spark itself added it, as it does for CREATE TABLE: what a table is, and its options once more."""
    return name in _OF_A_TABLE or name.startswith("option.")


def _either(words: Collection[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
