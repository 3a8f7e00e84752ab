"""Lane: in order and exactly once, whatever happens to connection and broker."""

from __future__ import annotations

import threading
from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from levada.client.draft import Draft, Landed
from levada.client.lane import IN_FLIGHT_MAX, NOBODY, Lane
from levada.client.parcel import Parcel, parcels_of
from levada.client.refusals import is_passing
from levada.errors import (
    ConnectionLost,
    LevadaError,
    OutOfOrderSequence,
    Overloaded,
    RecordTooLarge,
    ShuttingDown,
    StorageFailed,
    StorageFull,
    TimedOut,
)
from levada.log.producers import Producers
from levada.records.batch import Batch
from levada.records.read import read


def make_parcel(*values: bytes, deadline: float = 1e12) -> Parcel:
    draft = Draft("t", 0, deadline, threading.Lock(), lambda draft: None)
    draft.records = [(1, None, value, []) for value in values or (b"v",)]
    return parcels_of(draft, 0)[0]


def make_lane(parcels: int = 0, *, known: bool = False) -> Lane:
    lane = Lane("t", 0)
    lane.begin((7, 0))
    if known:
        lane.add(make_parcel())
        lane.next(0)
        lane.landed(lane.send(), Landed(0, 0))
    for number in range(parcels):
        lane.add(make_parcel(b"%d" % number))
    return lane


def send_all(lane: Lane, now: float = 0.0) -> list[Parcel]:
    sent = []
    while lane.next(now) is not None:
        sent.append(lane.send())
    return sent


def test_only_one_is_on_its_way_until_the_partition_knows_the_producer() -> None:
    lane = make_lane(3)
    (first,) = send_all(lane)
    assert lane.landed(first, Landed(0, 0))
    assert len(send_all(lane)) == 2


def test_no_more_are_on_their_way_than_the_broker_remembers() -> None:
    assert len(send_all(make_lane(9, known=True))) == IN_FLIGHT_MAX


def test_sequences_follow_on() -> None:
    lane = make_lane(known=True)
    lane.add(make_parcel(b"a", b"b", b"c"))
    lane.add(make_parcel(b"d"))
    assert [parcel.sequence for parcel in send_all(lane)] == [1, 4]


def test_what_was_cut_off_is_sent_again_as_it_was() -> None:
    lane = make_lane(3, known=True)
    sent = [(parcel, parcel.data) for parcel in send_all(lane)]
    lane.cut()
    assert [(parcel, parcel.data) for parcel in send_all(lane)] == sent
    assert all(parcel.uncertain for parcel, _ in sent)


def test_what_follows_a_refusal_comes_back_and_goes_again_in_order() -> None:
    lane = make_lane(3, known=True)
    one, two, three = send_all(lane)
    lane.again(one, not_before=5.0)
    for each in (two, three):
        assert lane.follows_a_refusal(OutOfOrderSequence())
        lane.again(each)
    assert lane.next(4.9) is None
    assert send_all(lane, 5.0) == [one, two, three]


def test_nothing_is_sent_while_what_follows_a_refusal_is_still_out() -> None:
    lane = make_lane(3, known=True)
    one, two, _ = send_all(lane)
    lane.again(one)
    lane.again(two)
    assert lane.next(0) is None


def test_the_sequences_of_what_failed_are_given_to_what_follows() -> None:
    lane = make_lane(2, known=True)
    one, two = send_all(lane)
    assert lane.failed(one, RecordTooLarge()) == [one]
    assert lane.follows_a_refusal(OutOfOrderSequence())
    lane.again(two)
    assert [parcel.sequence for parcel in send_all(lane)] == [1]


def test_a_gap_that_nothing_explains_is_told_and_begins_anew() -> None:
    lane = make_lane(2, known=True)
    one, two = send_all(lane)
    assert not lane.follows_a_refusal(OutOfOrderSequence())
    assert lane.failed(one, OutOfOrderSequence()) == [one]
    lane.again(two)
    assert lane.needs_identity
    lane.begin((8, 0))
    assert [(parcel.sequence, Batch(memoryview(parcel.data)).producer_id) for parcel in send_all(lane)] == [(0, 8)]


def test_what_may_be_stored_fails_with_what_was_before_it() -> None:
    lane = make_lane(3, known=True)
    one, two, three = send_all(lane)
    lane.cut()
    lane.add(make_parcel(b"later"))
    assert lane.failed(one, RecordTooLarge()) == [one, two, three]
    assert lane.needs_identity


def test_what_follows_a_batch_that_was_given_up_after_a_cut_is_told_that_it_may_be_stored() -> None:
    """OutOfOrderSequence would say that it is not, and a copy of it may still come to the broker."""
    lane = make_lane(2, known=True)
    one, two = send_all(lane)
    lane.cut()
    assert send_all(lane) == [one, two]
    lane.refused(one, StorageFailed(), together=False)
    assert lane.failed(one, StorageFailed()) == [one, two]
    lane = make_lane(2, known=True)
    one, two = send_all(lane)
    lane.refused(one, StorageFailed(), together=False)
    assert lane.failed(one, StorageFailed()) == [one]
    lane.cut()
    assert send_all(lane) == [two]
    error = OutOfOrderSequence()
    lane.refused(two, error, together=False)
    assert not lane.follows_a_refusal(error)
    told = lane.verdict(two, error)
    assert isinstance(told, ConnectionLost) and "may be stored or not" in str(told) and told.__cause__ is error
    for other in (RecordTooLarge(), TimedOut()):
        assert lane.verdict(two, other) is other
    two.uncertain = False
    assert lane.verdict(two, error) is error


@pytest.mark.parametrize("error", [StorageFailed(), StorageFull(), ShuttingDown(), TimedOut()])
def test_the_sequence_of_what_was_refused_after_the_write_is_given_to_no_other(error: LevadaError) -> None:
    lane = make_lane(1, known=True)
    (one,) = send_all(lane)
    lane.refused(one, error, together=False)
    lane.failed(one, error)
    lane.add(make_parcel(b"later"))
    assert send_all(lane) == []
    assert lane.needs_identity


def test_what_was_refused_with_others_may_be_stored() -> None:
    lane = make_lane(2, known=True)
    one, two = send_all(lane)
    for each in (one, two):
        lane.refused(each, OutOfOrderSequence(), together=True)
        lane.again(each)
    assert one.may_be_stored
    assert lane.failed(one, TimedOut()) == [one, two]


def test_what_follows_a_batch_that_cannot_be_stored_does_not_fail_with_it() -> None:
    lane = make_lane(2, known=True)
    one, two = send_all(lane)
    lane.refused(one, RecordTooLarge(), together=True)
    lane.again(one)
    lane.refused(two, OutOfOrderSequence(), together=True)
    lane.again(two)
    assert lane.next(0) is one
    lane.send()
    lane.refused(one, RecordTooLarge(), together=False)
    assert lane.failed(one, RecordTooLarge()) == [one]
    assert lane.needs_identity
    lane.begin((8, 0))
    assert send_all(lane) == [two]


def test_without_sequences_everything_goes_at_once() -> None:
    lane = Lane("t", 0)
    lane.begin(NOBODY)
    for _ in range(3):
        lane.add(make_parcel())
    assert [parcel.sequence for parcel in send_all(lane)] == [-1, -1, -1]


def test_what_has_waited_too_long_is_named() -> None:
    lane = make_lane()
    lane.add(make_parcel(deadline=10.0))
    assert lane.expired(9.9) is None
    assert lane.expired(10.0) is lane.next_in_line


class Partition:
    """The broker's rules for sequences, over a log that is a list of values."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.values: list[bytes | None] = []

    def append(self, data: bytes, refusal: LevadaError | None = None) -> int:
        """A repeat is answered whatever rules there are by now."""
        batch = Batch(memoryview(bytearray(data)))
        producer = self.producers.get(batch.producer_id)
        first = producer.repeat_of(batch) if producer is not None else None
        if first is not None:
            return first.first_offset
        if refusal is not None:
            raise refusal
        assert self.producers.check(batch) is None
        batch.stamp(len(self.values), 0)
        self.producers.applied(batch, 0)
        self.values += [record.value for record in read(batch)]
        return batch.base_offset


class LaneMachine(RuleBasedStateMachine):
    """A lane, a connection that is cut at any moment, and a broker that refuses some and hears some of what was cut off late."""

    def __init__(self) -> None:
        super().__init__()
        self.lane = Lane("t", 0)
        self.partition = Partition()
        self.identities = 0
        self.published = 0
        self.to_broker: deque[Parcel] = deque()
        self.to_client: deque[tuple[Parcel, int | LevadaError, bool]] = deque()
        self.late: deque[bytes] = deque()
        self.stored: dict[bytes, int] = {}
        self.failed: set[bytes] = set()
        self.values_of: dict[Parcel, list[bytes]] = {}

    @rule(count=st.integers(1, 3))
    def publish(self, count: int) -> None:
        values = [b"%05d" % (self.published + n) for n in range(count)]
        self.published += count
        parcel = make_parcel(*values)
        self.values_of[parcel] = values
        self.lane.add(parcel)

    @rule()
    def send(self) -> None:
        self.send_what_may_be_sent()

    def send_what_may_be_sent(self) -> None:
        if self.lane.needs_identity:
            self.identities += 1
            self.lane.begin((self.identities, 0))
        self.to_broker += send_all(self.lane)

    @precondition(lambda self: self.to_broker)
    @rule(refusal=st.sampled_from([None, None, None, Overloaded(), RecordTooLarge()]))
    def broker_takes_one(self, refusal: LevadaError | None) -> None:
        self.take_one(refusal)

    def take_one(self, refusal: LevadaError | None = None) -> None:
        parcel = self.to_broker.popleft()
        try:
            if isinstance(refusal, Overloaded):
                raise refusal
            self.to_client.append((parcel, self.partition.append(parcel.data, refusal), False))
        except LevadaError as error:
            self.to_client.append((parcel, error, False))

    @precondition(lambda self: self.to_broker)
    @rule(refusal=st.sampled_from([StorageFailed(), ShuttingDown(), TimedOut()]))
    def broker_stores_one_and_refuses_it(self, refusal: LevadaError) -> None:
        parcel = self.to_broker.popleft()
        try:
            self.partition.append(parcel.data)
            self.to_client.append((parcel, refusal, False))
        except LevadaError as error:
            self.to_client.append((parcel, error, False))

    @precondition(lambda self: self.to_broker and not self.to_broker[0].alone)
    @rule(refusal=st.sampled_from([OutOfOrderSequence(), StorageFailed(), RecordTooLarge()]))
    def broker_refuses_another_of_the_same_request(self, refusal: LevadaError) -> None:
        parcel = self.to_broker.popleft()
        if not isinstance(refusal, RecordTooLarge):
            try:
                self.partition.append(parcel.data)
            except LevadaError as error:
                refusal = error
        self.to_client.append((parcel, refusal, True))

    @precondition(lambda self: self.to_client)
    @rule()
    def client_hears_one(self) -> None:
        self.hear_one()

    def hear_one(self) -> None:
        parcel, answer, together = self.to_client.popleft()
        if not self.lane.awaits(parcel):
            return
        if isinstance(answer, int):
            for place, value in enumerate(self.values_of[parcel]):
                self.stored[value] = answer + place
            self.lane.landed(parcel, Landed(0, answer))
            return
        self.lane.refused(parcel, answer, together=together)
        if together or is_passing(answer) or self.lane.follows_a_refusal(answer):
            self.lane.again(parcel)
        else:
            self.fail(parcel, answer)

    def fail(self, parcel: Parcel, error: LevadaError) -> None:
        for each in self.lane.failed(parcel, error):
            self.failed.update(self.values_of[each])
            each.failed(error)

    @rule(heard=st.integers(0, 5))
    def cut(self, heard: int) -> None:
        """The broker hears the first few of what was underway, now or later."""
        for parcel in list(self.to_broker)[:heard]:
            self.late.append(parcel.data)
        self.to_broker.clear()
        self.to_client.clear()
        self.lane.cut()

    @precondition(lambda self: self.late)
    @rule()
    def broker_hears_late(self) -> None:
        data = self.late.popleft()
        try:
            self.partition.append(data)
        except LevadaError:
            pass

    @invariant()
    def nothing_is_stored_twice(self) -> None:
        assert len(set(self.partition.values)) == len(self.partition.values)

    @invariant()
    def what_was_answered_lies_where_it_was_said_to(self) -> None:
        for value, offset in self.stored.items():
            assert self.partition.values[offset] == value

    @invariant()
    def the_log_is_in_the_order_of_publishing(self) -> None:
        kept = [value for value in self.partition.values if value not in self.failed]
        assert kept == sorted(kept, key=lambda value: value or b"")

    def teardown(self) -> None:
        """Left alone, everything is stored or was said to have failed."""
        for _ in range(3 * (self.published + 1)):
            self.send_what_may_be_sent()
            while self.to_broker:
                self.take_one()
            while self.to_client:
                self.hear_one()
        assert self.lane.is_idle
        assert set(self.stored) | self.failed == {b"%05d" % n for n in range(self.published)}


TestLane = LaneMachine.TestCase
TestLane.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
