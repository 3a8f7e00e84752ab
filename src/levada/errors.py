"""One tree of what can go wrong.

Each class is one sentence, which is also its message; pass a text to name the thing and the valid range.
The core raises meanings. Each front owns a table from meaning to its own code, and a test keeps it whole.

    LevadaError
    ├── TopicError        UnknownTopic · UnknownTopicId · UnknownPartition · TopicExists · InvalidTopicName · InvalidPartitions
    │                     PartitionsCannotShrink · InvalidReplicationFactor · InvalidAssignment · InvalidConfig · TopicIdMismatch
    ├── RecordError       CorruptBatch · InvalidRecord · RecordTooLarge · UnsupportedCompression · InvalidTimestamp
    ├── OffsetError       OffsetOutOfRange · OffsetMetadataTooLarge · UnstableOffset · UnknownLeaderEpoch · FencedLeaderEpoch
    ├── ProducerError     OutOfOrderSequence · UnknownProducer · ProducerFenced · InvalidProducerEpoch
    ├── TransactionError  InvalidTransactionState · ConcurrentTransactions · InvalidProducerMapping
    │                     InvalidTransactionTimeout · UnknownTransactionalId · TransactionAbortable
    ├── GroupError        UnknownMember · IllegalGeneration · RebalanceInProgress · InconsistentProtocol · MemberIdRequired
    │                     FencedInstance · GroupNotEmpty · UnknownGroup · InvalidGroupId · InvalidSessionTimeout
    │                     GroupFull · GroupSubscribed · GroupKindMismatch · CoordinatorUnavailable
    ├── ClusterError      UnknownNode · InvalidNode
    ├── StorageError      StorageFull · StorageFailed · DamagedLog · DamagedIndex · DataInUse · DataFormatTooNew
    ├── RequestError      InvalidRequest · UnsupportedVersion · MalformedFrame · PolicyViolation · ReservedName
    ├── Overloaded · Fenced · TimedOut · ShuttingDown · CannotListen
    └── ClientError       Unreachable · ConnectionLost · BrokerRefused
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class LevadaError(Exception):
    """Something in Levada went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message if message is not None else (type(self).__doc__ or "").strip())


class TopicError(LevadaError):
    """The topic request cannot be carried out."""


class UnknownTopic(TopicError):
    """There is no topic of this name."""


class UnknownTopicId(TopicError):
    """There is no topic with this id."""


class UnknownPartition(TopicError):
    """The topic has no such partition."""


class TopicExists(TopicError):
    """A topic of this name already exists."""


class InvalidTopicName(TopicError):
    """A topic name is 1 to 249 of [A-Za-z0-9._-], and not "." or ".."."""


class InvalidPartitions(TopicError):
    """The number of partitions must be at least 1 and may only grow."""


class PartitionsCannotShrink(InvalidPartitions):
    """A topic never loses partitions; ask for as many as it has, or more."""


class InvalidReplicationFactor(TopicError):
    """The replication factor is larger than the number of nodes, or not positive."""


class InvalidAssignment(TopicError):
    """The replica assignment does not fit this cluster."""


class InvalidConfig(TopicError):
    """The setting is unknown, or its value is not allowed."""


class TopicIdMismatch(TopicError):
    """The topic was deleted and created again since this id was handed out."""


class RecordError(LevadaError):
    """The records cannot be stored as they are."""

    def __init__(self, message: str | None = None, *, index: int | None = None) -> None:
        super().__init__(message)
        #: Which record of the batch, where it is one of them.
        self.index = index


class CorruptBatch(RecordError):
    """The batch is cut short or its checksum does not match."""


class InvalidRecord(RecordError):
    """The batch or one of its records breaks a rule of the topic."""


class RecordTooLarge(RecordError):
    """The batch is larger than the topic's max.message.bytes."""


class UnsupportedCompression(RecordError):
    """The compression codec is not known, or not allowed in this version."""


class InvalidTimestamp(RecordError):
    """The record's timestamp is too far from the broker's clock."""


class OffsetError(LevadaError):
    """The offset request cannot be carried out."""


class OffsetOutOfRange(OffsetError):
    """The offset is outside what this partition still holds."""

    def __init__(self, message: str | None = None, *, start: int = -1, end: int = -1) -> None:
        super().__init__(message)
        self.start = start
        self.end = end


class OffsetMetadataTooLarge(OffsetError):
    """The metadata of an offset commit is longer than allowed."""


class UnstableOffset(OffsetError):
    """An open transaction holds an offset of this partition."""


class UnknownLeaderEpoch(OffsetError):
    """The leader epoch is newer than this broker's."""


class FencedLeaderEpoch(OffsetError):
    """The leader epoch is older than this broker's."""


class ProducerError(LevadaError):
    """The producer may not write this."""


class OutOfOrderSequence(ProducerError):
    """The sequence number does not follow the producer's last one."""


class UnknownProducer(ProducerError):
    """Nothing is remembered of this producer id."""


class ProducerFenced(ProducerError):
    """A newer producer with the same transactional id has taken over."""


class InvalidProducerEpoch(ProducerError):
    """The producer's epoch is older than the newest one seen."""


class TransactionError(LevadaError):
    """The transaction request cannot be carried out."""


class InvalidTransactionState(TransactionError):
    """The transaction is not in a state that allows this."""


class ConcurrentTransactions(TransactionError):
    """The previous transaction of this id is still being finished; try again."""


class InvalidProducerMapping(TransactionError):
    """The producer id does not belong to this transactional id."""


class InvalidTransactionTimeout(TransactionError):
    """The transaction timeout is not positive or above transaction.max.timeout.ms."""


class UnknownTransactionalId(TransactionError):
    """There is no transaction under this transactional id."""


class TransactionAbortable(TransactionError):
    """The transaction can only be aborted."""


class GroupError(LevadaError):
    """The group request cannot be carried out."""


class UnknownMember(GroupError):
    """The group has no such member."""


class IllegalGeneration(GroupError):
    """The generation is not the group's current one."""


class RebalanceInProgress(GroupError):
    """The group is rebalancing; join again."""


class InconsistentProtocol(GroupError):
    """The member's protocols do not fit those of the group."""


class MemberIdRequired(GroupError):
    """Join again with the member id given in the answer."""


class FencedInstance(GroupError):
    """Another member has taken over this group.instance.id."""


class GroupNotEmpty(GroupError):
    """The group still has members."""


class UnknownGroup(GroupError):
    """There is no group of this id."""


class InvalidGroupId(GroupError):
    """The group id is empty or not allowed."""


class InvalidSessionTimeout(GroupError):
    """The session timeout is outside group.min.session.timeout.ms and group.max.session.timeout.ms."""


class GroupFull(GroupError):
    """The group has group.max.size members already."""


class GroupSubscribed(GroupError):
    """The group is still subscribed to this topic."""


class GroupKindMismatch(GroupError):
    """The group id belongs to a group of another kind: a group has one kind at a time."""


class CoordinatorUnavailable(GroupError):
    """The coordinator cannot serve this now; find it again and retry."""


class ClusterError(LevadaError):
    """The request about the cluster's nodes cannot be carried out."""


class UnknownNode(ClusterError):
    """There is no node of this id."""


class InvalidNode(ClusterError):
    """A node's id is 1 to 249 of [A-Za-z0-9._-], and its address host:port."""


class StorageError(LevadaError):
    """The data directory cannot do this."""


class StorageFull(StorageError):
    """There is no room on the disk: writes are refused until there is, reads go on."""


class StorageFailed(StorageError):
    """The disk reported an error."""


class DamagedLog(StorageError):
    """The partition's log is damaged: it is read up to the damage and takes no writes."""

    def __init__(self, message: str | None = None, *, file: str = "", position: int = -1) -> None:
        super().__init__(message)
        self.file = file
        self.position = position


class DamagedIndex(StorageError):
    """A file beside the log is damaged; what it said is found again in the log."""


class DataInUse(StorageError):
    """Another process has this data directory open."""


class DataFormatTooNew(StorageError):
    """The data directory was written by a newer version."""


class RequestError(LevadaError):
    """The request is not understood."""


class InvalidRequest(RequestError):
    """The request contradicts itself or the protocol."""


class UnsupportedVersion(RequestError):
    """This version of the call is not spoken here."""


class MalformedFrame(RequestError):
    """The bytes are not a frame of this protocol; the connection is closed."""


class PolicyViolation(RequestError):
    """The request is understood and not allowed here."""


class ReservedName(PolicyViolation):
    """Names that begin with "__levada." or "dlq." are the broker's own."""


class Overloaded(LevadaError):
    """The broker is busy; try again after the hint."""

    def __init__(self, message: str | None = None, *, retry_after_ms: int = 100) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class Fenced(LevadaError):
    """Another owner has taken over this shard."""


class TimedOut(LevadaError):
    """The answer did not come in time."""


class ShuttingDown(LevadaError):
    """The broker is closing."""


class ClientError(LevadaError):
    """The broker cannot be talked to."""


class CannotListen(LevadaError):
    """The address is taken, or not this machine's."""


class Unreachable(ClientError):
    """Nothing answers at this address."""


class ConnectionLost(ClientError):
    """The connection went away before the answer came."""


class BrokerRefused(ClientError):
    """The broker answered with an error code."""

    def __init__(self, message: str | None = None, *, code: int = -1, name: str = "UNKNOWN_SERVER_ERROR") -> None:
        super().__init__(message)
        self.code = code
        #: Kafka's name of the code.
        self.name = name


def nearest(name: str, known: Iterable[str]) -> str:
    """For the end of a sentence about an unknown name: "; did you mean …?" where there is something like it."""
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def all_errors(root: type[LevadaError] = LevadaError) -> Iterator[type[LevadaError]]:
    """Every class of the tree, the root first."""
    yield root
    for child in root.__subclasses__():
        yield from all_errors(child)
