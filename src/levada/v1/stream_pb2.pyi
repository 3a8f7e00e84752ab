from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Acks(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACKS_ALL: _ClassVar[Acks]
    ACKS_NONE: _ClassVar[Acks]

class Start(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EARLIEST: _ClassVar[Start]
    LATEST: _ClassVar[Start]
    NONE: _ClassVar[Start]

class OutOfRange(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAIL: _ClassVar[OutOfRange]
    TO_EARLIEST: _ClassVar[OutOfRange]
    TO_LATEST: _ClassVar[OutOfRange]

class GroupKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GROUP_KIND_UNSPECIFIED: _ClassVar[GroupKind]
    DYNAMIC: _ClassVar[GroupKind]
    FIXED: _ClassVar[GroupKind]
    CLASSIC: _ClassVar[GroupKind]
    OFFSETS: _ClassVar[GroupKind]
ACKS_ALL: Acks
ACKS_NONE: Acks
EARLIEST: Start
LATEST: Start
NONE: Start
FAIL: OutOfRange
TO_EARLIEST: OutOfRange
TO_LATEST: OutOfRange
GROUP_KIND_UNSPECIFIED: GroupKind
DYNAMIC: GroupKind
FIXED: GroupKind
CLASSIC: GroupKind
OFFSETS: GroupKind

class Header(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("key", "value", "headers", "timestamp_ms", "partition", "message_id")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    timestamp_ms: int
    partition: int
    message_id: str
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., timestamp_ms: _Optional[int] = ..., partition: _Optional[int] = ..., message_id: _Optional[str] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("partition", "data")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    partition: int
    data: bytes
    def __init__(self, partition: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("topic", "records", "batches", "acks", "id", "part")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    topic: str
    records: _containers.RepeatedCompositeFieldContainer[Record]
    batches: _containers.RepeatedCompositeFieldContainer[Batch]
    acks: Acks
    id: int
    part: Part
    def __init__(self, topic: _Optional[str] = ..., records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., batches: _Optional[_Iterable[_Union[Batch, _Mapping]]] = ..., acks: _Optional[_Union[Acks, str]] = ..., id: _Optional[int] = ..., part: _Optional[_Union[Part, _Mapping]] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("size", "data")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    size: int
    data: bytes
    def __init__(self, size: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("id", "positions", "error", "partitions")
    ID_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    id: int
    positions: _containers.RepeatedCompositeFieldContainer[Position]
    error: Error
    partitions: int
    def __init__(self, id: _Optional[int] = ..., positions: _Optional[_Iterable[_Union[Position, _Mapping]]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., partitions: _Optional[int] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("partition", "offset", "duplicate", "duplicates")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    duplicate: bool
    duplicates: _containers.RepeatedCompositeFieldContainer[Duplicate]
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ..., duplicate: _Optional[bool] = ..., duplicates: _Optional[_Iterable[_Union[Duplicate, _Mapping]]] = ...) -> None: ...

class Duplicate(_message.Message):
    __slots__ = ("index", "partition", "offset")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    index: int
    partition: int
    offset: int
    def __init__(self, index: _Optional[int] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "reason", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    reason: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., reason: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SpreadRequest(_message.Message):
    __slots__ = ("topic", "count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    count: int
    def __init__(self, topic: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class SpreadResponse(_message.Message):
    __slots__ = ("first", "partitions")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    first: int
    partitions: int
    def __init__(self, first: _Optional[int] = ..., partitions: _Optional[int] = ...) -> None: ...

class InitProducerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InitProducerResponse(_message.Message):
    __slots__ = ("producer_id", "epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("open", "grant", "commit", "seek", "pause", "alive")
    class Open(_message.Message):
        __slots__ = ("topics", "group", "partitions", "consumer", "generation", "start", "records_max", "bytes_max", "session_timeout_ms", "read_committed", "raw", "client_id", "offsets", "hand_over_ms")
        TOPICS_FIELD_NUMBER: _ClassVar[int]
        GROUP_FIELD_NUMBER: _ClassVar[int]
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        CONSUMER_FIELD_NUMBER: _ClassVar[int]
        GENERATION_FIELD_NUMBER: _ClassVar[int]
        START_FIELD_NUMBER: _ClassVar[int]
        RECORDS_MAX_FIELD_NUMBER: _ClassVar[int]
        BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
        SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
        READ_COMMITTED_FIELD_NUMBER: _ClassVar[int]
        RAW_FIELD_NUMBER: _ClassVar[int]
        CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
        OFFSETS_FIELD_NUMBER: _ClassVar[int]
        HAND_OVER_MS_FIELD_NUMBER: _ClassVar[int]
        topics: _containers.RepeatedScalarFieldContainer[str]
        group: str
        partitions: _containers.RepeatedCompositeFieldContainer[TopicPartition]
        consumer: int
        generation: int
        start: Start
        records_max: int
        bytes_max: int
        session_timeout_ms: int
        read_committed: bool
        raw: bool
        client_id: str
        offsets: _containers.RepeatedCompositeFieldContainer[PartitionOffset]
        hand_over_ms: int
        def __init__(self, topics: _Optional[_Iterable[str]] = ..., group: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ..., consumer: _Optional[int] = ..., generation: _Optional[int] = ..., start: _Optional[_Union[Start, str]] = ..., records_max: _Optional[int] = ..., bytes_max: _Optional[int] = ..., session_timeout_ms: _Optional[int] = ..., read_committed: _Optional[bool] = ..., raw: _Optional[bool] = ..., client_id: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[PartitionOffset, _Mapping]]] = ..., hand_over_ms: _Optional[int] = ...) -> None: ...
    class Grant(_message.Message):
        __slots__ = ("records",)
        RECORDS_FIELD_NUMBER: _ClassVar[int]
        records: int
        def __init__(self, records: _Optional[int] = ...) -> None: ...
    class CommitOffsets(_message.Message):
        __slots__ = ("id", "offsets", "generation", "handed_over")
        ID_FIELD_NUMBER: _ClassVar[int]
        OFFSETS_FIELD_NUMBER: _ClassVar[int]
        GENERATION_FIELD_NUMBER: _ClassVar[int]
        HANDED_OVER_FIELD_NUMBER: _ClassVar[int]
        id: int
        offsets: _containers.RepeatedCompositeFieldContainer[PartitionOffset]
        generation: int
        handed_over: _containers.RepeatedCompositeFieldContainer[TopicPartition]
        def __init__(self, id: _Optional[int] = ..., offsets: _Optional[_Iterable[_Union[PartitionOffset, _Mapping]]] = ..., generation: _Optional[int] = ..., handed_over: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ...) -> None: ...
    class SeekTo(_message.Message):
        __slots__ = ("offsets",)
        OFFSETS_FIELD_NUMBER: _ClassVar[int]
        offsets: _containers.RepeatedCompositeFieldContainer[PartitionOffset]
        def __init__(self, offsets: _Optional[_Iterable[_Union[PartitionOffset, _Mapping]]] = ...) -> None: ...
    class Pause(_message.Message):
        __slots__ = ("paused", "resumed")
        PAUSED_FIELD_NUMBER: _ClassVar[int]
        RESUMED_FIELD_NUMBER: _ClassVar[int]
        paused: _containers.RepeatedCompositeFieldContainer[TopicPartition]
        resumed: _containers.RepeatedCompositeFieldContainer[TopicPartition]
        def __init__(self, paused: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ..., resumed: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ...) -> None: ...
    class SignOfLife(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    OPEN_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    SEEK_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    open: SubscribeRequest.Open
    grant: SubscribeRequest.Grant
    commit: SubscribeRequest.CommitOffsets
    seek: SubscribeRequest.SeekTo
    pause: SubscribeRequest.Pause
    alive: SubscribeRequest.SignOfLife
    def __init__(self, open: _Optional[_Union[SubscribeRequest.Open, _Mapping]] = ..., grant: _Optional[_Union[SubscribeRequest.Grant, _Mapping]] = ..., commit: _Optional[_Union[SubscribeRequest.CommitOffsets, _Mapping]] = ..., seek: _Optional[_Union[SubscribeRequest.SeekTo, _Mapping]] = ..., pause: _Optional[_Union[SubscribeRequest.Pause, _Mapping]] = ..., alive: _Optional[_Union[SubscribeRequest.SignOfLife, _Mapping]] = ...) -> None: ...

class TopicPartition(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class PartitionOffset(_message.Message):
    __slots__ = ("topic", "partition", "offset", "metadata")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    metadata: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., metadata: _Optional[str] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("assigned", "records", "batches", "committed", "failed")
    class Assigned(_message.Message):
        __slots__ = ("member_id", "generation", "partitions")
        MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
        GENERATION_FIELD_NUMBER: _ClassVar[int]
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        member_id: str
        generation: int
        partitions: _containers.RepeatedCompositeFieldContainer[PartitionOffset]
        def __init__(self, member_id: _Optional[str] = ..., generation: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionOffset, _Mapping]]] = ...) -> None: ...
    class Records(_message.Message):
        __slots__ = ("topic", "partition", "records", "end", "next_offset")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        RECORDS_FIELD_NUMBER: _ClassVar[int]
        END_FIELD_NUMBER: _ClassVar[int]
        NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        records: _containers.RepeatedCompositeFieldContainer[StoredRecord]
        end: int
        next_offset: int
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., records: _Optional[_Iterable[_Union[StoredRecord, _Mapping]]] = ..., end: _Optional[int] = ..., next_offset: _Optional[int] = ...) -> None: ...
    class Batches(_message.Message):
        __slots__ = ("topic", "partition", "data", "to", "end", "aborted", "count")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        DATA_FIELD_NUMBER: _ClassVar[int]
        FROM_FIELD_NUMBER: _ClassVar[int]
        TO_FIELD_NUMBER: _ClassVar[int]
        END_FIELD_NUMBER: _ClassVar[int]
        ABORTED_FIELD_NUMBER: _ClassVar[int]
        COUNT_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        data: bytes
        to: int
        end: int
        aborted: _containers.RepeatedCompositeFieldContainer[AbortedTransaction]
        count: int
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., data: _Optional[bytes] = ..., to: _Optional[int] = ..., end: _Optional[int] = ..., aborted: _Optional[_Iterable[_Union[AbortedTransaction, _Mapping]]] = ..., count: _Optional[int] = ..., **kwargs) -> None: ...
    class Committed(_message.Message):
        __slots__ = ("id", "errors")
        ID_FIELD_NUMBER: _ClassVar[int]
        ERRORS_FIELD_NUMBER: _ClassVar[int]
        id: int
        errors: _containers.RepeatedCompositeFieldContainer[PartitionError]
        def __init__(self, id: _Optional[int] = ..., errors: _Optional[_Iterable[_Union[PartitionError, _Mapping]]] = ...) -> None: ...
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    assigned: SubscribeResponse.Assigned
    records: SubscribeResponse.Records
    batches: SubscribeResponse.Batches
    committed: SubscribeResponse.Committed
    failed: PartitionError
    def __init__(self, assigned: _Optional[_Union[SubscribeResponse.Assigned, _Mapping]] = ..., records: _Optional[_Union[SubscribeResponse.Records, _Mapping]] = ..., batches: _Optional[_Union[SubscribeResponse.Batches, _Mapping]] = ..., committed: _Optional[_Union[SubscribeResponse.Committed, _Mapping]] = ..., failed: _Optional[_Union[PartitionError, _Mapping]] = ...) -> None: ...

class AbortedTransaction(_message.Message):
    __slots__ = ("producer_id", "first_offset")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    first_offset: int
    def __init__(self, producer_id: _Optional[int] = ..., first_offset: _Optional[int] = ...) -> None: ...

class PartitionError(_message.Message):
    __slots__ = ("topic", "partition", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error: Error
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class StoredRecord(_message.Message):
    __slots__ = ("offset", "timestamp_ms", "key", "value", "headers")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    def __init__(self, offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("topic", "partition", "offset", "limit", "bytes_max", "wait_ms", "read_committed", "out_of_range")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    READ_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_RANGE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    limit: int
    bytes_max: int
    wait_ms: int
    read_committed: bool
    out_of_range: OutOfRange
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., limit: _Optional[int] = ..., bytes_max: _Optional[int] = ..., wait_ms: _Optional[int] = ..., read_committed: _Optional[bool] = ..., out_of_range: _Optional[_Union[OutOfRange, str]] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("records", "start", "end", "next_offset")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[StoredRecord]
    start: int
    end: int
    next_offset: int
    def __init__(self, records: _Optional[_Iterable[_Union[StoredRecord, _Mapping]]] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., next_offset: _Optional[int] = ...) -> None: ...

class GetOffsetRequest(_message.Message):
    __slots__ = ("group", "topic")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class GetOffsetResponse(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    def __init__(self, offsets: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ...) -> None: ...

class GroupOffset(_message.Message):
    __slots__ = ("topic", "partition", "committed", "start", "end", "lag", "metadata", "member_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    committed: int
    start: int
    end: int
    lag: int
    metadata: str
    member_id: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., committed: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., lag: _Optional[int] = ..., metadata: _Optional[str] = ..., member_id: _Optional[str] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("group", "offsets", "member_id", "generation", "consumer")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[PartitionOffset]
    member_id: str
    generation: int
    consumer: int
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[PartitionOffset, _Mapping]]] = ..., member_id: _Optional[str] = ..., generation: _Optional[int] = ..., consumer: _Optional[int] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ("errors",)
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[PartitionError]
    def __init__(self, errors: _Optional[_Iterable[_Union[PartitionError, _Mapping]]] = ...) -> None: ...

class SeekRequest(_message.Message):
    __slots__ = ("group", "topic", "partitions", "offset", "timestamp_ms", "start", "shift", "dry_run")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    offset: int
    timestamp_ms: int
    start: Start
    shift: int
    dry_run: bool
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., start: _Optional[_Union[Start, str]] = ..., shift: _Optional[int] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class SeekResponse(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[PartitionOffset]
    def __init__(self, offsets: _Optional[_Iterable[_Union[PartitionOffset, _Mapping]]] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "partitions", "settings", "replication_factor")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    settings: _containers.ScalarMap[str, str]
    replication_factor: int
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., settings: _Optional[_Mapping[str, str]] = ..., replication_factor: _Optional[int] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topic", "outcome")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SAME: _ClassVar[CreateTopicResponse.Outcome]
        CREATED: _ClassVar[CreateTopicResponse.Outcome]
        EXPANDED: _ClassVar[CreateTopicResponse.Outcome]
    SAME: CreateTopicResponse.Outcome
    CREATED: CreateTopicResponse.Outcome
    EXPANDED: CreateTopicResponse.Outcome
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    outcome: CreateTopicResponse.Outcome
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., outcome: _Optional[_Union[CreateTopicResponse.Outcome, str]] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name", "id", "partitions", "settings", "internal", "router", "keyless", "dedup", "max_message_bytes")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    ROUTER_FIELD_NUMBER: _ClassVar[int]
    KEYLESS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: bytes
    partitions: int
    settings: _containers.ScalarMap[str, str]
    internal: bool
    router: str
    keyless: str
    dedup: str
    max_message_bytes: int
    def __init__(self, name: _Optional[str] = ..., id: _Optional[bytes] = ..., partitions: _Optional[int] = ..., settings: _Optional[_Mapping[str, str]] = ..., internal: _Optional[bool] = ..., router: _Optional[str] = ..., keyless: _Optional[str] = ..., dedup: _Optional[str] = ..., max_message_bytes: _Optional[int] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("internal",)
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    internal: bool
    def __init__(self, internal: _Optional[bool] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ...) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DescribeTopicResponse(_message.Message):
    __slots__ = ("topic", "partitions", "settings")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    partitions: _containers.RepeatedCompositeFieldContainer[Partition]
    settings: _containers.RepeatedCompositeFieldContainer[Setting]
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[Partition, _Mapping]]] = ..., settings: _Optional[_Iterable[_Union[Setting, _Mapping]]] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("index", "start", "end", "leader", "replicas")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    index: int
    start: int
    end: int
    leader: str
    replicas: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, index: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., leader: _Optional[str] = ..., replicas: _Optional[_Iterable[str]] = ...) -> None: ...

class Setting(_message.Message):
    __slots__ = ("name", "value", "set", "doc")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    DOC_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    set: bool
    doc: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., set: _Optional[bool] = ..., doc: _Optional[str] = ...) -> None: ...

class ExpandTopicRequest(_message.Message):
    __slots__ = ("name", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...

class ExpandTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class AlterTopicRequest(_message.Message):
    __slots__ = ("name", "set", "unset")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    name: str
    set: _containers.ScalarMap[str, str]
    unset: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., unset: _Optional[_Iterable[str]] = ...) -> None: ...

class AlterTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class RegisterGroupRequest(_message.Message):
    __slots__ = ("topic", "group", "consumers")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    consumers: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., consumers: _Optional[int] = ...) -> None: ...

class RegisterGroupResponse(_message.Message):
    __slots__ = ("generation", "same")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SAME_FIELD_NUMBER: _ClassVar[int]
    generation: int
    same: bool
    def __init__(self, generation: _Optional[int] = ..., same: _Optional[bool] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupSummary]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupSummary, _Mapping]]] = ...) -> None: ...

class GroupSummary(_message.Message):
    __slots__ = ("group", "kind", "members", "state")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    group: str
    kind: GroupKind
    members: int
    state: str
    def __init__(self, group: _Optional[str] = ..., kind: _Optional[_Union[GroupKind, str]] = ..., members: _Optional[int] = ..., state: _Optional[str] = ...) -> None: ...

class DescribeGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class DescribeGroupResponse(_message.Message):
    __slots__ = ("group", "kind", "state", "generation", "members", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    kind: GroupKind
    state: str
    generation: int
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    offsets: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    def __init__(self, group: _Optional[str] = ..., kind: _Optional[_Union[GroupKind, str]] = ..., state: _Optional[str] = ..., generation: _Optional[int] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ..., offsets: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("member_id", "client_id", "host", "partitions", "consumer")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    client_id: str
    host: str
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    consumer: int
    def __init__(self, member_id: _Optional[str] = ..., client_id: _Optional[str] = ..., host: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ..., consumer: _Optional[int] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
