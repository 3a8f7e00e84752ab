"""Kafka's own command-line tools, unmodified, against the broker: in one JVM, which tests/acceptance/java runs them in."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.brokers import Broker
from support.driver import Client, Driver, Sent
from support.jars import jars
from support.java import SMALL_JVM
from support.wait import wait_until

TOOLS = "org.apache.kafka.tools."
SETTLE_S = 60.0


class Ran(NamedTuple):
    """What a tool printed, and its exit status."""

    status: int
    out: str
    errors: str


@pytest.fixture
def run(drivers: Callable[[str], Driver]) -> Callable[..., Ran]:
    """Run a tool by the name of its class, and expect it to end well unless told otherwise."""

    def tool(name: str, *arguments: str, stdin: str = "", fails: bool = False) -> Ran:
        path = name if name.startswith("kafka.") else TOOLS + name
        answer = drivers("java-4.3").call("tool", main=path, arguments=arguments, stdin=stdin)
        ran = Ran(answer["status"], answer["out"], answer["errors"])
        assert bool(ran.status) == fails, f"{name} {' '.join(arguments)} ended with {ran}"
        return ran

    return tool


@pytest.fixture
def bootstrap(broker: Broker) -> tuple[str, str]:
    return "--bootstrap-server", broker.bootstrap


def test_topic_command_creates_lists_describes_alters_and_deletes(
    run: Callable[..., Ran], bootstrap: tuple[str, str], topic: str
) -> None:
    topics = partial(run, "TopicCommand", *bootstrap)
    created = topics("--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=60000")
    assert f"Created topic {topic}." in created.out
    assert topic in topics("--list").out.split()
    described = topics("--describe", "--topic", topic).out
    assert "PartitionCount: 3" in described and "ReplicationFactor: 1" in described
    assert "retention.ms=60000" in described
    assert re.findall(r"Partition: (\d+)\s+Leader: 1\s+Replicas: 1\s+Isr: 1", described) == ["0", "1", "2"]
    topics("--alter", "--topic", topic, "--partitions", "5")
    wait_until(lambda: "PartitionCount: 5" in topics("--describe", "--topic", topic).out, SETTLE_S, "altered")
    assert "already exists" in topics("--create", "--topic", topic, fails=True).out
    assert topics("--describe", "--under-replicated-partitions").out == ""
    assert topics("--describe", "--unavailable-partitions").out == ""
    topics("--delete", "--topic", topic)
    wait_until(lambda: topic not in topics("--list").out.split(), SETTLE_S, "deleted")
    topics("--describe", "--topic", topic, fails=True)


def test_consumer_group_command_lists_describes_resets_and_deletes(
    run: Callable[..., Ran], bootstrap: tuple[str, str], topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    groups = partial(run, "consumer.group.ConsumerGroupCommand", *bootstrap)
    admin.create(topic, 2)
    admin.produce(topic, [Sent(b"v", None, index % 2) for index in range(10)])
    admin.commit(topic, topic, {0: 3, 1: 5})
    assert topic in groups("--list").out.split()
    described = groups("--describe", "--group", topic).out
    rows = {line.split()[2]: line.split()[3:6] for line in described.splitlines() if line.startswith(topic)}
    assert rows == {"0": ["3", "5", "2"], "1": ["5", "5", "0"]}, described

    member = with_client("java-4.3").join(f"{topic}-m", topic, topic, commit=False)
    wait_until(lambda: member.look()[0] == {0, 1}, SETTLE_S, "joined")
    state = groups("--describe", "--group", topic, "--state").out
    assert "Stable" in state and "range" in state
    members = groups("--describe", "--group", topic, "--members", "--verbose").out
    assert f"{topic}(0,1)" in members.replace(" ", "") or f"{topic}:0,1" in members.replace(" ", ""), members
    reset = ("--reset-offsets", "--group", topic, "--topic", topic)
    assert "can only be reset if the group" in groups(*reset, "--to-earliest", "--execute").out
    member.leave()
    wait_until(lambda: "Empty" in groups("--describe", "--group", topic, "--state").out, SETTLE_S, "empty")

    groups(*reset, "--to-earliest", "--execute")
    assert admin.committed(topic, topic) == {0: 0, 1: 0}
    groups(*reset, "--shift-by", "2", "--execute")
    assert admin.committed(topic, topic) == {0: 2, 1: 2}
    groups(*reset, "--to-latest", "--execute")
    assert admin.committed(topic, topic) == {0: 5, 1: 5}
    groups("--delete-offsets", "--group", topic, "--topic", f"{topic}:0")
    assert admin.committed(topic, topic) == {0: None, 1: 5}
    groups("--delete", "--group", topic)
    wait_until(lambda: topic not in groups("--list").out.split(), SETTLE_S, "deleted")


def test_config_command_shows_and_changes_settings_of_topics_and_the_broker(
    run: Callable[..., Ran], bootstrap: tuple[str, str], topic: str, admin: Client
) -> None:
    configs = partial(run, "kafka.admin.ConfigCommand", *bootstrap)
    admin.create(topic)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    configs("--alter", *entity, "--add-config", "retention.ms=12345,cleanup.policy=[compact,delete]")
    wait_until(lambda: "retention.ms=12345" in configs("--describe", *entity).out, SETTLE_S, "changed")
    described = configs("--describe", *entity).out
    assert "cleanup.policy=compact,delete" in described and "DYNAMIC_TOPIC_CONFIG" in described
    everything = configs("--describe", "--all", *entity).out
    assert "segment.bytes=1073741824" in everything and "DEFAULT_CONFIG" in everything
    configs("--alter", *entity, "--delete-config", "retention.ms")
    wait_until(lambda: "retention.ms=12345" not in configs("--describe", *entity).out, SETTLE_S, "back to the default")
    assert (
        "InvalidConfigurationException"
        in configs("--alter", *entity, "--add-config", "retention.ms=soon", fails=True).errors
    )
    broker = configs("--describe", "--all", "--entity-type", "brokers", "--entity-name", "1").out
    assert "num.partitions=1" in broker and "log.retention.ms" in broker


def test_verifiable_producer_and_consumer_agree(bootstrap: tuple[str, str], topic: str) -> None:
    """In JVMs of their own, because they report from the JVM's shutdown."""
    common = (*bootstrap, "--topic", topic)
    lines = in_its_own_jvm("VerifiableProducer", *common, "--max-messages", "500", "--acks", "-1")
    acked = [line["value"] for line in lines if line["name"] == "producer_send_success"]
    assert sorted(map(int, acked)) == list(range(500))
    reading = ("--group-id", topic, "--max-messages", "500", "--verbose", "--reset-policy", "earliest")
    lines = in_its_own_jvm("VerifiableConsumer", *common, *reading)
    read = [line["value"] for line in lines if line["name"] == "record_data"]
    assert sorted(map(int, read)) == list(range(500))
    commits = [line for line in lines if line["name"] == "offsets_committed"]
    assert commits and all(line["success"] for line in commits)


def in_its_own_jvm(tool: str, *arguments: str) -> list[dict[str, Any]]:
    command = [
        "java",
        *SMALL_JVM,
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp",
        jars("kafka/libs"),
        TOOLS + tool,
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_console_producer_and_consumer_pass_keys_headers_and_values(
    run: Callable[..., Ran], bootstrap: tuple[str, str], topic: str
) -> None:
    lines = [f"trace:{turn},kind:x\tkey-{turn}\tvalue {turn}" for turn in range(20)]
    properties = ("parse.key=true", "parse.headers=true")
    words = [word for setting in properties for word in ("--reader-property", setting)]
    run("ConsoleProducer", *bootstrap, "--topic", topic, *words, stdin="\n".join(lines) + "\n")
    shown = ("print.key=true", "print.headers=true", "print.offset=true", "print.partition=true")
    words = [word for setting in shown for word in ("--formatter-property", setting)]
    consumed = run(
        "consumer.ConsoleConsumer", *bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "20", *words
    )
    expected = [f"Partition:0\tOffset:{turn}\t{line}" for turn, line in enumerate(lines)]
    assert consumed.out.splitlines() == expected


def test_get_offset_shell_shows_every_kind_of_end(
    run: Callable[..., Ran], bootstrap: tuple[str, str], topic: str, admin: Client
) -> None:
    admin.create(topic, 2)
    start = int(time.time() * 1000) - 50_000
    admin.produce(topic, [Sent(b"v", None, 0, timestamp_ms=start + turn * 100) for turn in range(10)])

    def ask(when: object) -> list[str]:
        return run("GetOffsetShell", *bootstrap, "--topic", topic, "--time", str(when)).out.split()

    assert ask("latest") == [f"{topic}:0:10", f"{topic}:1:0"]
    assert ask("earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert ask("max-timestamp")[0] == f"{topic}:0:9"
    assert ask(start + 450)[0] == f"{topic}:0:5"


def test_delete_records_command_moves_the_start(
    run: Callable[..., Ran], bootstrap: tuple[str, str], topic: str, admin: Client, tmp_path: Path
) -> None:
    admin.create(topic, 2)
    admin.produce(topic, [Sent(b"v", None, index % 2) for index in range(20)])
    wanted = [{"topic": topic, "partition": 0, "offset": 4}, {"topic": topic, "partition": 1, "offset": -1}]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
    out = run("DeleteRecordsCommand", *bootstrap, "--offset-json-file", str(plan)).out
    assert f"partition: {topic}-0\tlow_watermark: 4" in out and f"partition: {topic}-1\tlow_watermark: 10" in out
    assert admin.bounds(topic) == {0: (4, 10), 1: (10, 10)}


def test_transactions_command_finds_and_aborts(
    run: Callable[..., Ran], bootstrap: tuple[str, str], topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:

    def transactions(*words: str) -> str:
        return run("TransactionsCommand", *bootstrap, *words).out

    admin.create(topic)
    producer = with_client("java-4.3").transaction(topic, topic)
    producer.begin()
    producer.send(topic, [Sent(b"open", None, 0)])
    listed = [line.split() for line in transactions("list").splitlines() if line.startswith(topic)]
    assert [row[3] for row in listed] == ["Ongoing"]
    described = transactions("describe", "--transactional-id", topic)
    assert "Ongoing" in described and f"{topic}-0" in described
    place = ("--topic", topic, "--partition", "0")
    rows = transactions("describe-producers", *place).splitlines()
    [first, *_] = [row.split() for row in rows[1:]]
    producer_id, sequence, start = first[0], first[3], first[-1]
    assert (producer_id, sequence, start) == (listed[0][2], "0", "0"), rows
    transactions("abort", *place, "--start-offset", start)
    wait_until(lambda: admin.consume(topic, committed=True) == [], SETTLE_S, "aborted")
    admin.produce(topic, [Sent(b"after", None, 0)])
    assert [seen.value for seen in admin.consume(topic, committed=True)] == [b"after"]


def test_log_dirs_command_tells_the_size_of_each_partition(
    run: Callable[..., Ran], bootstrap: tuple[str, str], topic: str, admin: Client, broker: Broker
) -> None:
    admin.create(topic, 2)
    admin.produce(topic, [Sent(b"x" * 1000, None, 0) for _ in range(50)])
    out = run("LogDirsCommand", *bootstrap, "--describe", "--topic-list", topic).out
    found = json.loads(out.splitlines()[-1])
    [node] = found["brokers"]
    sizes = {entry["partition"]: entry["size"] for directory in node["logDirs"] for entry in directory["partitions"]}
    file = next(broker.partition_dir(topic, 0).glob("*.log"))
    assert sizes == {f"{topic}-0": file.stat().st_size, f"{topic}-1": 0}


def test_tools_that_ask_about_the_cluster_are_answered(run: Callable[..., Ran], bootstrap: tuple[str, str]) -> None:
    assert "Cluster ID: " in run("ClusterTool", "cluster-id", *bootstrap).out
    versions = run("BrokerApiVersionsCommand", *bootstrap).out
    assert "Produce(0): 0 to 13" in versions and "Fetch(1): 4 to 18" in versions
    assert "transaction.version" in run("FeatureCommand", *bootstrap, "describe").out
    assert "GROUP" in run("GroupsCommand", *bootstrap, "--list").out


def test_leader_election_and_reassignment_are_answered_for_one_node(
    run: Callable[..., Ran], bootstrap: tuple[str, str], topic: str, admin: Client, tmp_path: Path
) -> None:
    admin.create(topic)
    place = ("--topic", topic, "--partition", "0")
    elected = run("LeaderElectionCommand", *bootstrap, "--election-type", "PREFERRED", *place).out
    assert "Valid replica already elected" in elected
    reassign = ("reassign.ReassignPartitionsCommand", *bootstrap)
    assert "No partition reassignments found" in run(*reassign, "--list").out


def test_the_performance_tools_run(
    run: Callable[..., Ran], bootstrap: tuple[str, str], topic: str, admin: Client
) -> None:
    admin.create(topic, 4)
    produced = run(
        "ProducerPerformance", "--topic", topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1",
        *bootstrap, "--command-property", "acks=all",
    ).out  # fmt: skip
    assert "20000 records sent" in produced
    consumed = run(
        "ConsumerPerformance", *bootstrap, "--topic", topic, "--num-records", "20000", "--timeout", "15000"
    ).out
    assert consumed.splitlines()[-1].split(", ")[4] == "20000", consumed


class Dumped(NamedTuple):
    """One batch as DumpLogSegments prints it, and its records."""

    fields: dict[str, str]
    records: list[dict[str, str]]


def dump(run: Callable[..., Ran], *files: Path, extra: tuple[str, ...] = ()) -> str:
    return run("DumpLogSegments", "--files", ",".join(map(str, files)), *extra).out


def batches(printed: str) -> list[Dumped]:
    found: list[Dumped] = []
    for line in printed.splitlines():
        if line.startswith("baseOffset: "):
            found.append(Dumped(dict(re.findall(r"(\w+): (\S+)", line)), []))
        elif line.startswith("| "):
            found[-1].records.append(dict(re.findall(r"(\w+): (.*?)(?= \w+: |$)", line.removeprefix("| "))))
    return found


def test_dump_log_segments_reads_our_files_record_by_record(
    run: Callable[..., Ran], broker: Broker, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    """Every codec, nulls and headers, a committed and an aborted transaction, several segments with their indexes."""
    admin.create(topic, 1, {"segment.bytes": "1048576", "index.interval.bytes": "512"})
    expected: list[tuple[str, str]] = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        sent = [
            Sent(b"%s %d " % (codec.encode(), turn) + b"x" * 40, b"k%d" % turn, 0, [("h", b"1")]) for turn in range(100)
        ]
        with_client("java-4.3").produce(topic, sent, codec=codec, idempotent=True)
        expected += [(f"k{turn}", f"{codec} {turn} " + "x" * 40) for turn in range(100)]
    with_client("java-4.3").produce(
        topic, [Sent(b"%d " % turn + b"f" * 2000, b"f", 0) for turn in range(700)], idempotent=True
    )
    expected += [("f", f"{turn} " + "f" * 2000) for turn in range(700)]
    producer = with_client("java-4.3").transaction(topic, topic)
    for ending in ("commit", "abort"):
        producer.begin()
        producer.send(topic, [Sent(ending.encode(), b"t", 0)])
        getattr(producer, ending)()
        expected.append(("t", ending))
    producer.close()

    segments = sorted(broker.partition_dir(topic, 0).glob("*.log"))
    assert len(segments) >= 2
    printed = dump(run, *segments, extra=("--deep-iteration", "--print-data-log"))
    found = batches(printed)
    records = [record for batch in found for record in batch.records]
    data = [record for record in records if "endTxnMarker" not in record]
    assert [(record["key"], record["payload"]) for record in data] == expected
    assert [int(record["offset"]) for record in records] == list(range(len(records)))
    assert {batch.fields["compresscodec"] for batch in found} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert all(batch.fields["isvalid"] == "true" and batch.fields["magic"] == "2" for batch in found)
    assert [record["endTxnMarker"] for record in records if "endTxnMarker" in record] == ["COMMIT", "ABORT"]
    assert data[0]["headerKeys"] == "[h]"


def test_dump_log_segments_finds_our_indexes_sane(
    run: Callable[..., Ran], own_broker: Broker, drivers: Callable[[str], Driver], topic: str
) -> None:
    client = Client(drivers("java-4.3"), own_broker.bootstrap)
    client.create(topic, 1, {"segment.bytes": "1048576", "index.interval.bytes": "1024"})
    client.produce(topic, [Sent(b"%d " % turn + b"f" * 2000, b"k", 0) for turn in range(1200)], idempotent=True)
    producer = client.transaction(topic, topic)
    for _ in range(3):
        producer.begin()
        producer.send(topic, [Sent(b"dropped", b"k", 0)])
        producer.abort()
    producer.close()
    own_broker.stop()
    directory = own_broker.partition_dir(topic, 0)
    for index in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
        assert "passed sanity check" in dump(run, index, extra=("--index-sanity-check",)), index
        wrong = dump(run, index)
        assert "Mismatches" not in wrong and "not found" not in wrong, wrong
    assert sum(index.stat().st_size for index in directory.glob("*.index")) > 0
    aborted = "".join(dump(run, file) for file in directory.glob("*.txnindex") if file.stat().st_size)
    assert aborted.count("producerId: ") == 3, aborted
    snapshots = sorted(directory.glob("*.snapshot"))
    assert "producerId: " in dump(run, snapshots[-1])


def test_dump_log_segments_decodes_our_internal_topics(
    run: Callable[..., Ran], broker: Broker, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    admin.create(topic)
    admin.commit(topic, topic, {0: 42})
    producer = with_client("java-4.3").transaction(topic, topic)
    producer.begin()
    producer.send(topic, [Sent(b"v", None, 0)])
    producer.commit()
    producer.close()
    offsets = [file for index in range(1) for file in broker.partition_dir("__consumer_offsets", index).glob("*.log")]
    printed = dump(run, *offsets, extra=("--offsets-decoder",))
    assert f'"group":"{topic}"' in printed and '"offset":42' in printed, printed[-2000:]
    states = list(broker.partition_dir("__transaction_state", 0).glob("*.log"))
    printed = dump(run, *states, extra=("--transaction-log-decoder",))
    of_ours = [line for line in printed.splitlines() if f'"transactionalId":"{topic}"' in line]
    assert '"transactionStatus":4' in of_ours[-1], of_ours  # CompleteCommit
