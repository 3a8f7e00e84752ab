"""A job ends between the note of a batch and its writing, and the source loses that batch: named, skipped only when asked, nothing twice."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from levada.spark.jobs import dedup, replay
from levada.spark.jobs.frames import Connection
from levada.spark.jobs.ledger import GroupLedger
from levada.spark.jobs.remains import NotCopied
from levada.spark.jobs.running import Silent
from support.histories import FIRST_MS, Told, client_of, consume, produce
from support.levada import COMMAND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from levada.wire.blocking import BlockingClient
    from support.levada import LevadaBroker

pytestmark = pytest.mark.timeout(900)
BATCH = 20


class Killed(BaseException):
    """kill −9."""


class Telling(Silent):
    """What was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def lost(self, what: str) -> None:
        self.said.append(what)


@pytest.fixture
def client(levada: LevadaBroker) -> Iterator[BlockingClient]:
    with client_of(levada.bootstrap) as running:
        yield running


@pytest.fixture
def connection(levada: LevadaBroker) -> Connection:
    return Connection.of(levada.bootstrap)


@pytest.fixture
def dies_at_note(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The next run ends as soon as it has noted this batch."""

    def arm(number: int) -> None:
        note = GroupLedger.note

        def noted(self: GroupLedger, step: Any, compared: Any = None) -> None:
            note(self, step, compared)
            if step.number == number:
                monkeypatch.setattr(GroupLedger, "note", note)
                raise Killed

        monkeypatch.setattr(GroupLedger, "note", noted)

    return arm


def records(ids: range, text: str = "first") -> list[Told]:
    return [
        Told(None, f"{text} {one}".encode(), (("message_id", b"%d" % one),), FIRST_MS + 10 * number)
        for number, one in enumerate(ids)
    ]


def values(client: BlockingClient, topic: str) -> list[str]:
    return [(one.value or b"").decode() for held in consume(client, topic).values() for one in held]


def test_a_replay(
    spark: SparkSession,
    levada: LevadaBroker,
    client: BlockingClient,
    connection: Connection,
    topic: str,
    dies_at_note: Any,
) -> None:
    client.create_topic(topic, 1)
    produce(client, topic, records(range(60)), partitions=1)
    copy = f"{topic}-copy"
    wanted = {"source": topic, "target": copy, "batch_rows": BATCH}
    dies_at_note(1)
    with pytest.raises(Killed):
        replay.replay(spark, client, connection, replay.prepare(client, replay.Replay(**wanted)), Silent())  # type: ignore[arg-type]
    assert values(client, copy) == [f"first {n}" for n in range(20)]
    client.delete_records({(topic, 0): 30})
    # Every run says so, before Spark is started.
    for _ in range(2):
        with pytest.raises(NotCopied, match=f"lost: offsets 20 to 29 of {topic}-0: .*--skip-lost"):
            replay.prepare(client, replay.Replay(**wanted))  # type: ignore[arg-type]
    command = [COMMAND, "job", "replay", topic, copy, "--bootstrap", levada.bootstrap]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert refused.returncode == 1 and f"offsets 20 to 29 of {topic}-0" in refused.stderr
    assert "--skip-lost" in refused.stderr
    skipping, telling = replay.Replay(**wanted, skip_lost=True), Telling()  # type: ignore[arg-type]
    done = replay.replay(spark, client, connection, replay.prepare(client, skipping), telling)
    assert [(one.partition, one.start, one.end) for one in done.lost] == [(0, 20, 30)]
    assert telling.said == [f"offsets 20 to 29 of {topic}-0: they were deleted before they were read"]
    assert values(client, copy) == [f"first {n}" for n in (*range(20), *range(30, 60))]
    # It goes on as ever, and begins anew where it is told to.
    produce(client, topic, records(range(60, 65)), partitions=1)
    done = replay.replay(spark, client, connection, replay.prepare(client, replay.Replay(**wanted)), Silent())  # type: ignore[arg-type]
    assert (done.records, list(done.lost)) == (5, [])
    assert values(client, copy)[-5:] == [f"first {n}" for n in range(60, 65)]


def test_a_dedup(
    spark: SparkSession, client: BlockingClient, connection: Connection, topic: str, dies_at_note: Any
) -> None:
    """What is copied is known again though the source has lost it; of what is lost itself, the first that is left is kept."""
    client.create_topic(topic, 1)
    produce(client, topic, records(range(40)), partitions=1)
    produce(client, topic, records(range(30), "again"), partitions=1)  # at 40 to 69
    clean = f"{topic}-clean"

    def run(*, skip_lost: bool = False) -> dedup.Deduplicated:
        wanted = dedup.Dedup(topic=topic, into=clean, by="id", batch_rows=BATCH, skip_lost=skip_lost)
        return dedup.dedup(spark, client, connection, dedup.prepare(client, wanted), Silent())

    dies_at_note(1)
    with pytest.raises(Killed):
        run()
    assert values(client, clean) == [f"first {n}" for n in range(20)]
    client.delete_records({(topic, 0): 30})
    with pytest.raises(NotCopied, match=f"lost: offsets 20 to 29 of {topic}-0"):
        run()
    done = run(skip_lost=True)
    expected = [
        *(f"first {n}" for n in range(20)),
        *(f"first {n}" for n in range(30, 40)),
        *(f"again {n}" for n in range(20, 30)),
    ]
    assert values(client, clean) == expected
    assert [(one.start, one.end) for one in done.lost] == [(20, 30)]
    assert (done.read, done.written) == (40, 20)
    # The source has lost all that was copied, and something old comes again.
    client.delete_records({(topic, 0): 70})
    produce(client, topic, [*records(range(5), "late"), *records(range(100, 103), "new")], partitions=1)
    assert run().written == 3
    assert values(client, clean) == [*expected, *(f"new {n}" for n in range(100, 103))]
