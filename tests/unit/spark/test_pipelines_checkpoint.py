"""Checkpoints by name: whose they are, and the epochs of their sinks."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from levada.spark import lake, pipeline, topic
from levada.spark.archive import place
from levada.spark.pipelines import preflight
from levada.spark.pipelines.checkpoint import Checkpoint
from levada.spark.pipelines.errors import WrongCheckpoint
from levada.spark.pipelines.places import Places
from levada.spark.pipelines.preflight import ahead
from levada.spark.pipelines.tables import Table
from levada.spark.pipelines.writing import TopicWriter, Writing
from levada.spark.sink.claims import BatchSeen
from levada.spark.sink.sinks import Sinks


def declare(source="orders", state="rocksdb"):
    return pipeline(source=topic(source), sink=topic("out"), name="revenue", state=state)(lambda orders: orders)


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path / "revenue")


def begin(checkpoint: Checkpoint) -> None:
    """As Spark does, when it plans the first micro-batch."""
    (checkpoint.location / "offsets").mkdir(parents=True)
    (checkpoint.location / "offsets" / "0").write_text("v1")


def test_looking_at_one_that_is_not_there_makes_nothing(checkpoint):
    assert (checkpoint.epoch, checkpoint.begun) == (0, False)
    checkpoint.check(declare())
    assert not checkpoint.directory.exists()


def test_it_is_begun_when_spark_has_planned_a_batch(checkpoint):
    checkpoint.open(declare(), 0)
    assert not checkpoint.begun
    begin(checkpoint)
    assert checkpoint.begun
    assert checkpoint.location == checkpoint.directory / "0"


def test_a_reset_begins_the_next_epoch_and_forgets_the_one_before(checkpoint):
    checkpoint.open(declare(), 0)
    begin(checkpoint)
    assert checkpoint.reset() == 1
    assert (checkpoint.epoch, checkpoint.begun, checkpoint.location.name) == (1, False, "1")
    assert not (checkpoint.directory / "0").exists()
    assert checkpoint.reset() == 2


def test_an_epoch_that_is_asked_for_begins_anew_and_an_older_one_does_not(checkpoint):
    checkpoint.open(declare(), 0)
    begin(checkpoint)
    checkpoint.open(declare("others"), 5)
    assert (checkpoint.epoch, checkpoint.begun) == (5, False)
    begin(checkpoint)
    checkpoint.open(declare("others"), 3)
    assert (checkpoint.epoch, checkpoint.begun) == (5, True)


def test_another_declarations_checkpoint_is_refused_with_what_to_do(checkpoint):
    checkpoint.open(declare(), 0)
    begin(checkpoint)
    checkpoint.check(declare())
    with pytest.raises(WrongCheckpoint) as refused:
        checkpoint.check(declare("others"))
    assert "was made with source orders, and it now reads source orders (topic others)" in str(refused.value)
    assert "levada pipeline reset revenue" in str(refused.value)
    with pytest.raises(WrongCheckpoint, match="state in rocksdb, which cannot change to memory"):
        checkpoint.check(declare(state="memory"))


def test_what_never_began_may_still_change(checkpoint):
    checkpoint.open(declare(), 0)
    checkpoint.check(declare("others"))
    checkpoint.open(declare("others"), 0)
    begin(checkpoint)
    checkpoint.check(declare("others"))


def test_a_damaged_note_is_not_taken_for_none(checkpoint):
    checkpoint.open(declare(), 0)
    (checkpoint.directory / "pipeline.json").write_text("{")
    with pytest.raises(WrongCheckpoint, match="damaged"):
        checkpoint.check(declare())


def test_the_note_is_there_for_people_too(checkpoint):
    checkpoint.open(declare(), 0)
    note = json.loads((checkpoint.directory / "pipeline.json").read_text())
    assert note == {"epoch": 0, "id": checkpoint.id, "sources": {"orders": "orders"}, "state": "rocksdb"}


def test_it_is_known_from_others_of_its_name(checkpoint, tmp_path):
    checkpoint.open(declare(), 0)
    before = checkpoint.id
    checkpoint.open(declare("others"), 0)
    other = Checkpoint(tmp_path / "elsewhere" / "revenue")
    assert other.id == ""
    other.open(declare(), 0)
    assert checkpoint.id == before != other.id != ""


def test_what_a_batch_reads_is_durable_before_a_sink_has_it(checkpoint, monkeypatch):
    synced = []
    checkpoint.open(declare(), 0)
    begin(checkpoint)
    monkeypatch.setattr(place, "sync", synced.append)
    writing = Writing(declare(), Places(home=checkpoint.directory.parent), checkpoint)
    monkeypatch.setattr(TopicWriter, "write", lambda *_: synced.append("sink"))
    writing(None, 0)
    offsets = checkpoint.location / "offsets"
    assert synced == [offsets / "0", offsets, checkpoint.location, checkpoint.directory, "sink"]


def test_an_epoch_is_durable_with_its_name(checkpoint, monkeypatch):
    synced = []
    monkeypatch.setattr(place, "sync", synced.append)
    checkpoint.reset()
    assert synced[-2:] == [checkpoint.directory / "pipeline.json", checkpoint.directory]
    assert checkpoint.directory.parent in synced


@pytest.mark.parametrize(
    ("seen", "planned", "is_ahead"),
    [
        ((0, 17), (0, 18), False),
        ((0, 17), (0, 17), False),  # Spark does not know yet that it is written
        ((0, 17), (0, 16), True),  # an older copy of the checkpoint, or its last file lost with the power
        ((0, 17), (0, -1), True),  # the checkpoint was deleted
        ((0, -1), (0, -1), False),  # claimed, and nothing written yet
        ((0, 17), (1, -1), False),  # begun anew on purpose
        ((1, 0), (0, 17), True),  # a copy from before that
        ((1, -1), (0, 17), True),
    ],
)
def test_a_sink_that_remembers_more_than_the_checkpoint(seen, planned, is_ahead):
    assert ahead(seen, planned) is is_ahead


class Cluster:
    """As much of a client as is asked before a start."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None: ...

    def topics(self):
        return dict.fromkeys(("orders", "out"), SimpleNamespace(is_internal=False))


@pytest.mark.parametrize("sink", [topic("out"), lake("out")])
def test_a_start_behind_its_sinks_is_refused(checkpoint, tmp_path, monkeypatch, sink):
    """Spark's last files were lost, with the power or because this is a copy."""
    monkeypatch.setattr(preflight, "BlockingClient", Cluster)
    monkeypatch.setattr(Sinks, "last_committed", lambda *_: BatchSeen(0, 3, None, ()))
    monkeypatch.setattr(Table, "last_batch", lambda _: 3)
    one = pipeline(source=topic("orders"), sink=sink, name="revenue")(lambda orders: orders)
    places = Places(home=tmp_path)
    checkpoint = Checkpoint(places.checkpoint("revenue"))
    checkpoint.open(one, 0)
    begin(checkpoint)
    with pytest.raises(
        WrongCheckpoint, match=r"up to 3 of epoch 0, .* knows those up to 0: .*levada pipeline reset revenue"
    ):
        preflight.check(one, places)
    (checkpoint.location / "offsets" / "3").write_text("v1")
    assert preflight.check(one, places) == 0


def test_the_last_batch_that_was_planned(checkpoint):
    checkpoint.open(declare(), 0)
    assert checkpoint.planned == -1
    begin(checkpoint)
    for name in ("9", "10", ".11.crc", ".12.5f1c.tmp"):
        (checkpoint.location / "offsets" / name).write_text("v1")
    assert checkpoint.planned == 10
