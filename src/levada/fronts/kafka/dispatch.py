"""From a frame to its handler, and from what the handler gives to an answer.

- A frame that cannot be read, or asks for a call or version that was never offered, closes its connection, as in Kafka.
  ApiVersions is the exception: an unknown version is answered in version 0 with what is offered.
- A refusal (`LevadaError`) of a whole request is answered with its code where the call has one for the whole request.
- Any other error is our bug: it is logged with its traceback and costs that one connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from levada.errors import LevadaError, MalformedFrame
from levada.fronts.kafka import notice
from levada.fronts.kafka.apis import Handler, offered
from levada.fronts.kafka.call import Call, Node, Peer
from levada.fronts.kafka.codes import code_of
from levada.fronts.kafka.reply import Body, Frame, HangUp, Later, Running, framed, step
from levada.wire.apis import ApiKey
from levada.wire.codec import Message, read_request, read_request_header, write_response


class Dispatcher:
    """Answers frames. One for all connections."""

    def __init__(self) -> None:
        self.handlers = offered()
        #: Handlers that are waiting for something.
        self.tasks: set[asyncio.Task[Body | None]] = set()

    def serve(self, frame: memoryview, node: Node, client_host: str, peer: Peer | None = None) -> Frame | Later | None:
        """Begin a request: gives its answer, or its place in line, or None where the client expects no answer."""
        api_key, version, correlation_id, client_id, start = read_request_header(frame)
        call = Call(node, api_key, version, correlation_id, client_id, client_host, peer)
        handler = self.handlers.get(api_key)
        if handler is None or not handler.advertised_from <= version <= handler.api.max_version:
            return self._unsupported(call)
        try:
            answer = self._begin(handler, frame[start:], call)
        except (MalformedFrame, HangUp):
            raise
        except Exception as error:
            raise _bug(handler, call, error) from error
        return answer if answer is None or isinstance(answer, Later) else framed(call, answer)

    def _begin(self, handler: Handler, body: memoryview, call: Call) -> Body | Later | None:
        if not handler.loaded:
            handler.load()
        if handler.serve is not None:
            return handler.serve(body, call)
        request = read_request(call.api_key, call.version, body)
        answer = step(_run(handler, request, call), self.tasks)
        return Running(call, answer) if isinstance(answer, asyncio.Task) else answer

    def _unsupported(self, call: Call) -> Frame:
        if call.api_key != ApiKey.API_VERSIONS:
            raise HangUp(f"call {call.api_key} version {call.version} is not offered here")
        from levada.fronts.kafka.api_versions import unsupported

        call.version = 0
        return framed(call, unsupported())


async def _run(handler: Handler, request: Message, call: Call) -> Body | None:
    """Run a handler to its end and write its answer. Raises nothing but HangUp."""
    assert handler.handle is not None
    try:
        fields = await handler.handle(request, call)
        return _written(fields, call)
    except HangUp:
        raise
    except MalformedFrame as error:
        raise HangUp(f"{handler.api.name} v{call.version}: {error}") from error
    except LevadaError as error:
        refusal = handler.refusal(call.version, error, code_of(error))
        if refusal is None:
            raise HangUp(f"{handler.api.name} v{call.version}: {error}") from error
        notice.refused(call, handler.api.name, error)
        return _written(refusal, call)
    except Exception as error:
        raise _bug(handler, call, error) from error


def _written(fields: Mapping[str, Any] | bytes | None, call: Call) -> Body | None:
    if fields is None or isinstance(fields, bytes):
        return fields
    return write_response(call.api_key, call.version, fields)


def _bug(handler: Handler, call: Call, error: Exception) -> HangUp:
    notice.failed(call, handler.api.name, error)
    return HangUp(f"{handler.api.name} v{call.version} failed: {error!r}")
