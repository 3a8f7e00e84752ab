from __future__ import annotations

import inspect

import pytest

from levada.errors import InvalidRequest
from levada.fronts.kafka.apis import Handler, offered
from levada.wire.apis import ApiKey
from levada.wire.codec import read_response, write_response

#: What KAFKA.md leaves for later: security, KIP-848, share groups, and what nobody but brokers asks.
LATER = {ApiKey.SASL_HANDSHAKE, ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.SASL_AUTHENTICATE}


@pytest.mark.parametrize("handler", offered().values(), ids=lambda handler: handler.api.name)
def test_every_call_that_is_offered_has_its_module(handler: Handler) -> None:
    handler.load()
    assert (handler.serve is None) != (handler.handle is None)
    if handler.handle is not None:
        assert inspect.iscoroutinefunction(handler.handle)


def test_every_call_up_to_offset_delete_is_offered_unless_it_comes_later() -> None:
    never = {ApiKey.WRITE_TXN_MARKERS, ApiKey.ALTER_REPLICA_LOG_DIRS, *range(38, 42)}
    wanted = {key for key in ApiKey if key <= ApiKey.OFFSET_DELETE} - LATER - never
    assert wanted <= offered().keys()


def test_a_refusal_of_a_whole_request_can_be_written_where_there_is_one() -> None:
    refused = InvalidRequest("no")
    for key, handler in offered().items():
        for version in range(handler.api.min_version, handler.api.max_version + 1):
            fields = handler.refusal(version, refused, 42)
            if fields is not None:
                answer = read_response(key, version, write_response(key, version, fields))
                assert answer.error_code == 42, (handler.api.name, version)
