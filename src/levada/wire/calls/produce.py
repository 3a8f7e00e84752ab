"""Produce: batches as bytes, record batch v2, unopened."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from levada.errors import LevadaError, MalformedFrame
from levada.wire import codec, produce
from levada.wire.answers import ALL, Appended, ByPartition, TopicPartition
from levada.wire.apis import ApiKey
from levada.wire.calls.core import Core, Outcome
from levada.wire.calls.layout import by_topic, have_ids, keyed, named
from levada.wire.codec import Message
from levada.wire.codes import ErrorCode
from levada.wire.effects import Pause, Post, Send, Steps, Wait, call
from levada.wire.endpoints import Endpoint
from levada.wire.primitives import Buffer
from levada.wire.retry import Retry

_PRODUCER_ID: Final = Struct(">43xq")
#: Brokers know so many of a producer's last batches in a partition again.
_REMEMBERED: Final = 5


def is_idempotent(batch: Buffer) -> bool:
    """Whether the batch carries a producer id, so that the broker takes it only once."""
    return len(batch) >= _PRODUCER_ID.size and _PRODUCER_ID.unpack_from(batch)[0] >= 0


class Manner(NamedTuple):
    """How batches are sent; `high` bounds the version."""

    acks: int = ALL
    timeout_ms: int | None = None
    transactional_id: str | None = None
    high: int | None = None


class _Flying(NamedTuple):
    """A batch on its way, or why it never left."""

    turn: int
    at: TopicPartition
    batch: Buffer
    ticket: Any


class ProduceCalls(Core):
    """Appending to partitions."""

    @call
    def produce(
        self, at: tuple[str, int], batch: Buffer, *, acks: int = ALL, timeout_ms: int | None = None
    ) -> Steps[Appended]:
        """Append one batch.

        Refusals that pass (a leader moving, say) are tried again. A batch without a producer id is not sent twice when the
        answer was lost, since it may be in the log already: that is ConnectionLost or TimedOut, and the caller decides.
        """
        place = TopicPartition(*at)
        appended = yield from self._produce({place: batch}, acks, self._produce_retry([batch], timeout_ms))
        return appended[place]

    @call
    def produce_many(
        self, batches: ByPartition[Buffer], *, acks: int = ALL, timeout_ms: int | None = None
    ) -> Steps[dict[TopicPartition, Appended]]:
        """Append one batch to each of these partitions: one request per leader, all at once. See `produce`."""
        held = keyed(batches)
        return (yield from self._produce(held, acks, self._produce_retry(held.values(), timeout_ms)))

    @call
    def produce_stream(
        self,
        batches: Iterable[tuple[tuple[str, int], Buffer]],
        *,
        acks: int = ALL,
        in_flight: int = 5,
        timeout_ms: int | None = None,
    ) -> Steps[list[Appended]]:
        """Append batches as fast as the brokers take them, up to `in_flight` requests ahead; answers in the order given.

        The order within a partition is kept, whatever fails on the way: at most five batches are on their way to a partition, one until
        a first is there, since a partition takes a producer it does not know at any sequence; and those without a producer id go one at
        a time. `timeout_ms` is for each batch.
        """
        return (yield from self._produce_stream(batches, in_flight, Manner(acks, timeout_ms)))

    def _produce_stream(
        self, batches: Iterable[tuple[tuple[str, int], Buffer]], in_flight: int, manner: Manner
    ) -> Steps[list[Appended]]:
        appended: dict[int, Appended] = {}
        flying: deque[_Flying] = deque()
        begun: set[TopicPartition] = set()
        for turn, (place, batch) in enumerate(batches):
            at = TopicPartition(*place)
            in_partition = _REMEMBERED if at in begun and is_idempotent(batch) else 1
            while len(flying) >= in_flight or sum(one.at == at for one in flying) >= in_partition:
                begun.add(flying[0].at)  # it has landed afterwards, or all of this fails
                yield from self._land(flying, appended, manner)
            try:
                ticket = yield from self._take_off(at, batch, manner)
            except LevadaError as error:
                ticket = error
            flying.append(_Flying(turn, at, batch, ticket))
        while flying:
            yield from self._land(flying, appended, manner)
        return [appended[turn] for turn in sorted(appended)]

    def _take_off(self, at: TopicPartition, batch: Buffer, manner: Manner) -> Steps[Any]:
        retry = self._produce_retry([batch], manner.timeout_ms)
        yield from self._know([at], retry)
        ((node, _),) = self._leading([at])
        send = self._produce_send(node, {at: batch}, manner.acks, retry, manner.transactional_id, manner.high)
        return (yield Post(send))

    def _land(self, flying: deque[_Flying], appended: dict[int, Appended], manner: Manner) -> Steps[None]:
        """Wait for the oldest batch. If it failed, so did most likely what is behind it in its partition: repeat in order."""
        first = flying.popleft()
        outcome = yield from self._landed(first)
        if isinstance(outcome, Appended):
            appended[first.turn] = outcome
            return
        again = [first]
        behind = [one for one in flying if one.at == first.at]
        others = [one for one in flying if one.at != first.at]
        flying.clear()
        flying.extend(others)
        for one in behind:
            later = yield from self._landed(one)
            if isinstance(later, Appended):
                appended[one.turn] = later
            else:
                again.append(one)
        yield Pause(self._produce_retry([first.batch], manner.timeout_ms).after(outcome))
        for one in again:
            retry = self._produce_retry([one.batch], manner.timeout_ms)
            outcomes = yield from self._produce(
                {one.at: one.batch}, manner.acks, retry, manner.transactional_id, manner.high
            )
            appended[one.turn] = outcomes[one.at]

    def _landed(self, one: _Flying) -> Steps[Appended | LevadaError]:
        """What became of a batch on its way."""
        if isinstance(one.ticket, LevadaError):
            return one.ticket
        try:
            answer = yield Wait(one.ticket)
        except LevadaError as error:
            self.cluster.forget_topics([one.at.topic])
            return error
        outcomes, endpoints = self._produced(answer, [one.at])
        for outcome in outcomes:
            if outcome.code:
                return self._refusal(outcome, endpoints)
            appended: Appended = outcome.value
            return appended
        return MalformedFrame(f"the answer to Produce leaves out partition {one.at}")

    def _produce_retry(self, batches: Iterable[Buffer], timeout_ms: int | None) -> Retry:
        return self._retry(timeout_ms, repeatable=all(map(is_idempotent, batches)))

    def _produce(
        self,
        batches: Mapping[TopicPartition, Buffer],
        acks: int,
        retry: Retry,
        transactional_id: str | None = None,
        high: int | None = None,
    ) -> Steps[dict[TopicPartition, Appended]]:
        def send_of(node: int, ats: list[TopicPartition]) -> Send:
            return self._produce_send(node, {at: batches[at] for at in ats}, acks, retry, transactional_id, high)

        return (yield from self._ask_leaders(batches, send_of, self._produced, retry))

    def _produce_send(
        self,
        node: int,
        batches: Mapping[TopicPartition, Buffer],
        acks: int,
        retry: Retry,
        transactional_id: str | None = None,
        high: int | None = None,
    ) -> Send:
        topics = by_topic(batches)
        patience = self._patience(retry)

        def encode(version: int) -> Sequence[Buffer]:
            return produce.write_request(
                version,
                named(topics, self.cluster, version >= produce.TOPIC_IDS),
                acks=acks,
                timeout_ms=patience,
                transactional_id=transactional_id,
            )

        def decode(version: int, body: memoryview) -> Message:
            return codec.read_response(ApiKey.PRODUCE, version, body)

        if not have_ids(topics, self.cluster):
            high = min(high or produce.TOPIC_IDS, produce.TOPIC_IDS - 1)
        return Send(node, ApiKey.PRODUCE, encode, decode, patience, None, high, answered=acks != 0)

    def _produced(self, answer: Message | None, ats: list[TopicPartition]) -> tuple[list[Outcome], Sequence[Endpoint]]:
        if answer is None:
            return [Outcome(at, 0, Appended(-1)) for at in ats], ()
        outcomes = []
        for topic in answer.responses:
            name = topic.name or self.cluster.name_of(topic.topic_id) or ""
            for one in topic.partition_responses:
                duplicate = one.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
                outcomes.append(
                    Outcome(
                        TopicPartition(name, one.index),
                        0 if duplicate else one.error_code,
                        Appended(one.base_offset, one.log_append_time_ms, one.log_start_offset, duplicate),
                        one.error_message,
                        (one.current_leader.leader_id, one.current_leader.leader_epoch),
                    )
                )
        return outcomes, [Endpoint(one.node_id, one.host, one.port) for one in answer.node_endpoints]
