"""Meanings → gRPC statuses. A test keeps the table whole.

A refusal's details hold a google.rpc.ErrorInfo with what there is to know about it, and for Overloaded a google.rpc.RetryInfo.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode

from levada import errors as e
from levada.v1 import stream_pb2 as pb

DOMAIN: Final = "levada"
#: The trailer in which every gRPC library looks for a google.rpc.Status.
DETAILS: Final = "grpc-status-details-bin"
#: A status travels in headers, of which there may be 8 KiB in all: the message twice, once with up to three bytes for each.
_MESSAGE_BYTES_MAX: Final = 1200

STATUS: Final[Mapping[type[e.LevadaError], StatusCode]] = {
    e.LevadaError: StatusCode.UNKNOWN,
    e.TopicError: StatusCode.INVALID_ARGUMENT,
    e.UnknownTopic: StatusCode.NOT_FOUND,
    e.UnknownTopicId: StatusCode.NOT_FOUND,
    e.UnknownPartition: StatusCode.NOT_FOUND,
    e.TopicExists: StatusCode.ALREADY_EXISTS,
    e.InvalidTopicName: StatusCode.INVALID_ARGUMENT,
    e.InvalidPartitions: StatusCode.INVALID_ARGUMENT,
    e.PartitionsCannotShrink: StatusCode.FAILED_PRECONDITION,
    e.InvalidReplicationFactor: StatusCode.INVALID_ARGUMENT,
    e.InvalidAssignment: StatusCode.INVALID_ARGUMENT,
    e.InvalidConfig: StatusCode.INVALID_ARGUMENT,
    e.TopicIdMismatch: StatusCode.FAILED_PRECONDITION,
    e.RecordError: StatusCode.INVALID_ARGUMENT,
    e.CorruptBatch: StatusCode.INVALID_ARGUMENT,
    e.InvalidRecord: StatusCode.INVALID_ARGUMENT,
    e.RecordTooLarge: StatusCode.INVALID_ARGUMENT,
    e.UnsupportedCompression: StatusCode.INVALID_ARGUMENT,
    e.InvalidTimestamp: StatusCode.INVALID_ARGUMENT,
    e.OffsetError: StatusCode.INVALID_ARGUMENT,
    e.OffsetOutOfRange: StatusCode.OUT_OF_RANGE,
    e.OffsetMetadataTooLarge: StatusCode.INVALID_ARGUMENT,
    e.UnstableOffset: StatusCode.UNAVAILABLE,
    e.UnknownLeaderEpoch: StatusCode.FAILED_PRECONDITION,
    e.FencedLeaderEpoch: StatusCode.FAILED_PRECONDITION,
    e.ProducerError: StatusCode.FAILED_PRECONDITION,
    e.OutOfOrderSequence: StatusCode.FAILED_PRECONDITION,
    e.UnknownProducer: StatusCode.FAILED_PRECONDITION,
    e.ProducerFenced: StatusCode.FAILED_PRECONDITION,
    e.InvalidProducerEpoch: StatusCode.FAILED_PRECONDITION,
    e.TransactionError: StatusCode.FAILED_PRECONDITION,
    e.InvalidTransactionState: StatusCode.FAILED_PRECONDITION,
    e.ConcurrentTransactions: StatusCode.ABORTED,
    e.InvalidProducerMapping: StatusCode.FAILED_PRECONDITION,
    e.InvalidTransactionTimeout: StatusCode.INVALID_ARGUMENT,
    e.UnknownTransactionalId: StatusCode.NOT_FOUND,
    e.TransactionAbortable: StatusCode.ABORTED,
    e.GroupError: StatusCode.FAILED_PRECONDITION,
    e.UnknownMember: StatusCode.FAILED_PRECONDITION,
    e.IllegalGeneration: StatusCode.FAILED_PRECONDITION,
    e.RebalanceInProgress: StatusCode.ABORTED,
    e.InconsistentProtocol: StatusCode.FAILED_PRECONDITION,
    e.MemberIdRequired: StatusCode.FAILED_PRECONDITION,
    e.FencedInstance: StatusCode.FAILED_PRECONDITION,
    e.GroupNotEmpty: StatusCode.FAILED_PRECONDITION,
    e.UnknownGroup: StatusCode.NOT_FOUND,
    e.InvalidGroupId: StatusCode.INVALID_ARGUMENT,
    e.InvalidSessionTimeout: StatusCode.INVALID_ARGUMENT,
    e.GroupFull: StatusCode.RESOURCE_EXHAUSTED,
    e.GroupSubscribed: StatusCode.FAILED_PRECONDITION,
    e.GroupKindMismatch: StatusCode.FAILED_PRECONDITION,
    e.CoordinatorUnavailable: StatusCode.UNAVAILABLE,
    e.ClusterError: StatusCode.INVALID_ARGUMENT,
    e.UnknownNode: StatusCode.NOT_FOUND,
    e.InvalidNode: StatusCode.INVALID_ARGUMENT,
    e.StorageError: StatusCode.INTERNAL,
    e.StorageFull: StatusCode.RESOURCE_EXHAUSTED,
    e.StorageFailed: StatusCode.INTERNAL,
    e.DamagedLog: StatusCode.DATA_LOSS,
    e.DamagedIndex: StatusCode.DATA_LOSS,
    e.DataInUse: StatusCode.FAILED_PRECONDITION,
    e.DataFormatTooNew: StatusCode.FAILED_PRECONDITION,
    e.RequestError: StatusCode.INVALID_ARGUMENT,
    e.InvalidRequest: StatusCode.INVALID_ARGUMENT,
    e.UnsupportedVersion: StatusCode.UNIMPLEMENTED,
    e.MalformedFrame: StatusCode.INVALID_ARGUMENT,
    e.PolicyViolation: StatusCode.PERMISSION_DENIED,
    e.ReservedName: StatusCode.PERMISSION_DENIED,
    e.Overloaded: StatusCode.RESOURCE_EXHAUSTED,
    e.Fenced: StatusCode.FAILED_PRECONDITION,
    e.TimedOut: StatusCode.DEADLINE_EXCEEDED,
    e.ShuttingDown: StatusCode.UNAVAILABLE,
    e.CannotListen: StatusCode.INTERNAL,
    e.ClientError: StatusCode.UNAVAILABLE,
    e.Unreachable: StatusCode.UNAVAILABLE,
    e.ConnectionLost: StatusCode.UNAVAILABLE,
    e.BrokerRefused: StatusCode.UNKNOWN,
}


def status_of(error: BaseException) -> StatusCode:
    """The status a client is sent for this error; INTERNAL for what is our bug."""
    return STATUS.get(type(error), StatusCode.UNKNOWN) if isinstance(error, e.LevadaError) else StatusCode.INTERNAL


def message_of(error: BaseException) -> str:
    """What a client is told. A bug's own words stay in the log."""
    message = str(error) if isinstance(error, e.LevadaError) else "the broker failed; its log says more"
    encoded = message.encode(errors="replace")
    if len(encoded) <= _MESSAGE_BYTES_MAX:
        return message
    return encoded[:_MESSAGE_BYTES_MAX].decode(errors="ignore") + "…"


def reason_of(error: BaseException) -> str:
    return type(error).__name__ if isinstance(error, e.LevadaError) else "InternalError"


def metadata_of(error: BaseException) -> dict[str, str]:
    """What the error says beside its message: its public attributes, as text."""
    if not isinstance(error, e.LevadaError):
        return {}
    return {name: str(value) for name, value in vars(error).items() if value is not None and not name.startswith("_")}


def details_of(error: BaseException) -> bytes:
    """The google.rpc.Status that goes with the status of a call, as bytes."""
    status = Status(code=status_of(error).value[0], message=message_of(error))
    status.details.append(_packed(ErrorInfo(reason=reason_of(error), domain=DOMAIN, metadata=metadata_of(error))))
    if isinstance(error, e.Overloaded):
        seconds, ms = divmod(error.retry_after_ms, 1000)
        status.details.append(_packed(RetryInfo(retry_delay=Duration(seconds=seconds, nanos=ms * 1_000_000))))
    return bytes(status.SerializeToString())


def error_message(error: BaseException) -> pb.Error:
    """The same as a message, for where a call goes on after a refusal."""
    return pb.Error(
        code=status_of(error).value[0],
        message=message_of(error),
        reason=reason_of(error),
        metadata=metadata_of(error),
    )


def _packed(message: ErrorInfo | RetryInfo) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed
