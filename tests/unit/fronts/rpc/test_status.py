"""Every error has a gRPC status, and says on the wire what there is to know about it."""

from __future__ import annotations

import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode

from levada.errors import (
    InvalidConfig,
    LevadaError,
    OffsetOutOfRange,
    Overloaded,
    RecordTooLarge,
    UnknownTopic,
    all_errors,
)
from levada.fronts.rpc.status import STATUS, details_of, error_message


def ours() -> set[type[LevadaError]]:
    """Those of the product; tests may have subclasses of their own."""
    return {error for error in all_errors() if error.__module__ == "levada.errors"}


def test_every_error_has_a_status() -> None:
    assert set(STATUS) == ours()


def test_no_error_is_told_as_success_or_as_cancelled() -> None:
    assert not {StatusCode.OK, StatusCode.CANCELLED} & set(STATUS.values())


def details(error: BaseException) -> tuple[Status, list[ErrorInfo | RetryInfo]]:
    status = Status.FromString(details_of(error))
    found: list[ErrorInfo | RetryInfo] = []
    for detail in status.details:
        found += [kind for kind in (ErrorInfo(), RetryInfo()) if detail.Unpack(kind)]
    return status, found


def test_a_refusal_names_its_class_and_what_it_knows() -> None:
    status, [info] = details(OffsetOutOfRange("offset 7 is not there", start=9, end=12))
    assert (status.code, status.message) == (StatusCode.OUT_OF_RANGE.value[0], "offset 7 is not there")
    assert (info.domain, info.reason) == ("levada", "OffsetOutOfRange")
    assert dict(info.metadata) == {"start": "9", "end": "12"}


def test_what_an_error_does_not_know_is_left_out() -> None:
    _, [info] = details(RecordTooLarge("too large"))
    assert "index" not in info.metadata
    _, [info] = details(RecordTooLarge("too large", index=3))
    assert info.metadata["index"] == "3"


def test_overloaded_says_when_to_come_back() -> None:
    _, [info, retry] = details(Overloaded(retry_after_ms=1250))
    assert info.metadata["retry_after_ms"] == "1250"
    assert retry.retry_delay.ToMilliseconds() == 1250


def test_a_message_without_words_of_its_own_is_the_errors_sentence() -> None:
    status, _ = details(UnknownTopic())
    assert status.message == "There is no topic of this name."


def test_a_long_message_is_cut_so_that_it_fits_into_a_header() -> None:
    assert len(details_of(InvalidConfig("ü" * 100_000))) < 4096


def test_a_bug_tells_nothing_about_itself() -> None:
    status, [info] = details(ValueError("secret"))
    assert status.code == StatusCode.INTERNAL.value[0]
    assert "secret" not in status.message
    assert info.reason == "InternalError"


@pytest.mark.parametrize(
    "error", [Overloaded("full", retry_after_ms=9), OffsetOutOfRange(start=1, end=2), ValueError()]
)
def test_the_same_is_said_within_a_stream(error: Exception) -> None:
    message, (status, [info, *_]) = error_message(error), details(error)
    assert (message.code, message.message) == (status.code, status.message)
    assert (message.reason, dict(message.metadata)) == (info.reason, dict(info.metadata))
