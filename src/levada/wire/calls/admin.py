"""Topics, settings and the cluster itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from levada.errors import BrokerRefused
from levada.wire.answers import ClusterInfo, ConfigEntry, TopicInfo
from levada.wire.apis import ApiKey
from levada.wire.calls.core import Core
from levada.wire.codec import Message
from levada.wire.codes import ErrorCode, refused
from levada.wire.effects import Steps, call
from levada.wire.retry import Retry

T = TypeVar("T")

#: Kinds of things that have settings.
TOPIC: Final = 2
BROKER: Final = 4
GROUP_CONFIG: Final = 32

_SET: Final = 0
_DELETE: Final = 1


class AdminCalls(Core):
    """What is done to topics and settings. Changes that cannot be repeated safely are not repeated when the answer was lost."""

    @call
    def topics(
        self, names: Collection[str] | None = None, *, timeout_ms: int | None = None, settle: bool = True
    ) -> Steps[dict[str, TopicInfo]]:
        """These topics, or all of them, with their partitions and leaders. An unknown name is BrokerRefused, with `settle` after a while
        in which a new topic becomes known everywhere."""

        def attempt(retry: Retry) -> Steps[dict[str, TopicInfo]]:
            answer = yield from self._refresh(names, retry)
            for topic in answer.topics:
                # Among all topics, one that is just being made or deleted is not the caller's concern.
                if topic.error_code and names is not None:
                    raise refused(topic.error_code, f"topic {topic.name}")
            found = self.cluster.topics
            return {topic.name: found[topic.name] for topic in answer.topics if topic.name in found}

        return (yield from self._retried(attempt, self._retry(timeout_ms, settle=settle)))

    @call
    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        *,
        replication_factor: int = -1,
        assignment: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Steps[UUID]:
        """Make a topic; its id. −1 is the broker's default. With an `assignment` (partition → nodes) the two numbers stay −1."""
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "assignments": [{"partition_index": p, "broker_ids": nodes} for p, nodes in (assignment or {}).items()],
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        retry = self._retry(timeout_ms, repeatable=False)
        fields = {"topics": [topic], "timeout_ms": self._patience(retry), "validate_only": validate_only}

        def read(answer: Message) -> UUID:
            (one,) = answer.topics
            if one.error_code:
                raise refused(one.error_code, f"topic {name}", one.error_message)
            created: UUID = one.topic_id
            return created

        # Version 4 is the first in which the numbers may be left to the broker.
        low = 4 if -1 in (partitions, replication_factor) and not assignment else None
        self.cluster.forget_topics([name])
        return (yield from self._ask_controller(ApiKey.CREATE_TOPICS, fields, read, retry, low=low))

    @call
    def delete_topic(self, name: str, *, timeout_ms: int | None = None) -> Steps[None]:
        """Delete a topic and all it holds."""
        retry = self._retry(timeout_ms, repeatable=False)
        fields = {"topics": [{"name": name}], "topic_names": [name], "timeout_ms": self._patience(retry)}

        def read(answer: Message) -> None:
            (one,) = answer.responses
            if one.error_code:
                raise refused(one.error_code, f"topic {name}", one.error_message)

        self.cluster.forget_topics([name])
        yield from self._ask_controller(ApiKey.DELETE_TOPICS, fields, read, retry)

    @call
    def create_partitions(
        self,
        topic: str,
        total: int,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        timeout_ms: int | None = None,
    ) -> Steps[None]:
        """Give the topic `total` partitions in all. The `assignment` names the nodes of each new one."""
        retry = self._retry(timeout_ms, repeatable=False)
        rows = None if assignment is None else [{"broker_ids": nodes} for nodes in assignment]
        one = {"name": topic, "count": total, "assignments": rows}
        fields = {"topics": [one], "timeout_ms": self._patience(retry)}

        def read(answer: Message) -> None:
            (result,) = answer.results
            if result.error_code:
                raise refused(result.error_code, f"topic {topic}", result.error_message)

        self.cluster.forget_topics([topic])
        yield from self._ask_controller(ApiKey.CREATE_PARTITIONS, fields, read, retry)

    @call
    def describe_configs(
        self,
        name: str,
        *,
        kind: int = TOPIC,
        keys: Iterable[str] | None = None,
        timeout_ms: int | None = None,
    ) -> Steps[dict[str, ConfigEntry]]:
        """The settings of a topic (or, with BROKER, of the broker with this id), all or these."""
        wanted = {
            "resource_type": kind,
            "resource_name": name,
            "configuration_keys": None if keys is None else list(keys),
        }
        fields = {"resources": [wanted], "include_documentation": True}

        def attempt(retry: Retry) -> Steps[dict[str, ConfigEntry]]:
            if kind == BROKER and name:
                yield from self._refresh((), retry)
                answer = yield from self._ask(int(name), ApiKey.DESCRIBE_CONFIGS, fields, retry)
            else:
                answer = yield from self._ask_any(ApiKey.DESCRIBE_CONFIGS, fields, retry)
            (result,) = answer.results
            if result.error_code:
                raise refused(result.error_code, f"settings of {name}", result.error_message)
            return {one.name: _config_entry(one) for one in result.configs}

        return (yield from self._retried(attempt, self._retry(timeout_ms)))

    @call
    def alter_configs(
        self,
        name: str,
        changes: Mapping[str, str | None],
        *,
        kind: int = TOPIC,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Steps[None]:
        """Set these settings, or with None unset them; the others stay. All or none."""
        rows = [
            {"name": key, "config_operation": _DELETE if value is None else _SET, "value": value}
            for key, value in changes.items()
        ]
        resource = {"resource_type": kind, "resource_name": name, "configs": rows}

        def read(answer: Message) -> None:
            (one,) = answer.responses
            if one.error_code:
                raise refused(one.error_code, f"settings of {name}", one.error_message)

        fields = {"resources": [resource], "validate_only": validate_only}
        yield from self._ask_controller(ApiKey.INCREMENTAL_ALTER_CONFIGS, fields, read, self._retry(timeout_ms))

    @call
    def describe_cluster(self, *, timeout_ms: int | None = None) -> Steps[ClusterInfo]:
        """The brokers, as they are now."""

        def attempt(retry: Retry) -> Steps[ClusterInfo]:
            yield from self._refresh((), retry)
            return ClusterInfo(self.cluster.cluster_id, self.cluster.controller_id, dict(self.cluster.brokers))

        return (yield from self._retried(attempt, self._retry(timeout_ms)))

    @call
    def request(
        self,
        api_key: int,
        fields: Mapping[str, Any],
        *,
        node: int | None = None,
        repeatable: bool = False,
        timeout_ms: int | None = None,
    ) -> Steps[Message]:
        """Any other call of the protocol, to this node or to any: fields in, the answer out, its error codes untouched."""

        def attempt(retry: Retry) -> Steps[Message]:
            if node is None:
                return (yield from self._ask_any(api_key, fields, retry))
            return (yield from self._ask(node, api_key, fields, retry))

        return (yield from self._retried(attempt, self._retry(timeout_ms, repeatable=repeatable)))

    def _ask_controller(
        self,
        api_key: int,
        fields: Mapping[str, Any],
        read: Callable[[Message], T],
        retry: Retry,
        *,
        low: int | None = None,
    ) -> Steps[T]:
        """Ask the controller, or whom the cluster names as such, until it is answered."""

        def attempt(retry: Retry) -> Steps[T]:
            if self.cluster.controller_id not in self.cluster.brokers:
                yield from self._refresh((), retry)
            if self.cluster.controller_id not in self.cluster.brokers:
                raise refused(ErrorCode.NOT_CONTROLLER, "the cluster", "it has no controller at the moment")
            answer = yield from self._ask(self.cluster.controller_id, api_key, fields, retry, low=low)
            try:
                return read(answer)
            except BrokerRefused as error:
                if error.code == ErrorCode.NOT_CONTROLLER:
                    self.cluster.controller_id = -1
                raise

        return (yield from self._retried(attempt, retry))


def _config_entry(one: Message) -> ConfigEntry:
    return ConfigEntry(one.name, one.value, one.config_source, one.read_only, one.is_sensitive, one.documentation)
