"""How a record is printed: a line for people, JSON, the value alone, or as the user likes it."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from levada.cli.places import EPOCH
from levada.cli.session import WrongUsage

if TYPE_CHECKING:
    from levada.client.records import Record

Shape = Callable[["Record"], None]

_ESCAPES: Final = {"\\t": "\t", "\\n": "\n", "\\0": "\0", "\\\\": "\\"}
_PLACE: Final = re.compile(r"\{(\w*)\}|(\\[tn0\\])")


def shape(*, raw: bool, as_json: bool, form: str | None) -> Shape:
    """WrongUsage for a form that names something a record does not have."""
    if form is not None:
        return _formatted(form)
    return _raw if raw else _json if as_json else _line


def _raw(record: Record) -> None:
    _write((record.value or b"") + b"\n")


def _line(record: Record) -> None:
    key = "" if record.key is None else f"{_text(record.key)} "
    value = "(null)" if record.value is None else _text(record.value)
    print(f"{record.partition}:{record.offset} {key}{value}")


def _json(record: Record) -> None:
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": _moment(record),
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": [{"name": name, **_field("value", value)} for name, value in record.headers],
    }
    print(json.dumps(fields, ensure_ascii=False))


#: What can stand in a form.
_FIELDS: Final[dict[str, Callable[[Record], bytes]]] = {
    "topic": lambda record: record.topic.encode(),
    "partition": lambda record: b"%d" % record.partition,
    "offset": lambda record: b"%d" % record.offset,
    "timestamp": lambda record: _moment(record).encode(),
    "timestamp_ms": lambda record: b"%d" % record.timestamp_ms,
    "key": lambda record: record.key or b"",
    "value": lambda record: record.value or b"",
    "headers": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
}


def _formatted(form: str) -> Shape:
    parts: list[bytes | Callable[[Record], bytes]] = []
    at = 0
    for found in _PLACE.finditer(form):
        parts.append(_literal(form, at, found.start()))
        name, escape = found.groups()
        if escape is None and name not in _FIELDS:
            raise WrongUsage(
                f"--format: there is no {{{name}}}; there are {', '.join(f'{{{one}}}' for one in _FIELDS)}"
            )
        parts.append(_ESCAPES[escape].encode() if escape is not None else _FIELDS[name])
        at = found.end()
    parts.append(_literal(form, at, len(form)) + b"\n")

    def show(record: Record) -> None:
        _write(b"".join(part if isinstance(part, bytes) else part(record) for part in parts))

    return show


def _literal(form: str, begin: int, end: int) -> bytes:
    """What stands between places. WrongUsage for a place that has no end."""
    unfinished = re.search(r"\{(\w+)(?!\w)", form[begin:end])
    if unfinished is not None and unfinished[1] in _FIELDS:
        at = begin + unfinished.start()
        raise WrongUsage(f"--format: {form[at:end]!r} at character {at + 1} has no closing brace: {{{unfinished[1]}}}")
    return form[begin:end].encode()


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)


def _moment(record: Record) -> str:
    try:
        moment = EPOCH + timedelta(milliseconds=record.timestamp_ms)
    except OverflowError:  # a producer may have stamped it with anything
        return str(record.timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _field(name: str, data: bytes | None) -> dict[str, str | None]:
    """Text as text; bytes that are no text as base64 under another name, so that neither is mistaken for the other."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _text(data: bytes) -> str:
    """For a person: what could command the terminal is shown, not sent."""
    text = data.decode(errors="backslashreplace")
    if text.isprintable() or not sys.stdout.isatty():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
