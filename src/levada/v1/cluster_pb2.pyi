from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Node(_message.Message):
    __slots__ = ("id", "address", "kafka", "leader", "self", "joined_ms", "last_heartbeat_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    KAFKA_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    SELF_FIELD_NUMBER: _ClassVar[int]
    JOINED_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    address: str
    kafka: str
    leader: bool
    self: bool
    joined_ms: int
    last_heartbeat_ms: int
    def __init__(self_, id: _Optional[str] = ..., address: _Optional[str] = ..., kafka: _Optional[str] = ..., leader: _Optional[bool] = ..., self: _Optional[bool] = ..., joined_ms: _Optional[int] = ..., last_heartbeat_ms: _Optional[int] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("id", "address", "timeout_ms", "kafka")
    ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    KAFKA_FIELD_NUMBER: _ClassVar[int]
    id: str
    address: str
    timeout_ms: int
    kafka: str
    def __init__(self, id: _Optional[str] = ..., address: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., kafka: _Optional[str] = ...) -> None: ...

class JoinResponse(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class LeaveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("leader",)
    LEADER_FIELD_NUMBER: _ClassVar[int]
    leader: str
    def __init__(self, leader: _Optional[str] = ...) -> None: ...

class GetNodesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetNodesResponse(_message.Message):
    __slots__ = ("nodes", "cluster_id")
    NODES_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    cluster_id: str
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class GetLeaderRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLeaderResponse(_message.Message):
    __slots__ = ("leader",)
    LEADER_FIELD_NUMBER: _ClassVar[int]
    leader: Node
    def __init__(self, leader: _Optional[_Union[Node, _Mapping]] = ...) -> None: ...

class GetPlacementRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetPlacementResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionPlacement]
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionPlacement, _Mapping]]] = ...) -> None: ...

class PartitionPlacement(_message.Message):
    __slots__ = ("topic", "partition", "leader", "replicas", "last_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    leader: str
    replicas: _containers.RepeatedScalarFieldContainer[str]
    last_offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., leader: _Optional[str] = ..., replicas: _Optional[_Iterable[str]] = ..., last_offset: _Optional[int] = ...) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatsResponse(_message.Message):
    __slots__ = ("version", "uptime_ms", "topics", "partitions", "groups", "connections", "bytes_on_disk", "records_in", "records_out", "resident_bytes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    BYTES_ON_DISK_FIELD_NUMBER: _ClassVar[int]
    RECORDS_IN_FIELD_NUMBER: _ClassVar[int]
    RECORDS_OUT_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    version: str
    uptime_ms: int
    topics: int
    partitions: int
    groups: int
    connections: int
    bytes_on_disk: int
    records_in: int
    records_out: int
    resident_bytes: int
    def __init__(self, version: _Optional[str] = ..., uptime_ms: _Optional[int] = ..., topics: _Optional[int] = ..., partitions: _Optional[int] = ..., groups: _Optional[int] = ..., connections: _Optional[int] = ..., bytes_on_disk: _Optional[int] = ..., records_in: _Optional[int] = ..., records_out: _Optional[int] = ..., resident_bytes: _Optional[int] = ...) -> None: ...
