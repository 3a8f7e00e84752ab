"""What a client remembers of a cluster: brokers, leaders, topic ids, coordinators. It asks nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from levada.errors import Unreachable
from levada.wire.answers import PartitionInfo, TopicInfo
from levada.wire.codec import Message
from levada.wire.endpoints import Endpoint
from levada.wire.schema import ZERO_UUID


def parse_bootstrap(text: str | Sequence[str]) -> tuple[tuple[str, int], ...]:
    """("host:port,[::1]:port" or a list of such) → addresses. The port is 9092 where none is said."""
    parts = text.split(",") if isinstance(text, str) else list(text)
    return tuple(_address(part.strip()) for part in parts if part.strip())


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, "9092"
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not an address: host:port is")
    return host.strip("[]"), int(port)


class Cluster:
    """The cache. A node id below 0 is a bootstrap address whose id is not known: −1 the first, −2 the second …"""

    def __init__(self, bootstrap: str | Sequence[str]) -> None:
        addresses = parse_bootstrap(bootstrap)
        if not addresses:
            raise ValueError("no bootstrap address was given")
        self.bootstrap: Mapping[int, tuple[str, int]] = {-1 - i: address for i, address in enumerate(addresses)}
        self.brokers: dict[int, tuple[str, int]] = {}
        self.cluster_id = ""
        self.controller_id = -1
        self.topics: dict[str, TopicInfo] = {}
        #: (kind of key, key) → node
        self.coordinators: dict[tuple[int, str], int] = {}
        #: What the cluster as a whole has switched on, by name (`transaction.version` …), as the last broker met said it.
        self.features: Mapping[str, int] = {}
        self._names: dict[UUID, str] = {}
        self._leaders: dict[tuple[str, int], tuple[int, int]] = {}

    def address(self, node: int) -> tuple[str, int]:
        """Where this node is."""
        found = self.brokers.get(node) or self.bootstrap.get(node)
        if found is None:
            raise Unreachable(f"the address of node {node} is not known")
        return found

    def candidates(self) -> list[int]:
        """Whom to ask what any broker can answer: the brokers known, then the bootstrap addresses."""
        return [*self.brokers, *self.bootstrap]

    def update(self, answer: Message, *, everything: bool) -> None:
        """Take in an answer to Metadata; `everything` where all topics were asked for."""
        self.brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self.cluster_id = answer.cluster_id or ""
        self.controller_id = answer.controller_id
        if everything:
            self.topics.clear()
            self._leaders.clear()
            self._names.clear()
        for topic in answer.topics:
            if topic.name:
                self.forget_topics([topic.name])
            if not topic.error_code:
                self._remember(topic)

    def _remember(self, topic: Message) -> None:
        partitions = [
            PartitionInfo(one.partition_index, one.leader_id, one.leader_epoch, one.replica_nodes, one.isr_nodes)
            for one in topic.partitions
        ]
        partitions.sort()
        self.topics[topic.name] = TopicInfo(topic.name, partitions, topic.topic_id, topic.is_internal)
        if topic.topic_id != ZERO_UUID:
            self._names[topic.topic_id] = topic.name
        for one in partitions:
            if one.leader in self.brokers:
                self._leaders[topic.name, one.partition] = one.leader, one.leader_epoch

    def leader(self, at: tuple[str, int]) -> tuple[int, int] | None:
        """(node, leader epoch), where known."""
        return self._leaders.get(at)

    def moved(self, at: tuple[str, int], leader: tuple[int, int] | None, endpoints: Iterable[Endpoint]) -> None:
        """A broker said that it does not lead this partition; newer ones say who does (KIP-951)."""
        known = self._leaders.pop(at, None)
        if leader is None or leader[0] < 0 or (known is not None and leader[1] <= known[1]):
            return
        self.brokers |= {one.node_id: (one.host, one.port) for one in endpoints}
        if leader[0] in self.brokers:
            self._leaders[at] = leader

    def topic_id(self, name: str) -> UUID:
        topic = self.topics.get(name)
        return topic.topic_id if topic else ZERO_UUID

    def name_of(self, topic: str | UUID) -> str | None:
        """The name, from a name or an id."""
        return topic if isinstance(topic, str) else self._names.get(topic)

    def forget_topics(self, names: Iterable[str]) -> None:
        """What is known of these topics may be wrong."""
        for name in names:
            topic = self.topics.pop(name, None)
            if topic is not None:
                self._names.pop(topic.topic_id, None)
                for one in topic.partitions:
                    self._leaders.pop((name, one.partition), None)

    def forget_node(self, node: int) -> None:
        """This node could not be reached: whatever it led or coordinated may be elsewhere by now."""
        self._leaders = {at: leader for at, leader in self._leaders.items() if leader[0] != node}
        self.coordinators = {key: found for key, found in self.coordinators.items() if found != node}
