from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levada.engine.embedded import transaction_records as records
from levada.engine.embedded import transaction_state as ts
from levada.engine.embedded.transaction_state import TV1, TV2, Ending, State, Transaction
from levada.engine.port import At
from levada.errors import ConcurrentTransactions, InvalidProducerMapping, InvalidTransactionState, ProducerFenced

P0, P1 = At("t", 0), At("t", 1)
NEW_ID = 9000


def make(state: State = State.EMPTY, **changes) -> Transaction:
    defaults = {"transactional_id": "tx", "producer_id": 7, "epoch": 5, "timeout_ms": 60_000, "update_ms": 10}
    if state is State.ONGOING or state in ts.PREPARED:
        defaults |= {"partitions": frozenset({P0}), "start_ms": 10}
    return Transaction(**{**defaults, "state": state, **changes})


def init(txn: Transaction, expected=None) -> Transaction:
    ts.check_initializing(txn, expected)
    return ts.initialize(txn, timeout_ms=30_000, expected=expected, now_ms=20, new_producer_id=lambda: NEW_ID)


def prepared(txn: Transaction, *, commit: bool = True, version: int = TV2) -> Transaction:
    return ts.prepare(txn, commit=commit, client_version=version, now_ms=20, new_producer_id=lambda: NEW_ID)


def outcome(txn: Transaction, epoch: int, *, commit: bool, version: int = TV2, producer_id: int = 7) -> object:
    try:
        return ts.check_ending(txn, producer_id, epoch, commit=commit, client_version=version)
    except Exception as error:
        return type(error)


# What Kafka's coordinator says in its own table for TV2. Repeat: the epoch before the current one.
FENCED, WRONG = ProducerFenced, InvalidTransactionState
TABLE = [
    # state,               abort: repeat, current,   commit: repeat, current
    (State.EMPTY, FENCED, Ending.PREPARE, FENCED, WRONG),
    (State.COMPLETE_ABORT, Ending.REPEATED, Ending.PREPARE, WRONG, WRONG),
    (State.COMPLETE_COMMIT, WRONG, Ending.PREPARE, Ending.REPEATED, WRONG),
    (State.ONGOING, FENCED, Ending.PREPARE, FENCED, Ending.PREPARE),
]


@pytest.mark.parametrize(("state", "abort_repeat", "abort", "commit_repeat", "commit"), TABLE)
def test_ends_with_tv2_are_answered_as_kafkas_table_says(state, abort_repeat, abort, commit_repeat, commit):
    txn = make(state)
    assert outcome(txn, 4, commit=False) == abort_repeat
    assert outcome(txn, 5, commit=False) == abort
    assert outcome(txn, 4, commit=True) == commit_repeat
    assert outcome(txn, 5, commit=True) == commit
    for epoch in (3, 6):
        assert outcome(txn, epoch, commit=True) == outcome(txn, epoch, commit=False) == ProducerFenced


@pytest.mark.parametrize(
    ("state", "abort", "commit"),
    [
        (State.EMPTY, WRONG, WRONG),
        (State.ONGOING, Ending.PREPARE, Ending.PREPARE),
        (State.COMPLETE_ABORT, Ending.REPEATED, WRONG),
        (State.COMPLETE_COMMIT, WRONG, Ending.REPEATED),
    ],
)
def test_ends_with_tv1_need_the_current_epoch_and_something_to_end(state, abort, commit):
    txn = make(state)
    assert outcome(txn, 5, commit=False, version=TV1) == abort
    assert outcome(txn, 5, commit=True, version=TV1) == commit
    for epoch in (4, 6):
        assert outcome(txn, epoch, commit=True, version=TV1) == ProducerFenced


@pytest.mark.parametrize("version", [TV1, TV2])
def test_another_producer_id_ends_nothing(version):
    assert outcome(make(State.ONGOING), 5, commit=True, version=version, producer_id=8) is InvalidProducerMapping


@pytest.mark.parametrize("state", sorted(ts.PREPARED))
def test_while_an_end_is_carried_out_nothing_else_is(state):
    txn = make(state)
    assert outcome(txn, 5, commit=True) is ConcurrentTransactions
    assert outcome(txn, 5, commit=True, version=TV1) is ConcurrentTransactions
    with pytest.raises(ConcurrentTransactions):
        ts.check_producer(txn, 7, 5)


def test_a_new_producer_gets_the_next_epoch_and_the_first_one_epoch_0():
    txn = init(make(epoch=-1))
    assert (txn.producer_id, txn.epoch, txn.state, txn.timeout_ms) == (7, 0, State.EMPTY, 30_000)
    assert init(txn).epoch == 1
    assert init(make(State.COMPLETE_COMMIT)).epoch == 6


def test_a_producer_that_goes_on_after_an_error_names_its_epoch_and_may_repeat_the_call():
    bumped = init(make(), expected=(7, 5))
    assert (bumped.epoch, bumped.last_epoch) == (6, 5)
    again = init(bumped, expected=(7, 5))
    assert (again.epoch, again.last_epoch) == (6, 5)
    assert init(again, expected=(7, 6)).epoch == 7
    with pytest.raises(ProducerFenced):
        init(bumped, expected=(7, 4))
    with pytest.raises(ProducerFenced):
        init(bumped, expected=(8, 6))


def test_a_producer_that_names_its_epoch_is_fenced_once_another_one_came():
    taken_over = init(init(make(), expected=(7, 5)))
    for epoch in (5, 6):
        with pytest.raises(ProducerFenced):
            init(taken_over, expected=(7, epoch))


def test_a_fenced_producer_cannot_have_the_open_transaction_of_its_successor_aborted():
    for expected in ((7, 4), (6, 32766), (7, 6)):
        with pytest.raises(ProducerFenced):
            ts.check_initializing(make(State.ONGOING, last_epoch=4, previous_producer_id=6), expected)
    ts.check_initializing(make(State.ONGOING), (7, 5))
    ts.check_initializing(make(State.ONGOING), None)


def test_when_the_epochs_run_out_a_new_producer_gets_a_new_producer_id():
    txn = init(make(epoch=ts.EPOCH_MAX - 1), expected=(7, ts.EPOCH_MAX - 1))
    assert (txn.producer_id, txn.epoch, txn.previous_producer_id) == (NEW_ID, 0, 7)
    again = init(txn, expected=(7, ts.EPOCH_MAX - 1))
    assert (again.producer_id, again.epoch) == (NEW_ID, 0)


def test_the_first_partition_begins_the_transaction_and_the_others_join_it():
    begun = ts.add(make(State.COMPLETE_ABORT), {P0}, now_ms=50, client_version=TV2)
    assert (begun.state, begun.start_ms, begun.partitions) == (State.ONGOING, 50, {P0})
    grown = ts.add(begun, {P1}, now_ms=60, client_version=TV2)
    assert (grown.start_ms, grown.update_ms, grown.partitions) == (50, 60, {P0, P1})
    assert grown.deadline_ms == 50 + 60_000


def test_the_longest_timeout_is_never():
    assert make(State.ONGOING, timeout_ms=2**31 - 1).deadline_ms is None


def test_an_end_with_tv1_keeps_the_epoch():
    ready = prepared(make(State.ONGOING), version=TV1)
    assert (ready.state, ready.epoch, ready.partitions) == (State.PREPARE_COMMIT, 5, {P0})
    done = ts.complete(ready, 30)
    assert (done.state, done.producer_id, done.epoch, done.partitions) == (State.COMPLETE_COMMIT, 7, 5, frozenset())


def test_an_end_with_tv2_raises_the_epoch():
    ready = prepared(make(State.ONGOING), commit=False)
    assert (ready.state, ready.epoch, ready.last_epoch) == (State.PREPARE_ABORT, 6, 5)
    done = ts.complete(ready, 30)
    assert (done.state, done.producer_id, done.epoch) == (State.COMPLETE_ABORT, 7, 6)
    assert outcome(done, 5, commit=False) is Ending.REPEATED


def test_an_end_with_tv2_that_uses_up_the_epochs_goes_on_with_a_new_producer_id():
    ready = prepared(make(State.ONGOING, epoch=ts.EPOCH_MAX - 1))
    assert (ready.producer_id, ready.epoch, ready.next_producer_id) == (7, ts.EPOCH_MAX, NEW_ID)
    assert ready.successor() == (NEW_ID, 0)
    done = ts.complete(ready, 30)
    assert (done.producer_id, done.epoch, done.previous_producer_id, done.next_producer_id) == (NEW_ID, 0, 7, -1)
    assert outcome(done, ts.EPOCH_MAX - 1, commit=True) is Ending.REPEATED
    assert outcome(done, 3, commit=True) is InvalidProducerMapping


def test_a_transaction_that_nothing_was_added_to_can_be_aborted_with_tv2():
    ready = prepared(make(State.EMPTY, start_ms=-1), commit=False)
    assert (ready.state, ready.start_ms, ready.epoch) == (State.PREPARE_ABORT, 20, 6)


def test_only_ids_at_rest_are_ever_idle():
    for state in State:
        is_idle = make(state, update_ms=0).is_idle(100, 100)
        assert is_idle == (state in (State.EMPTY, State.COMPLETE_ABORT, State.COMPLETE_COMMIT))
    assert not make(update_ms=1).is_idle(100, 100)


def test_no_change_is_made_that_the_table_does_not_have():
    changes = {
        State.EMPTY: lambda txn: ts.initialize(
            txn, timeout_ms=1, expected=None, now_ms=1, new_producer_id=lambda: NEW_ID
        ),
        State.ONGOING: lambda txn: ts.add(txn, {P1}, now_ms=1, client_version=TV2),
        State.PREPARE_COMMIT: lambda txn: prepared(txn),
        State.PREPARE_ABORT: lambda txn: prepared(txn, commit=False),
    }
    for before, (after, change) in itertools.product(State, changes.items()):
        if before in ts.BEFORE[after]:
            assert change(make(before)).state is after
        else:
            with pytest.raises(AssertionError):
                change(make(before))


def test_the_names_are_those_that_kafka_shows():
    assert [state.title for state in State] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    ]  # fmt: skip


transactions = st.builds(
    Transaction,
    transactional_id=st.text(min_size=1, max_size=20),
    producer_id=st.integers(0, 2**62),
    previous_producer_id=st.integers(-1, 2**62),
    next_producer_id=st.integers(-1, 2**62),
    epoch=st.integers(0, ts.EPOCH_MAX),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from([state for state in State if state not in (State.DEAD, State.PREPARE_EPOCH_FENCE)]),
    partitions=st.frozensets(st.builds(At, st.text("ab.", min_size=1, max_size=3), st.integers(0, 9)), max_size=6),
    start_ms=st.integers(-1, 2**62),
    update_ms=st.integers(0, 2**62),
    client_version=st.sampled_from([TV1, TV2]),
)


@given(transactions)
def test_a_transaction_survives_being_written(txn):
    if txn.state is State.EMPTY:
        txn = ts.replace(txn, partitions=frozenset())
    assert records.transactional_id_of(records.key_of(txn.transactional_id)) == txn.transactional_id
    assert records.transaction_of(txn.transactional_id, records.value_of(txn)) == txn
