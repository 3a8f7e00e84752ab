"""Checkpoints by name: whose they are, and the epochs of their sinks."""

from __future__ import annotations

import json

import pytest

from levada.spark import pipeline, topic
from levada.spark.pipelines.checkpoint import Checkpoint
from levada.spark.pipelines.errors import WrongCheckpoint
from levada.spark.pipelines.preflight import ahead


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
    assert note == {"epoch": 0, "sources": {"orders": "orders"}, "state": "rocksdb"}


@pytest.mark.parametrize(
    ("seen", "epoch", "begun", "is_ahead"),
    [
        ((0, 17), 0, True, False),
        ((0, 17), 0, False, True),  # the checkpoint was deleted
        ((0, -1), 0, False, False),  # claimed, and nothing written yet
        ((0, 17), 1, False, False),  # begun anew on purpose
        ((1, 0), 0, True, True),  # an older copy of the checkpoint
        ((1, -1), 0, True, True),
    ],
)
def test_a_sink_that_remembers_more_than_the_checkpoint(seen, epoch, begun, is_ahead):
    assert ahead(seen, epoch, begun=begun) is is_ahead
