"""From gRPC's errors back to those of levada.errors.

A refusal carries its name (`reason`) and what there is to know about it (`metadata`): the error raised here is the one the
broker raised, with its attributes. What did not come from the broker says what can be done about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import grpc

from levada import errors
from levada.errors import (
    ConnectionLost,
    InvalidRequest,
    LevadaError,
    Overloaded,
    RecordTooLarge,
    ShuttingDown,
    TimedOut,
    Unreachable,
    UnsupportedVersion,
)

if TYPE_CHECKING:
    from levada.v1 import stream_pb2

DOMAIN: Final = "levada"
_DETAILS: Final = "grpc-status-details-bin"
_BROKEN: Final = frozenset((grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN))


@cache
def _by_name() -> Mapping[str, type[LevadaError]]:
    return {kind.__name__: kind for kind in errors.all_errors()}


def rebuild(reason: str, message: str, metadata: Mapping[str, str]) -> LevadaError:
    """The error of this name with these attributes. An unknown name is from a newer broker: a plain LevadaError.

    >>> rebuild("OffsetOutOfRange", "too low", {"start": "5", "end": "9"}).start
    5
    """
    kind = _by_name().get(reason)
    if kind is None:
        return LevadaError(f"{reason}: {message}" if reason else message)
    error = kind(message or None)
    for name, text in metadata.items():
        if hasattr(error, name) and not name.startswith("_"):
            before = getattr(error, name)
            setattr(error, name, text if isinstance(before, str) else _number(text, before))
    return error


def _number(text: str, otherwise: object) -> object:
    try:
        return int(text)
    except ValueError:
        return otherwise


def of_message(error: stream_pb2.Error) -> LevadaError:
    """From the Error inside an answer."""
    return rebuild(error.reason, error.message, dict(error.metadata))


def of_rpc(error: grpc.RpcError, address: str) -> LevadaError:
    """From a call that failed: as the broker said it, or why there was no answer."""
    told = _told(error)
    if told is not None:
        return told
    code, details = error.code(), error.details() or ""
    if code == grpc.StatusCode.UNAVAILABLE:
        return unreachable(address, details)
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimedOut(f"the broker at {address} did not answer in time")
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
        if "larger than max" in details:
            # gRPC's own refusal: it read the length of the message and nothing more, so waiting changes nothing.
            return RecordTooLarge(f"the broker at {address} takes no message of this size: {details}")
        return Overloaded(details or None)
    if code in _BROKEN:
        # The broker's own refusals come with details: this one is gRPC's, about a connection that broke in the middle.
        return ConnectionLost(f"the connection to {address} was lost before the answer came: {details or code.name}")
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return UnsupportedVersion(f"the broker at {address} does not know this call: {details}")
    if code == grpc.StatusCode.INVALID_ARGUMENT:
        return InvalidRequest(details or None)
    return LevadaError(f"the broker at {address} answered {code.name}: {details}")


def unreachable(address: str, details: str = "") -> Unreachable:
    """Nothing answers there: with what to do next."""
    why = f" ({details})" if details else ""
    return Unreachable(
        f"nothing answers at {address}{why}: is a broker running there? `levada up` starts one and says where its "
        "gRPC port is (9094 unless told otherwise; 9092 is for Kafka clients)"
    )


def is_passing(error: LevadaError) -> bool:
    """True where the same request may well succeed a little later."""
    return isinstance(error, Overloaded | Unreachable | ConnectionLost | ShuttingDown | TimedOut)


def _told(error: grpc.RpcError) -> LevadaError | None:
    """What the broker put into the details of the status."""
    trailing: Any = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    packed = next((value for key, value in trailing or () if key == _DETAILS), None)
    if packed is None:
        return None
    from google.rpc import error_details_pb2, status_pb2

    status = status_pb2.Status.FromString(packed if isinstance(packed, bytes) else packed.encode())
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Is(info.DESCRIPTOR) and detail.Unpack(info) and info.domain == DOMAIN:
            return rebuild(info.reason, status.message, dict(info.metadata))
    return None
