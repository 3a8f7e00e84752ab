"""Producer state: sequences, epochs, transactions, snapshots."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from levada.errors import (
    DamagedIndex,
    Fenced,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerError,
)
from levada.log.producers import Completed, Producers
from levada.records.batch import Batch
from levada.records.rewrite import empty
from support.batches import make_batch, make_marker


class Writer:
    """A log in miniature: gives offsets, asks and tells `Producers`."""

    def __init__(self, producers: Producers | None = None) -> None:
        self.producers = producers if producers is not None else Producers()
        self.end = 0
        self.written: list[Batch] = []

    def write(self, batch: Batch, now_ms: int = 1000) -> int:
        """The base offset; that of the first copy for a repeat."""
        repeat = self.producers.check(batch)
        if repeat is not None:
            assert repeat.duplicate
            return repeat.base_offset
        batch.stamp(self.end, 0)
        self.end = batch.next_offset
        self.completed: Completed | None = self.producers.applied(batch, now_ms)
        self.written.append(batch)
        return batch.base_offset

    def data(self, sequence: int, count: int = 1, *, pid: int = 1, epoch: int = 0, tx: bool = False) -> int:
        return self.write(make_batch(count, producer_id=pid, producer_epoch=epoch, sequence=sequence, transactional=tx))

    def marker(self, *, pid: int = 1, epoch: int = 0, commit: bool = True, coordinator: int = 0) -> Completed | None:
        self.write(make_marker(commit=commit, producer_id=pid, producer_epoch=epoch, coordinator_epoch=coordinator))
        return self.completed


@pytest.fixture
def log() -> Writer:
    return Writer()


# Sequences and epochs


def test_batches_without_a_producer_are_not_remembered(log: Writer) -> None:
    log.write(make_batch(3))
    assert len(log.producers) == 0


def test_an_unknown_producer_may_start_anywhere(log: Writer) -> None:
    assert log.data(500, 3) == 0
    assert log.data(503) == 3


def test_a_repeat_of_one_of_the_last_five_has_the_first_ones_offset(log: Writer) -> None:
    offsets = [log.data(sequence, 2) for sequence in range(0, 14, 2)]
    assert [log.data(sequence, 2) for sequence in range(4, 14, 2)] == offsets[2:]
    with pytest.raises(OutOfOrderSequence):
        log.data(2, 2)


def test_a_repeat_must_span_the_same_sequences(log: Writer) -> None:
    log.data(0, 3)
    with pytest.raises(OutOfOrderSequence):
        log.data(0, 2)


def test_a_gap_is_refused_and_changes_nothing(log: Writer) -> None:
    log.data(0, 2)
    with pytest.raises(OutOfOrderSequence, match="3 came, 2 is next"):
        log.data(3)
    assert log.data(2) == 2


def test_after_the_largest_sequence_comes_zero(log: Writer) -> None:
    log.data(2**31 - 2, 2)
    assert log.data(0) == 2
    assert log.data(2**31 - 2, 2) == 0


def test_a_batch_may_span_the_wrap(log: Writer) -> None:
    log.data(2**31 - 1, 3)
    assert log.data(2) == 3
    assert log.data(2**31 - 1, 3) == 0


def test_an_older_epoch_is_refused(log: Writer) -> None:
    log.data(0, epoch=3)
    with pytest.raises(InvalidProducerEpoch, match="epoch 2"):
        log.data(1, epoch=2)


def test_a_newer_epoch_starts_at_zero(log: Writer) -> None:
    log.data(7, epoch=0)
    with pytest.raises(OutOfOrderSequence, match="0 is next"):
        log.data(8, epoch=1)
    assert log.data(0, epoch=1) == 1
    with pytest.raises(InvalidProducerEpoch):
        log.data(7, epoch=0)


def test_producers_do_not_know_one_another(log: Writer) -> None:
    log.data(0, pid=1)
    assert log.data(900, pid=2) == 1
    assert log.data(1, pid=1) == 2


def test_without_sequences_only_the_epoch_counts(log: Writer) -> None:
    log.data(5, epoch=2)
    commit = make_batch(1, producer_id=1, producer_epoch=2, sequence=-1, transactional=True)
    assert log.producers.check(commit, sequences=False) is None
    commit.stamp(log.end, 0)
    log.producers.applied(commit, 1000)
    assert log.producers.open_transactions == {1: 1}
    with pytest.raises(InvalidProducerEpoch):
        log.producers.check(make_batch(1, producer_id=1, producer_epoch=1, sequence=-1), sequences=False)


# Transactions


def test_a_transaction_holds_the_stable_offset_until_its_marker_is_visible(log: Writer) -> None:
    log.write(make_batch(4))
    log.data(0, 2, tx=True)
    assert log.producers.first_undecided_offset == 4
    assert log.marker() == Completed(1, 4, 6, True, 7)
    assert log.producers.first_undecided_offset is None
    assert log.producers.first_unstable_offset(visible_end=6) == 4
    assert log.producers.first_unstable_offset(visible_end=7) is None


def test_the_oldest_open_transaction_counts(log: Writer) -> None:
    log.data(0, pid=1, tx=True)
    log.data(0, pid=2, tx=True)
    assert log.marker(pid=2, commit=False) == Completed(2, 1, 2, False, 0)
    assert log.producers.first_undecided_offset == 0
    log.data(1, pid=2, tx=True)
    assert log.marker(pid=1) == Completed(1, 0, 4, True, 3)
    assert log.producers.first_unstable_offset(visible_end=5) == 3
    assert dict(log.producers.open_transactions) == {2: 3}


def test_a_marker_without_data_completes_nothing(log: Writer) -> None:
    assert log.marker() is None
    assert log.producers.first_unstable_offset(visible_end=0) is None


def test_a_marker_of_a_newer_epoch_fences_the_old_one_and_starts_sequences_again(log: Writer) -> None:
    log.data(0, 3, tx=True)
    assert log.marker(epoch=1, commit=False) == Completed(1, 0, 3, False, 4)
    with pytest.raises(InvalidProducerEpoch):
        log.data(3, tx=True)
    assert log.data(0, epoch=1, tx=True) == 4


def test_sequences_go_on_after_a_marker_of_the_same_epoch(log: Writer) -> None:
    log.data(0, 2, tx=True)
    log.marker()
    assert log.data(2, tx=True) == 3
    assert log.data(0, 2, tx=True) == 0, "the repeat is still known"


def test_a_marker_of_an_older_epoch_or_coordinator_is_refused(log: Writer) -> None:
    log.data(0, epoch=2, tx=True)
    with pytest.raises(InvalidProducerEpoch):
        log.marker(epoch=1)
    log.marker(epoch=2, coordinator=5)
    with pytest.raises(Fenced):
        log.marker(epoch=2, coordinator=4)


def test_writing_outside_of_ones_open_transaction_is_refused(log: Writer) -> None:
    log.data(0, tx=True)
    with pytest.raises(InvalidTransactionState):
        log.data(1, tx=False)


def test_an_emptied_marker_changes_nothing(log: Writer) -> None:
    log.data(0, tx=True)
    log.producers.applied(Batch(memoryview(empty(make_marker(base_offset=1)))), 1000)
    assert log.producers.first_undecided_offset == 0


# Memory


def test_idle_producers_are_forgotten_unless_their_transaction_is_open() -> None:
    log = Writer(Producers(expiration_ms=100))
    log.write(make_batch(1, producer_id=1), now_ms=1000)
    log.write(make_batch(1, producer_id=2, transactional=True), now_ms=1000)
    log.write(make_batch(1, producer_id=3), now_ms=1001)
    assert log.producers.expire(1099) == 0
    assert log.producers.expire(1100) == 1
    assert [producer.producer_id for producer in log.producers] == [2, 3]
    assert log.data(77, pid=1) == 3


def test_a_snapshot_brings_everything_back(log: Writer) -> None:
    log.data(0, 2, pid=1)
    log.data(2, 3, pid=1)
    log.data(10, pid=2, epoch=4, tx=True)
    log.marker(pid=2, epoch=4, coordinator=6)
    log.data(11, pid=2, epoch=4, tx=True)
    again = Writer(Producers())
    again.producers.load(log.producers.snapshot(), now_ms=2000)
    again.end = log.end
    assert again.producers.snapshot() == log.producers.snapshot()
    assert dict(again.producers.open_transactions) == {2: 7}
    assert again.data(2, 3, pid=1) == 2
    assert again.data(0, 2, pid=1) == 0
    assert again.data(5, pid=1) == 8
    with pytest.raises(Fenced):
        again.marker(pid=2, epoch=4, coordinator=5)


def test_a_snapshot_has_kafkas_bytes(log: Writer) -> None:
    log.data(2**31 - 1, 3, pid=9, epoch=2)
    snapshot = log.producers.snapshot()
    assert struct.unpack_from(">hIi", snapshot)[::2] == (1, 1)
    assert struct.unpack_from(">qhiqiqiq", snapshot, 10) == (9, 2, 1, 2, 2, 1000, -1, -1)
    assert snapshot[10 + 46 :] == bytes(4), "nothing of ours behind them"


def test_a_snapshot_that_kafka_wrote_has_the_last_batch_of_each_producer(log: Writer) -> None:
    log.data(0, 2)
    log.data(2, 3)
    entries = log.producers.snapshot()[6 : 10 + 46]
    log.producers.load(struct.pack(">hI", 1, crc32c(entries)) + entries, now_ms=2000)
    assert log.data(2, 3) == 2
    with pytest.raises(OutOfOrderSequence):
        log.data(0, 2)


def test_expired_producers_are_not_loaded() -> None:
    log = Writer(Producers(expiration_ms=100))
    log.data(0)
    log.producers.load(log.producers.snapshot(), now_ms=5000)
    assert len(log.producers) == 0


@given(st.data())
def test_a_damaged_snapshot_is_refused_and_leaves_everything_as_it_was(data: st.DataObject) -> None:
    log = Writer()
    log.data(2)
    log.data(3, 2)
    snapshot = bytearray(log.producers.snapshot())
    if data.draw(st.booleans()):
        snapshot[data.draw(st.integers(0, len(snapshot) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        del snapshot[data.draw(st.integers(0, len(snapshot) - 1)) :]
    with pytest.raises(DamagedIndex):
        log.producers.load(bytes(snapshot), now_ms=0)
    assert log.data(5) == 3


# Against a model


@dataclass
class Model:
    """What a partition owes one producer, in the plainest words."""

    epoch: int = -1
    next_sequence: int = 0
    last_five: list[tuple[int, int, int]] = field(default_factory=list)
    open_from: int | None = None


class ProducersMachine(RuleBasedStateMachine):
    """Any interleaving of writes, repeats, epochs and markers; restarts from a snapshot or by reading the log again."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Writer()
        self.models: dict[int, Model] = {}

    def expected(self, pid: int, epoch: int, sequence: int, count: int, tx: bool) -> int | type[Exception] | None:
        """The offset of the first copy, the refusal, or None to go on and write."""
        model = self.models.get(pid)
        if model is None:
            return None
        if epoch == model.epoch:
            for first, size, offset in model.last_five:
                if (first, size) == (sequence, count):
                    return offset
        if epoch < model.epoch:
            return InvalidProducerEpoch
        if sequence != (0 if epoch > model.epoch else model.next_sequence):
            return OutOfOrderSequence
        return InvalidTransactionState if model.open_from is not None and not tx else None

    @rule(
        pid=st.integers(1, 3),
        epoch=st.integers(0, 2),
        sequence=st.integers(0, 8),
        count=st.integers(1, 3),
        tx=st.booleans(),
        follow=st.booleans(),
    )
    def write(self, pid: int, epoch: int, sequence: int, count: int, tx: bool, follow: bool) -> None:
        model = self.models.get(pid)
        if follow and model is not None:
            epoch, sequence = max(model.epoch, 0), model.next_sequence
        end = self.log.end
        expected = self.expected(pid, epoch, sequence, count, tx)
        try:
            offset = self.log.data(sequence, count, pid=pid, epoch=epoch, tx=tx)
        except (ProducerError, InvalidTransactionState) as refusal:
            assert type(refusal) is expected
            assert self.log.end == end
            return
        assert offset == (end if expected is None else expected)
        if expected is None:
            self.remember(pid, epoch, sequence, count, tx, offset)

    def remember(self, pid: int, epoch: int, sequence: int, count: int, tx: bool, offset: int) -> None:
        model = self.models.setdefault(pid, Model())
        if epoch != model.epoch:
            model.epoch, model.last_five = epoch, []
        model.next_sequence = sequence + count
        model.last_five = [*model.last_five, (sequence, count, offset)][-5:]
        if tx and model.open_from is None:
            model.open_from = offset

    @rule(pid=st.integers(1, 3), bump=st.booleans(), commit=st.booleans())
    def end(self, pid: int, bump: bool, commit: bool) -> None:
        model = self.models.setdefault(pid, Model())
        epoch = max(model.epoch, 0) + bump
        offset = self.log.end
        completed = self.log.marker(pid=pid, epoch=epoch, commit=commit)
        if epoch != model.epoch:
            model.epoch, model.last_five, model.next_sequence = epoch, [], 0
        first, model.open_from = model.open_from, None
        assert (completed is None) == (first is None)
        if completed is not None:
            undecided = [m.open_from for m in self.models.values() if m.open_from is not None]
            assert completed == (pid, first, offset, commit, min(undecided, default=offset + 1))

    @rule()
    def restart_from_snapshot(self) -> None:
        self.log.producers.load(self.log.producers.snapshot(), now_ms=1000)

    @rule()
    def restart_by_reading_the_log(self) -> None:
        self.log.producers.clear()
        for batch in self.log.written:
            self.log.producers.applied(batch, 1000)

    @invariant()
    def agrees_on_the_last_five(self) -> None:
        for pid, model in self.models.items():
            producer = self.log.producers.get(pid)
            assert producer is not None
            kept = [(b.first_sequence, b.last_offset - b.first_offset + 1, b.first_offset) for b in producer.batches]
            assert kept == model.last_five

    @invariant()
    def agrees_on_open_transactions(self) -> None:
        undecided = {pid: m.open_from for pid, m in self.models.items() if m.open_from is not None}
        assert dict(self.log.producers.open_transactions) == undecided
        assert self.log.producers.first_undecided_offset == min(undecided.values(), default=None)
        assert self.log.producers.first_unstable_offset(self.log.end) == min(undecided.values(), default=None)


TestProducersAgainstAModel = ProducersMachine.TestCase
TestProducersAgainstAModel.settings = settings(max_examples=60, stateful_step_count=40)
