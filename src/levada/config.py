"""Frozen settings, with units and defaults.

`TOPIC_SETTINGS` and `BROKER_SETTINGS` are the one list of what can be set, under Kafka's names where Kafka has one and
`levada.*` where it has none. Everything else is derived from them: validation, DescribeConfigs, `levada topic alter`.
`TopicConfig` is the typed form that the log and the rules are handed; nobody else parses strings.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from levada.errors import InvalidConfig, nearest
from levada.schemas import check_avro, check_json

KiB: Final = 1024
MiB: Final = 1024 * KiB
GiB: Final = 1024 * MiB
SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_FORMAT: Final = "levada.archive.format"
_SCHEMA: Final = "levada.archive.schema"
#: Longest `levada.archive`.
PLACE_LENGTH_MAX: Final = 2048

Kind = Literal["boolean", "string", "int", "long", "double", "list"]


@dataclass(frozen=True, slots=True)
class Durability:
    """What an acknowledgement promises: `fsync` on disk, `interval:<ms>` on disk within that time, `os` handed to the OS."""

    mode: Literal["fsync", "interval", "os"]
    interval_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> Durability:
        if text in ("fsync", "os"):
            return cls(text)  # type: ignore[arg-type]  # narrowed by the line above
        head, _, tail = text.partition(":")
        if head == "interval" and tail.isdecimal() and 1 <= int(tail) <= HOUR_MS:
            return cls("interval", int(tail))
        raise InvalidConfig(
            f"levada.durability={text!r}: must be fsync, os or interval:<ms> with 1 to {HOUR_MS} milliseconds"
        )

    def __str__(self) -> str:
        return f"interval:{self.interval_ms}" if self.mode == "interval" else self.mode


FSYNC: Final = Durability("fsync")


@dataclass(frozen=True, slots=True)
class Setting:
    """One name that can be set: its type, default and what values it takes."""

    name: str
    kind: Kind
    default: str
    doc: str
    check: Callable[[str], None]
    read_only: bool = False
    #: The broker-wide name whose value is this topic setting's default, as Kafka has it (`log.retention.ms` …).
    synonym: str | None = None

    def validate(self, text: str) -> None:
        """Raise InvalidConfig, naming setting, value and range, unless the text is a value of this setting."""
        try:
            self.check(text)
        except ValueError as reason:
            raise InvalidConfig(f"{self.name}={text!r}: {reason}") from None


def _number(low: int, high: int) -> Callable[[str], None]:
    def check(text: str) -> None:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"must be a whole number from {low} to {high}") from None
        if not low <= value <= high:
            raise ValueError(f"must be from {low} to {high}")

    return check


def _ratio(text: str) -> None:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("must be a number from 0 to 1") from None
    if not 0 <= value <= 1:
        raise ValueError("must be from 0 to 1")


def _one_of(*choices: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")

    return check


def _boolean(text: str) -> None:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")


def _cleanup(text: str) -> None:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not set(parts) <= {"delete", "compact"}:
        raise ValueError("must be delete, compact or delete,compact")


def _durability(text: str) -> None:
    try:
        Durability.parse(text)
    except InvalidConfig as reason:
        raise ValueError(str(reason).partition(": ")[2]) from None


def _archive(text: str) -> None:
    """Broker, archiver and Spark's executors all look for it, each from a directory of its own."""
    is_uri = re.fullmatch(r"[a-z][a-z0-9+.-]*://\S+", text) is not None
    if text and not is_uri and (not text.startswith("/") or text != text.strip()):
        raise ValueError("must be an absolute path or a URI such as s3://bucket/orders; empty for none")
    if len(text) > PLACE_LENGTH_MAX:
        raise ValueError(f"must have at most {PLACE_LENGTH_MAX} characters")


def _any(_text: str) -> None:
    return


def _table(*settings: Setting) -> dict[str, Setting]:
    return {setting.name: setting for setting in settings}


#: What a topic can be told. `levada.router` has no broker-wide default: who creates a topic decides (natively `fnv1a64`,
#: over the Kafka wire `murmur2`).
TOPIC_SETTINGS: Final[Mapping[str, Setting]] = _table(
    Setting(
        "cleanup.policy",
        "list",
        "delete",
        "delete old segments, compact to the latest record per key, or both",
        _cleanup,
        synonym="log.cleanup.policy",
    ),
    Setting(
        "compression.type",
        "string",
        "producer",
        "codec batches are stored in; producer keeps what was sent",
        _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        synonym="compression.type",
    ),
    Setting(
        "delete.retention.ms",
        "long",
        str(DAY_MS),
        "how long a tombstone is kept by compaction",
        _number(0, INT64_MAX),
        synonym="log.cleaner.delete.retention.ms",
    ),
    Setting(
        "file.delete.delay.ms",
        "long",
        str(MINUTE_MS),
        "how long a removed file lingers under its .deleted name",
        _number(0, INT64_MAX),
        synonym="log.segment.delete.delay.ms",
    ),
    Setting(
        "flush.messages",
        "long",
        str(INT64_MAX),
        "1 asks for levada.durability=fsync unless that is set",
        _number(1, INT64_MAX),
        synonym="log.flush.interval.messages",
    ),
    Setting(
        "flush.ms",
        "long",
        str(INT64_MAX),
        "asks for levada.durability=interval:<ms> unless that is set",
        _number(0, INT64_MAX),
        synonym="log.flush.interval.ms",
    ),
    Setting(
        "index.interval.bytes",
        "int",
        "4096",
        "about how many bytes of log one index entry covers",
        _number(0, INT32_MAX),
        synonym="log.index.interval.bytes",
    ),
    Setting(
        "max.compaction.lag.ms",
        "long",
        str(INT64_MAX),
        "compact at the latest when a record is this old",
        _number(1, INT64_MAX),
        synonym="log.cleaner.max.compaction.lag.ms",
    ),
    Setting(
        "max.message.bytes",
        "int",
        str(MiB + 12),
        "largest batch that is taken",
        _number(0, INT32_MAX),
        synonym="message.max.bytes",
    ),
    Setting(
        "message.timestamp.after.max.ms",
        "long",
        str(HOUR_MS),
        "how far in the future a record's timestamp may lie",
        _number(0, INT64_MAX),
        synonym="log.message.timestamp.after.max.ms",
    ),
    Setting(
        "message.timestamp.before.max.ms",
        "long",
        str(INT64_MAX),
        "how far in the past a record's timestamp may lie",
        _number(0, INT64_MAX),
        synonym="log.message.timestamp.before.max.ms",
    ),
    Setting(
        "message.timestamp.type",
        "string",
        "CreateTime",
        "whose clock a record's timestamp is",
        _one_of("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    ),
    Setting(
        "min.cleanable.dirty.ratio",
        "double",
        "0.5",
        "compact when this much of the log is new since the last time",
        _ratio,
        synonym="log.cleaner.min.cleanable.ratio",
    ),
    Setting(
        "min.compaction.lag.ms",
        "long",
        "0",
        "a record younger than this is never compacted away",
        _number(0, INT64_MAX),
        synonym="log.cleaner.min.compaction.lag.ms",
    ),
    Setting(
        "min.insync.replicas",
        "int",
        "1",
        "kept for a later move to a Kafka cluster; one node always has one",
        _number(1, INT32_MAX),
        synonym="min.insync.replicas",
    ),
    Setting(
        "preallocate",
        "boolean",
        "false",
        "kept for a later move to a Kafka cluster",
        _boolean,
        synonym="log.preallocate",
    ),
    Setting(
        "retention.bytes",
        "long",
        "-1",
        "bytes a partition may hold; -1 is no limit",
        _number(-1, INT64_MAX),
        synonym="log.retention.bytes",
    ),
    Setting(
        "retention.ms",
        "long",
        str(7 * DAY_MS),
        "how long a record is kept; -1 is for ever",
        _number(-1, INT64_MAX),
        synonym="log.retention.ms",
    ),
    Setting(
        "segment.bytes",
        "int",
        str(GiB),
        "a segment is closed when it reaches this size",
        _number(14, INT32_MAX),
        synonym="log.segment.bytes",
    ),
    Setting(
        "segment.index.bytes",
        "int",
        str(10 * MiB),
        "a segment is closed when its index reaches this size",
        _number(4, INT32_MAX),
        synonym="log.index.size.max.bytes",
    ),
    Setting(
        "segment.jitter.ms",
        "long",
        "0",
        "spread of segment.ms, so that segments do not all close at once",
        _number(0, INT64_MAX),
        synonym="log.roll.jitter.ms",
    ),
    Setting(
        "segment.ms",
        "long",
        str(7 * DAY_MS),
        "a segment is closed when it is this old",
        _number(1, INT64_MAX),
        synonym="log.roll.ms",
    ),
    Setting(
        "unclean.leader.election.enable",
        "boolean",
        "false",
        "kept for a later move to a Kafka cluster",
        _boolean,
        synonym="unclean.leader.election.enable",
    ),
    Setting(
        "levada.durability",
        "string",
        "fsync",
        "what an acknowledgement promises: fsync, interval:<ms> or os",
        _durability,
        synonym="levada.durability",
    ),
    Setting("levada.router", "string", "murmur2", "which partition a key goes to", _one_of("murmur2", "fnv1a64")),
    Setting(
        "levada.keyless",
        "string",
        "round_robin",
        "which partition a record without key goes to",
        _one_of("round_robin", "zero", "sticky"),
        synonym="levada.keyless",
    ),
    Setting(
        "levada.dedup",
        "string",
        "off",
        "whether a message that was seen before is stored again: off, by its message_id, or by its payload",
        _one_of("off", "id", "payload"),
        synonym="levada.dedup",
    ),
    Setting(
        "levada.dedup.scope",
        "string",
        "topic",
        "where a message must have been seen to be a repeat: in the same topic, or anywhere in the broker",
        _one_of("topic", "broker"),
        synonym="levada.dedup.scope",
    ),
    Setting(
        "levada.dedup.window.ms",
        "long",
        str(30 * MINUTE_MS),
        "how long a message is remembered",
        _number(1, 7 * DAY_MS),
        synonym="levada.dedup.window.ms",
    ),
    Setting(
        "levada.dedup.entries.max",
        "long",
        "10000000",
        "how many messages are remembered at most, with 50 bytes each; when more come, the oldest are forgotten before their window "
        "has passed",
        _number(1, 1_000_000_000),
        synonym="levada.dedup.entries.max",
    ),
    Setting(
        "levada.dedup.sweep.ms",
        "long",
        str(MINUTE_MS),
        "pause between looks for messages that are remembered too long",
        _number(1, DAY_MS),
        synonym="levada.dedup.sweep.ms",
    ),
    Setting(
        "levada.enqueue.timeout.ms",
        "long",
        str(5 * SECOND_MS),
        "how long a native publisher waits for room before it is told that the broker is overloaded",
        _number(0, HOUR_MS),
        synonym="levada.enqueue.timeout.ms",
    ),
    Setting(
        "levada.archive",
        "string",
        "",
        "where the archiver keeps the topic's whole history as a Delta table; retention waits for it",
        _archive,
    ),
    Setting(
        "levada.archive.format",
        "string",
        "raw",
        "what values are read as for the table's typed column: raw for none",
        _one_of("raw", "json", "avro"),
    ),
    Setting(
        "levada.archive.schema",
        "string",
        "",
        "the schema for it: DDL for json, JSON for avro",
        _any,
    ),
)

#: Broker-wide settings that are shown and, where not read-only, changed under Kafka's names.
BROKER_SETTINGS: Final[Mapping[str, Setting]] = _table(
    Setting("advertised.listeners", "string", "", "what kafka.advertised says, or where we listen", _any, read_only=True),
    Setting("auto.create.topics.enable", "boolean", "true", "make a topic when a client asks for it", _boolean),
    Setting("broker.id", "int", "1", "this node", _number(0, INT32_MAX), read_only=True),
    Setting("cluster.id", "string", "", "made when the data directory is", _any, read_only=True),
    Setting("connections.max.idle.ms", "long", str(10 * MINUTE_MS), "an idle connection is closed after this; -1 never", _number(-1, INT64_MAX)),
    Setting("default.replication.factor", "int", "1", "one node, one replica", _number(1, 1), read_only=True),
    Setting("delete.topic.enable", "boolean", "true", "whether topics can be deleted", _boolean),
    Setting("group.initial.rebalance.delay.ms", "int", "0", "how long an empty group waits for more members", _number(0, INT32_MAX)),
    Setting("group.max.session.timeout.ms", "int", str(30 * MINUTE_MS), "longest session timeout of a member", _number(1, INT32_MAX)),
    Setting("group.max.size", "int", str(INT32_MAX), "most members of a group", _number(1, INT32_MAX)),
    Setting("group.min.session.timeout.ms", "int", str(6 * SECOND_MS), "shortest session timeout of a member", _number(1, INT32_MAX)),
    Setting("listeners", "string", "", "what host and kafka.port say", _any, read_only=True),
    Setting("log.cleaner.backoff.ms", "long", str(15 * SECOND_MS), "pause between looks for something to compact", _number(1, INT64_MAX)),
    Setting("log.dirs", "string", "", "what data says", _any, read_only=True),
    Setting("log.retention.check.interval.ms", "long", str(5 * MINUTE_MS), "pause between looks for something to delete", _number(1, INT64_MAX)),
    Setting("max.connections", "int", str(INT32_MAX), "most connections at once", _number(1, INT32_MAX)),
    Setting("node.id", "int", "1", "this node", _number(0, INT32_MAX), read_only=True),
    Setting("num.partitions", "int", "1", "partitions of a topic made without a number", _number(1, 100_000)),
    Setting("offset.metadata.max.bytes", "int", "4096", "longest metadata of an offset commit", _number(0, INT32_MAX)),
    Setting("offsets.retention.check.interval.ms", "long", str(10 * MINUTE_MS), "pause between looks for offsets to expire", _number(1, INT64_MAX)),
    Setting("offsets.retention.minutes", "int", str(7 * 24 * 60), "an empty group's offsets are kept this long", _number(1, INT32_MAX)),
    Setting("producer.id.expiration.ms", "int", str(DAY_MS), "an idle producer is forgotten after this", _number(1, INT32_MAX)),
    Setting("queued.max.request.bytes", "long", str(256 * MiB), "bytes of requests and answers held in memory, all connections together", _number(MiB, INT64_MAX)),
    Setting("socket.request.max.bytes", "int", str(100 * MiB), "largest request frame", _number(1, INT32_MAX)),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", "int", str(10 * SECOND_MS), "pause between looks for transactions that timed out", _number(1, INT32_MAX)),
    Setting("transaction.max.timeout.ms", "int", str(15 * MINUTE_MS), "longest transaction timeout a producer may ask for", _number(1, INT32_MAX)),
    Setting("transactional.id.expiration.ms", "int", str(7 * DAY_MS), "an idle transactional id is forgotten after this", _number(1, INT32_MAX)),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic's settings, parsed. Fields are named as in `TOPIC_SETTINGS`, with `_` for `.`."""

    compact: bool = False
    delete: bool = True
    compression_type: str = "producer"
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = MINUTE_MS
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = INT64_MAX
    max_message_bytes: int = MiB + 12
    message_timestamp_after_max_ms: int = HOUR_MS
    message_timestamp_before_max_ms: int = INT64_MAX
    log_append_time: bool = False
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = GiB
    segment_index_bytes: int = 10 * MiB
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS
    durability: Durability = FSYNC
    router: str = "murmur2"
    keyless: str = "round_robin"
    dedup: str = "off"
    dedup_scope: str = "topic"
    dedup_window_ms: int = 30 * MINUTE_MS
    dedup_entries_max: int = 10_000_000
    dedup_sweep_ms: int = MINUTE_MS
    enqueue_timeout_ms: int = 5 * SECOND_MS
    archive: str = ""


def nearest_or_all(name: str, known: Iterable[str]) -> str:
    """ "; did you mean …?" where something like it exists, else all there are."""
    return nearest(name, known) or f"; known are {', '.join(sorted(known))}"


def check_topic_settings(settings: Mapping[str, str]) -> None:
    """Raise InvalidConfig for the first name that is unknown or value that is not allowed."""
    for name, value in settings.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise InvalidConfig(f"unknown topic setting {name!r}{nearest_or_all(name, TOPIC_SETTINGS)}")
        setting.validate(value)


def _check_archive(settings: Mapping[str, str]) -> None:
    """Settings that do not go together."""
    if settings.get("levada.archive") and "compact" in settings.get("cleanup.policy", ""):
        raise InvalidConfig(
            f"cleanup.policy={settings['cleanup.policy']!r} and levada.archive do not go together: an archive holds every "
            "record, and compaction removes some before it could; cleanup.policy must be delete"
        )
    kind = settings.get(_FORMAT, "raw")
    if kind != "raw" and not settings.get(_SCHEMA):
        raise InvalidConfig(f"{_FORMAT}={kind!r}: {_SCHEMA} must say the fields")


def check_change(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """InvalidConfig for what may not be set on a topic any more, while those that have it are served."""
    if any(before.get(name) != after.get(name) for name in (_FORMAT, _SCHEMA)):
        _check_schema(after.get(_FORMAT, "raw"), after.get(_SCHEMA, ""))


def _check_schema(kind: str, schema: str) -> None:
    """What reads the values is elsewhere and runs later: what can be told of a schema without it is told here."""
    if kind == "raw":
        if schema:
            raise InvalidConfig(
                f"{_SCHEMA}={schema!r}: {_FORMAT} is raw, which has none; set it to json or avro, or remove the schema, in the same call"
            )
        return
    try:
        if kind == "json":
            check_json(schema)
        else:
            check_avro(schema)
    except ValueError as why:
        example = "DDL such as id BIGINT, tags ARRAY<STRING>" if kind == "json" else "an Avro schema in JSON"
        raise InvalidConfig(f"{_SCHEMA}={schema!r}: {_FORMAT}={kind} needs {example}: {why}") from None


def topic_config(overrides: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> TopicConfig:
    """The typed settings of a topic: its own overrides, over the broker's `[topic]` defaults, over ours."""
    check_topic_settings(overrides)
    _check_archive(overrides)
    return _parse({**(defaults or {}), **overrides})


def _parse(given: Mapping[str, str]) -> TopicConfig:
    def value(name: str) -> str:
        return given.get(name, TOPIC_SETTINGS[name].default)

    def number(name: str) -> int:
        return int(value(name))

    policies = {part.strip() for part in value("cleanup.policy").split(",")}
    archive = value("levada.archive")
    return TopicConfig(
        # Of a topic with an archive, compact can only be the default of all topics: see _check_archive.
        compact="compact" in policies and not archive,
        delete="delete" in policies or bool(archive),
        compression_type=value("compression.type"),
        delete_retention_ms=number("delete.retention.ms"),
        file_delete_delay_ms=number("file.delete.delay.ms"),
        index_interval_bytes=number("index.interval.bytes"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
        max_message_bytes=number("max.message.bytes"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        log_append_time=value("message.timestamp.type") == "LogAppendTime",
        min_cleanable_dirty_ratio=float(value("min.cleanable.dirty.ratio")),
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        retention_bytes=number("retention.bytes"),
        retention_ms=number("retention.ms"),
        segment_bytes=number("segment.bytes"),
        segment_index_bytes=number("segment.index.bytes"),
        segment_jitter_ms=number("segment.jitter.ms"),
        segment_ms=number("segment.ms"),
        durability=_topic_durability(given),
        router=value("levada.router"),
        keyless=value("levada.keyless"),
        dedup=value("levada.dedup"),
        dedup_scope=value("levada.dedup.scope"),
        dedup_window_ms=number("levada.dedup.window.ms"),
        dedup_entries_max=number("levada.dedup.entries.max"),
        dedup_sweep_ms=number("levada.dedup.sweep.ms"),
        enqueue_timeout_ms=number("levada.enqueue.timeout.ms"),
        archive=archive,
    )


def _topic_durability(given: Mapping[str, str]) -> Durability:
    """`levada.durability` where it is set; else what Kafka's flush settings ask for; else fsync."""
    if "levada.durability" in given:
        return Durability.parse(given["levada.durability"])
    if given.get("flush.messages") == "1":
        return FSYNC
    flush_ms = int(given.get("flush.ms", INT64_MAX))
    if flush_ms <= HOUR_MS:
        return Durability("interval", max(1, flush_ms))
    return FSYNC


def split_listener(text: str) -> tuple[str, int]:
    """`host:port` or `[v6]:port` → (host, port)."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InvalidConfig(f"address {text!r}: must be host:port with a port from 0 to 65535")
    return host.strip("[]"), int(port)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """All a broker is told at start. `settings` holds values of BROKER_SETTINGS, `topic` those of TOPIC_SETTINGS."""

    data: Path
    host: str = "127.0.0.1"
    kafka_port: int = 9092
    #: What clients are told to connect to; the bound address where empty.
    kafka_advertised: str = ""
    #: None: no such front.
    grpc_port: int | None = 9094
    http_port: int | None = 9095
    node_id: int = 1
    #: This node's name in the cluster's plan.
    node_name: str = "n1"
    settings: Mapping[str, str] = field(default_factory=dict)
    topic: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_topic_settings(self.topic)
        if self.topic.get("levada.archive"):
            raise InvalidConfig("levada.archive has no default for all topics: each has a table of its own")
        for name, value in self.settings.items():
            setting = BROKER_SETTINGS.get(name)
            if setting is None:
                raise InvalidConfig(f"unknown broker setting {name!r}{nearest_or_all(name, BROKER_SETTINGS)}")
            if setting.read_only:
                raise InvalidConfig(f"{name} cannot be set: it is {setting.doc}")
            setting.validate(value)
        ports = {"kafka.port": self.kafka_port, "grpc.port": self.grpc_port, "http.port": self.http_port}
        for name, port in ports.items():
            if port is not None and not 0 <= port <= 65535:
                raise InvalidConfig(f"{name}={port}: must be from 0 to 65535")
        if self.kafka_advertised:
            split_listener(self.kafka_advertised)

    def text(self, name: str) -> str:
        return self.settings.get(name, BROKER_SETTINGS[name].default)

    def number(self, name: str) -> int:
        return int(self.text(name))

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"


#: Kafka's coarser spellings of broker-wide defaults: the topic setting, and how many of its units one of theirs is.
_COARSE: Final[Mapping[str, tuple[str, int]]] = {
    "log.retention.minutes": ("retention.ms", MINUTE_MS),
    "log.retention.hours": ("retention.ms", HOUR_MS),
    "log.roll.hours": ("segment.ms", HOUR_MS),
    "log.roll.jitter.hours": ("segment.jitter.ms", HOUR_MS),
}


def coarse_names() -> Mapping[str, str]:
    """Kafka's coarser spellings → the broker-wide name that says the same in milliseconds."""
    return {name: TOPIC_SETTINGS[fine].synonym or fine for name, (fine, _) in _COARSE.items()}


def broker_names() -> set[str]:
    """Every name that stands for something broker-wide."""
    return {*BROKER_SETTINGS, *topic_names_by_synonym(), *_COARSE}


def split_settings(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Settings in Kafka's names → (broker settings, defaults for topics), each under the name that `BrokerConfig` takes.

    Kafka's broker-wide names of topic defaults (`log.retention.hours`, `message.max.bytes`) mean those defaults.
    """
    broker: dict[str, str] = {}
    topic: dict[str, str] = {}
    for name, value in given.items():
        if name in BROKER_SETTINGS:
            broker[name] = value
        elif name in _COARSE:
            fine, times = _COARSE[name]
            topic[fine] = str(int(value) * times) if value.isdecimal() else value
        else:
            short = topic_names_by_synonym().get(name, name)
            if short not in TOPIC_SETTINGS:
                raise InvalidConfig(
                    f"unknown setting {name!r}{nearest_or_all(name, {*broker_names(), *TOPIC_SETTINGS})}"
                )
            topic[short] = value
    return broker, topic


@functools.cache
def topic_names_by_synonym() -> Mapping[str, str]:
    """Kafka's broker-wide name of a topic setting → the topic's (`log.retention.ms` → `retention.ms`)."""
    return {setting.synonym: name for name, setting in TOPIC_SETTINGS.items() if setting.synonym is not None}
