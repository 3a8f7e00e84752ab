"""The topic `__levada.pipelines`, read and written over Kafka's wire: on Levada and on Apache Kafka, with or without a runner."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from levada.errors import BrokerRefused, TimedOut
from levada.records.batch import batches
from levada.records.build import build
from levada.records.read import read_all
from levada.spark.runner.records import (
    ACTUAL,
    RUNNER,
    TOPIC,
    WANTED,
    Actual,
    RunnerSeen,
    V,
    Wanted,
    decoded,
    encoded,
)
from levada.wire.answers import EARLIEST, LATEST, READ_COMMITTED, TopicPartition
from levada.wire.blocking import BlockingClient
from levada.wire.codes import ErrorCode

AT: Final = TopicPartition(TOPIC, 0)
#: The latest record of a key is all that counts; small segments, so that the others go soon.
CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": str(60 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
#: A runner that has not been heard of for so long is not there.
ABSENT_AFTER_MS: Final = 15_000
#: So long a broker is waited for that has yet to learn how far it may be read. Well below the time after which a runner that reads is
#: taken for absent.
_PATIENCE_S: Final = 5.0
_WAIT_MS: Final = 100


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Ledger:
    """What the records say, taken in their order."""

    def __init__(self) -> None:
        self.wanted: dict[str, Wanted] = {}
        self.actual: dict[str, Actual] = {}
        self.runner: RunnerSeen | None = None

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """A record. One without a value takes its key away; one that nobody of us wrote is passed over."""
        text = (key or b"").decode(errors="replace")
        if text == RUNNER:
            self.runner = decoded(RunnerSeen, value) or self.runner if value is not None else None
        elif text.startswith(WANTED):
            _put(self.wanted, text.removeprefix(WANTED), value, Wanted)
        elif text.startswith(ACTUAL):
            _put(self.actual, text.removeprefix(ACTUAL), value, Actual)

    def is_attended(self, now: int) -> bool:
        """Whether a runner is up, as far as anybody can tell by its last sign of life."""
        return self.runner is not None and not self.runner.left_ms and now - self.runner.seen_ms < ABSENT_AFTER_MS


class Board:
    """The ledger as the broker has it. One caller at a time; the client is the caller's to close."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client
        self._position: int | None = None
        self.ledger = Ledger()

    def create(self) -> None:
        """Have the topic."""
        if TOPIC in self._client.topics():
            return
        try:
            self._client.create_topic(TOPIC, 1, configs=CONFIGS)
        except BrokerRefused as refusal:
            if refusal.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def read(self) -> Ledger:
        """Take in what was written since the last time, up to the end as it is now. Without the topic there is nothing to read.

        TimedOut where the broker does not tell all of it: the next call goes on from there.
        """
        try:
            self._read()
        except BrokerRefused as refusal:
            if refusal.code == ErrorCode.OFFSET_OUT_OF_RANGE:  # deleted and made anew
                self._position, self.ledger = None, Ledger()
                self._read()
            elif refusal.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        return self.ledger

    def _read(self) -> None:
        if self._position is None:
            self._position = self._client.list_offsets({AT: EARLIEST})[AT].offset
        end = self._client.list_offsets({AT: LATEST}, isolation=READ_COMMITTED)[AT].offset
        deadline = time.monotonic() + _PATIENCE_S
        while self._position < end:
            got = self._client.fetch({AT: self._position}, max_wait_ms=_WAIT_MS, isolation=READ_COMMITTED)[AT]
            for record in read_all(
                got.records, from_offset=self._position, aborted=got.aborted or (), committed_only=True
            ):
                self.ledger.take(record.key, record.value)
            before = self._position
            self._position = max((batch.last_offset + 1 for batch in batches(got.records)), default=before)
            if self._position > before:
                continue
            # Nothing came. A new leader, or one that is slowing us down, knows less for a moment than the end it told.
            if got.last_stable_offset >= end:
                self._position = end  # compaction has left nothing behind this
            elif time.monotonic() > deadline:
                raise TimedOut(
                    f"{TOPIC} ends at offset {end}, and for {_PATIENCE_S:.0f} s now nothing comes from offset {before} on: "
                    "what is wanted of pipelines is not known"
                )

    def want(self, name: str, wish: Wanted) -> None:
        """Write what is wanted of a pipeline. Done when this returns, runner or not."""
        producer = self._client.init_producer_id()
        record = (f"{WANTED}{name}".encode(), encoded(wish))
        batch = build(
            [record],
            timestamp_ms=now_ms(),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
        )
        self._client.produce(AT, batch)
        self.ledger.wanted[name] = wish


def _put(into: dict[str, V], name: str, value: bytes | None, kind: type[V]) -> None:
    found = None if value is None else decoded(kind, value)
    if found is not None:
        into[name] = found
    elif value is None:
        into.pop(name, None)
