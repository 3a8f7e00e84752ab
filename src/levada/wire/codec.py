"""Kafka's messages ⇄ bytes, for every call and version in `apis`.

    request = read_request(ApiKey.HEARTBEAT, 4, body)
    request.group_id, request.generation_id
    body = write_response(ApiKey.HEARTBEAT, 4, {"error_code": 27})

Names are Kafka's in snake case. A message that was read has the fields of all versions, with the schema's default where its own
version lacks one; what is written may name fields of any version, and those its own lacks are dropped. Values are plain: int
(milliseconds and error codes too), str, bytes, bool, UUID (the zero UUID where Kafka has it), lists, and None for null.

A message's reader or writer is compiled from its schema the first time it is used, in a few milliseconds.
Bytes that are not such a message raise MalformedFrame and nothing else; an unknown call or version raises UnsupportedVersion.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from levada.errors import MalformedFrame
from levada.wire.apis import APIS, api_of
from levada.wire.message import Message, as_dict
from levada.wire.primitives import BROKEN, skip_tags
from levada.wire.reader import Reader, compile_reader
from levada.wire.schema import Kind
from levada.wire.writer import Writer, compile_writer

__all__ = [
    "Message",
    "RequestHeader",
    "as_dict",
    "read_request",
    "read_request_header",
    "read_response",
    "read_response_header",
    "write_request",
    "write_request_header",
    "write_response",
    "write_response_header",
]

_REQUEST_HEAD: Final = struct.Struct(">hhih")
_CORRELATION: Final = struct.Struct(">i")

_readers: Final[dict[tuple[int, int, Kind], Reader]] = {}
_writers: Final[dict[tuple[int, int, Kind], Writer]] = {}


def read_request(api_key: int, version: int, body: bytes | bytearray | memoryview) -> Message:
    """The request in this body, which begins after the header."""
    return _read(api_key, version, "request", body)


def read_response(api_key: int, version: int, body: bytes | bytearray | memoryview) -> Message:
    """The response in this body, which begins after the header."""
    return _read(api_key, version, "response", body)


def write_request(api_key: int, version: int, fields: Mapping[str, Any]) -> bytes:
    """The body of a request, without its header."""
    return _writer(api_key, version, "request")(fields)


def write_response(api_key: int, version: int, fields: Mapping[str, Any]) -> bytes:
    """The body of a response, without its header."""
    return _writer(api_key, version, "response")(fields)


def _read(api_key: int, version: int, kind: Kind, body: bytes | bytearray | memoryview) -> Message:
    try:
        reader = _readers[api_key, version, kind]
    except KeyError:
        api_of(api_key, version)
        reader = _readers[api_key, version, kind] = compile_reader(api_key, version, kind)
    try:
        return reader(bytes(body))
    except BROKEN as error:
        raise MalformedFrame(f"{APIS[api_key].name} {kind} {version} cannot be read: {error}") from error


def _writer(api_key: int, version: int, kind: Kind) -> Writer:
    try:
        return _writers[api_key, version, kind]
    except KeyError:
        api_of(api_key, version)
        writer = _writers[api_key, version, kind] = compile_writer(api_key, version, kind)
        return writer


class RequestHeader(NamedTuple):
    """What every request begins with. The body begins at `body_start` of the frame."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_start: int


def read_request_header(frame: bytes | bytearray | memoryview) -> RequestHeader:
    """The header of a frame (its 4-byte length is not part of it).

    int16 api key | int16 version | int32 correlation id | int16-length client id, null allowed | tags, where flexible.
    An unknown call has no known header and is MalformedFrame; an unknown version of a known call is read as its newest is.
    """
    try:
        api_key, version, correlation_id, size = _REQUEST_HEAD.unpack_from(frame)
        position = _REQUEST_HEAD.size
        client_id = None
        if size >= 0:
            client_id = str(frame[position : position + size], "utf-8", "replace")
            position += size
        if APIS[api_key].is_flexible(version):
            position = position + 1 if frame[position] == 0 else skip_tags(memoryview(frame), position)
    except KeyError:
        raise MalformedFrame(f"call {api_key} is not known here") from None
    except BROKEN as error:
        raise MalformedFrame(f"the request header cannot be read: {error}") from error
    if position > len(frame):
        raise MalformedFrame("the request header ends too soon")
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def write_request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header of a request. The client id is never compact, not even in flexible versions."""
    text = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(text)
    tags = b"\0" if APIS[api_key].is_flexible(version) else b""
    return _REQUEST_HEAD.pack(api_key, version, correlation_id, size) + text + tags


def read_response_header(api_key: int, version: int, frame: bytes | bytearray | memoryview) -> tuple[int, int]:
    """(correlation id, where the body begins). The call and version are those of the request."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        if APIS[api_key].response_header(version) == 0:
            return correlation_id, 4
        position = skip_tags(memoryview(frame), 4)
    except BROKEN as error:
        raise MalformedFrame(f"the response header cannot be read: {error}") from error
    if position > len(frame):
        raise MalformedFrame("the response header ends too soon")
    return correlation_id, position


def write_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header of the answer to a request of this call and version."""
    return _CORRELATION.pack(correlation_id) + b"\0" * APIS[api_key].response_header(version)
