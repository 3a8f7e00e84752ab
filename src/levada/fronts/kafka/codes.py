"""Meanings → Kafka error codes. A test keeps the table whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from levada import errors as e

UNKNOWN_SERVER_ERROR: Final = -1
NONE: Final = 0
UNSUPPORTED_VERSION: Final = 35

KAFKA_CODE: Final[Mapping[type[e.LevadaError], int]] = {
    e.LevadaError: UNKNOWN_SERVER_ERROR,
    e.TopicError: 42,
    e.UnknownTopic: 3,
    e.UnknownTopicId: 100,
    e.UnknownPartition: 3,
    e.TopicExists: 36,
    e.InvalidTopicName: 17,
    e.InvalidPartitions: 37,
    e.PartitionsCannotShrink: 37,
    e.InvalidReplicationFactor: 38,
    e.InvalidAssignment: 39,
    e.InvalidConfig: 40,
    e.TopicIdMismatch: 103,
    e.RecordError: 87,
    e.CorruptBatch: 2,
    e.InvalidRecord: 87,
    e.RecordTooLarge: 10,
    e.UnsupportedCompression: 76,
    e.InvalidTimestamp: 32,
    e.OffsetError: 42,
    e.OffsetOutOfRange: 1,
    e.OffsetMetadataTooLarge: 12,
    e.UnstableOffset: 88,
    e.UnknownLeaderEpoch: 75,
    e.FencedLeaderEpoch: 74,
    e.ProducerError: 42,
    e.OutOfOrderSequence: 45,
    e.UnknownProducer: 59,
    e.ProducerFenced: 90,
    e.InvalidProducerEpoch: 47,
    e.TransactionError: 42,
    e.InvalidTransactionState: 48,
    e.ConcurrentTransactions: 51,
    e.InvalidProducerMapping: 49,
    e.InvalidTransactionTimeout: 50,
    e.UnknownTransactionalId: 105,
    e.TransactionAbortable: 120,
    e.GroupError: 42,
    e.UnknownMember: 25,
    e.IllegalGeneration: 22,
    e.RebalanceInProgress: 27,
    e.InconsistentProtocol: 23,
    e.MemberIdRequired: 79,
    e.FencedInstance: 82,
    e.GroupNotEmpty: 68,
    e.UnknownGroup: 69,
    e.InvalidGroupId: 24,
    e.InvalidSessionTimeout: 26,
    e.GroupFull: 81,
    e.GroupKindMismatch: 23,
    e.ClusterError: 42,
    e.UnknownNode: 42,
    e.InvalidNode: 42,
    e.GroupSubscribed: 86,
    e.CoordinatorUnavailable: 15,
    e.StorageError: 56,
    e.StorageFull: 56,
    e.StorageFailed: 56,
    e.DamagedLog: 56,
    e.DamagedIndex: 56,
    e.DataInUse: 56,
    e.DataFormatTooNew: 56,
    e.RequestError: 42,
    e.InvalidRequest: 42,
    e.UnsupportedVersion: UNSUPPORTED_VERSION,
    e.MalformedFrame: 42,
    e.PolicyViolation: 44,
    e.ReservedName: 17,
    e.Overloaded: 89,
    e.Fenced: 90,
    e.TimedOut: 7,
    e.ShuttingDown: 8,
    e.CannotListen: UNKNOWN_SERVER_ERROR,
    e.ClientError: UNKNOWN_SERVER_ERROR,
    e.Unreachable: UNKNOWN_SERVER_ERROR,
    e.ConnectionLost: UNKNOWN_SERVER_ERROR,
    e.BrokerRefused: UNKNOWN_SERVER_ERROR,
}


def code_of(error: BaseException) -> int:
    """The code a client is sent for this error; −1 for what is our bug."""
    return (
        KAFKA_CODE.get(type(error), UNKNOWN_SERVER_ERROR) if isinstance(error, e.LevadaError) else UNKNOWN_SERVER_ERROR
    )
