"""The schemas of Kafka's messages, as `schemas/*.txt` hold them: one file per call, the request and the response.

A message is a head line and one line per field, nested by indentation:

    OffsetCommit request 2-10 flexible 8
      group_id string
      generation_id_or_member_epoch int32 = -1
      topics []
        name string 2-9
        topic_id uuid 10+
        partitions []
          committed_metadata string?

Type: `[]` is an array, of structs when no type follows; `{}` is a struct. Then, each only where it matters: the versions
that have the field; `?`, or `?3+` for some versions, where it may be null; `#1`, its tag; `= value`, its default. Without one
the default is the type's zero: 0, false, "", no bytes, [], the zero UUID, a struct of defaults; records are null.
Names are Kafka's own in snake case. `*_ms` fields are plain integers.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

from levada.wire.apis import api_of

Kind = Literal["request", "response"]

ZERO_UUID: Final = UUID(int=0)
#: Stands for "no default given".
NO_DEFAULT: Final = "…"
_ZERO: Final[dict[str, Any]] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": ZERO_UUID,
}


class Versions(NamedTuple):
    """An inclusive range of versions."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high


class Field(NamedTuple):
    """One field over all versions of its message."""

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions | None
    tag: int | None
    default: Any
    fields: tuple[Field, ...]

    def zero(self) -> Any:
        """What a reader finds here when the bytes do not say; None for a struct, whose defaults are its fields'."""
        if self.default != NO_DEFAULT:
            return self.default
        if self.is_array:
            return ()
        return None if self.type == "struct" else _ZERO.get(self.type, 0)


class Message(NamedTuple):
    """One request or response over all its versions."""

    name: str
    kind: str
    versions: Versions
    flexible: int | None
    fields: tuple[Field, ...]


@cache
def message(api_key: int, kind: Kind) -> Message:
    """The schema of this call's request or response."""
    file = f"schemas/{api_of(api_key).file}.txt"
    data = pkgutil.get_data(__package__, file)
    if data is None:
        raise FileNotFoundError(f"{file} is missing from this installation")
    for part in data.decode().split("\n\n"):
        found = parse(part)
        if found.kind == kind:
            return found
    raise LookupError(f"{file} has no {kind}")


def parse(text: str) -> Message:
    """Read what `describe` wrote."""
    head, *lines = text.strip().splitlines()
    name, kind, span, *rest = head.split()
    low, _, high = span.partition("-")
    versions = Versions(int(low), int(high))
    rows = [(len(line) - len(line.lstrip()), line.strip()) for line in lines]
    return Message(name, kind, versions, int(rest[1]) if rest else None, tuple(_fields(rows, 0, len(rows), versions)))


def _fields(rows: list[tuple[int, str]], start: int, end: int, span: Versions) -> Iterator[Field]:
    while start < end:
        depth, line = rows[start]
        stop = next((row for row in range(start + 1, end) if rows[row][0] <= depth), end)
        yield _field(line, rows, start + 1, stop, span)
        start = stop


def _field(line: str, rows: list[tuple[int, str]], start: int, stop: int, span: Versions) -> Field:
    front, _, default = line.partition(" = ")
    name, kind, *marks = front.split()
    versions, nullable, tag = span, None, None
    if kind.endswith("?"):
        kind, nullable = kind[:-1], span
    for mark in marks:
        if mark.startswith("?"):
            nullable = _range(mark[1:], span)
        elif mark.startswith("#"):
            tag = int(mark[1:])
        else:
            versions = _range(mark, span)
    if nullable is not None:
        nullable = Versions(max(nullable.low, versions.low), min(nullable.high, versions.high))
    inner = kind.removeprefix("[]").removeprefix("{}")
    return Field(
        name=name,
        type=inner or "struct",
        is_array=kind.startswith("[]"),
        versions=versions,
        nullable=nullable,
        tag=tag,
        default=_default(default, inner) if default else NO_DEFAULT,
        fields=tuple(_fields(rows, start, stop, versions)),
    )


def _range(text: str, span: Versions) -> Versions:
    low, dash, high = text.partition("-")
    if text.endswith("+"):
        return Versions(int(text[:-1]), span.high)
    return Versions(int(low), int(high) if dash else int(low))


def _default(text: str, kind: str) -> Any:
    if text == "null":
        return None
    if kind == "string":
        return text.strip('"')
    if kind == "bool":
        return text == "true"
    return float(text) if kind == "float64" else int(text)


def describe(found: Message) -> str:
    """The text of a message."""
    flexible = "" if found.flexible is None else f" flexible {found.flexible}"
    lines = [f"{found.name} {found.kind} {found.versions.low}-{found.versions.high}{flexible}"]
    lines += _describe_fields(found.fields, found.versions, "  ")
    return "\n".join(lines) + "\n"


def _describe_fields(fields: tuple[Field, ...], span: Versions, indent: str) -> Iterator[str]:
    for field in fields:
        kind = "[]" * field.is_array + ({True: "", False: "{}"}[field.is_array] if field.fields else field.type)
        marks = ["?"] if field.nullable == field.versions else []
        words = [f"{field.name} {kind}{''.join(marks)}"]
        if field.versions != span:
            words.append(_describe_range(field.versions, span))
        if field.nullable and field.nullable != field.versions:
            words.append("?" + _describe_range(field.nullable, span))
        if field.tag is not None:
            words.append(f"#{field.tag}")
        if field.default != NO_DEFAULT:
            words.append(f"= {_describe_default(field.default)}")
        yield indent + " ".join(words)
        yield from _describe_fields(field.fields, field.versions, indent + "  ")


def _describe_range(versions: Versions, span: Versions) -> str:
    if versions.high == span.high:
        return f"{versions.low}+"
    return f"{versions.low}-{versions.high}" if versions.low != versions.high else str(versions.low)


def _describe_default(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
