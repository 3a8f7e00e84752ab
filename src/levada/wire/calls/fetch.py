"""Reading partitions: fetch, list offsets, ask where leader epochs ended; and deleting records from their beginning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from levada.wire import fetch
from levada.wire.answers import READ_UNCOMMITTED, ByPartition, OffsetAt, TopicPartition
from levada.wire.apis import ApiKey
from levada.wire.calls.core import Core, Outcome
from levada.wire.calls.layout import by_topic, have_ids, keyed, named, partitions_of, topic_rows
from levada.wire.codec import Message
from levada.wire.codes import ErrorCode
from levada.wire.effects import Post, Send, Steps, call, wait_all
from levada.wire.endpoints import Endpoint
from levada.wire.fetch import Fetched, FetchResponse, Wanted
from levada.wire.primitives import Buffer
from levada.wire.retry import Retry


class _Limits(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int


class Ahead(NamedTuple):
    """A Fetch of one partition that is under way."""

    at: TopicPartition
    node: int
    ticket: Any


class FetchCalls(Core):
    """Reading from partitions."""

    @call
    def fetch(
        self,
        positions: ByPartition[int],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 << 20,
        partition_max_bytes: int = 1 << 20,
        isolation: int = READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> Steps[dict[TopicPartition, Fetched]]:
        """Read batches from these offsets on, at least one where there is one; wait up to `max_wait_ms` for `min_bytes`.

        `Fetched.records` holds batches as they lie in the log: the first may begin below the offset asked for, the last may be
        cut short, and with READ_COMMITTED `Fetched.aborted` says what to skip; `levada.records.read.read_all` sees to all that.
        A partition that is between leaders is left out when others have records. OFFSET_OUT_OF_RANGE is BrokerRefused.
        """
        retry, held = self._retry(timeout_ms), keyed(positions)
        limits = _Limits(max_wait_ms, min_bytes, max_bytes, isolation)

        def send_of(node: int, ats: list[TopicPartition]) -> Send:
            return self._fetch_send(node, {at: held[at] for at in ats}, partition_max_bytes, limits, retry)

        def has_records(done: dict[TopicPartition, Fetched]) -> bool:
            return any(one.records for one in done.values())

        return (yield from self._ask_leaders(held, send_of, self._fetched, retry, enough=has_records))

    @call
    def begin_fetch(
        self,
        at: tuple[str, int],
        offset: int,
        *,
        max_wait_ms: int = 500,
        max_bytes: int = 1 << 20,
        isolation: int = READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> Steps[Ahead]:
        """Ask for the batches of one partition from this offset on and do not wait for them: `end_fetch` does."""
        retry, place = self._retry(timeout_ms), TopicPartition(*at)
        yield from self._know([place], retry)
        ((node, _),) = self._leading([place])
        limits = _Limits(max_wait_ms, 1, max_bytes, isolation)
        ticket = yield Post(self._fetch_send(node, {place: offset}, max_bytes, limits, retry))
        return Ahead(place, node, ticket)

    @call
    def end_fetch(self, ahead: Ahead) -> Steps[Fetched]:
        """The answer to a Fetch under way. It was tried once: after any error, `fetch` tries again. See there."""
        (answer,) = yield from wait_all([ahead.ticket])
        done: dict[TopicPartition, Fetched] = {}
        failures = self._sort_out([(ahead.node, [ahead.at])], [answer], self._fetched, done)
        if failures:
            raise failures[0]
        return done[ahead.at]

    def _fetch_send(
        self,
        node: int,
        positions: Mapping[TopicPartition, int],
        partition_max_bytes: int,
        limits: _Limits,
        retry: Retry,
    ) -> Send:
        def row(partition: int, offset: int, epoch: int) -> Wanted:
            return partition, epoch, offset, -1, -1, partition_max_bytes

        topics = [
            (topic, [row(index, offset, self._epoch(TopicPartition(topic, index))) for index, offset in held])
            for topic, held in by_topic(positions)
        ]

        def encode(version: int) -> Sequence[Buffer]:
            wanted = named(topics, self.cluster, version >= fetch.TOPIC_IDS)
            return (fetch.write_request(version, wanted, **limits._asdict()),)

        high = None if have_ids(topics, self.cluster) else fetch.TOPIC_IDS - 1
        patience = self._patience(retry, limits.max_wait_ms)
        return Send(node, ApiKey.FETCH, encode, fetch.read_response, patience, None, high)

    def _epoch(self, at: TopicPartition) -> int:
        """The leader epoch we believe in: a leader of another one refuses, so nothing is read from a stale one."""
        leader = self.cluster.leader(at)
        return -1 if leader is None else leader[1]

    def _fetched(self, answer: FetchResponse, ats: list[TopicPartition]) -> tuple[list[Outcome], Sequence[Endpoint]]:
        if answer.error_code:
            return [Outcome(at, answer.error_code) for at in ats], ()
        if answer.throttle_ms and not answer.topics:
            # A broker whose quota is used up answers with nothing at all (KIP-219).
            return [Outcome(at, ErrorCode.THROTTLING_QUOTA_EXCEEDED) for at in ats], ()
        outcomes = [
            Outcome(
                TopicPartition(self.cluster.name_of(topic) or "", one.partition),
                one.error_code,
                one,
                leader=one.current_leader,
            )
            for topic, partitions in answer.topics
            for one in partitions
        ]
        return outcomes, answer.endpoints

    @call
    def list_offsets(
        self,
        timestamps: ByPartition[int],
        *,
        isolation: int = READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> Steps[dict[TopicPartition, OffsetAt]]:
        """The first offset at or after each timestamp in ms, or at EARLIEST, LATEST or MAX_TIMESTAMP.

        With READ_COMMITTED, LATEST is the end of what is not in an open transaction.
        """
        retry, held = self._retry(timeout_ms), keyed(timestamps)

        def row(at: TopicPartition) -> dict[str, Any]:
            epoch = self._epoch(at)
            return {"partition_index": at.partition, "current_leader_epoch": epoch, "timestamp": held[at]}

        def send_of(node: int, ats: list[TopicPartition]) -> Send:
            fields = {"replica_id": -1, "isolation_level": isolation, "timeout_ms": self._patience(retry)}
            return self._send(node, ApiKey.LIST_OFFSETS, {**fields, "topics": topic_rows(ats, row)}, retry)

        def outcomes_of(answer: Message, _ats: list[TopicPartition]) -> tuple[Iterable[Outcome], Sequence[Endpoint]]:
            return [
                Outcome(at, one.error_code, OffsetAt(one.offset, one.timestamp, one.leader_epoch))
                for at, one in partitions_of(answer)
            ], ()

        return (yield from self._ask_leaders(held, send_of, outcomes_of, retry))

    @call
    def epoch_ends(
        self, epochs: ByPartition[int], *, timeout_ms: int | None = None
    ) -> Steps[dict[TopicPartition, int]]:
        """Where these leader epochs ended: the first offset that was written under a later one, or the end; −1 where that cannot be said.

        An end below what was read once means that the log was cut there.
        """
        retry, held = self._retry(timeout_ms), keyed(epochs)

        def send_of(node: int, ats: list[TopicPartition]) -> Send:
            topics = [
                {"topic": topic, "partitions": [{"partition": one, "leader_epoch": epoch} for one, epoch in some]}
                for topic, some in by_topic({at: held[at] for at in ats})
            ]
            return self._send(node, ApiKey.OFFSET_FOR_LEADER_EPOCH, {"replica_id": -1, "topics": topics}, retry)

        def outcomes_of(answer: Message, _ats: list[TopicPartition]) -> tuple[Iterable[Outcome], Sequence[Endpoint]]:
            return [
                Outcome(TopicPartition(topic.topic, one.partition), one.error_code, one.end_offset)
                for topic in answer.topics
                for one in topic.partitions
            ], ()

        return (yield from self._ask_leaders(held, send_of, outcomes_of, retry))

    @call
    def delete_records(
        self, before: ByPartition[int], *, timeout_ms: int | None = None
    ) -> Steps[dict[TopicPartition, int]]:
        """Delete the records below these offsets (−1: all there are); returns where each partition begins now."""
        retry, held = self._retry(timeout_ms), keyed(before)

        def row(at: TopicPartition) -> dict[str, Any]:
            return {"partition_index": at.partition, "offset": held[at]}

        def send_of(node: int, ats: list[TopicPartition]) -> Send:
            fields = {"timeout_ms": self._patience(retry), "topics": topic_rows(ats, row)}
            return self._send(node, ApiKey.DELETE_RECORDS, fields, retry)

        def outcomes_of(answer: Message, _ats: list[TopicPartition]) -> tuple[Iterable[Outcome], Sequence[Endpoint]]:
            return [Outcome(at, one.error_code, one.low_watermark) for at, one in partitions_of(answer)], ()

        return (yield from self._ask_leaders(held, send_of, outcomes_of, retry))
