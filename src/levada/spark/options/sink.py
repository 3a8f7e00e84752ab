"""The options of a write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Self

from levada.engine.names import check_name
from levada.errors import InvalidTopicName
from levada.records.compression import CODECS
from levada.spark.options.cluster import Cluster
from levada.spark.options.reading import Given, WrongOption

Delivery = Literal["exactly_once", "at_least_once"]
DELIVERIES: Final[tuple[Delivery, ...]] = ("exactly_once", "at_least_once")
#: It is also the transactional id of the sink's producer.
SINK_ID_LENGTH_MAX: Final = 200

#: How a Java producer does its work: taken, and nothing comes of it. Ours waits for all replicas and repeats nothing in any case.
_HOW_JAVA_WORKS: Final = (
    "acks",
    "batch.size",
    "buffer.memory",
    "delivery.timeout.ms",
    "enable.idempotence",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "retries",
)


@dataclass(frozen=True)
class SinkOptions:
    """Where rows go, and what is promised."""

    cluster: Cluster
    #: None: the rows have a column `topic`.
    topic: str | None
    delivery: Delivery
    #: None: a stream's is its query's id; a batch write without one is not known again.
    sink_id: str | None
    sink_epoch: int
    #: Of a batch write with a sink id.
    batch_id: int | None
    #: None: as the topic stores its batches.
    codec: str | None
    include_timestamp: bool

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool) -> Self:
        """WrongOption."""
        given = Given(options)
        given.text("checkpointLocation")  # Spark's own
        for name in _HOW_JAVA_WORKS:
            given.text(f"kafka.{name}")
        made = cls(
            cluster=Cluster.of(given, client_id="levada-spark-sink"),
            topic=_topic(given),
            delivery=given.choice("delivery", DELIVERIES, "exactly_once"),
            sink_id=given.text("sinkId"),
            sink_epoch=given.number("sinkEpoch", 0, high=2**31 - 1),
            batch_id=given.number("batchId"),
            codec=_codec(given),
            include_timestamp=given.flag("includeTimestamp", False),
        )
        given.refuse_the_rest()
        made._check(given, streaming)
        return made

    def _check(self, given: Given, streaming: bool) -> None:
        if self.delivery == "at_least_once":
            for name in ("sinkId", "sinkEpoch", "batchId"):
                given.refuse(name, "with delivery=at_least_once batches are not counted: leave it out")
        if self.sink_id is not None and len(self.sink_id) > SINK_ID_LENGTH_MAX:
            raise WrongOption("sinkId", self.sink_id, f"at most {SINK_ID_LENGTH_MAX} characters are")
        if streaming:
            given.refuse("batchId", "a stream counts its batches itself: leave it out")
        elif self.sink_id is None:
            for name in ("batchId", "sinkEpoch"):
                given.refuse(name, "it counts the batches of a sinkId: give that too")
        elif self.batch_id is None:
            raise WrongOption(
                "batchId", None, "with a sinkId, a whole number from 0 on says which of its batches this is"
            )


def _topic(given: Given) -> str | None:
    topic = given.text("topic")
    if topic is not None:
        try:
            check_name(topic)
        except InvalidTopicName as error:
            raise WrongOption("topic", topic, str(error)) from None
    return topic


def _codec(given: Given) -> str | None:
    """`compression`, or the name a Java producer has for it."""
    codecs = tuple(CODECS)
    theirs = given.choice("kafka.compression.type", codecs, "")
    return given.choice("compression", codecs, theirs) or None
