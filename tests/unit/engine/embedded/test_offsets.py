from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.engine.embedded.group_snapshot import GroupSnapshot, MemberSnapshot
from levada.engine.embedded.offset_records import OffsetKey, value_of
from levada.engine.embedded.offsets import OffsetStore
from levada.engine.port import At, Committed
from levada.errors import StorageFull
from support.memory_log import MemoryJournal, MemoryPartition, memory_journal

A0, A1, B0 = At("a", 0), At("a", 1), At("b", 0)


class Clock:
    def __init__(self, now_ms: int = 1000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def make_store(journal: MemoryJournal | None = None, clock: Clock | None = None) -> OffsetStore:
    store = OffsetStore(journal or memory_journal(), clock or Clock())
    store.load()
    return store


def reloaded(journal: MemoryJournal) -> OffsetStore:
    return make_store(MemoryJournal(MemoryPartition(A0, journal.partition.log, eager=True)))


def state_of(store: OffsetStore) -> object:
    table = store._table
    return table.offsets, table.pending, table.holders, table.snapshots


async def test_a_commit_is_there_when_it_returns_and_after_a_restart():
    journal = memory_journal()
    store = make_store(journal)
    await store.commit("g", {A0: Committed(15, 3, "here"), B0: Committed(7)})
    expected = {A0: Committed(15, 3, "here", 1000), B0: Committed(7, -1, "", 1000)}
    assert store.fetch("g") == expected
    assert reloaded(journal).fetch("g") == expected
    assert store.fetch("nobody") == {}


async def test_a_commit_waits_until_it_is_durable():
    journal = memory_journal(eager=False)
    store = make_store(journal)
    commit = asyncio.ensure_future(store.commit("g", {A0: Committed(1)}))
    await asyncio.sleep(0.01)
    assert not commit.done()
    journal.partition.sync()
    await commit


async def test_commits_that_come_together_are_one_batch():
    journal = memory_journal()
    store = make_store(journal)
    await asyncio.gather(*(store.commit(f"g{n}", {A0: Committed(n)}) for n in range(50)))
    assert len(journal.partition.log.batches) == 1
    assert [store.fetch(f"g{n}")[A0].offset for n in range(50)] == list(range(50))
    assert state_of(reloaded(journal)) == state_of(store)


async def test_many_large_commits_are_several_batches_in_order():
    journal = memory_journal()
    store = make_store(journal)
    await asyncio.gather(*(store.commit("g", {A0: Committed(n, metadata="x" * 4000)}) for n in range(200)))
    assert 2 < len(journal.partition.log.batches) < 10
    assert store.fetch("g")[A0].offset == 199
    assert state_of(reloaded(journal)) == state_of(store)


async def test_a_commit_that_cannot_be_written_is_refused_and_changes_nothing():
    journal = memory_journal()
    store = make_store(journal)
    journal.partition.refusal = StorageFull()
    results = await asyncio.gather(*(store.commit("g", {A0: Committed(n)}) for n in range(2)), return_exceptions=True)
    assert [type(result) for result in results] == [StorageFull, StorageFull]
    assert store.fetch("g") == {}
    journal.partition.refusal = None
    await store.commit("g", {A0: Committed(5)})
    assert store.fetch("g")[A0].offset == 5


async def test_a_commit_and_a_delete_keep_their_order():
    journal = memory_journal()
    store = make_store(journal)
    await asyncio.gather(store.commit("g", {A0: Committed(1)}), store.delete("g"))
    assert store.fetch("g") == {} == reloaded(journal).fetch("g")


async def test_transactional_offsets_count_when_the_marker_says_commit():
    journal = memory_journal()
    store = make_store(journal)
    await store.commit("g", {A0: Committed(1)})
    await store.commit_transactional("g", 9, 0, {A0: Committed(2), B0: Committed(3)})
    assert store.fetch("g") == {A0: Committed(1, commit_ms=1000)}
    assert store.pending("g") == {A0, B0} == reloaded(journal).pending("g")
    journal.append_marker(9, 0, commit=True, coordinator_epoch=0)
    store.complete(9, commit=True)
    assert {at: committed.offset for at, committed in store.fetch("g").items()} == {A0: 2, B0: 3}
    assert store.pending("g") == set()
    assert state_of(reloaded(journal)) == state_of(store)


async def test_transactional_offsets_never_count_when_the_marker_says_abort():
    journal = memory_journal()
    store = make_store(journal)
    await store.commit_transactional("g", 9, 0, {A0: Committed(2)})
    journal.append_marker(9, 0, commit=False, coordinator_epoch=0)
    store.complete(9, commit=False)
    assert store.fetch("g") == {} and not store.groups()
    assert state_of(reloaded(journal)) == state_of(store)


async def test_a_plain_commit_that_came_later_wins_over_a_transaction_that_ends_after_it():
    journal = memory_journal()
    store = make_store(journal)
    await store.commit_transactional("g", 9, 0, {A0: Committed(2)})
    await store.commit("g", {A0: Committed(50)})
    journal.append_marker(9, 0, commit=True, coordinator_epoch=0)
    store.complete(9, commit=True)
    assert store.fetch("g")[A0].offset == 50
    assert state_of(reloaded(journal)) == state_of(store)


async def test_two_transactions_may_hold_the_same_offset():
    store = make_store()
    await store.commit_transactional("g", 1, 0, {A0: Committed(1)})
    await store.commit_transactional("g", 2, 0, {A0: Committed(2)})
    store.complete(2, commit=True)
    assert store.pending("g") == {A0}
    store.complete(1, commit=True)
    assert store.pending("g") == set()
    assert store.fetch("g")[A0].offset == 2


async def test_deleting_some_offsets_leaves_the_others():
    journal = memory_journal()
    store = make_store(journal)
    await store.commit("g", {A0: Committed(1), A1: Committed(2), B0: Committed(3)})
    await store.delete("g", [A0, At("never", 0)])
    assert set(store.fetch("g")) == {A1, B0}
    await store.delete("g")
    assert not store.groups()
    assert state_of(reloaded(journal)) == state_of(store)


async def test_deleting_a_topic_takes_its_offsets_from_every_group_pending_ones_too():
    journal = memory_journal()
    store = make_store(journal)
    await store.commit("g", {A0: Committed(1), B0: Committed(2)})
    await store.commit_transactional("h", 9, 0, {A1: Committed(3)})
    assert store.topics() == {"a", "b"}
    await store.durable(store.topic_deleted("a"))
    store.complete(9, commit=True)
    assert store.fetch("g").keys() == {B0} and store.fetch("h") == {}
    assert store.topics() == {"b"}
    journal.append_marker(9, 0, commit=True, coordinator_epoch=0)
    assert reloaded(journal).fetch("g") == store.fetch("g")
    assert reloaded(journal).fetch("h") == {}


async def test_old_offsets_of_groups_that_do_not_use_them_expire():
    clock = Clock(0)
    journal = memory_journal()
    store = make_store(journal, clock)
    await store.commit("old", {A0: Committed(1)})
    await store.commit("busy", {A0: Committed(1), B0: Committed(2)})
    await store.commit("__levada.spark", {A0: Committed(1)})
    await store.commit_transactional("old", 9, 0, {B0: Committed(1)})
    clock.now_ms = 50
    await store.commit("young", {A0: Committed(1)})

    def active(group: str, topic: str) -> bool:
        return group == "busy" and topic == "a"

    expired = store.expire(99, 100, active)
    assert expired == (0, [])
    expired = store.expire(100, 100, active)
    assert expired == (2, [])  # "old" is still held by a transaction, "busy" keeps what it reads
    assert store.fetch("old") == {} and store.fetch("busy").keys() == {A0}
    assert store.fetch("young") and store.fetch("__levada.spark")
    store.complete(9, commit=False)
    assert store.expire(150, 100, active) == (1, ["young"])
    assert state_of(reloaded(journal))[0] == state_of(store)[0]


async def test_an_offset_with_a_time_of_its_own_expires_then():
    journal = memory_journal()
    store = make_store(journal)
    await store.commit("g", {A0: Committed(1)}, expire_ms=1500)
    for either in (store, reloaded(journal)):
        assert either.expire(1499, 10, lambda group, topic: False).offsets == 0
    assert store.expire(1500, 1_000_000, lambda group, topic: False).offsets == 1


async def test_an_offset_held_by_a_transaction_does_not_expire():
    store = make_store()
    await store.commit("g", {A0: Committed(1)})
    await store.commit_transactional("g", 9, 0, {A0: Committed(2)})
    assert store.expire(10**9, 1, lambda group, topic: False).offsets == 0


async def test_groups_are_kept_and_forgotten():
    journal = memory_journal()
    store = make_store(journal)
    group = GroupSnapshot(group_id="g", protocol_type="consumer", generation=4, protocol_name="range", leader_id="m",
                          since_ms=9, members=(MemberSnapshot(member_id="m", session_timeout_ms=1,
                                                              rebalance_timeout_ms=2),))  # fmt: skip
    await store.durable(store.save_group(group))
    assert list(store.group_snapshots()) == [group] == list(reloaded(journal).group_snapshots())
    await store.durable(store.forget_group("g"))
    assert store.forget_group("g") == 0
    assert not store.groups() and not reloaded(journal).groups()


async def test_records_of_a_newer_kafka_are_passed_over():
    journal = memory_journal()
    journal.append([(b"\0\x0b" + b"whatever", b"\0\0"), (OffsetKey("g", A0).bytes(), b"\0\x63??")])
    journal.append([(OffsetKey("g", A1).bytes(), value_of(Committed(3, commit_ms=1)))])
    assert make_store(journal).fetch("g") == {A1: Committed(3, -1, "", 1)}


OPS = st.one_of(
    st.tuples(st.just("commit"), st.sampled_from("gh"), st.sampled_from([A0, A1, B0]), st.integers(0, 99)),
    st.tuples(st.just("hold"), st.sampled_from("gh"), st.sampled_from([A0, A1, B0]), st.integers(0, 99),
              st.integers(1, 3)),
    st.tuples(st.just("end"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("delete"), st.sampled_from("gh")),
    st.tuples(st.just("topic"), st.sampled_from("ab")),
    st.tuples(st.just("expire"), st.integers(0, 2000)),
    st.tuples(st.just("group"), st.sampled_from("gh"), st.integers(0, 9)),
    st.tuples(st.just("forget"), st.sampled_from("gh")),
)  # fmt: skip


async def perform(store: OffsetStore, journal: MemoryJournal, op: tuple) -> None:
    match op:
        case ("commit", group, at, offset):
            await store.commit(group, {at: Committed(offset)})
        case ("hold", group, at, offset, producer_id):
            await store.commit_transactional(group, producer_id, 0, {at: Committed(offset)})
        case ("end", producer_id, commit):
            journal.append_marker(producer_id, 0, commit=commit, coordinator_epoch=0)
            store.complete(producer_id, commit=commit)
        case ("delete", group):
            await store.delete(group)
        case ("topic", topic):
            store.topic_deleted(topic)
        case ("expire", now_ms):
            store.expire(now_ms, 500, lambda group, topic: group == "h")
        case ("group", group, generation):
            store.save_group(GroupSnapshot(group_id=group, generation=generation))
        case ("forget", group):
            store.forget_group(group)


@settings(max_examples=100, deadline=None)
@given(st.lists(OPS, max_size=30), st.integers(0, 2**32))
def test_replaying_the_journal_gives_what_is_in_memory(ops, seed):
    async def run() -> None:
        journal = memory_journal()
        store = make_store(journal)
        for op in ops:
            await perform(store, journal, op)
        memory, replayed = state_of(store), state_of(reloaded(journal))
        # A producer whose pending offsets were all deleted holds nothing: an empty entry means the same.
        assert [{k: v for k, v in part.items() if v} for part in memory] == [
            {k: v for k, v in part.items() if v} for part in replayed
        ]
        log = journal.partition.log.after_crash(random.Random(seed))
        assert log.end_offset == journal.partition.log.end_offset  # all of it was durable

    asyncio.run(run())


@pytest.mark.parametrize("group", ["", "ü", "g" * 300])
async def test_any_group_name_comes_back(group):
    journal = memory_journal()
    store = make_store(journal)
    await store.commit(group, {A0: Committed(2**62, 7, "mé" * 100)})
    assert reloaded(journal).fetch(group) == store.fetch(group)
