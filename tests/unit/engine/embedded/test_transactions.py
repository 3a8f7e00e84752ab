from __future__ import annotations

import asyncio

import pytest

from levada.engine.embedded.markers import OFFSETS
from levada.engine.embedded.transaction_limits import TransactionLimits
from levada.engine.embedded.transaction_state import EPOCH_MAX, State, replace
from levada.engine.port import At, Committed
from levada.errors import (
    ConcurrentTransactions,
    DamagedLog,
    InvalidProducerEpoch,
    InvalidProducerMapping,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    ProducerFenced,
    StorageFull,
    TransactionAbortable,
    UnknownTransactionalId,
)
from support.transaction_world import P0, P1, P2, World, turn

MINUTE = 60_000


async def begin(world: World, name: str = "tx") -> tuple[int, int]:
    return await world.transactions.init_producer_id(name, MINUTE)


async def test_a_producer_without_transactions_gets_an_id_of_its_own():
    world = World()
    ids = {await world.transactions.init_producer_id(None, 0) for _ in range(3)}
    assert len(ids) == 3 and all(epoch == 0 for _, epoch in ids)
    assert not world.transactions.all()


async def test_a_committed_transaction_is_seen_in_all_its_partitions_and_not_before():
    world = World()
    producer = await begin(world)
    world.produce(P0, b"a", *producer)
    world.produce(P1, b"b", *producer)
    assert world.committed(P0) == world.committed(P1) == []
    successor = await world.transactions.end("tx", *producer, True, tv2=True)
    assert successor == (producer[0], producer[1] + 1)
    assert (world.committed(P0), world.committed(P1)) == ([b"a"], [b"b"])
    assert world.transactions.get("tx").state is State.COMPLETE_COMMIT


async def test_an_aborted_transaction_is_never_seen():
    world = World()
    producer = await begin(world)
    world.produce(P0, b"a", *producer)
    await world.transactions.end("tx", *producer, False, tv2=True)
    assert world.committed(P0) == []
    assert world.transactions.get("tx").state is State.COMPLETE_ABORT


async def test_with_tv1_partitions_are_added_first_and_the_epoch_stays():
    world = World()
    producer = await begin(world)
    with pytest.raises(TransactionAbortable):
        world.produce(P0, b"a", *producer, implicit=False)
    with pytest.raises(InvalidTransactionState):
        world.transactions.on_transactional_append(*producer, P0, abortable=False)
    await world.transactions.add_partitions("tx", *producer, {P0})
    assert world.transactions.missing("tx", *producer, {P0, P1}) == {P1}
    world.produce(P0, b"a", *producer, implicit=False)
    assert await world.transactions.end("tx", *producer, True) == producer
    assert world.committed(P0) == [b"a"]
    with pytest.raises(TransactionAbortable):
        world.produce(P0, b"late", *producer, implicit=False)


async def test_an_older_epoch_is_fenced_in_every_call():
    world = World()
    old = await begin(world)
    world.produce(P0, b"old", *old)
    await begin(world)
    calls = world.transactions
    for refused in (
        calls.add_partitions("tx", *old, {P0}),
        calls.add_offsets("tx", *old),
        calls.end("tx", *old, True),
        calls.end("tx", *old, False),
        calls.init_producer_id("tx", MINUTE, *old),
    ):
        with pytest.raises(ProducerFenced):
            await refused
    with pytest.raises(ProducerFenced):
        calls.missing("tx", *old, {P0})
    with pytest.raises(ProducerFenced):
        await calls.end("tx", *old, True, tv2=True)
    with pytest.raises(InvalidProducerEpoch):
        await calls.commit_offsets("tx", *old, "g", {P0: Committed(1)}, implicit=True)
    for at in (P0, P1):
        with pytest.raises(InvalidProducerEpoch):
            world.produce(at, b"late", *old)
    assert world.committed(P0) == []


async def test_a_new_producer_aborts_what_the_old_one_left_open_in_the_same_call():
    world = World()
    old = await begin(world)
    world.produce(P0, b"old", *old)
    new = await begin(world)
    assert new[0] == old[0] and new[1] > old[1]
    world.produce(P0, b"new", *new)
    await world.transactions.end("tx", *new, True, tv2=True)
    assert world.committed(P0) == [b"new"]


async def test_a_producer_that_goes_on_after_an_error_aborts_its_own_transaction():
    world = World()
    producer = await begin(world)
    world.produce(P0, b"a", *producer)
    after = await world.transactions.init_producer_id("tx", MINUTE, *producer)
    assert after == (producer[0], producer[1] + 1)
    assert await world.transactions.init_producer_id("tx", MINUTE, *producer) == after
    assert world.committed(P0) == [] and world.transactions.get("tx").state is State.EMPTY


async def test_a_repeated_end_is_answered_as_the_first():
    world = World()
    producer = await begin(world)
    world.produce(P0, b"a", *producer)
    first = await world.transactions.end("tx", *producer, True, tv2=True)
    assert await world.transactions.end("tx", *producer, True, tv2=True) == first
    with pytest.raises(InvalidTransactionState):
        await world.transactions.end("tx", *producer, False, tv2=True)
    assert len(world.log(P0).batches) == 2


async def test_a_repeated_end_that_comes_while_the_first_is_under_way_waits_for_it():
    world = World(eager=False)
    beginning = asyncio.ensure_future(begin(world))
    await world.settle()
    producer = await beginning
    world.produce(P0, b"a", *producer)
    await world.settle()
    ends = [asyncio.ensure_future(world.transactions.end("tx", *producer, True, tv2=True)) for _ in range(3)]
    await turn()
    assert not any(end.done() for end in ends)
    await world.settle()
    assert len({await end for end in ends}) == 1
    assert len(world.log(P0).batches) == 2


async def test_wrong_and_missing_ids_are_refused():
    world = World()
    producer_id, epoch = await begin(world)
    calls = world.transactions
    with pytest.raises(InvalidProducerMapping):
        await calls.add_partitions("tx", producer_id + 1, epoch, {P0})
    with pytest.raises(InvalidProducerMapping):
        await calls.add_partitions("unknown", producer_id, epoch, {P0})
    with pytest.raises(InvalidProducerMapping):
        calls.on_transactional_append(producer_id, epoch, P0, transactional_id="other", implicit=True)
    with pytest.raises(InvalidProducerMapping):
        calls.on_transactional_append(producer_id + 1, epoch, P0, implicit=True)
    for empty in (calls.init_producer_id("", MINUTE), calls.end("", 1, 1, True), calls.add_offsets("", 1, 1)):
        with pytest.raises(InvalidRequest):
            await empty
    with pytest.raises(UnknownTransactionalId):
        calls.get("unknown")


@pytest.mark.parametrize("timeout_ms", [0, -1, 1001])
async def test_a_timeout_out_of_range_is_refused(timeout_ms):
    world = World(limits=TransactionLimits(timeout_ms_max=1000))
    with pytest.raises(InvalidTransactionTimeout, match=r"from 1 to .*=1000"):
        await world.transactions.init_producer_id("tx", timeout_ms)
    assert await world.transactions.init_producer_id("tx", 1000)


async def test_nothing_is_answered_before_it_is_durable():
    world = World(eager=False)
    beginning = asyncio.ensure_future(begin(world))
    await turn()
    assert not beginning.done()
    world.sync()
    producer = await beginning
    receipt = world.produce(P0, b"a", *producer)
    assert receipt is not None
    assert world.produce(P0, b"b", *producer) == receipt  # the second batch waits for the same record
    waiting = asyncio.ensure_future(world.transactions.durable(receipt))
    await turn()
    assert not waiting.done()
    world.sync()
    await waiting
    assert world.produce(P0, b"c", *producer) is None


async def test_the_decision_is_durable_before_the_first_marker_and_the_markers_before_the_completion():
    world = World(eager=False)
    beginning = asyncio.ensure_future(begin(world))
    await world.settle()
    producer = await beginning
    world.produce(P0, b"a", *producer)
    world.produce(P1, b"b", *producer)
    await world.settle()
    ending = asyncio.ensure_future(world.transactions.end("tx", *producer, True, tv2=True))
    await turn()
    assert world.transactions.get("tx").state is State.PREPARE_COMMIT
    assert [len(world.log(at).batches) for at in (P0, P1)] == [1, 1]
    world.sync(world.transactions._log._journal.partition.at)
    await turn()
    assert [len(world.log(at).batches) for at in (P0, P1)] == [2, 2]
    assert world.transactions.get("tx").state is State.PREPARE_COMMIT
    world.sync(P0)
    await turn()
    assert world.transactions.get("tx").state is State.PREPARE_COMMIT and not ending.done()
    world.sync(P1)
    await turn()
    assert world.transactions.get("tx").state is State.COMPLETE_COMMIT
    assert await ending == (producer[0], producer[1] + 1)


async def test_offsets_sent_with_a_transaction_are_committed_with_it_or_not_at_all():
    world = World()
    for commit in (True, False):
        producer = await begin(world)
        group = f"g-{commit}"
        await world.transactions.commit_offsets("tx", *producer, group, {P0: Committed(5)}, implicit=True)
        assert world.offsets.fetch(group) == {} and world.offsets.pending(group) == {P0}
        await world.transactions.end("tx", *producer, commit, tv2=True)
        assert world.offsets.pending(group) == set()
        assert [c.offset for c in world.offsets.fetch(group).values()] == ([5] if commit else [])


async def test_with_tv1_offsets_are_announced_first():
    world = World()
    producer = await begin(world)
    with pytest.raises(TransactionAbortable):
        await world.transactions.commit_offsets("tx", *producer, "g", {P0: Committed(5)})
    with pytest.raises(InvalidTransactionState):
        await world.transactions.commit_offsets("tx", *producer, "g", {P0: Committed(5)}, abortable=False)
    await world.transactions.add_offsets("tx", *producer)
    await world.transactions.commit_offsets("tx", *producer, "g", {P0: Committed(5)})
    await world.transactions.end("tx", *producer, True)
    assert world.offsets.fetch("g")[P0].offset == 5


async def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced():
    world = World()
    producer = await begin(world)
    world.produce(P0, b"a", *producer)
    world.transactions.tick(1000 + MINUTE)
    assert world.transactions.get("tx").state is State.ONGOING
    world.transactions.tick(1001 + MINUTE)
    await world.settle()
    assert world.transactions.get("tx").state is State.COMPLETE_ABORT
    with pytest.raises(InvalidProducerEpoch):
        world.produce(P0, b"b", *producer)
    with pytest.raises(InvalidTransactionState):
        await world.transactions.end("tx", *producer, True, tv2=True)
    # A client that speaks TV2 may find out by aborting, and goes on.
    after = await world.transactions.end("tx", *producer, False, tv2=True)
    world.produce(P0, b"c", *after)
    await world.transactions.end("tx", *after, True, tv2=True)
    assert world.committed(P0) == [b"c"]


async def test_idle_ids_are_forgotten_and_open_ones_are_not():
    world = World(limits=TransactionLimits(id_expiration_ms=10_000))
    await begin(world, "idle")
    producer = await begin(world, "busy")
    world.produce(P0, b"a", *producer)
    world.transactions.tick(1000)
    assert {txn.transactional_id for txn in world.transactions.all()} == {"idle", "busy"}
    world.transactions.tick(1000 + 3_600_000 - 1)
    assert len(world.transactions.all()) == 2
    world.transactions.tick(1000 + 3_600_000)
    await world.settle()
    assert [txn.transactional_id for txn in world.transactions.all()] == ["busy"]
    world.crash()
    assert [txn.transactional_id for txn in world.transactions.all()] == ["busy"]


async def test_a_partition_that_is_gone_is_passed_over():
    world = World()
    producer = await begin(world)
    world.produce(P0, b"a", *producer)
    world.produce(P1, b"b", *producer)
    del world.partitions[P1]
    await world.transactions.end("tx", *producer, True, tv2=True)
    assert world.committed(P0) == [b"a"]
    assert world.transactions.get("tx").state is State.COMPLETE_COMMIT


async def test_a_damaged_partition_does_not_hold_up_the_others():
    world = World()
    producer = await begin(world)
    world.produce(P0, b"a", *producer)
    world.produce(P1, b"b", *producer)
    world.partitions[P1].refusal = DamagedLog()
    await world.transactions.end("tx", *producer, True, tv2=True)
    assert world.transactions.get("tx").state is State.COMPLETE_COMMIT


async def test_when_a_marker_cannot_be_written_the_outcome_stands_and_is_tried_again():
    world = World()
    producer = await begin(world)
    world.produce(P0, b"a", *producer)
    world.produce(P1, b"b", *producer)
    world.partitions[P1].refusal = StorageFull()
    after = await world.transactions.end("tx", *producer, True, tv2=True)
    assert world.transactions.get("tx").state is State.PREPARE_COMMIT
    assert world.committed(P0) == [b"a"] and world.committed(P1) == []
    with pytest.raises(ConcurrentTransactions):
        await world.transactions.add_partitions("tx", *after, {P0}, tv2=True)
    with pytest.raises(ConcurrentTransactions):
        world.produce(P0, b"c", *after)
    with pytest.raises(ConcurrentTransactions):
        await begin(world)
    world.partitions[P1].refusal = None
    world.transactions.tick(world.now_ms + 60_000)
    await world.settle()
    assert world.committed(P1) == [b"b"] and len(world.log(P0).batches) == 2
    world.produce(P0, b"c", *after)
    await world.transactions.end("tx", *after, True, tv2=True)
    assert world.committed(P0) == [b"a", b"c"]


async def test_a_transaction_is_not_complete_while_a_marker_of_it_is_refused():
    world = World()
    producer = await begin(world)
    world.partition_of(P0).append_marker(*producer, commit=False, coordinator_epoch=9)
    world.produce(P0, b"a", *producer)
    world.produce(P1, b"b", *producer)
    await world.transactions.end("tx", *producer, True, tv2=True)
    assert world.transactions.get("tx").state is State.PREPARE_COMMIT
    assert world.committed(P0) == []
    with pytest.raises(InvalidRequest, match="above the broker's, 0"):
        await world.transactions.force_marker(P1, *producer, commit=True, coordinator_epoch=1)


async def test_when_the_decision_cannot_be_written_nothing_has_changed():
    world = World()
    producer = await begin(world)
    world.produce(P0, b"a", *producer)
    journal = world.transactions._log._journal.partition
    journal.refusal = StorageFull()
    with pytest.raises(StorageFull):
        await world.transactions.end("tx", *producer, True, tv2=True)
    with pytest.raises(StorageFull):
        world.produce(P1, b"b", *producer)
    world.transactions.tick(10**9)
    assert world.transactions.get("tx").state is State.ONGOING
    journal.refusal = None
    await world.transactions.end("tx", *producer, True, tv2=True)
    assert world.committed(P0) == [b"a"] and world.log(P1).end_offset == 0


async def test_epochs_that_run_out_give_way_to_a_new_producer_id():
    world = World()
    producer_id, _ = await begin(world)
    entry = world.transactions._log.get("tx")
    world.transactions._log.write(replace(entry.txn, epoch=EPOCH_MAX - 2))
    producer = await begin(world)
    assert producer == (producer_id, EPOCH_MAX - 1)
    world.produce(P0, b"a", *producer)
    after = await world.transactions.end("tx", *producer, True, tv2=True)
    assert after[0] != producer_id and after[1] == 0
    assert await world.transactions.end("tx", *producer, True, tv2=True) == after
    world.produce(P0, b"b", *after)
    await world.transactions.end("tx", *after, True, tv2=True)
    assert world.committed(P0) == [b"a", b"b"]
    with pytest.raises(InvalidProducerMapping):
        world.produce(P0, b"late", *producer)


async def test_a_client_that_hangs_up_does_not_stop_an_end():
    world = World(eager=False)
    beginning = asyncio.ensure_future(begin(world))
    await world.settle()
    producer = await beginning
    world.produce(P0, b"a", *producer)
    ending = asyncio.ensure_future(world.transactions.end("tx", *producer, True, tv2=True))
    await turn()
    ending.cancel()
    await world.settle()
    assert world.committed(P0) == [b"a"]


async def test_closing_waits_for_ends_under_way():
    world = World(eager=False)
    beginning = asyncio.ensure_future(begin(world))
    await world.settle()
    producer = await beginning
    world.produce(P0, b"a", *producer)
    ending = asyncio.ensure_future(world.transactions.end("tx", *producer, True, tv2=True))
    await turn()
    closing = asyncio.ensure_future(world.transactions.close())
    await turn()
    assert not closing.done()
    await world.settle()
    await closing
    await ending


# -- after a crash ---------------------------------------------------------------------------------------------------


async def test_after_a_crash_an_open_transaction_is_still_its_producers():
    world = World()
    producer = await begin(world)
    world.produce(P0, b"a", *producer)
    world.crash()
    world.produce(P1, b"b", *producer)
    await world.transactions.end("tx", *producer, True, tv2=True)
    assert (world.committed(P0), world.committed(P1)) == ([b"a"], [b"b"])


async def test_after_a_crash_an_open_transaction_times_out_or_is_aborted_by_the_next_producer():
    for next_producer in (True, False):
        world = World()
        producer = await begin(world)
        world.produce(P0, b"a", *producer)
        world.produce(P1, b"b", *producer)
        world.crash()
        if next_producer:
            await begin(world)
        else:
            world.transactions.tick(10**9)
            await world.settle()
        assert world.committed(P0) == world.committed(P1) == []
        assert not world.log(P0).producers.open_transactions


async def crashed_before_the_markers(world: World) -> tuple[int, int]:
    """Decided to commit in P0, P1 and for group g; the decision is all that is durable of it."""
    beginning = asyncio.ensure_future(begin(world))
    await world.settle()
    producer = await beginning
    world.produce(P0, b"a", *producer)
    world.produce(P1, b"b", *producer)
    sent = world.transactions.commit_offsets("tx", *producer, "g", {P2: Committed(9)}, implicit=True)
    sending = asyncio.ensure_future(sent)
    await world.settle()
    await sending
    ending = asyncio.ensure_future(world.transactions.end("tx", *producer, True, tv2=True))
    await turn()
    world.sync(world.transactions._log._journal.partition.at)
    ending.cancel()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await turn()
    return producer


async def test_after_a_crash_what_was_decided_is_carried_out():
    world = World(eager=False)
    producer = await crashed_before_the_markers(world)
    world.crash()
    assert world.committed(P0) == []
    await world.settle()
    assert (world.committed(P0), world.committed(P1)) == ([b"a"], [b"b"])
    assert world.offsets.fetch("g")[P2].offset == 9
    assert world.transactions.get("tx").state is State.COMPLETE_COMMIT
    # The client that was not answered asks again.
    assert await world.transactions.end("tx", *producer, True, tv2=True) == (producer[0], producer[1] + 1)


async def test_a_crash_after_the_markers_does_not_end_the_next_transaction_with_them():
    """The next transaction's data is there, but neither the record that begins it nor that the last one is complete."""
    world = World()
    producer = await begin(world)
    world.produce(P0, b"a", *producer)
    after = await world.transactions.end("tx", *producer, True, tv2=True)
    journal = world.log(world.transactions._log._journal.partition.at)
    decided = len(journal.batches) - 1
    world.produce(P0, b"next", *after)
    world.produce(P1, b"next too", *after)
    del journal.batches[decided:]
    world.crash()
    await world.settle()
    assert world.committed(P0) == [b"a"]
    # What was written is adopted, so that the client's retry, taken for a repeat, is not lost.
    assert P0 in world.transactions.get("tx").partitions
    world.produce(P1, b"again", *after)
    await world.transactions.end("tx", *after, True, tv2=True)
    assert world.committed(P0) == [b"a", b"next"]
    assert world.committed(P1) == [b"next too", b"again"]


async def test_data_of_an_epoch_that_is_over_is_aborted_when_its_partition_is_opened():
    world = World()
    producer = await begin(world)
    journal = world.log(world.transactions._log._journal.partition.at)
    known = len(journal.batches)
    world.produce(P1, b"unknown", *producer)
    del journal.batches[known:]
    world.crash()
    await begin(world)
    assert world.log(P1).producers.open_transactions
    world.partition_of(P1)
    assert not world.log(P1).producers.open_transactions
    assert world.committed(P1) == []


async def test_data_of_a_producer_nobody_knows_is_aborted():
    world = World()
    world.partitions[P0].append([(None, b"x")], producer=(77, 3))
    world.partitions[OFFSETS].append([(b"\0\x09?", b"")], producer=(78, 0))
    world.crash()
    world.partition_of(P0)
    assert world.committed(P0) == []
    assert not world.log(P0).producers.open_transactions
    assert not world.log(OFFSETS).producers.open_transactions


async def test_an_orphan_that_cannot_be_aborted_now_is_looked_at_again():
    world = World()
    world.partitions[P0].append([(None, b"x")], producer=(77, 3))
    world.crash()
    world.partitions[P0].refusal = StorageFull()
    world.partition_of(P0)
    assert world.log(P0).producers.open_transactions
    world.partitions[P0].refusal = None
    world.transactions.tick(2000)
    assert not world.log(P0).producers.open_transactions


async def test_a_clean_restart_changes_nothing():
    world = World()
    producer = await begin(world)
    world.produce(P0, b"a", *producer)
    before = world.transactions.get("tx")
    world.crash()
    world.partition_of(P0)
    assert replace(world.transactions.get("tx"), last_epoch=before.last_epoch) == before
    assert world.transactions.get("tx").partitions == {At("t", 0)}
