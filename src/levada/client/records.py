"""What a user of the client holds in hand: records that were read, and positions of records that were written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from levada.errors import InvalidRecord

#: What a user may give as headers: a mapping, or pairs where a name comes twice. Text is stored as UTF-8.
Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]

MESSAGE_ID = "message_id"


class Record(NamedTuple):
    """One record as a consumer sees it. `key` and `value` are what the consumer's serializers made of them.

    >>> record = Record("orders", 0, 41, 1_700_000_000_000, b"user-1", b"...", (("trace", b"7"),))
    >>> record.header("trace")
    b'7'
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Sequence[tuple[str, bytes | None]] = ()

    def header(self, name: str, default: bytes | None = None) -> bytes | None:
        """The last header of this name."""
        for each, value in reversed(self.headers):
            if each == name:
                return value
        return default


class Position(NamedTuple):
    """Where a record lies. `duplicate`: it was there already, and this is where the first copy lies."""

    topic: str
    partition: int
    offset: int
    duplicate: bool = False


class At(NamedTuple):
    """A partition of a topic.

    >>> str(At("orders", 2))
    'orders/2'
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def encode_headers(headers: Headers | None, message_id: str | None = None) -> list[tuple[str, bytes | None]]:
    """Headers as they are stored. The message id goes in as the header `message_id`.

    >>> encode_headers({"trace": "7", "empty": None}, message_id="m-1")
    [('trace', b'7'), ('empty', None), ('message_id', b'm-1')]
    """
    made: list[tuple[str, bytes | None]] = []
    for name, value in headers.items() if isinstance(headers, Mapping) else headers or ():
        if not isinstance(name, str):
            raise InvalidRecord(f"the name of a header is text, not {type(name).__name__}")
        if isinstance(value, str):
            value = value.encode()
        elif value is not None and not isinstance(value, bytes):
            raise InvalidRecord(f"header {name!r} is bytes, text or None, not {type(value).__name__}")
        made.append((name, value))
    if message_id is not None:
        if not message_id:
            raise InvalidRecord("a message id has at least one character")
        made.append((MESSAGE_ID, message_id.encode()))
    return made
