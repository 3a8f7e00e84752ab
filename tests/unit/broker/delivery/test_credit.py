"""How much may be out: a consumer's limit, and its group's."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from levada.broker.delivery.credit import GROUP_RECORDS_MAX, Credit, Pool
from levada.errors import InvalidRequest

OWN_MAX = 10
POOL_MAX = 25
BATCH_MAX = 17


class Machine(RuleBasedStateMachine):
    """Consumers of one group that take batches while there is room, against two numbers each."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(POOL_MAX)
        self.credits: list[Credit] = []
        self.model: dict[Credit, int] = {}
        #: Who was told that there is no room and waits to be woken.
        self.asleep: set[Credit] = set()

    @rule()
    def comes(self) -> None:
        if len(self.credits) < 5:
            credit = Credit(OWN_MAX, self.pool)
            credit.wake = lambda: self.asleep.discard(credit)
            self.credits.append(credit)
            self.model[credit] = 0

    @rule(data=st.data(), batch=st.integers(0, BATCH_MAX))
    def is_handed_a_batch_if_there_is_room(self, data: st.DataObject, batch: int) -> None:
        if not self.credits:
            return
        credit = data.draw(st.sampled_from(self.credits))
        room = credit.room()
        assert room == max(0, min(OWN_MAX - self.model[credit], POOL_MAX - sum(self.model.values())))
        if room:
            credit.take(batch)
            self.model[credit] += batch
        else:
            self.asleep.add(credit)

    @rule(data=st.data(), count=st.integers(0, 2 * BATCH_MAX))
    def grants(self, data: st.DataObject, count: int) -> None:
        if self.credits:
            credit = data.draw(st.sampled_from(self.credits))
            credit.grant(count)
            self.model[credit] = max(0, self.model[credit] - count)

    @rule(data=st.data())
    def goes(self, data: st.DataObject) -> None:
        if self.credits:
            credit = data.draw(st.sampled_from(self.credits))
            self.credits.remove(credit)
            self.asleep.discard(credit)
            credit.close()
            del self.model[credit]

    @invariant()
    def the_sums_are_right(self) -> None:
        assert {credit: credit.out for credit in self.credits} == self.model
        assert self.pool.out == sum(self.model.values())

    @invariant()
    def no_limit_is_passed_by_more_than_a_batch_less_one(self) -> None:
        assert all(out <= OWN_MAX + BATCH_MAX - 1 for out in self.model.values())
        assert self.pool.out <= POOL_MAX + BATCH_MAX - 1

    @invariant()
    def nobody_sleeps_while_there_is_room(self) -> None:
        if self.pool.room > 0:
            assert not [credit for credit in self.asleep if self.model[credit] < OWN_MAX]


TestCredit = Machine.TestCase
TestCredit.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_a_group_may_have_ten_thousand_out() -> None:
    assert Pool().room == GROUP_RECORDS_MAX == 10_000


def test_a_negative_grant_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        Credit(10).grant(-1)


def test_whoever_went_is_not_woken() -> None:
    pool = Pool(1)
    holder, waiter = Credit(10, pool), Credit(10, pool)
    woken = []
    waiter.wake = lambda: woken.append("waiter")
    holder.take(1)
    assert waiter.room() == 0
    waiter.close()
    holder.grant(1)
    assert woken == []
