"""What all calls stand on: asking a node, any node or the leaders of partitions, and trying again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from levada.errors import ConnectionLost, LevadaError, MalformedFrame, TimedOut, Unreachable
from levada.wire.answers import TopicPartition
from levada.wire.apis import ApiKey
from levada.wire.cluster import Cluster
from levada.wire.codec import Message, read_response, write_request
from levada.wire.codes import ErrorCode, refused
from levada.wire.effects import Pause, Send, Steps, ask, ask_all
from levada.wire.endpoints import Endpoint
from levada.wire.retry import ClientConfig, Retry

T = TypeVar("T")

#: After these, what is known of the partition's leader or the topic's id is not to be trusted.
_STALE: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)
_NOT_ANSWERED: Final = (Unreachable, ConnectionLost, TimedOut)


class Outcome(NamedTuple):
    """What a leader answered for one partition: an error code, or a value."""

    at: TopicPartition
    code: int
    value: Any = None
    message: str | None = None
    #: (node, epoch) of the leader, where the answer names it.
    leader: tuple[int, int] | None = None


class Core:
    """The state of a client and its way of asking. Not bound to any kind of I/O."""

    def __init__(
        self, bootstrap: str | Sequence[str], config: ClientConfig, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.cluster = Cluster(bootstrap)
        self.config = config
        self._now = now
        #: For good.
        self._closed = False

    def _check_open(self) -> None:
        """ConnectionLost once it was closed. For who drives the steps, and not said to them: they would try again."""
        if self._closed:
            raise ConnectionLost("the client was closed; connect a new one")

    def _retry(self, timeout_ms: int | None, *, repeatable: bool = True, settle: bool = True) -> Retry:
        return Retry(self.config, self._now, timeout_ms, repeatable=repeatable, settle=settle)

    def _retried(self, attempt: Callable[[Retry], Steps[T]], retry: Retry) -> Steps[T]:
        """Try until it is answered, refused for good, or time is up."""
        while True:
            try:
                return (yield from attempt(retry))
            except LevadaError as error:
                pause = retry.after(error)
            yield Pause(pause)

    def _send(
        self,
        node: int,
        api_key: int,
        fields: Mapping[str, Any],
        retry: Retry,
        *,
        low: int | None = None,
        high: int | None = None,
    ) -> Send:
        return Send(
            node,
            api_key,
            lambda version: (write_request(api_key, version, fields),),
            lambda version, body: read_response(api_key, version, body),
            self._patience(retry),
            low,
            high,
        )

    def _patience(self, retry: Retry, extra_ms: int = 0) -> int:
        """How long one request may take."""
        return max(1, int(min(self.config.request_timeout_ms + extra_ms, retry.left_ms())))

    def _ask(
        self,
        node: int,
        api_key: int,
        fields: Mapping[str, Any],
        retry: Retry,
        *,
        low: int | None = None,
        high: int | None = None,
    ) -> Steps[Message]:
        """Ask this node. A node that does not answer is no longer thought to lead or coordinate anything."""
        try:
            answer: Message = yield from ask(self._send(node, api_key, fields, retry, low=low, high=high))
        except _NOT_ANSWERED:
            self.cluster.forget_node(node)
            raise
        return answer

    def _ask_any(
        self, api_key: int, fields: Mapping[str, Any], retry: Retry, *, low: int | None = None, high: int | None = None
    ) -> Steps[Message]:
        """Ask one node after another until one can be reached."""
        failure: LevadaError | None = None
        for node in self.cluster.candidates():
            try:
                return (yield from self._ask(node, api_key, fields, retry, low=low, high=high))
            except Unreachable as error:
                failure = error
        assert failure is not None, "a cluster has bootstrap addresses"
        raise failure

    def _refresh(self, topics: Collection[str] | None, retry: Retry) -> Steps[Message]:
        """Metadata of these topics, of all with None, of none with (). The cache takes it in."""
        wanted = None if topics is None else [{"name": name} for name in topics]
        fields = {"topics": wanted, "allow_auto_topic_creation": self.config.auto_create}
        try:
            answer = yield from self._ask_any(ApiKey.METADATA, fields, retry, low=1)
        except (ConnectionLost, TimedOut) as error:
            # Asking changes nothing, so this never stands in the way of another try.
            raise Unreachable(str(error)) from error
        if answer.error_code:
            raise refused(answer.error_code, "Metadata")
        self.cluster.update(answer, everything=topics is None)
        return answer

    def _know(self, partitions: Iterable[TopicPartition], retry: Retry) -> Steps[None]:
        """Have a leader for each of these partitions in the cache, or say what is wrong with the first that has none."""
        unknown = [at for at in partitions if self.cluster.leader(at) is None]
        if not unknown:
            return
        answer = yield from self._refresh({at.topic for at in unknown}, retry)
        errors = {topic.name: topic.error_code for topic in answer.topics if topic.error_code}
        for at in unknown:
            if at.topic in errors:
                raise refused(errors[at.topic], f"topic {at.topic}")
            if self.cluster.leader(at) is None:
                topic = self.cluster.topics.get(at.topic)
                exists = topic is not None and any(one.partition == at.partition for one in topic.partitions)
                code = ErrorCode.LEADER_NOT_AVAILABLE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise refused(code, f"partition {at}")

    def _leading(self, partitions: Iterable[TopicPartition]) -> Iterator[tuple[int, list[TopicPartition]]]:
        """The partitions by the node that leads them; all are known."""
        by_node: dict[int, list[TopicPartition]] = {}
        for at in partitions:
            leader = self.cluster.leader(at)
            assert leader is not None
            by_node.setdefault(leader[0], []).append(at)
        yield from by_node.items()

    def _ask_leaders(
        self,
        partitions: Iterable[tuple[str, int]],
        send_of: Callable[[int, list[TopicPartition]], Send],
        outcomes_of: Callable[[Any, list[TopicPartition]], tuple[Iterable[Outcome], Sequence[Endpoint]]],
        retry: Retry,
        *,
        enough: Callable[[dict[TopicPartition, Any]], bool] = lambda _: False,
    ) -> Steps[dict[TopicPartition, Any]]:
        """Ask the leaders of these partitions, all at once, until each partition has its answer or `enough` have."""
        wanted = [TopicPartition(*at) for at in partitions]
        done: dict[TopicPartition, Any] = {}
        while True:
            pending = [at for at in wanted if at not in done]
            if not pending or enough(done):
                return {at: done[at] for at in wanted if at in done}
            try:
                yield from self._know(pending, retry)
            except LevadaError as error:
                failures = [error]
            else:
                asked = list(self._leading(pending))
                answers = yield from ask_all([send_of(node, ats) for node, ats in asked])
                failures = self._sort_out(asked, answers, outcomes_of, done)
            if failures and not enough(done):
                yield Pause(retry.after(next((one for one in failures if not retry.passes(one)), failures[0])))

    def _sort_out(
        self,
        asked: list[tuple[int, list[TopicPartition]]],
        answers: list[Any],
        outcomes_of: Callable[[Any, list[TopicPartition]], tuple[Iterable[Outcome], Sequence[Endpoint]]],
        done: dict[TopicPartition, Any],
    ) -> list[LevadaError]:
        """Put what succeeded into `done`; return what did not."""
        failures: list[LevadaError] = []
        for (node, ats), answer in zip(asked, answers, strict=True):
            if isinstance(answer, LevadaError):
                if isinstance(answer, _NOT_ANSWERED):
                    self.cluster.forget_node(node)
                failures.append(answer)
                continue
            outcomes, endpoints = outcomes_of(answer, ats)
            for outcome in outcomes:
                if outcome.code == ErrorCode.NONE:
                    done[outcome.at] = outcome.value
                else:
                    failures.append(self._refusal(outcome, endpoints))
            if not failures and not all(at in done for at in ats):
                raise MalformedFrame(f"node {node} left a partition out of its answer")
        return failures

    def _refusal(self, outcome: Outcome, endpoints: Sequence[Endpoint]) -> LevadaError:
        if outcome.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and outcome.leader is not None:
            self.cluster.moved(outcome.at, outcome.leader, endpoints)
        elif outcome.code in _STALE:
            self.cluster.forget_topics([outcome.at.topic])
        return refused(outcome.code, f"partition {outcome.at}", outcome.message)
