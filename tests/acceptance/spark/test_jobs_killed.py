"""A job is killed −9 at a random moment, again and again, and run once more: its target is what one run would have made.

`LEVADA_KILL_ROUNDS` says how often both jobs together are killed.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from levada.spark.jobs import repartition, replay
from levada.spark.jobs.frames import Connection
from levada.spark.jobs.running import Silent
from levada.wire.answers import LATEST
from support.histories import by_key, client_of, consume, contents, produce, told
from support.levada import COMMAND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from levada.wire.blocking import BlockingClient
    from support.levada import LevadaBroker

ROUNDS = int(os.environ.get("LEVADA_KILL_ROUNDS", "2"))
RECORDS = 1000
#: So many records a batch: a run of all of it would be fifty transactions.
BATCH = 20
START_S = 600

pytestmark = pytest.mark.timeout(900)


def end_of(client: BlockingClient, topic: str, partitions: int) -> int:
    ends = client.list_offsets({(topic, partition): LATEST for partition in range(partitions)})
    return sum(place.offset for place in ends.values())


def killed_in_the_middle(
    arguments: list[str], bootstrap: str, output: Path, written: Callable[[], int], chance: random.Random
) -> None:
    """Run the command, and kill it a moment after it has written something."""
    before = written()
    command = [str(COMMAND), "job", *arguments, "--batch", str(BATCH), "--master", "local[2]", "--bootstrap", bootstrap]
    with output.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + START_S
            while written() == before:
                assert process.poll() is None, f"it ended by itself:\n{output.read_text()}"
                assert time.monotonic() < deadline, f"it wrote nothing within {START_S} s:\n{output.read_text()}"
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 2))
        finally:
            process.kill()
            process.wait()


def make_source(client: BlockingClient, topic: str) -> None:
    client.create_topic(topic, 3)
    produce(client, topic, told(RECORDS), partitions=3, batch=100)


def test_a_replay(spark: SparkSession, levada: LevadaBroker, topic: str, tmp_path: Path) -> None:
    target = f"{topic}-copy"
    with client_of(levada.bootstrap) as client:
        make_source(client, topic)
        client.create_topic(target, 3)
        for turn in range(-(-ROUNDS // 2)):
            arguments = ["replay", topic, target, "--keep-timestamps"]
            chance = random.Random(turn)
            killed_in_the_middle(
                arguments, levada.bootstrap, tmp_path / "output", lambda: end_of(client, target, 3), chance
            )
        assert end_of(client, target, 3) < RECORDS, "it was done before it was killed: make more of it"
        wanted = replay.Replay(source=topic, target=target, keep_timestamps=True)
        done = replay.replay(spark, client, Connection.of(levada.bootstrap), replay.prepare(client, wanted), Silent())
        assert 0 < done.records <= RECORDS
        source, copy = consume(client, topic), consume(client, target)
        assert contents(copy) == contents(source)
        assert by_key(copy) == by_key(source)


def test_a_repartition(spark: SparkSession, levada: LevadaBroker, topic: str, tmp_path: Path) -> None:
    target = f"{topic}.v5"
    with client_of(levada.bootstrap) as client:
        make_source(client, topic)

        def written() -> int:
            return end_of(client, target, 5) if target in client.topics() else 0

        for turn in range(ROUNDS // 2):
            arguments = ["repartition", topic, "--partitions", "5"]
            killed_in_the_middle(arguments, levada.bootstrap, tmp_path / "output", written, random.Random(turn))
        assert written() < RECORDS, "it was done before it was killed: make more of it"
        wanted = repartition.Repartition(topic=topic, partitions=5)
        ready = repartition.prepare(client, wanted)
        done = repartition.repartition(spark, client, Connection.of(levada.bootstrap), ready, Silent())
        assert done.fingerprint is not None
        source, copy = consume(client, topic), consume(client, target)
        assert contents(copy) == contents(source)
        assert by_key(copy) == by_key(source)
