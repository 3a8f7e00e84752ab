"""Commands that run Spark are told to end while they work: they do so in order, say it in a sentence, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import polars
import psutil
import pytest

from levada.wire.answers import LATEST, READ_COMMITTED
from support.archives import cluster_of, fill
from support.guard import members
from support.histories import client_of, consume, contents, produce, told
from support.levada import COMMAND, LevadaBroker
from support.runner import START_S
from support.spark_pipelines import order, received, send
from support.spark_topics import make_topic
from support.wait import wait_until

pytestmark = pytest.mark.timeout(600)
#: What every command promises; and what Java takes to see that nobody needs it.
END_S = 60.0
RECORDS, RATE = 200, 10

FILE = """
from levada.spark import pipeline, topic

@pipeline(source=topic("{source}", format="json", schema="id STRING"), sink=topic("{sink}"), trigger="200 ms", name="{sink}-copies")
def copies(orders):
    return orders
"""


class Command:
    """`levada …` in a session of its own, with a place of its own for temporary files."""

    def __init__(self, broker: LevadaBroker, home: Path) -> None:
        self._home, self.temporary = home, home / "tmp"
        self.temporary.mkdir()
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("LEVADA_", "PYSPARK_"))}
        self._environment = {
            **kept,
            "LEVADA_BOOTSTRAP": broker.bootstrap,
            "LEVADA_HOME": str(home / "home"),
            "LEVADA_MASTER": "local[2]",
            "TMPDIR": str(self.temporary),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> None:
        with (self._home / "out").open("wb") as out, (self._home / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [str(COMMAND), *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=self._home,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        return (self._home / "out").read_text()

    @property
    def err(self) -> str:
        return (self._home / "err").read_text()

    def wait(self, look: Callable[[], bool]) -> None:
        """For something it does."""

        def seen() -> bool:
            assert self.process is not None and self.process.poll() is None, f"it ended:\n{self.out}{self.err}"
            return look()

        wait_until(seen, START_S, lambda: f"{self.out}{self.err}")

    def tell(self, number: signal.Signals) -> int:
        """Send this to its process group, as a terminal does; its exit code, when it and all it has started are gone."""
        assert self.process is not None
        [java] = [one for one in psutil.Process(self.process.pid).children() if "java" in one.name()]
        assert java.pid in members(self.process.pid)
        os.killpg(self.process.pid, number)
        return self.ended(END_S)

    def ended(self, timeout_s: float) -> int:
        """Its exit code, when nothing of it is left but what it has to say."""
        assert self.process is not None
        leader = self.process.pid
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {timeout_s} s:\n{self.out}{self.err}") from None
        wait_until(lambda: not members(leader), END_S, lambda: f"left behind: {members(leader)}")
        assert not list(self.temporary.glob("levada-*"))
        assert "Traceback" not in self.out + self.err
        assert "\tat " not in self.out + self.err
        return code

    def kill(self) -> None:
        if self.process is None:
            return
        self.process.kill()
        for pid in members(self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()


@pytest.fixture
def command(levada: LevadaBroker, tmp_path: Path) -> Iterator[Command]:
    made = Command(levada, tmp_path)
    yield made
    made.kill()


@pytest.mark.parametrize("times", [1, 2])
def test_what_is_ended_while_spark_starts_leaves_no_java(
    command: Command, levada: LevadaBroker, tmp_path: Path, times: int
) -> None:
    source, sink = make_topic(levada.bootstrap), make_topic(levada.bootstrap)
    file = tmp_path / "file.py"
    file.write_text(FILE.format(source=source, sink=sink))
    command.start("pipeline", "run", str(file))
    assert command.process is not None
    leader = psutil.Process(command.process.pid)
    command.wait(lambda: "on local[2]" in command.out and bool(leader.children()))
    family = leader.children(recursive=True)
    for _ in range(times):
        os.killpg(leader.pid, signal.SIGINT)
    assert command.ended(END_S) == 130
    assert command.err == f"levada: {sink}-copies was interrupted before it began\n"
    # Java has a process group of its own.
    psutil.wait_procs(family, END_S)
    assert not [one for one in family if one.is_running()]


def test_a_replay_that_is_ended_goes_on_where_it_was(command: Command, levada: LevadaBroker, topic: str) -> None:
    target = f"{topic}-copy"
    words = ("job", "replay", topic, target, "--rate", str(RATE), "--keep-timestamps")
    with client_of(levada.bootstrap) as client:
        for name in (topic, target):
            client.create_topic(name, 2)
        produce(client, topic, told(RECORDS), partitions=2)

        def written() -> int:
            at = {(target, partition): LATEST for partition in range(2)}
            return sum(place.offset for place in client.list_offsets(at, isolation=READ_COMMITTED).values())

        command.start(*words)
        command.wait(lambda: written() > 0)
        assert command.tell(signal.SIGTERM) == 130
        assert command.out == ""
        assert command.err == (
            "levada: interrupted; what is written is whole batches: run it again with the same words, and it goes on\n"
        )
        before = len(contents(consume(client, target)))
        assert 0 < before < RECORDS, "it was done before it was told: make more of it"

        command.start(*words)
        assert command.ended(START_S) == 0, command.err
        assert command.err == ""
        assert command.out.startswith(f"{topic} → {target}: {RECORDS - before} records in ")
        assert contents(consume(client, target)) == contents(consume(client, topic))


def test_an_archiver_ends_after_the_commit_it_is_in(
    command: Command, levada: LevadaBroker, topic: str, tmp_path: Path
) -> None:
    place, cluster = tmp_path / "archive", cluster_of(levada.bootstrap)
    with cluster.client() as client:
        client.create_topic(topic, 1, configs={"levada.archive": str(place), "retention.ms": "-1"})
    fill(cluster, topic, 0, 1000, 1)
    command.start("archive", "run", topic, "--min-rows", "1", "--max-delay", "0")
    command.wait(lambda: f"archive.{topic}: 1,000 records, " in command.out)
    fill(cluster, topic, 1000, 1000, 1)
    assert command.tell(signal.SIGINT) == 0
    assert command.err == ""
    assert command.out.splitlines()[-1] == "archiving ended: what is archived is whole"
    numbers = sorted(int(value) for value in polars.read_delta(str(place))["value"])
    assert numbers in (list(range(1000)), list(range(2000)))


def test_a_pipeline_ends_after_the_micro_batch_it_is_in(command: Command, levada: LevadaBroker, tmp_path: Path) -> None:
    source, sink = make_topic(levada.bootstrap, 2), make_topic(levada.bootstrap)
    send(levada.bootstrap, source, [order(number, "ada", 1.0, number) for number in range(50)])
    file = tmp_path / "file.py"
    file.write_text(FILE.format(source=source, sink=sink))
    command.start("pipeline", "run", str(file))
    command.wait(lambda: "rows read 50 " in command.out)
    assert command.tell(signal.SIGTERM) == 0
    assert command.err == ""
    first, *_, last = command.out.splitlines()
    assert (first, last) == (f"{sink}-copies: {source} → {sink}, on local[2]", f"{sink}-copies ended: 50 rows read")
    assert sorted(row["id"] for row in received(levada.bootstrap, sink)) == sorted(f"o-{one}" for one in range(50))
