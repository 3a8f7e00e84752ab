"""Lines of text or JSON → records to be published."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from levada.cli.places import timestamp_ms
from levada.errors import InvalidRequest

Header = tuple[str, bytes | None]


class Draft(NamedTuple):
    """A record to be published. `size` is what it took in the input."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    message_id: str | None = None
    timestamp_ms: int | None = None
    size: int = 0


def plain(lines: Iterable[bytes], template: Draft, separator: str | None) -> Iterator[Draft]:
    """A record per line; with a separator, KEY<separator>VALUE."""
    between = None if separator is None else separator.encode()
    for number, line in enumerate(lines, 1):
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if between is None:
            yield template._replace(value=text, size=len(line))
            continue
        head, found, tail = text.partition(between)
        if not found:
            raise InvalidRequest(f"line {number} has no {separator!r}, which is to stand between key and value")
        yield template._replace(value=tail, key=head, size=len(line))


def objects(lines: Iterable[bytes], template: Draft) -> Iterator[Draft]:
    """A record per JSON object, with the fields that `levada consume --json` prints. Empty lines are passed over."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
            if not isinstance(found, dict):
                raise ValueError('must be an object such as {"value": "…", "key": "…"}')
            yield _draft(found, template, len(line))
        except json.JSONDecodeError as reason:
            raise InvalidRequest(f"line {number} is not JSON: {reason.msg}, at column {reason.colno}") from None
        except (ValueError, KeyError, TypeError) as reason:
            raise InvalidRequest(f"line {number}: {reason}") from None


def _draft(found: dict[str, Any], template: Draft, size: int) -> Draft:
    if not {"value", "value_base64"} & set(found):
        raise ValueError('there is no "value"; null stands for none')
    moment = found.get("timestamp")
    headers = found.get("headers")
    return Draft(
        value=_bytes(found, "value"),
        key=_bytes(found, "key") if {"key", "key_base64"} & set(found) else template.key,
        headers=template.headers if headers is None else (*template.headers, *_headers(headers)),
        partition=template.partition if template.partition is not None else _partition(found.get("partition")),
        message_id=None if found.get("id") is None else str(found["id"]),
        timestamp_ms=found.get("timestamp_ms") if moment is None else timestamp_ms(datetime.fromisoformat(moment)),
        size=size,
    )


def _partition(given: Any) -> int | None:
    if given is not None and (not isinstance(given, int) or isinstance(given, bool)):
        raise ValueError(f"partition {given!r}: must be a whole number")
    return given


def _headers(given: Any) -> list[Header]:
    if isinstance(given, dict):
        return [(name, None if value is None else str(value).encode()) for name, value in given.items()]
    return [(str(each["name"]), _bytes(each, "value")) for each in given]


def _bytes(found: dict[str, Any], name: str) -> bytes | None:
    """Text as UTF-8; what is neither text nor null as the JSON it is."""
    if f"{name}_base64" in found:
        try:
            return base64.b64decode(found[f"{name}_base64"], validate=True)
        except binascii.Error as reason:
            raise ValueError(f"{name}_base64: {reason}") from None
    value = found[name]
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
