"""The calls of the Kafka protocol: their keys, names and the versions an Apache Kafka 4.3 broker offers.

Left out is what only brokers and controllers say to one another (quorum, replication, share state) and telemetry.

Header versions follow from the body's: a flexible version has request header 2 and response header 1, the others 1
and 0. ApiVersions is the exception: its answer always has header 0, since the client cannot know our versions yet.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from levada.errors import UnsupportedVersion


class ApiKey(enum.IntEnum):
    """The number a request begins with."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Api(NamedTuple):
    """One call. From version `flexible` on its bytes are compact and may carry tagged fields; None: in no version."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible: int | None

    @property
    def file(self) -> str:
        """The name as files carry it: `OffsetCommit` is `offset_commit`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible

    def response_header(self, version: int) -> int:
        """The version of the header that an answer to this call has."""
        return int(self.is_flexible(version) and self.key != ApiKey.API_VERSIONS)


_TABLE: Final = (
    Api(0, "Produce", 3, 13, 9),
    Api(1, "Fetch", 4, 18, 12),
    Api(2, "ListOffsets", 1, 11, 6),
    Api(3, "Metadata", 0, 13, 9),
    Api(8, "OffsetCommit", 2, 10, 8),
    Api(9, "OffsetFetch", 1, 10, 6),
    Api(10, "FindCoordinator", 0, 6, 3),
    Api(11, "JoinGroup", 0, 9, 6),
    Api(12, "Heartbeat", 0, 4, 4),
    Api(13, "LeaveGroup", 0, 5, 4),
    Api(14, "SyncGroup", 0, 5, 4),
    Api(15, "DescribeGroups", 0, 6, 5),
    Api(16, "ListGroups", 0, 5, 3),
    Api(17, "SaslHandshake", 0, 1, None),
    Api(18, "ApiVersions", 0, 4, 3),
    Api(19, "CreateTopics", 2, 7, 5),
    Api(20, "DeleteTopics", 1, 6, 4),
    Api(21, "DeleteRecords", 0, 2, 2),
    Api(22, "InitProducerId", 0, 5, 2),
    Api(23, "OffsetForLeaderEpoch", 2, 4, 4),
    Api(24, "AddPartitionsToTxn", 0, 5, 3),
    Api(25, "AddOffsetsToTxn", 0, 4, 3),
    Api(26, "EndTxn", 0, 5, 3),
    Api(27, "WriteTxnMarkers", 1, 2, 1),
    Api(28, "TxnOffsetCommit", 0, 5, 3),
    Api(29, "DescribeAcls", 1, 3, 2),
    Api(30, "CreateAcls", 1, 3, 2),
    Api(31, "DeleteAcls", 1, 3, 2),
    Api(32, "DescribeConfigs", 1, 4, 4),
    Api(33, "AlterConfigs", 0, 2, 2),
    Api(34, "AlterReplicaLogDirs", 1, 2, 2),
    Api(35, "DescribeLogDirs", 1, 5, 2),
    Api(36, "SaslAuthenticate", 0, 2, 2),
    Api(37, "CreatePartitions", 0, 3, 2),
    Api(38, "CreateDelegationToken", 1, 3, 2),
    Api(39, "RenewDelegationToken", 1, 2, 2),
    Api(40, "ExpireDelegationToken", 1, 2, 2),
    Api(41, "DescribeDelegationToken", 1, 3, 2),
    Api(42, "DeleteGroups", 0, 2, 2),
    Api(43, "ElectLeaders", 0, 2, 2),
    Api(44, "IncrementalAlterConfigs", 0, 1, 1),
    Api(45, "AlterPartitionReassignments", 0, 1, 0),
    Api(46, "ListPartitionReassignments", 0, 0, 0),
    Api(47, "OffsetDelete", 0, 0, None),
    Api(48, "DescribeClientQuotas", 0, 1, 1),
    Api(49, "AlterClientQuotas", 0, 1, 1),
    Api(50, "DescribeUserScramCredentials", 0, 0, 0),
    Api(51, "AlterUserScramCredentials", 0, 0, 0),
    Api(55, "DescribeQuorum", 0, 2, 0),
    Api(57, "UpdateFeatures", 0, 2, 0),
    Api(60, "DescribeCluster", 0, 2, 0),
    Api(61, "DescribeProducers", 0, 0, 0),
    Api(64, "UnregisterBroker", 0, 0, 0),
    Api(65, "DescribeTransactions", 0, 0, 0),
    Api(66, "ListTransactions", 0, 2, 0),
    Api(68, "ConsumerGroupHeartbeat", 0, 1, 0),
    Api(69, "ConsumerGroupDescribe", 0, 1, 0),
    Api(74, "ListConfigResources", 0, 1, 0),
    Api(75, "DescribeTopicPartitions", 0, 0, 0),
    Api(76, "ShareGroupHeartbeat", 1, 1, 1),
    Api(77, "ShareGroupDescribe", 1, 1, 1),
    Api(78, "ShareFetch", 1, 2, 1),
    Api(79, "ShareAcknowledge", 1, 2, 1),
    Api(88, "StreamsGroupHeartbeat", 0, 0, 0),
    Api(89, "StreamsGroupDescribe", 0, 0, 0),
    Api(90, "DescribeShareGroupOffsets", 0, 1, 0),
    Api(91, "AlterShareGroupOffsets", 0, 0, 0),
    Api(92, "DeleteShareGroupOffsets", 0, 0, 0),
)

APIS: Final[Mapping[int, Api]] = {api.key: api for api in _TABLE}


def api_of(key: int, version: int | None = None) -> Api:
    """The call with this key, where it exists and is spoken in this version."""
    api = APIS.get(key)
    if api is None:
        raise UnsupportedVersion(f"call {key} is not known here")
    if version is not None and not api.min_version <= version <= api.max_version:
        raise UnsupportedVersion(
            f"{api.name} version {version} is not spoken here: {api.min_version} to {api.max_version} are"
        )
    return api
