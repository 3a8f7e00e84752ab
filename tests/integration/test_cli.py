"""The `levada` command, as a person and as a script would use it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from levada.testing import Broker, broker
from support.wait import wait_until

Levada = Callable[..., subprocess.CompletedProcess[str]]
COMMAND = [sys.executable, "-m", "levada"]
#: Free ports for all fronts.
ANYWHERE = ["--kafka-port", "0", "--grpc-port", "0", "--http-port", "0"]
SIGNAL_ROUNDS = int(os.environ.get("LEVADA_SIGNAL_ROUNDS", "5"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker(data=tmp_path_factory.mktemp("cli") / "data") as levada:
        yield levada


@pytest.fixture
def environment(running: Broker) -> dict[str, str]:
    return {**os.environ, "LEVADA_SERVER": running.grpc, "COLUMNS": "80"}


@pytest.fixture
def levada(environment: dict[str, str]) -> Levada:
    def run(*args: str, stdin: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*COMMAND, *args], input=stdin, capture_output=True, text=True, env=environment, timeout=60
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


def as_json(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def json_lines(done: subprocess.CompletedProcess[str]) -> list[Any]:
    return [json.loads(line) for line in done.stdout.splitlines()]


# Topics


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


def test_creating_again_changes_nothing_expands_or_is_refused(levada: Levada) -> None:
    assert as_json(levada("topic", "create", "again", "-p", "4", "--json"))["outcome"] == "created"
    assert as_json(levada("topic", "create", "again", "-p", "4", "--json"))["outcome"] == "same"
    assert levada("topic", "create", "again", "-p", "6").stdout == "again was there already: expanded to 6 partitions\n"
    assert "it cannot be made to have 5" in levada("topic", "create", "again", "-p", "5", code=1).stderr
    same = levada("topic", "create", "again", "-c", "retention.ms=1")
    assert same.stdout == "again was there already, with 6 partitions: nothing changed\n"
    assert (
        "retention.ms is 604800000, not 1; `levada topic alter again --config retention.ms=1` does that" in same.stderr
    )
    told = as_json(levada("topic", "create", "again", "-c", "retention.ms=1", "--json"))
    assert told["not_changed"] == {"retention.ms": {"is": "604800000", "wanted": "1"}}
    assert as_json(levada("topic", "create", "again", "-c", "retention.ms=604800000", "--json"))["not_changed"] == {}
    assert len(as_json(levada("topic", "describe", "again", "--json"))["partitions"]) == 6


def test_a_topic_is_expanded_and_never_shrunk(levada: Levada) -> None:
    levada("topic", "create", "grows")
    assert levada("topic", "expand", "grows", "3").stdout == "grows: 3 partitions\n"
    assert as_json(levada("topic", "expand", "grows", "3", "--json")) == {"name": "grows", "partitions": 3}
    assert "has 3 partitions" in levada("topic", "expand", "grows", "2", code=1).stderr
    assert "did you mean grows?" in levada("topic", "expand", "grow", "4", code=4).stderr


def test_describe_shows_placement_and_last_offsets(levada: Levada) -> None:
    levada("topic", "create", "placed", "-p", "2")
    levada("produce", "placed", "x", "--partition", "1")
    first, second = as_json(levada("topic", "describe", "placed", "--json"))["partitions"]
    assert (first["leader"], first["replicas"], first["last_offset"], first["end"]) == ("n1", ["n1"], None, 0)
    assert (second["leader"], second["replicas"], second["last_offset"], second["end"]) == ("n1", ["n1"], 0, 1)
    shown = levada("topic", "describe", "placed").stdout
    assert "partition  leader  replicas  start  last offset  held" in shown
    assert "        1  n1      n1            0            0     1" in shown
    everything = levada("topic", "describe", "placed", "--all").stdout
    assert "retention.ms" in everything and "default" in everything


def test_internal_topics_are_listed_when_asked_for(levada: Levada) -> None:
    levada("topic", "create", "mine")
    assert "__levada.topics" not in [topic["name"] for topic in as_json(levada("topic", "list", "--json"))]
    assert "__levada.topics" in [topic["name"] for topic in as_json(levada("topic", "list", "--internal", "--json"))]


def test_a_topic_is_not_deleted_when_nobody_can_be_asked(levada: Levada) -> None:
    levada("topic", "create", "precious")
    assert "say --yes" in levada("topic", "delete", "precious", stdin="n\n", code=2).stderr
    levada("topic", "describe", "precious")


# Producing


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
    read = json_lines(levada("consume", "kept", "--json"))
    assert [(one["partition"], one["offset"], one["key"], one["value"]) for one in read] == [
        (2, 0, "a", "1"),
        (2, 1, "b", "2"),
    ]
    assert read[0]["headers"] == [{"name": "h", "value": "v"}]


def test_a_message_with_the_same_id_is_there_once(levada: Levada) -> None:
    levada("topic", "create", "once", "-p", "2", "-c", "levada.dedup=id")
    first = as_json(levada("produce", "once", "a", "--id", "m-1", "--json"))
    again = as_json(levada("produce", "once", "a", "--id", "m-1", "--json"))
    assert (first["duplicates"], again["duplicates"]) == (0, 1)
    assert (again["partition"], again["offset"]) == (first["partition"], first["offset"])
    assert "(a duplicate: it was there already)" in levada("produce", "once", "a", "--id", "m-1").stdout
    assert levada("consume", "once", "--raw").stdout == "a\n"


def test_an_id_that_nobody_checks_is_mentioned_once(levada: Levada) -> None:
    levada("topic", "create", "unchecked")
    lines = '{"value": "a", "id": "1"}\n{"value": "b", "id": "2"}\n'
    assert levada("produce", "unchecked", "-J", stdin=lines).stderr.count("ids are stored and not checked") == 1
    assert "levada.dedup=id" in levada("produce", "unchecked", "a", "--id", "1").stderr
    levada("topic", "alter", "unchecked", "-c", "levada.dedup=id")
    assert levada("produce", "unchecked", "a", "--id", "3").stderr == ""


def test_a_record_that_is_too_large_says_how_the_topic_takes_it(levada: Levada) -> None:
    levada("topic", "create", "small", "-c", "max.message.bytes=200")
    said = levada("produce", "small", "x" * 300, code=1).stderr
    assert "`levada topic alter small -c max.message.bytes=N`" in said
    levada("topic", "alter", "small", "-c", "max.message.bytes=2000")
    levada("produce", "small", "x" * 300)


def test_another_router_is_said_to_move_keys_where_there_are_records(levada: Levada) -> None:
    levada("topic", "create", "moved", "-p", "2")
    assert levada("topic", "alter", "moved", "-c", "levada.router=murmur2").stderr == ""
    levada("produce", "moved", "x", "--key", "k")
    said = levada("topic", "alter", "moved", "-c", "levada.router=fnv1a64").stderr
    assert "another partition than the 1 record there" in said
    assert levada("topic", "alter", "moved", "-c", "levada.router=fnv1a64").stderr == "", "nothing moves"


def test_what_consume_prints_as_json_can_be_produced_again(levada: Levada) -> None:
    levada("topic", "create", "original", "-p", "3")
    levada("topic", "create", "copy", "-p", "3")
    made = [
        {"value": "text", "key": "k", "headers": {"h": "1"}, "partition": 2, "timestamp": "2026-01-31T12:00:00Z"},
        {"value": {"amount": 12.5}, "key": None},
        {"value": None, "key": "gone"},
        {"value_base64": "/wA=", "key_base64": "AP8=", "headers": [{"name": "n", "value": None}]},
    ]
    done = levada("produce", "original", "-J", "--json", stdin="\n".join(map(json.dumps, made)) + "\n\n")
    assert as_json(done)["records"] == 4
    original = levada("consume", "original", "--json")
    by_value = {one.get("value") or one.get("value_base64"): one for one in json_lines(original)}
    assert by_value["text"]["timestamp"] == "2026-01-31T12:00:00.000Z"
    assert by_value["text"]["headers"] == [{"name": "h", "value": "1"}]
    assert by_value['{"amount":12.5}']["key"] is None
    assert by_value[None]["key"] == "gone"
    assert by_value["/wA="]["key_base64"] == "AP8="
    levada("produce", "copy", "--json-lines", stdin=original.stdout)
    without_topic = [{**one, "topic": ""} for one in json_lines(original)]
    assert [{**one, "topic": ""} for one in json_lines(levada("consume", "copy", "--json"))] == without_topic


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("not json", "line 2 is not JSON: Expecting value"),
        ("[1]", "line 2: must be an object"),
        ('{"key": "k"}', 'line 2: there is no "value"'),
        ('{"value": "v", "partition": "one"}', "line 2: partition 'one': must be a whole number"),
        ('{"value": "v", "timestamp": "soon"}', "line 2: Invalid isoformat"),
        ('{"value_base64": "?"}', "line 2: value_base64"),
    ],
)
def test_a_wrong_line_is_named_with_what_was_written_before_it(levada: Levada, line: str, said: str) -> None:
    levada("topic", "create", "wrong")
    done = levada("produce", "wrong", "-J", stdin=f'{{"value": "good"}}\n{line}\n', code=1)
    assert said in done.stderr
    assert "1 record was written before it" in done.stderr


def test_a_record_that_is_refused_ends_it_with_what_was_written_before(levada: Levada) -> None:
    levada("topic", "create", "narrow", "-p", "2")
    lines = "\n".join(['{"value": "a", "partition": 0}', '{"value": "b", "partition": 7}'])
    done = levada("produce", "narrow", "-J", stdin=lines, code=4)
    assert "partitions 0 to 1" in done.stderr and "1 record was written before it" in done.stderr
    assert levada("consume", "narrow", "--raw").stdout == "a\n"


def test_an_empty_input_writes_nothing(levada: Levada) -> None:
    levada("topic", "create", "nothing")
    assert as_json(levada("produce", "nothing", "--json", stdin=""))["records"] == 0


def test_a_file_is_shown_with_a_bar_to_whoever_watches(
    levada: Levada, environment: dict[str, str], tmp_path: Path
) -> None:
    levada("topic", "create", "watched")
    file = tmp_path / "many.txt"
    file.write_text("some words in a line\n" * 200_000)
    done, seen = on_a_terminal([*COMMAND, "produce", "watched", "--file", str(file)], environment)
    assert done == 0
    assert "many.txt" in seen and "records" in seen and "/s" in seen
    assert "200,000 records" in seen


def on_a_terminal(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Exit code, and all that was seen."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**environment, "TERM": "xterm"}
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not more:
            break
        seen += more
    os.close(ours)
    return process.wait(30), seen.decode(errors="replace")


# Consuming


def test_consume_starts_where_it_is_told_and_stops_at_the_limit(levada: Levada) -> None:
    levada("topic", "create", "places")
    levada("produce", "places", stdin="".join(f"{number}\n" for number in range(20)))
    for option in ("-n", "--max", "--limit"):
        read = levada("consume", "places", "--from", "9", option, "5", "--raw").stdout.split()
        assert read == ["9", "10", "11", "12", "13"]
    assert levada("consume", "places", "--from", "latest").stdout == ""
    assert levada("consume", "places", "--from", "2000-01-01T00:00:00Z", "-n", "1").stdout == "0:0 0\n"
    assert levada("consume", "places", "--from", "2000-01-01", "-n", "1").stdout == "0:0 0\n"
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert levada("consume", "places", "--from", later).stdout == ""
    assert "not within 0 to 20" in levada("consume", "places", "--from", "21", code=1).stderr


def test_partitions_are_read_alone_when_asked_for(levada: Levada) -> None:
    levada("topic", "create", "parts", "-p", "3")
    for partition in range(3):
        levada("produce", "parts", f"p{partition}", "--partition", str(partition))
    assert levada("consume", "parts", "--partition", "1").stdout == "1:0 p1\n"
    both = levada("consume", "parts", "--partition", "0", "--partition", "2", "--raw").stdout
    assert sorted(both.split()) == ["p0", "p2"]
    assert "partitions 0 to 2, not 3" in levada("consume", "parts", "--partition", "3", code=4).stderr


def test_a_record_is_printed_as_the_user_likes_it(levada: Levada) -> None:
    levada("topic", "create", "formed")
    levada("produce", "formed", "v", "--key", "k", "-H", "a=1", "-H", "b=2")
    form = r"{topic}/{partition}/{offset}\t{key}={value} [{headers}] {{}}"
    assert "there is no {}" in levada("consume", "formed", "--format", form, code=2).stderr
    form = r"{topic}/{partition}/{offset}\t{key}={value} [{headers}]"
    assert levada("consume", "formed", "--format", form).stdout == "formed/0/0\tk=v [a=1,b=2]\n"
    stamp = levada("consume", "formed", "--format", "{timestamp} {timestamp_ms}").stdout.split()
    moment = datetime.fromisoformat(stamp[0])
    assert int(moment.timestamp() * 1000) == int(stamp[1])


def test_a_group_goes_on_where_it_was_and_is_moved_described_and_deleted(levada: Levada) -> None:
    levada("topic", "create", "grouped")
    levada("produce", "grouped", stdin="a\nb\nc\n")
    assert levada("consume", "grouped", "-g", "readers", "-n", "2", "--raw").stdout.split() == ["a", "b"]
    assert levada("consume", "grouped", "-g", "readers", "--raw").stdout.split() == ["c"]
    assert levada("consume", "grouped", "-g", "readers", "--raw").stdout.split() == []
    assert "readers" in levada("group", "list").stdout
    described = as_json(levada("group", "describe", "readers", "--json"))
    (row,) = described["partitions"]
    assert (row["committed"], row["end"], row["lag"]) == (3, 3, 0)
    assert described["kind"] == "dynamic"
    for verb in ("seek", "reset-offsets"):
        move = ("group", verb, "readers", "--topic", "grouped", "--to")
        assert "nothing was changed" in levada(*move, "earliest", "--dry-run").stdout
        assert as_json(levada(*move, "1", "--json"))["partitions"][0]["after"] == 1
        assert levada("consume", "grouped", "-g", "readers", "--raw").stdout.split() == ["b", "c"]
    assert as_json(levada(*move, "-2", "--json"))["partitions"] == [
        {"topic": "grouped", "partition": 0, "before": 3, "after": 1}
    ]
    assert as_json(levada(*move, "2000-01-01T00:00:00Z", "--json"))["partitions"][0]["after"] == 0
    assert "must be earliest, latest, an offset" in levada(*move, "yesterday", code=2).stderr
    assert "0 to 3" in levada(*move, "9", code=1).stderr
    levada("group", "delete", "readers")
    assert "no group 'readers'" in levada("group", "describe", "readers", code=4).stderr


def test_moving_a_group_that_is_not_there_says_that_it_is_new(levada: Levada) -> None:
    levada("topic", "create", "sought")
    levada("consume", "sought", "-g", "searchers")
    move = ("group", "seek", "serchers", "--topic", "sought", "--to", "earliest")
    tried = levada(*move, "--dry-run")
    assert tried.stdout.startswith("serchers would be a new group\n")
    assert "did you mean searchers?" in tried.stderr
    assert "no group 'serchers'" in levada("group", "describe", "serchers", code=4).stderr
    done = levada(*move)
    assert done.stdout.startswith("serchers is a new group\n")
    assert "did you mean searchers? `levada group delete serchers` forgets the new one" in done.stderr
    again = levada(*move)
    assert ("new group" in again.stdout, again.stderr) == (False, "")


def test_a_group_without_a_place_begins_where_it_is_told(levada: Levada) -> None:
    levada("topic", "create", "begun")
    levada("produce", "begun", stdin="a\nb\nc\n")
    assert levada("consume", "begun", "-g", "later", "--from", "2", "--raw").stdout.split() == ["c"]
    levada("produce", "begun", "d")
    assert levada("consume", "begun", "-g", "later", "--from", "0", "--raw").stdout.split() == ["d"]
    assert levada("consume", "begun", "-g", "latest", "--from", "latest", "--raw").stdout == ""


def test_bytes_that_are_no_text_are_shown_as_base64_in_json(levada: Levada, running: Broker) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": running.bootstrap})
    producer.produce("bytes", value=b"\xff\x00", key=None)
    producer.produce("bytes", value=None, key=b"gone")
    producer.flush(10)
    first, second = json_lines(levada("consume", "bytes", "--json"))
    assert (first["key"], first["value_base64"]) == (None, "/wA=")
    assert (second["key"], second["value"]) == ("gone", None)


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
    producer.begin_transaction()
    producer.produce("settled", b"open")
    producer.flush(10)
    assert levada("consume", "settled", "--raw", "--committed").stdout.split() == ["kept"], (
        "it does not wait for the rest"
    )
    producer.abort_transaction(10)
    levada("consume", "settled", "--raw", "--committed", "-g", "settled")
    (row,) = as_json(levada("group", "describe", "settled", "--json"))["partitions"]
    assert row["lag"] == 0, "the end of a transaction is not left over"


def test_following_goes_on_until_it_is_interrupted_and_says_how_far_it_came(
    levada: Levada, environment: dict[str, str]
) -> None:
    levada("topic", "create", "followed")
    levada("produce", "followed", "before")
    command = [*COMMAND, "consume", "followed", "--follow", "--group", "followers"]
    following = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, bufsize=1
    )
    assert following.stdout is not None
    assert following.stdout.readline() == "0:0 before\n"
    levada("produce", "followed", "meanwhile")
    assert following.stdout.readline() == "0:1 meanwhile\n"
    wait_until(lambda: lag(levada, "followers") == 0, 20, "its place is saved while it follows")
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=120)
    assert (following.returncode, out) == (0, "")
    assert err == "\n2 records; next offsets 0:2; saved for group followers\n"
    assert as_json(levada("group", "describe", "followers", "--json"))["partitions"][0]["lag"] == 0


def lag(levada: Levada, group: str) -> int:
    return sum(row["lag"] for row in as_json(levada("group", "describe", group, "--json"))["partitions"])


@pytest.mark.parametrize("group", [(), ("--group", "patient")])
def test_a_follower_says_when_the_broker_goes_and_comes_back(tmp_path: Path, group: tuple[str, ...]) -> None:
    with broker(data=tmp_path / "d", process=True) as own:
        environment = {**os.environ, "LEVADA_SERVER": own.grpc}

        def produce(value: str) -> None:
            subprocess.run([*COMMAND, "produce", "left", value], env=environment, check=True, timeout=60)

        subprocess.run([*COMMAND, "topic", "create", "left"], env=environment, check=True, timeout=60)
        produce("before")
        command = [*COMMAND, "consume", "left", "--follow", "--raw", *group]
        following = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        try:
            assert following.stdout is not None and following.stderr is not None
            assert following.stdout.readline() == "before\n"
            own.kill()
            assert following.stderr.readline() == "levada: the connection is lost; waiting for the broker\n"
            own.start()
            assert following.stderr.readline() == "levada: the broker is back\n"
            produce("after")
            assert following.stdout.readline() in ("after\n", "before\n"), "it goes on"
        finally:
            following.send_signal(signal.SIGINT)
            following.communicate(timeout=120)
        assert following.returncode == 0


@pytest.mark.parametrize("group", [(), ("--group", "left-behind")])
def test_following_ends_when_the_topic_is_deleted(
    levada: Levada, environment: dict[str, str], group: tuple[str, ...]
) -> None:
    levada("topic", "create", "fleeting")
    levada("produce", "fleeting", "x")
    command = [*COMMAND, "consume", "fleeting", "--follow", *group]
    following = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert following.stdout is not None
    assert following.stdout.readline() == "0:0 x\n"
    levada("topic", "delete", "fleeting", "--yes")
    _, err = following.communicate(timeout=120)
    assert following.returncode == 4, err
    assert "no topic 'fleeting'" in err


def test_an_interrupted_input_says_how_much_was_written(levada: Levada, environment: dict[str, str]) -> None:
    levada("topic", "create", "typed")
    producing = subprocess.Popen(
        [*COMMAND, "produce", "typed"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert producing.stdin is not None and producing.stderr is not None
    producing.stdin.write(b"a\nb\n")
    producing.stdin.flush()
    wait_until(
        lambda: as_json(levada("topic", "describe", "typed", "--json"))["partitions"][0]["end"] == 2,
        20,
        "both are written",
    )
    producing.send_signal(signal.SIGINT)
    assert producing.wait(30) == 130
    assert producing.stderr.read() == b"\n2 records written\n"


def test_a_reader_that_has_seen_enough_ends_it_quietly(levada: Levada, running: Broker) -> None:
    levada("topic", "create", "long")
    levada("produce", "long", stdin="x\n" * 50_000)
    command = f"{sys.executable} -m levada consume long -s {running.grpc} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["0:0 x", "0"]
    assert done.stderr == ""


# Groups


def test_a_fixed_group_is_registered_and_its_shares_are_shown(levada: Levada) -> None:
    levada("topic", "create", "shared", "-p", "5")
    register = ("group", "register", "sharers", "--topic", "shared", "--consumers")
    first = as_json(levada(*register, "2", "--json"))
    assert (first["same"], first["shares"]) == (False, [[0, 2, 4], [1, 3]])
    assert as_json(levada(*register, "2", "--json"))["same"]
    second = as_json(levada(*register, "3", "--json"))
    assert second["generation"] > first["generation"]
    assert "0, 3" in levada(*register, "3").stdout
    described = as_json(levada("group", "describe", "sharers", "--json"))
    assert described["kind"] == "fixed"
    assert ("sharers", "fixed") in [(one["group"], one["kind"]) for one in as_json(levada("group", "list", "--json"))]
    levada("produce", "shared", stdin="".join(f"{number}\n" for number in range(10)))
    assert "--consumer N says which" in levada("consume", "shared", "--group", "sharers", code=1).stderr
    shares = [
        levada("consume", "shared", "--group", "sharers", "--consumer", str(consumer), "--format", "{partition}").stdout
        for consumer in range(3)
    ]
    assert [sorted(set(share.split())) for share in shares] == [["0", "3"], ["1", "4"], ["2"]]
    assert "from 0 to 2" in levada("consume", "shared", "--group", "sharers", "--consumer", "3", code=1).stderr
    assert as_json(levada("group", "describe", "sharers", "--json"))["partitions"][0]["lag"] == 0


def test_a_group_of_kafkas_with_running_members_is_described_and_not_moved(levada: Levada, running: Broker) -> None:
    from confluent_kafka import Consumer

    levada("topic", "create", "busy")
    levada("produce", "busy", stdin="a\nb\n")
    settings = {"bootstrap.servers": running.bootstrap, "group.id": "busy", "client.id": "worker"}
    consumer = Consumer(settings)
    consumer.subscribe(["busy"])
    try:
        while not consumer.assignment():
            consumer.poll(0.1)
        described = as_json(levada("group", "describe", "busy", "--json"))
        assert described["kind"] == "classic"
        assert [member["client"] for member in described["members"]] == ["worker"]
        assert "worker" in levada("group", "describe", "busy").stdout
        for extra in ((), ("--dry-run",)):
            assert "busy" in levada("group", "seek", "busy", "-t", "busy", "--to", "latest", *extra, code=1).stderr
        assert "busy" in levada("group", "delete", "busy", code=1).stderr
    finally:
        consumer.close()


def test_running_members_of_a_native_group_are_shown_and_go_where_they_are_sent(
    levada: Levada, environment: dict[str, str]
) -> None:
    levada("topic", "create", "sent", "-p", "2")
    levada("produce", "sent", stdin="a\nb\nc\nd\n")
    command = [*COMMAND, "consume", "sent", "--follow", "--group", "sent", "--raw"]
    member = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert member.stdout is not None
        assert sorted(member.stdout.readline().strip() for _ in range(4)) == ["a", "b", "c", "d"]
        described = as_json(levada("group", "describe", "sent", "--json"))
        (one,) = described["members"]
        assert (described["state"], one["partitions"]) == ("Stable", ["sent/0", "sent/1"])
        levada("group", "seek", "sent", "--topic", "sent", "--to", "earliest")
        assert sorted(member.stdout.readline().strip() for _ in range(4)) == ["a", "b", "c", "d"]
    finally:
        member.send_signal(signal.SIGINT)
        member.communicate(timeout=120)
    assert member.returncode == 0
    wait_until(lambda: as_json(levada("group", "describe", "sent", "--json"))["state"] == "Empty", 20, "it left")


# The cluster


def test_nodes_join_lead_and_leave(levada: Levada) -> None:
    (alone,) = as_json(levada("cluster", "nodes", "--json"))
    assert (alone["id"], alone["leader"], alone["self"]) == ("n1", True, True)
    long = ("--timeout-ms", "600000")
    assert "n3" in levada("cluster", "join", "n3", "127.0.0.1:7003", *long).stdout
    levada("cluster", "join", "a2", "127.0.0.1:7002", *long)
    assert as_json(levada("cluster", "leader", "--json"))["id"] == "a2"
    assert levada("cluster", "leader").stdout == "a2 at 127.0.0.1:7002\n"
    assert [node["id"] for node in as_json(levada("cluster", "nodes", "--json"))] == ["a2", "n1", "n3"]
    levada("topic", "create", "wide", "-p", "4", "-r", "2")
    rows = as_json(levada("cluster", "placement", "wide", "--json"))
    assert [row["leader"] for row in rows] == ["a2", "n1", "n3", "a2"]
    assert [row["replicas"] for row in rows] == [["a2", "n1"], ["n1", "n3"], ["n3", "a2"], ["a2", "n1"]]
    assert "a2,n1" in levada("topic", "describe", "wide").stdout
    assert "wide" in levada("cluster", "placement").stdout
    for node in ("a2", "n3"):
        assert levada("cluster", "leave", node).stdout == f"{node} left\n"
    assert as_json(levada("cluster", "leader", "--json"))["id"] == "n1"


def test_stats_count(levada: Levada) -> None:
    before = as_json(levada("cluster", "stats", "--json"))
    levada("topic", "create", "counted", "-p", "3")
    levada("produce", "counted", stdin="a\nb\nc\n")
    after = as_json(levada("cluster", "stats", "--json"))
    assert (after["topics"], after["partitions"]) == (before["topics"] + 1, before["partitions"] + 3)
    assert after["records_in"] >= before["records_in"] + 3
    assert "records in" in levada("cluster", "stats").stdout


# What goes wrong


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("topic", "create", "a b"), 1, "only [A-Za-z0-9._-] are allowed"),
        (("topic", "create", "__levada.x"), 1, "the broker's own"),
        (("topic", "create", "dlq.x"), 1, "the broker's own"),
        (("topic", "create", "bad", "-p", "0"), 1, "at least 1"),
        (("topic", "create", "bad", "-c", "retention.ms=x"), 1, "must be a whole number"),
        (("topic", "create", "bad", "-c", "nonsense=x"), 1, "nonsense"),
        (("topic", "create", "bad", "-c", "retention.mss=1"), 1, "did you mean retention.ms?"),
        (("topic", "create", "bad", "-c", "retention.ms"), 2, "must be NAME=VALUE"),
        (("topic", "describe", "nowhere"), 4, "no topic 'nowhere'"),
        (("topic", "delete", "nowhere", "-y"), 4, "no topic 'nowhere'"),
        (("topic", "delete", "__levada.topics", "-y"), 1, "cannot be deleted"),
        (("topic", "alter", "nowhere"), 2, "nothing to change"),
        (("topic", "alter", "nowhere", "-c", "retention.ms=1"), 4, "no topic 'nowhere'"),
        (("topic", "alter", "x", "-c", "retention.ms=1", "--unset", "retention.ms"), 2, "set and unset"),
        (("topic", "expand", "nowhere", "many"), 2, ""),
        (("consume", "nowhere"), 4, "no topic 'nowhere'"),
        (("consume", "t", "--from", "soon"), 2, "must be earliest, latest, an offset, or a time"),
        (("consume", "t", "--raw", "--json"), 2, "give one of --raw, --json and --format"),
        (("consume", "t", "--consumer", "0"), 2, "give --group too"),
        (("consume", "t", "--group", "g", "--partition", "0"), 2, "give --group or --partition, not both"),
        (("consume", "t", "--format", "{valu}"), 2, "there is no {valu}; there are {topic}"),
        (("consume", "t", "--format", "{key} {offset"), 2, "'{offset' at character 7 has no closing brace"),
        (("produce", "t", "x", "-z", "rar"), 2, "must be one of none, gzip, snappy, lz4, zstd"),
        (("produce", "t", "x", "--file", "y"), 2, "not both"),
        (("produce", "t", "--file", "/no/such/file"), 2, "there is no file"),
        (("produce", "t", "x", "-K", ":"), 2, "--key gives it a key"),
        (("produce", "t", "-K", ":", "-k", "k"), 2, "give --key or --key-separator, not both"),
        (("produce", "t", "--id", "m"), 2, "--id is for one VALUE"),
        (("produce", "t", "x", "-H", "h"), 2, "must be NAME=VALUE"),
        (("produce", "nowhere", "x"), 4, "`levada topic create nowhere` makes it"),
        (("group", "describe", "nobody"), 4, "no group 'nobody'"),
        (("group", "delete", "nobody"), 4, "`levada group list` shows all"),
        (("group", "register", "g", "-t", "nowhere", "-n", "2"), 4, "no topic 'nowhere'"),
        (("group", "register", "g", "-t", "nowhere", "-n", "0"), 2, ""),
        (("group", "seek", "g", "-t", "nowhere", "--to", "earliest"), 4, "no topic 'nowhere'"),
        (("cluster", "leave", "nobody"), 4, "no node 'nobody'"),
        (("cluster", "join", "n2", "nowhere"), 1, "host:port"),
        (("cluster", "placement", "nowhere"), 4, "no topic 'nowhere'"),
        (("topic", "list", "-s", "127.0.0.1:1"), 3, "`levada up` starts one"),
        (("topic", "list", "-s", "nonsense:x"), 2, "must be HOST:PORT"),
        (("topic",), 2, ""),
        (("tpic",), 2, ""),
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


def test_an_error_is_json_where_json_was_asked_for(levada: Levada) -> None:
    error = json.loads(levada("topic", "describe", "nowhere", "--json", code=4).stderr)
    assert error["error"] == "UnknownTopic"


def test_unknown_names_suggest_the_nearest(levada: Levada) -> None:
    levada("topic", "create", "invoices")
    levada("consume", "invoices", "--group", "accounting")
    levada("cluster", "join", "node-7", "127.0.0.1:7007", "--timeout-ms", "600000")
    for verb in ("describe", "delete"):
        flags = ("--yes",) if verb == "delete" else ()
        assert "did you mean invoices?" in levada("topic", verb, "invoice", *flags, code=4).stderr
    assert "did you mean invoices?" in levada("consume", "invoice", code=4).stderr
    assert "did you mean accounting?" in levada("group", "describe", "acounting", code=4).stderr
    assert "did you mean node-7?" in levada("cluster", "leave", "node7", code=4).stderr
    levada("cluster", "leave", "node-7")


def test_tables_fit_a_terminal_of_80_columns(levada: Levada, environment: dict[str, str]) -> None:
    name = "long-name-" * 12
    levada("topic", "create", name)
    code, seen = on_a_terminal([*COMMAND, "topic", "list"], environment)
    assert code == 0
    lines = [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in seen.splitlines()]
    assert all(len(line) <= 80 for line in lines), seen
    assert name[:30] in seen
    levada("topic", "delete", name, "--yes")


COMMANDS: list[tuple[str, ...]] = [("up",), ("produce",), ("consume",)]
COMMANDS += [("topic", verb) for verb in ("create", "list", "describe", "expand", "alter", "delete")]
COMMANDS += [("group", verb) for verb in ("list", "describe", "register", "seek", "reset-offsets", "delete")]
COMMANDS += [("cluster", verb) for verb in ("nodes", "join", "leave", "leader", "placement", "stats")]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(levada: Levada, command: tuple[str, ...]) -> None:
    examples = levada(*command, "--help").stdout.split("Example")[1]
    assert f"\n   levada {' '.join(command)}" in examples, "indented"


def test_help_tells_the_exit_codes(levada: Levada) -> None:
    said = " ".join(levada("--help").stdout.split())
    assert "3 nothing answers at the address" in said and "4 no such topic" in said


@pytest.mark.parametrize("module", ["typer", "levada.errors"])
def test_an_interrupt_while_modules_are_loaded_ends_it_quietly(module: str) -> None:
    program = f"""
import builtins, os, signal
real = builtins.__import__
def interrupted(name, *args, **kwargs):
    if name == {module!r}:
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *args, **kwargs)
from levada.cli import main
builtins.__import__ = interrupted
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


# Brokers


@pytest.mark.parametrize("module", ["levada.cli.logs", "levada.cli.settings", "levada.server", "uvloop"])
def test_an_interrupt_while_a_broker_starts_is_not_dropped(module: str, tmp_path: Path) -> None:
    """Python drops what a handler raises in a destructor: if that were all, the broker would go on."""
    program = f"""
import builtins, os, signal, sys
real = builtins.__import__
class Interrupting:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
def interrupted(name, *args, **kwargs):
    if name == {module!r}:
        Interrupting()
    return real(name, *args, **kwargs)
from levada.cli import main
builtins.__import__ = interrupted
sys.argv = ["levada", "up", "--data", {str(tmp_path / "d")!r}, *{ANYWHERE!r}]
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment_of_its_start_ends_a_broker(number: signal.Signals, tmp_path: Path) -> None:
    """LEVADA_SIGNAL_ROUNDS moments, spread over the time a start takes, and a little beyond."""
    command = [*COMMAND, "up", "--data", str(tmp_path / "d"), *ANYWHERE, "--json"]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(process: subprocess.Popen[str]) -> None:
        process.send_signal(number)
        try:
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
        assert "not clean" not in err
        assert process.returncode == 0 or "ready" not in out, err

    began = time.monotonic()
    first = start()
    assert first.stdout is not None and "ready" in first.stdout.readline()
    start_s = time.monotonic() - began
    end(first)
    for moment in range(SIGNAL_ROUNDS):
        process = start()
        time.sleep(1.1 * start_s * moment / SIGNAL_ROUNDS)
        end(process)
    last = start()
    assert last.stdout is not None and "ready" in last.stdout.readline()
    end(last)


def test_up_says_ready_once_refuses_a_second_broker_and_ends_cleanly(tmp_path: Path) -> None:
    command = [*COMMAND, "up", "--data", str(tmp_path / "d"), *ANYWHERE, "--json"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert first.stdout is not None
    ready = json.loads(first.stdout.readline())
    assert ready["event"] == "ready"
    assert ready["kafka"].startswith("127.0.0.1:") and ready["grpc"].startswith("127.0.0.1:")
    assert ready["pid"] == first.pid
    second = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert second.returncode == 1
    assert f"in use by another broker, process {first.pid}" in second.stderr
    first.send_signal(signal.SIGTERM)
    out, err = first.communicate(timeout=120)
    assert (first.returncode, out) == (0, ""), err
    again = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert again.stdout is not None and again.stdout.readline()
    again.send_signal(signal.SIGINT)
    _, err = again.communicate(timeout=120)
    assert again.returncode == 0
    assert "not clean" not in err


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (("--durability", "sometimes"), 1, "fsync, os or interval:<ms>"),
        (("--kafka-port", "70000"), 1, "from 0 to 65535"),
        (("--grpc-port", "70000"), 1, "from 0 to 65535"),
        (("--set", "nonsense=1"), 1, "unknown setting 'nonsense'"),
        (("--set", "nonsense"), 2, "must be NAME=VALUE"),
        (("--set", "log.dirs=/x"), 1, "log.dirs cannot be set: it is what data says"),
        (("--data", "/dev/null"), 1, "/dev/null"),
        (("--log-level", "loud"), 1, "must be one of debug, info, warning, error"),
        (("--host", "203.0.113.1"), 1, "203.0.113.1"),
    ],
)
def test_up_refuses_what_it_cannot_do_by_name(tmp_path: Path, flags: tuple[str, ...], code: int, said: str) -> None:
    command = [*COMMAND, "up", "--data", str(tmp_path / "d"), *ANYWHERE, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
