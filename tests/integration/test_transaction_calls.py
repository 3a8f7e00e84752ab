"""The transaction calls in every form, and the code of every refusal.

`LEVADA_TEST_BROKER=kafka` asks a real Apache Kafka 4.3 the same: what is expected here is what Kafka answers. What real
clients make of it is in tests/acceptance/test_transactions.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import pytest

from support.brokers import Broker, levada_only, make_broker
from support.transaction_calls import Producer, Wire
from support.wait import wait_until

UNKNOWN_TOPIC, INVALID_REQUEST, METADATA_TOO_LARGE, NOT_YOURS = 3, 42, 12, 29
INVALID_EPOCH, INVALID_STATE, WRONG_PRODUCER, INVALID_TIMEOUT = 47, 48, 49, 50
NOT_AUTHORIZED, NOT_ATTEMPTED, UNSTABLE, FENCED = 53, 55, 88, 90
UNKNOWN_ID, ABORTABLE, BAD_PATTERN, COORDINATOR_FENCED = 105, 120, 128, 52
ILLEGAL_GENERATION, INVALID_GROUP, UNKNOWN_MEMBER = 22, 24, 25

NAMES = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with make_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as connection:
        yield connection


@pytest.fixture
def name(wire: Wire) -> str:
    """A topic of two partitions; transactional ids and groups of a test bear its name too."""
    name = f"t{next(NAMES)}"
    wire.create(name, 2)
    return name


def settled(wire: Wire, name: str, state: str) -> None:
    """A real Kafka writes its markers after it has answered."""
    wait_until(
        lambda: wire.describe(name).transaction_state == state, 20, lambda: wire.describe(name).transaction_state
    )


# -- producers -------------------------------------------------------------------------------------------------------


def test_producer_ids_without_transactions_are_all_different(wire: Wire, name: str):
    answers = [wire.init(None, version=version) for version in range(6)]
    assert all(code == 0 and epoch == 0 for code, (_, epoch) in answers)
    assert len({producer_id for _, (producer_id, _) in answers}) == 6


@pytest.mark.parametrize("version", range(6))
def test_each_new_producer_has_the_next_epoch(wire: Wire, name: str, version: int):
    producers = [wire.init(name, version=version)[1] for _ in range(3)]
    assert producers == [(producers[0][0], epoch) for epoch in range(3)]


def test_a_producer_goes_on_after_an_error_and_may_ask_twice(wire: Wire, name: str):
    first = wire.begin(name)
    after = wire.init(name, producer=first)
    assert after == (0, (first[0], first[1] + 1))
    assert wire.init(name, producer=first) == after
    assert wire.init(name, producer=after[1]) == (0, (first[0], first[1] + 2))


def test_a_fenced_producer_cannot_go_on(wire: Wire, name: str):
    old = wire.begin(name)
    wire.begin(name)
    assert wire.init(name, producer=old, version=4)[0] == FENCED
    assert wire.init(name, producer=old, version=3)[0] == INVALID_EPOCH
    assert wire.init(name, producer=(old[0] + 1000, 0), version=4)[0] == FENCED


def test_bad_requests_for_a_producer_id(wire: Wire, name: str):
    assert wire.init("")[0] == INVALID_REQUEST
    assert wire.init(name, timeout_ms=0)[0] == INVALID_TIMEOUT
    assert wire.init(name, timeout_ms=900_001)[0] == INVALID_TIMEOUT
    assert wire.init(name, timeout_ms=900_000)[0] == 0
    assert wire.init(name, producer=(5, -1))[0] == INVALID_REQUEST
    assert wire.init(None, producer=(-1, 5))[0] == INVALID_REQUEST


# -- TV1 -------------------------------------------------------------------------------------------------------------


def commit_tv1(wire: Wire, name: str, producer: Producer, *, commit: bool = True, sequence: int = 0) -> None:
    assert wire.add_partitions(name, producer, name, [0, 1]) == {0: 0, 1: 0}
    for partition in (0, 1):
        code = wire.produce(name, producer, name, b"v", partition=partition, sequence=sequence, version=9)
        assert code == 0
    assert wire.end(name, producer, commit=commit, version=4)[0] == 0
    settled(wire, name, "CompleteCommit" if commit else "CompleteAbort")


def test_with_tv1_the_epoch_stays_over_many_transactions(wire: Wire, name: str):
    producer = wire.begin(name)
    for turn, commit in enumerate((True, False, True)):
        commit_tv1(wire, name, producer, commit=commit, sequence=turn)
    assert wire.bounds(name) == (6, 6)
    assert wire.end(name, producer, commit=True, version=4)[0] == 0, "asked twice"
    assert wire.end(name, producer, commit=False, version=4)[0] == INVALID_STATE
    described = wire.describe(name)
    assert (described.producer_id, described.producer_epoch) == producer


def test_with_tv1_nothing_can_be_ended_that_was_not_begun(wire: Wire, name: str):
    producer = wire.begin(name)
    for version in (0, 4):
        for commit in (True, False):
            assert wire.end(name, producer, commit=commit, version=version)[0] == INVALID_STATE


@pytest.mark.parametrize(("version", "code"), [(9, INVALID_STATE), (10, INVALID_STATE), (11, ABORTABLE)])
def test_with_tv1_a_batch_for_a_partition_that_was_not_added_is_refused(wire: Wire, name: str, version: int, code: int):
    producer = wire.begin(name)
    assert wire.produce(name, producer, name, b"v", version=version) == code
    assert wire.add_partitions(name, producer, name, [1]) == {1: 0}
    assert wire.produce(name, producer, name, b"v", version=version) == code
    assert wire.bounds(name) == (0, 0)


@pytest.mark.parametrize(("version", "code"), [(0, INVALID_STATE), (3, INVALID_STATE), (4, ABORTABLE)])
def test_with_tv1_offsets_that_were_not_announced_are_refused(wire: Wire, name: str, version: int, code: int):
    producer = wire.begin(name)
    assert wire.add_partitions(name, producer, name, [0]) == {0: 0}
    assert wire.commit_offset(name, producer, name, name, version=version) == code
    assert wire.add_offsets(name, producer, name) == 0
    assert wire.commit_offset(name, producer, name, name, version=version) == 0


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_all_or_none(wire: Wire, name: str, version: int):
    producer = wire.begin(name)
    answer = wire.add_partitions(name, producer, name, [0, 7], version=version)
    assert answer == {0: NOT_ATTEMPTED, 7: UNKNOWN_TOPIC}
    assert wire.describe(name).transaction_state == "Empty"
    assert wire.add_partitions(name, producer, "no-such-topic", [0], version=version) == {0: UNKNOWN_TOPIC}
    assert wire.add_partitions(name, producer, "__consumer_offsets", [0], version=version) == {0: NOT_YOURS}
    assert wire.add_partitions(name, producer, name, [0, 1], version=version) == {0: 0, 1: 0}
    assert wire.add_partitions(name, producer, name, [0], version=version) == {0: 0}, "again"


def test_the_batched_form_adds_and_verifies(wire: Wire, name: str):
    producer = wire.begin(name)
    assert wire.add_partitions(name, producer, name, [0]) == {0: 0}
    for version in (4, 5):
        verified = wire.batched(name, producer, name, [0, 1], verify_only=True, version=version)
        assert verified == {0: 0, 1: ABORTABLE}
    assert wire.batched(name, producer, name, [1], verify_only=False) == {1: 0}
    assert wire.batched(name, producer, name, [0, 1], verify_only=True) == {0: 0, 1: 0}
    old = (producer[0], producer[1] - 1)
    assert wire.batched(name, old, name, [0], verify_only=True) == {0: FENCED}
    assert wire.batched(name, old, name, [0], verify_only=False) == {0: FENCED}
    assert wire.batched("nobody", producer, name, [0], verify_only=True) == {0: WRONG_PRODUCER}


# -- TV2 -------------------------------------------------------------------------------------------------------------


def test_with_tv2_writing_joins_the_transaction_and_every_end_raises_the_epoch(wire: Wire, name: str):
    producer = wire.begin(name)
    for commit in (True, False, True):
        for partition in (0, 1):
            assert wire.produce(name, producer, name, b"v", partition=partition) == 0
        described = wire.describe(name)
        assert described.transaction_state == "Ongoing"
        assert {topic.topic: sorted(topic.partitions) for topic in described.topics} == {name: [0, 1]}
        code, after = wire.end(name, producer, commit=commit)
        assert (code, after) == (0, (producer[0], producer[1] + 1))
        settled(wire, name, "CompleteCommit" if commit else "CompleteAbort")
        assert wire.end(name, producer, commit=commit) == (0, after), "asked twice"
        assert wire.end(name, producer, commit=not commit)[0] == INVALID_STATE
        producer = after
    assert wire.bounds(name) == (6, 6)


def test_with_tv2_nothing_can_be_aborted_but_not_committed(wire: Wire, name: str):
    producer = wire.begin(name)
    assert wire.end(name, producer, commit=True)[0] == INVALID_STATE
    code, after = wire.end(name, producer, commit=False)
    assert (code, after) == (0, (producer[0], producer[1] + 1))
    settled(wire, name, "CompleteAbort")
    assert wire.end(name, after, commit=True)[0] == INVALID_STATE
    code, after = wire.end(name, after, commit=False)
    assert (code, after) == (0, (producer[0], producer[1] + 2))


def test_with_tv2_offsets_join_without_being_announced(wire: Wire, name: str):
    producer = wire.begin(name)
    assert wire.commit_offset(name, producer, name, name, 5) == 0
    assert wire.offset(name, name) == (0, -1)
    assert wire.offset(name, name, stable=True)[0] == UNSTABLE
    _, producer = wire.end(name, producer, commit=True)
    wait_until(lambda: wire.offset(name, name, stable=True) == (0, 5), 20, "committed")
    assert wire.commit_offset(name, producer, name, name, 99) == 0
    wire.end(name, producer, commit=False)
    wait_until(lambda: wire.offset(name, name, stable=True) == (0, 5), 20, "as before")


def test_with_tv2_a_batch_of_the_ended_transaction_comes_too_late(wire: Wire, name: str):
    producer = wire.begin(name)
    assert wire.produce(name, producer, name, b"v") == 0
    _, after = wire.end(name, producer, commit=True)
    settled(wire, name, "CompleteCommit")
    assert wire.produce(name, producer, name, b"late", sequence=1) == INVALID_EPOCH
    assert wire.produce(name, producer, name, b"late", partition=1) == INVALID_EPOCH
    assert wire.produce(name, after, name, b"next") == 0
    assert wire.bounds(name) == (2, 3)


# -- refusals --------------------------------------------------------------------------------------------------------


def test_an_older_epoch_is_fenced_in_every_call_and_version(wire: Wire, name: str):
    """38, call by call: the code depends on the version."""
    old = wire.begin(name)
    wire.begin(name)
    for version in range(4):
        fenced = INVALID_EPOCH if version < 2 else FENCED
        assert wire.add_partitions(name, old, name, [0], version=version) == {0: fenced}
        assert wire.add_offsets(name, old, name, version=version) == fenced
    for version in range(6):
        fenced = INVALID_EPOCH if version < 2 else FENCED
        assert wire.end(name, old, commit=True, version=version)[0] == fenced
        assert wire.end(name, old, commit=False, version=version)[0] == fenced
        assert wire.commit_offset(name, old, name, name, version=version) == INVALID_EPOCH
    for version in range(3, 13):
        assert wire.produce(name, old, name, b"v", version=version) == INVALID_EPOCH
    assert wire.bounds(name) == (0, 0)


def test_a_producer_id_that_is_not_the_ids_own_is_refused_in_every_call(wire: Wire, name: str):
    producer_id, epoch = wire.begin(name)
    wrong = (producer_id + 1000, epoch)
    for transactional_id in (name, f"{name}-unknown"):
        assert wire.add_partitions(transactional_id, wrong, name, [0]) == {0: WRONG_PRODUCER}
        assert wire.add_offsets(transactional_id, wrong, name) == WRONG_PRODUCER
        assert wire.end(transactional_id, wrong, commit=True, version=4)[0] == WRONG_PRODUCER
        assert wire.end(transactional_id, wrong, commit=True, version=5)[0] == WRONG_PRODUCER
        assert wire.commit_offset(transactional_id, wrong, name, name) == WRONG_PRODUCER
        assert wire.produce(transactional_id, wrong, name, b"v") == WRONG_PRODUCER
        assert wire.produce(transactional_id, wrong, name, b"v", version=11) == WRONG_PRODUCER


def test_an_empty_transactional_id_is_refused(wire: Wire, name: str):
    assert wire.add_partitions("", (1, 0), name, [0]) == {0: INVALID_REQUEST}
    assert wire.add_offsets("", (1, 0), name) == INVALID_REQUEST
    assert wire.end("", (1, 0), commit=True)[0] == INVALID_REQUEST
    assert wire.end("", (1, 0), commit=True, version=1)[0] == INVALID_REQUEST
    assert wire.produce(None, wire.begin(name), name, b"v") == NOT_AUTHORIZED


def test_offsets_are_refused_by_name(wire: Wire, name: str):
    producer = wire.begin(name)
    assert wire.commit_offset(name, producer, name, "no-such-topic") == UNKNOWN_TOPIC
    assert wire.commit_offset(name, producer, name, name, partition=7) == UNKNOWN_TOPIC
    assert wire.commit_offset(name, producer, name, name, metadata="x" * 5000) == METADATA_TOO_LARGE
    assert wire.commit_offset(name, producer, "", name) == INVALID_GROUP
    unknown = f"{name}-unknown"
    assert wire.commit_offset(name, producer, unknown, name, generation=3, member="m") == ILLEGAL_GENERATION
    assert wire.commit_offset(name, producer, name, name) == 0
    assert wire.commit_offset(name, producer, name, name, generation=3, member="m") == UNKNOWN_MEMBER
    wire.end(name, producer, commit=False)


@pytest.mark.parametrize(("version", "added"), [(5, False), (4, True), (4, False)])
def test_offsets_are_asked_for_partition_group_transaction_member_and_length_in_this_order(
    wire: Wire, name: str, version: int, added: bool
) -> None:
    _, producer = wire.init(name)
    _, earlier = wire.init(f"{name}-earlier")
    assert wire.commit_offset(f"{name}-earlier", earlier, name, name) == 0, "the group has offsets, and no members"
    if added:
        assert wire.add_offsets(name, producer, name) == 0
    wrong, newer = (producer[0] + 1000, 0), (producer[0], producer[1] + 1)
    commit = partial(wire.commit_offset, topic=name, version=version)
    stranger, long = partial(commit, generation=3, member="m"), {"metadata": "x" * 5000}
    not_added = version < 5 and not added
    assert commit(name, wrong, "", partition=7) == UNKNOWN_TOPIC
    assert commit(name, wrong, "") == INVALID_GROUP
    assert commit(name, producer, "", **long) == INVALID_GROUP
    assert stranger(name, wrong, name) == WRONG_PRODUCER
    assert stranger(f"{name}-nobody", producer, name) == WRONG_PRODUCER
    assert stranger(name, newer, name) == INVALID_EPOCH
    assert commit(name, wrong, name, **long) == WRONG_PRODUCER
    assert stranger(name, producer, name, **long) == (ABORTABLE if not_added else UNKNOWN_MEMBER)
    assert commit(name, producer, name, **long) == (ABORTABLE if not_added else METADATA_TOO_LARGE)


# -- questions -------------------------------------------------------------------------------------------------------


def test_transactions_are_described(wire: Wire, name: str):
    producer = wire.begin(name)
    described = wire.describe(name)
    assert (described.error_code, described.transaction_state) == (0, "Empty")
    assert (described.producer_id, described.producer_epoch, described.transaction_timeout_ms) == (*producer, 60_000)
    assert described.transaction_start_time_ms == -1 and described.topics == []
    assert wire.produce(name, producer, name, b"v") == 0
    assert wire.describe(name).transaction_start_time_ms > 0
    assert wire.describe(f"{name}-unknown").error_code == UNKNOWN_ID
    assert wire.describe("").error_code == INVALID_REQUEST
    wire.end(name, producer, commit=True)


def test_transactions_are_listed_by_state_producer_and_pattern(wire: Wire, name: str):
    ids = [f"{name}-{kind}" for kind in ("empty", "open")]
    producers = {one: wire.begin(one) for one in ids}
    assert wire.produce(ids[1], producers[ids[1]], name, b"v") == 0

    def found(version: int = 2, **filters: object) -> dict[str, str]:
        answer = wire.list(version=version, **filters)
        assert answer.error_code == 0
        return {
            one.transactional_id: one.transaction_state
            for one in answer.transaction_states
            if one.transactional_id.startswith(name)
        }

    everything = {ids[0]: "Empty", ids[1]: "Ongoing"}
    assert found(0) == found(1) == found(2) == everything
    assert found(state_filters=["Ongoing"]) == {ids[1]: "Ongoing"}
    assert found(producer_id_filters=[producers[ids[0]][0]]) == {ids[0]: "Empty"}
    assert found(transactional_id_pattern=f"{name}-o.*") == {ids[1]: "Ongoing"}
    assert found(transactional_id_pattern=f"{name}-o") == {}
    assert found(state_filters=["Ongoing"], duration_filter=3_600_000) == {}
    assert found(state_filters=["Ongoing"], duration_filter=0) == {ids[1]: "Ongoing"}
    answer = wire.list(state_filters=["Ongoing", "Snoozing"])
    assert answer.unknown_state_filters == ["Snoozing"]
    assert wire.list(transactional_id_pattern="(").error_code == BAD_PATTERN
    wire.end(ids[1], producers[ids[1]], commit=True)


def test_producers_of_a_partition_are_described(wire: Wire, name: str):
    producer = wire.begin(name)
    assert wire.produce(name, producer, name, b"v") == 0
    answer = wire.producers(name)
    assert answer.error_code == 0
    (one,) = answer.active_producers
    assert (one.producer_id, one.producer_epoch, one.last_sequence) == (*producer, 0)
    assert one.current_txn_start_offset == 0 and one.coordinator_epoch == -1 and one.last_timestamp > 0
    _, after = wire.end(name, producer, commit=True)
    wait_until(lambda: wire.producers(name).active_producers[0].current_txn_start_offset == -1, 20, "the marker")
    (one,) = wire.producers(name).active_producers
    assert (one.producer_id, one.producer_epoch, one.last_sequence) == (*after, -1)
    assert one.coordinator_epoch >= 0
    assert wire.producers("no-such-topic").error_code == UNKNOWN_TOPIC
    assert wire.producers(name, 7).error_code == UNKNOWN_TOPIC


def test_an_administrator_ends_what_hangs_in_a_partition(wire: Wire, name: str):
    wire.begin(name)
    producer = wire.begin(name)
    assert wire.produce(name, producer, name, b"v") == 0
    assert wire.bounds(name) == (0, 1)
    assert wire.write_marker(producer, name, 7) == UNKNOWN_TOPIC
    assert wire.write_marker((producer[0], producer[1] - 1), name) == INVALID_EPOCH
    assert wire.write_marker(producer, name) == 0
    assert wire.bounds(name) == (2, 2)
    assert wire.write_marker(producer, name, coordinator_epoch=-1) == COORDINATOR_FENCED


@levada_only
def test_an_administrators_marker_does_not_keep_the_transaction_from_ending(wire: Wire, name: str):
    producer = wire.begin(name)
    assert wire.produce(name, producer, name, b"v") == 0
    assert wire.write_marker(producer, name) == 0
    assert wire.end(name, producer, commit=False)[0] == 0
    assert wire.describe(name).transaction_state == "CompleteAbort"


@levada_only
def test_nobody_speaks_for_a_coordinator_that_is_yet_to_come(wire: Wire, name: str):
    producer = wire.begin(name)
    assert wire.write_marker(producer, name, coordinator_epoch=2**31 - 1) == INVALID_REQUEST
    for partition in (0, 1):
        assert wire.produce(name, producer, name, b"v", partition=partition) == 0
    assert wire.end(name, producer, commit=True)[0] == 0
    assert wire.bounds(name, 0) == wire.bounds(name, 1) == (2, 2)


# -- time and death --------------------------------------------------------------------------------------------------


@levada_only
def test_the_end_is_answered_when_readers_see_it(wire: Wire, name: str):
    producer = wire.begin(name)
    for turn in range(20):
        assert wire.produce(name, producer, name, b"v") == 0
        _, producer = wire.end(name, producer, commit=True)
        assert wire.bounds(name) == (2 * turn + 2, 2 * turn + 2)
        assert wire.describe(name).transaction_state == "CompleteCommit"


def test_a_transaction_that_takes_too_long_is_aborted_and_a_tv2_producer_finds_out(wire: Wire, name: str):
    _, producer = wire.init(name, timeout_ms=300)
    assert wire.produce(name, producer, name, b"v") == 0
    settled(wire, name, "CompleteAbort")
    assert wire.produce(name, producer, name, b"v", sequence=1) == INVALID_EPOCH
    assert wire.end(name, producer, commit=True)[0] == INVALID_STATE
    code, after = wire.end(name, producer, commit=False)
    assert (code, after) == (0, (producer[0], producer[1] + 1))
    assert wire.produce(name, after, name, b"v") == 0
    assert wire.end(name, after, commit=True)[0] == 0


@pytest.mark.parametrize("tv2", [False, True])
def test_a_producer_whose_transaction_took_too_long_may_go_on(wire: Wire, name: str, tv2: bool):
    _, producer = wire.init(name, timeout_ms=300)
    assert tv2 or wire.add_partitions(name, producer, name, [0]) == {0: 0}
    assert wire.produce(name, producer, name, b"v", version=12 if tv2 else 9) == 0
    settled(wire, name, "CompleteAbort")
    after = (producer[0], producer[1] + 1)
    assert wire.init(name, producer=producer) == (0, after)
    assert wire.init(name, producer=producer) == (0, after)


def test_a_transaction_that_takes_too_long_is_aborted_and_a_tv1_producer_is_fenced(wire: Wire, name: str):
    _, producer = wire.init(name, timeout_ms=300)
    assert wire.add_partitions(name, producer, name, [0]) == {0: 0}
    assert wire.produce(name, producer, name, b"v", version=9) == 0
    settled(wire, name, "CompleteAbort")
    assert wire.end(name, producer, commit=True, version=4)[0] == FENCED
    assert wire.add_partitions(name, producer, name, [0]) == {0: FENCED}


def test_a_deleted_topic_does_not_hold_up_the_transaction(wire: Wire, name: str):
    other = f"{name}-other"
    wire.create(other)
    producer = wire.begin(name)
    assert wire.produce(name, producer, name, b"v") == 0
    assert wire.produce(name, producer, other, b"v") == 0
    deleted = wire.ask(20, 6, {"topics": [{"name": other}], "timeout_ms": 10_000})
    assert deleted.responses[0].error_code == 0
    code, _ = wire.end(name, producer, commit=True)
    assert code == 0
    settled(wire, name, "CompleteCommit")
    assert wire.bounds(name) == (2, 2)
