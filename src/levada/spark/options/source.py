"""All options of a read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from levada.errors import nearest
from levada.spark.columns.schema import COLUMNS
from levada.spark.fetch import BYTES_MAX
from levada.spark.formats import FORMATS, ON_ERROR, Format, Formatter, WrongSchema, format_of
from levada.spark.options.cluster import Cluster
from levada.spark.options.positions import At, Offsets, Position, ending, starting
from levada.spark.options.reading import Given, WrongOption
from levada.spark.options.topics import Topics, topics
from levada.wire.answers import EARLIEST, LATEST

_DELAY_MS: Final = 15 * 60_000
_ISOLATION: Final = ("read_committed", "read_uncommitted")
#: How Spark's Kafka source does its work, or a Java consumer: taken, so that moving over is one word, and nothing comes of it.
_HOW_OTHERS_WORK: Final = (
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "kafka.fetch.max.wait.ms",
    "kafka.fetch.min.bytes",
    "kafka.heartbeat.interval.ms",
    "kafka.max.poll.interval.ms",
    "kafka.max.poll.records",
    "kafka.session.timeout.ms",
)


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What to read, from where to where, and in which form. It can be pickled."""

    cluster: Cluster
    topics: Topics
    #: None: earliest for a batch, latest for a stream.
    starting: Position | None
    #: None: latest. Only for a batch.
    ending: Position | None
    offsets_max: int | None
    offsets_min: int | None
    #: The longest that a stream waits for `offsets_min`.
    delay_ms_max: int
    partitions_min: int | None
    #: The most offsets that one task reads.
    task_offsets_max: int | None
    fail_on_data_loss: bool
    #: Whose committed offsets are read from and, by a stream, committed to.
    group: str | None
    read_committed: bool
    fetch_bytes_max: int
    formatter: Formatter
    #: Where what the logs no longer hold is read from: auto, off, or a table.
    history: str = "auto"

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Read them all. WrongOption, for the first that is not right."""
        given = Given(options)
        read = cls(
            cluster=Cluster.of(given),
            topics=topics(given),
            starting=starting(given),
            ending=ending(given),
            offsets_max=given.number("maxOffsetsPerTrigger", low=1),
            offsets_min=given.number("minOffsetsPerTrigger", low=1),
            delay_ms_max=given.duration_ms("maxTriggerDelay", _DELAY_MS),
            partitions_min=given.number("minPartitions", low=1, high=2**31 - 1),
            task_offsets_max=given.number("maxRecordsPerPartition", low=1),
            fail_on_data_loss=given.flag("failOnDataLoss", True),
            group=_group(given),
            read_committed=given.choice("kafka.isolation.level", _ISOLATION, "read_committed") == "read_committed",
            fetch_bytes_max=_fetch_bytes_max(given),
            formatter=_formatter(given),
            history=_history(given),
        )
        for name in _HOW_OTHERS_WORK:
            given.text(name)
        given.refuse_the_rest()
        read._check()
        return read

    def _check(self) -> None:
        low, high = self.offsets_min, self.offsets_max
        if low is not None and high is not None and low > high:
            raise WrongOption("minOffsetsPerTrigger", str(low), f"at most maxOffsetsPerTrigger is, which is {high}")
        for position in (self.starting, self.ending):
            if self.group is None and isinstance(position, At) and position.word == "group":
                raise WrongOption("groupId", None, f"{position.option}=group needs it")

    def for_batch(self) -> Self:
        """These, if a batch can be read by them. WrongOption."""
        _refuse_place(self.starting, "latest", LATEST, "a batch begins at earliest, group, an offset or a time")
        _refuse_place(self.ending, "earliest", EARLIEST, "a batch ends at latest, group, an offset or a time")
        return self

    def for_stream(self) -> Self:
        """These, if a stream can be read by them. WrongOption."""
        if self.ending is not None:
            raise WrongOption(
                self.ending.option, "it", "a stream has no end; read a batch, or use trigger(availableNow=True)"
            )
        return self


def _refuse_place(position: Position | None, word: str, number: int, allowed: str) -> None:
    if isinstance(position, At) and position.word == word:
        raise WrongOption(position.option, word, allowed)
    if isinstance(position, Offsets):
        for at, offset in position.offsets.items():
            if offset == number:
                raise WrongOption(position.option, f"{at}: {number}", allowed)


def _history(given: Given) -> str:
    value = given.text("history", "auto")
    if value.lower() in ("auto", "off"):
        return value.lower()
    if not value.startswith("/") and "://" not in value:
        raise WrongOption("history", value, "auto, off, an absolute path, or a URI such as s3://bucket/orders is")
    return value


def _group(given: Given) -> str | None:
    names = ("groupId", "kafka.group.id")
    if all(given.text(name) is None for name in names):
        return None
    return given.required(*names, allowed="the name of a group is")


def _fetch_bytes_max(given: Given) -> int:
    names = ("kafka.max.partition.fetch.bytes", "kafka.fetch.max.bytes")
    return min(given.number(name, BYTES_MAX, low=1, high=2**31 - 1) for name in names)


def _formatter(given: Given) -> Formatter:
    on_error = given.choice("onError", ON_ERROR, "fail")
    return Formatter(_columns(given), key=_format(given, "key"), value=_format(given, "value"), on_error=on_error)


def _columns(given: Given) -> tuple[str, ...]:
    headers = given.flag("includeHeaders", False)
    value = given.text("columns")
    if value is None:
        return COLUMNS if headers else tuple(name for name in COLUMNS if name != "headers")
    wanted = [one.strip() for one in value.split(",") if one.strip()]
    known = {name.lower(): name for name in COLUMNS}
    for name in wanted:
        if name.lower() not in known:
            raise WrongOption("columns", name, f"{', '.join(COLUMNS)} are{nearest(name, COLUMNS)}")
    found = [known[name.lower()] for name in wanted]
    if headers and "headers" not in found:
        found.append("headers")
    if not found or len(set(found)) < len(found):
        raise WrongOption("columns", value, f"some of {', '.join(COLUMNS)} are, each once")
    return tuple(found)


def _format(given: Given, which: str) -> Format:
    """The format of the key or of the value."""
    name = given.choice(f"{which}Format", FORMATS, "raw")
    schema = given.text(f"{which}Schema")
    if schema is not None and name in ("raw", "string"):
        raise WrongOption(f"{which}Schema", schema, f"{which}Format=json or avro has a schema, and {name} has none")
    try:
        return format_of(name, schema=schema)
    except WrongSchema as error:
        raise WrongOption(f"{which}Schema", schema, str(error)) from None
