"""What a job refuses, it refuses before Spark is started, and without having made anything."""

from __future__ import annotations

import json
import subprocess

import pytest

from levada.errors import InvalidRequest, LevadaError, OffsetOutOfRange, UnknownTopic
from levada.spark.jobs import dedup, repartition, replay, snapshot
from levada.spark.jobs.audit import audit
from levada.spark.jobs.ledger import GroupLedger, Step
from levada.spark.jobs.topics import is_held, release
from support.histories import client_of, produce, told
from support.levada import COMMAND, LevadaBroker


@pytest.fixture(scope="module")
def orders(levada: LevadaBroker) -> str:
    with client_of(levada.bootstrap) as client:
        for name, partitions in (("refused-orders", 4), ("refused-two", 2)):
            client.create_topic(name, partitions)
            produce(client, name, told(20), partitions=partitions)
    return "refused-orders"


@pytest.mark.parametrize(
    ("wanted", "error", "said"),
    [
        (replay.Replay(source="refused-order", target="x"), UnknownTopic, "did you mean refused-orders"),
        (
            replay.Replay(source="refused-orders", target="x", start="latest", end=0),
            InvalidRequest,
            "--from is behind --to",
        ),
        (
            replay.Replay(source="refused-orders", target="x", start=10**6),
            InvalidRequest,
            "there is no record between --from and --to; refused-orders has offsets 0: 0 to",
        ),
        (
            replay.Replay(source="refused-orders", target="x", end={0: 10**6, 1: 0, 2: 0, 3: 0}),
            OffsetOutOfRange,
            "--to: partition 0 has no offset 1000000; 0 to",
        ),
        (
            replay.Replay(source="refused-orders", target="refused-two", keep_partitions=True),
            InvalidRequest,
            "has 2 partitions and refused-orders 4",
        ),
        (repartition.Repartition(topic="refused-orders", partitions=0, into="x"), LevadaError, "must be from 1 to"),
        (
            repartition.Repartition(topic="refused-orders", partitions=3, into="refused-two"),
            InvalidRequest,
            "with 2 partitions, not 3",
        ),
        (
            repartition.Repartition(topic="refused-orders", partitions=2, into="refused-two"),
            InvalidRequest,
            "has records that this job has not written",
        ),
        (dedup.Dedup(topic="refused-orders", into="refused-two"), InvalidRequest, "it needs as many"),
        (snapshot.Snapshot(topic="refused-orders", to="/tmp"), InvalidRequest, "it is there already"),
        (audit.Audit(topic="nothing-like-it"), UnknownTopic, "there is no topic 'nothing-like-it'"),
    ],
)
def test_a_refusal_names_the_thing_and_makes_nothing(
    levada: LevadaBroker, orders: str, wanted: object, error: type[Exception], said: str
) -> None:
    prepare = {
        replay.Replay: replay.prepare,
        repartition.Repartition: repartition.prepare,
        dedup.Dedup: dedup.prepare,
        snapshot.Snapshot: snapshot.prepare,
        audit.Audit: audit.prepare,
    }[type(wanted)]
    with client_of(levada.bootstrap) as client:
        before = set(client.topics())
        with pytest.raises(error, match=said.replace("(", r"\(")):
            prepare(client, wanted)  # type: ignore[operator]
        assert set(client.topics()) == before


def test_nothing_can_be_removed_from_a_target_and_one_that_could_lose_records_is_refused(levada: LevadaBroker) -> None:
    """Whatever the source has, and also where the target was there before."""
    with client_of(levada.bootstrap) as client:
        client.create_topic("refused-compacted", 2, configs={"cleanup.policy": "compact", "retention.ms": "60000"})
        client.create_topic("refused-there", 3, configs={"cleanup.policy": "compact"})
        for into in ("refused-made", "refused-there"):
            wanted = repartition.Repartition(topic="refused-compacted", partitions=3, into=into)
            ready = repartition.prepare(client, wanted)
            assert is_held(ready.target)
            assert client.describe_configs(into)["cleanup.policy"].value == "delete"
        # It has begun, and is not whole, when somebody gives it the source's settings.
        job = repartition.name_of(ready.source, ready.target)
        step = Step(0, {0: 0, 1: 0}, {0: 5, 1: 5}, {0: (0, 5), 1: (0, 5)}, {})
        GroupLedger(client, job, ready.source.name).note(step)
        release(client, ready.target, ready.source)
        with pytest.raises(InvalidRequest, match="refused-there is not whole, and somebody has changed settings"):
            repartition.prepare(client, wanted)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["replay", "refused-order", "x"], 4, "did you mean refused-orders"),
        (["replay", "refused-orders", "x", "--from", "soon"], 2, "--from 'soon': must be earliest, latest"),
        (["snapshot", "refused-orders", "--to", "x", "--format", "xml"], 2, "must be parquet, delta, csv"),
        (["audit", "refused-orders", "--bootstrap", "127.0.0.1:1"], 3, "cannot be reached"),
        (["audit", "refused-orders", "--option", "kafka.acls=1"], 2, "kafka.acls"),
        (["audit", "refused-orders", "--by", "colour"], 2, "--by 'colour': must be id"),
        (["replay", "refused-orders", "refused-orders"], 2, "it is the source itself"),
        (["replay", "refused-orders", "x", "--rate", "nan"], 2, "--rate nan: must be more than 0"),
        (["repartition", "refused-orders", "-p", "2", "--into", "refused-orders"], 2, "it is the source itself"),
        (["dedup", "refused-orders", "--into", "x", "--by", "colour"], 2, "--by 'colour': must be id"),
        (["snapshot", "refused-orders"], 2, "one of --to PATH and --into TOPIC"),
    ],
)
def test_the_command_says_so_and_starts_no_spark(
    levada: LevadaBroker, orders: str, arguments: list[str], code: int, said: str
) -> None:
    where = [] if "--bootstrap" in arguments else ["--bootstrap", levada.bootstrap]
    done = subprocess.run(
        [str(COMMAND), "job", *arguments, *where, "--json"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stderr
    message = json.loads(done.stderr.strip().splitlines()[-1])
    assert said in message["message"]
