"""The `levada` command, as a person and as a script would use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from levada.testing import Broker, broker

Levada = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker(data=tmp_path_factory.mktemp("cli") / "data") as levada:
        yield levada


@pytest.fixture
def levada(running: Broker) -> Levada:
    def run(*args: str, stdin: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "LEVADA_BOOTSTRAP": running.bootstrap}
        command = [sys.executable, "-m", "levada", *args]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=environment, timeout=60)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


def as_json(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def test_a_topic_is_created_listed_described_altered_and_deleted(levada: Levada) -> None:
    assert levada("topic", "create", "life", "-p", "2").stdout == "created life with 2 partitions, keys by fnv1a64\n"
    assert "life" in levada("topic", "list").stdout
    described = as_json(levada("topic", "describe", "life", "--json"))
    assert [one["partition"] for one in described["partitions"]] == [0, 1]
    assert described["settings"] == {"levada.router": "fnv1a64"}
    levada("topic", "alter", "life", "-p", "3", "-c", "retention.ms=1000")
    described = as_json(levada("topic", "describe", "life", "--json"))
    assert len(described["partitions"]) == 3
    assert described["settings"]["retention.ms"] == "1000"
    levada("topic", "alter", "life", "--unset", "retention.ms")
    assert "retention.ms" not in as_json(levada("topic", "describe", "life", "--json"))["settings"]
    assert levada("topic", "delete", "life", "--yes").stdout == "deleted life\n"
    assert "life" not in [topic["name"] for topic in as_json(levada("topic", "list", "--json"))]


def test_a_key_goes_where_the_topics_router_says(levada: Levada) -> None:
    levada("topic", "create", "routed", "-p", "12")
    for key, partition in (("user-123", 7), ("user-456", 0), ("order-123", 6), ("user:1", 3)):
        assert as_json(levada("produce", "routed", "x", "--key", key, "--json"))["partition"] == partition


def test_lines_become_records_spread_evenly_and_are_read_back(levada: Levada) -> None:
    levada("topic", "create", "lines", "-p", "4")
    done = levada("produce", "lines", stdin="".join(f"{number}\n" for number in range(1000)))
    assert done.stdout.startswith("1,000 records")
    described = as_json(levada("topic", "describe", "lines", "--json"))
    assert [one["end"] for one in described["partitions"]] == [250] * 4
    values = levada("consume", "lines", "--raw").stdout.split()
    assert sorted(values, key=int) == [str(number) for number in range(1000)]


def test_key_headers_partition_and_codec_are_kept(levada: Levada, tmp_path: Path) -> None:
    levada("topic", "create", "kept", "-p", "3")
    lines = tmp_path / "lines"
    lines.write_text("a=1\nb=2\n")
    levada("produce", "kept", "-f", str(lines), "-K", "=", "--partition", "2", "-H", "h=v", "-z", "zstd")
    read = [json.loads(line) for line in levada("consume", "kept", "--json").stdout.splitlines()]
    assert [(one["partition"], one["offset"], one["key"], one["value"]) for one in read] == [
        (2, 0, "a", "1"),
        (2, 1, "b", "2"),
    ]
    assert read[0]["headers"] == [{"name": "h", "value": "v"}]


def test_consume_starts_where_it_is_told_and_stops_at_the_limit(levada: Levada) -> None:
    levada("topic", "create", "places")
    levada("produce", "places", stdin="".join(f"{number}\n" for number in range(20)))
    assert levada("consume", "places", "--from", "9", "-n", "5", "--raw").stdout.split() == [
        "9",
        "10",
        "11",
        "12",
        "13",
    ]
    assert levada("consume", "places", "--from", "latest").stdout == ""
    assert levada("consume", "places", "--from", "2000-01-01T00:00:00Z", "-n", "1").stdout == "0:0 0\n"
    assert "not within 0 to 20" in levada("consume", "places", "--from", "21", code=1).stderr


def test_a_group_goes_on_where_it_was_and_is_reset_described_and_deleted(levada: Levada) -> None:
    levada("topic", "create", "grouped")
    levada("produce", "grouped", stdin="a\nb\nc\n")
    assert levada("consume", "grouped", "-g", "readers", "-n", "2", "--raw").stdout.split() == ["a", "b"]
    assert levada("consume", "grouped", "-g", "readers", "--raw").stdout.split() == ["c"]
    assert "readers" in levada("group", "list").stdout
    (row,) = as_json(levada("group", "describe", "readers", "--json"))["partitions"]
    assert (row["committed"], row["end"], row["lag"]) == (3, 3, 0)
    reset = ("group", "reset-offsets", "readers", "--topic", "grouped", "--to")
    assert "nothing was changed" in levada(*reset, "earliest", "--dry-run").stdout
    assert as_json(levada(*reset, "1", "--json"))["partitions"][0]["after"] == 1
    assert levada("consume", "grouped", "-g", "readers", "--raw").stdout.split() == ["b", "c"]
    levada("group", "delete", "readers")
    assert "no group 'readers'" in levada("group", "describe", "readers", code=4).stderr


def test_bytes_that_are_no_text_are_shown_as_base64_in_json(levada: Levada, running: Broker) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": running.bootstrap})
    producer.produce("bytes", value=b"\xff\x00", key=None)
    producer.produce("bytes", value=None, key=b"gone")
    producer.flush(10)
    first, second = (json.loads(line) for line in levada("consume", "bytes", "--json").stdout.splitlines())
    assert (first["key"], first["value_base64"]) == (None, "/wA=")
    assert (second["key"], second["value"]) == ("gone", None)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("topic", "create", "a b"), 1, "only [A-Za-z0-9._-] are allowed"),
        (("topic", "create", "__levada.x"), 1, "the broker's own"),
        (("topic", "create", "dlq.x"), 1, "the broker's own"),
        (("topic", "create", "bad", "-p", "0"), 1, "from 1 to"),
        (("topic", "create", "bad", "-c", "retention.ms=x"), 1, "must be a whole number"),
        (("topic", "create", "bad", "-c", "nonsense=x"), 1, "nonsense"),
        (("topic", "describe", "nowhere"), 4, "no topic 'nowhere'"),
        (("topic", "alter", "nowhere"), 1, "nothing to change"),
        (("consume", "nowhere"), 4, "no topic 'nowhere'"),
        (("produce", "t", "x", "-z", "rar"), 1, "must be one of none, gzip, snappy, lz4, zstd"),
        (("produce", "nowhere", "x"), 4, "`levada topic create nowhere` makes it"),
        (("topic", "create", "bad", "-c", "retention.mss=1"), 1, "did you mean retention.ms?"),
        (("topic", "list", "-b", "127.0.0.1:1"), 3, "Is a broker running there?"),
        (("topic", "list", "-b", "nonsense:x"), 1, "host:port"),
        (("topic",), 2, ""),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence_with_its_exit_code(
    levada: Levada, args: tuple[str, ...], code: int, said: str
) -> None:
    done = levada(*args, code=code)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_partition_that_is_not_there_is_refused(levada: Levada) -> None:
    levada("topic", "create", "two", "-p", "2")
    assert "partitions 0 to 1, not 99" in levada("produce", "two", "x", "--partition", "99", code=4).stderr


def test_only_committed_records_are_shown_when_asked(levada: Levada, running: Broker) -> None:
    from confluent_kafka import Producer

    levada("topic", "create", "settled")
    producer = Producer({"bootstrap.servers": running.bootstrap, "transactional.id": "cli"})
    producer.init_transactions(10)
    for value, end in ((b"kept", producer.commit_transaction), (b"gone", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce("settled", value)
        producer.flush(10)
        end(10)
    assert levada("consume", "settled", "--raw").stdout.split() == ["kept", "gone"]
    assert levada("consume", "settled", "--raw", "--committed").stdout.split() == ["kept"]


def test_a_topic_is_not_deleted_when_nobody_can_be_asked(levada: Levada) -> None:
    levada("topic", "create", "precious")
    assert "say --yes" in levada("topic", "delete", "precious", stdin="n\n", code=1).stderr
    levada("topic", "describe", "precious")


def test_a_group_with_running_members_is_not_moved(levada: Levada, running: Broker) -> None:
    from confluent_kafka import Consumer

    levada("topic", "create", "busy")
    settings = {"bootstrap.servers": running.bootstrap, "group.id": "busy", "client.id": "worker"}
    consumer = Consumer(settings)
    consumer.subscribe(["busy"])
    try:
        while not consumer.assignment():
            consumer.poll(0.1)
        for extra in ((), ("--dry-run",)):
            done = levada("group", "reset-offsets", "busy", "--topic", "busy", "--to", "latest", *extra, code=1)
            assert "1 running members (worker)" in done.stderr
    finally:
        consumer.close()


def test_a_reader_that_has_seen_enough_ends_it_quietly(levada: Levada, running: Broker) -> None:
    levada("topic", "create", "long")
    levada("produce", "long", stdin="x\n" * 50_000)
    command = f"{sys.executable} -m levada consume long -b {running.bootstrap} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["0:0 x", "0"]
    assert done.stderr == ""


def test_an_error_is_json_where_json_was_asked_for(levada: Levada) -> None:
    error = json.loads(levada("topic", "describe", "nowhere", "--json", code=4).stderr)
    assert error["error"] == "UnknownTopic"


def test_an_unknown_topic_suggests_the_nearest(levada: Levada) -> None:
    levada("topic", "create", "invoices")
    assert "did you mean invoices?" in levada("topic", "describe", "invoice", code=4).stderr


def test_every_command_has_help_with_an_example(levada: Levada) -> None:
    commands = [("up",), ("produce",), ("consume",)]
    commands += [("topic", verb) for verb in ("create", "list", "describe", "alter", "delete")]
    commands += [("group", verb) for verb in ("list", "describe", "reset-offsets", "delete")]
    for command in commands:
        assert f"levada {' '.join(command)}" in levada(*command, "--help").stdout, command


def test_up_says_ready_once_refuses_a_second_broker_and_ends_cleanly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "levada", "up", "--data", str(tmp_path / "d"), "--kafka-port", "0", "--json"]
    command += ["--grpc-port", "0", "--http-port", "0"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert first.stdout is not None
    ready = json.loads(first.stdout.readline())
    assert ready["event"] == "ready"
    assert ready["kafka"].startswith("127.0.0.1:")
    assert ready["pid"] == first.pid
    second = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert second.returncode == 1
    assert f"in use by another broker, process {first.pid}" in second.stderr
    first.send_signal(signal.SIGTERM)
    out, err = first.communicate(timeout=30)
    assert (first.returncode, out) == (0, ""), err
    again = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert again.stdout is not None and again.stdout.readline()
    again.send_signal(signal.SIGINT)
    _, err = again.communicate(timeout=30)
    assert again.returncode == 0
    assert "not clean" not in err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--durability", "sometimes"), "fsync, os or interval:<ms>"),
        (("--kafka-port", "70000"), "from 0 to 65535"),
        (("--set", "nonsense=1"), "unknown setting 'nonsense'"),
        (("--set", "nonsense"), "must be NAME=VALUE"),
        (("--set", "log.dirs=/x"), "log.dirs cannot be set: it is what data says"),
        (("--data", "/dev/null"), "/dev/null"),
        (("--log-level", "loud"), "must be one of debug, info, warning, error"),
        (("--host", "203.0.113.1"), "203.0.113.1"),
    ],
)
def test_up_refuses_what_it_cannot_do_by_name(tmp_path: Path, flags: tuple[str, ...], said: str) -> None:
    command = [sys.executable, "-m", "levada", "up", "--data", str(tmp_path / "d"), "--kafka-port", "0", *flags]
    command += ["--grpc-port", "0", "--http-port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
