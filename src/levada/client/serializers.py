"""From a user's values to bytes and back.

    client.producer(key=levada.STR, value=levada.JSON)

Any object with `dumps(value) -> bytes` and `loads(data) -> value` will do. None is never given to one: it is a record without
a key, or one without a value (a tombstone, on a compacted topic).
"""

from __future__ import annotations

import json
from typing import Any, Final, Protocol

from levada.errors import InvalidRecord


class Serializer(Protocol):
    """What a producer and a consumer need to know about a key or a value."""

    def dumps(self, value: Any, /) -> bytes: ...

    def loads(self, data: bytes, /) -> Any: ...


class Bytes:
    """As it is.

    >>> BYTES.dumps(b"as it is")
    b'as it is'
    """

    def dumps(self, value: Any, /) -> bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise InvalidRecord(
            f"bytes are needed, not {type(value).__name__}: encode it, or make the producer with value=levada.STR or levada.JSON"
        )

    def loads(self, data: bytes, /) -> bytes:
        return data

    def __repr__(self) -> str:
        return "levada.BYTES"


class Text:
    """Text as UTF-8.

    >>> STR.dumps("água")
    b'\\xc3\\xa1gua'
    >>> STR.loads(b"agua")
    'agua'
    """

    def dumps(self, value: Any, /) -> bytes:
        if not isinstance(value, str):
            raise InvalidRecord(f"levada.STR takes text, not {type(value).__name__}")
        return value.encode()

    def loads(self, data: bytes, /) -> str:
        return data.decode()

    def __repr__(self) -> str:
        return "levada.STR"


class Json:
    """Anything JSON can say, compact and as UTF-8.

    >>> JSON.dumps({"id": 7, "name": "água"})
    b'{"id":7,"name":"\\xc3\\xa1gua"}'
    >>> JSON.loads(b'[1, 2]')
    [1, 2]
    """

    _encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

    def dumps(self, value: Any, /) -> bytes:
        try:
            return self._encode(value).encode()
        except (TypeError, ValueError) as reason:
            raise InvalidRecord(f"levada.JSON cannot say this {type(value).__name__}: {reason}") from None

    def loads(self, data: bytes, /) -> Any:
        return json.loads(data)

    def __repr__(self) -> str:
        return "levada.JSON"


BYTES: Final[Serializer] = Bytes()
STR: Final[Serializer] = Text()
JSON: Final[Serializer] = Json()
