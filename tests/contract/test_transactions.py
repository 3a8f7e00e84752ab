"""transact(): all or nothing in one call, fenced by whoever owns the shard."""

from __future__ import annotations

import asyncio

import pytest

from levada.engine.port import At, Committed, Engine, Isolation, Write
from levada.errors import CorruptBatch, Fenced, RecordTooLarge, UnknownPartition, UnknownTopic
from support.homes import Home, MakeTopic
from support.reading import batch_of, records, values

COMMITTED = Isolation.READ_COMMITTED


def write(at: At, *payloads: bytes) -> Write:
    return Write(at, bytes(batch_of(*payloads)))


async def test_all_of_a_transaction_is_seen_by_everyone(engine: Engine, make_topic: MakeTopic) -> None:
    await make_topic(partitions=2)
    first, second = At("t", 0), At("t", 1)
    async with engine.own("shard") as owner:
        appended = await engine.transact(owner, [write(first, b"a"), write(second, b"b", b"c"), write(first, b"d")])
    assert [(one.base_offset, one.last_offset) for one in appended] == [(0, 0), (0, 1), (1, 1)]
    for isolation in Isolation:
        assert await values(engine, first, isolation=isolation) == [b"a", b"d"]
        assert await values(engine, second, isolation=isolation) == [b"b", b"c"]
        bounds = await engine.bounds(first)
        assert bounds.stable_end == bounds.end


async def test_transactions_of_one_owner_follow_one_another(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    async with engine.own("shard") as owner:
        for number in range(10):
            await engine.transact(owner, [write(at, b"%d" % number)])
        await asyncio.gather(*(engine.transact(owner, [write(at, b"at once")]) for _ in range(10)))
    expected = [b"%d" % number for number in range(10)] + [b"at once"] * 10
    assert await values(engine, at, isolation=COMMITTED) == expected


async def test_offsets_are_committed_with_the_records(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    async with engine.own("shard") as owner:
        await engine.transact(owner, [write(at, b"v")], {"g": {at: Committed(7)}, "h": {at: Committed(8)}})
        assert (await engine.offsets("g"))[at].offset == 7
        assert (await engine.offsets("h"))[at].offset == 8
        await engine.transact(owner, [], {"g": {at: Committed(9)}})
    assert (await engine.offsets("g"))[at].offset == 9


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Write(At("missing", 0), bytes(batch_of(b"v"))), UnknownTopic),
        (Write(At("t", 9), bytes(batch_of(b"v"))), UnknownPartition),
        (Write(At("t", 1), bytes(batch_of(b"x" * 2000))), RecordTooLarge),
        (Write(At("t", 1), bytes(batch_of(b"v"))[:-1]), CorruptBatch),
    ],
)
async def test_one_bad_write_and_nothing_of_it_happened(
    engine: Engine, make_topic: MakeTopic, bad: Write, error: type[Exception]
) -> None:
    await make_topic(partitions=2, max_message_bytes="1000")
    at = At("t", 0)
    async with engine.own("shard") as owner:
        with pytest.raises(error):
            await engine.transact(owner, [write(at, b"a"), bad], {"g": {at: Committed(7)}})
        assert await values(engine, at, isolation=COMMITTED) == []
        assert await engine.offsets("g") == {}
        await engine.transact(owner, [write(at, b"b")])
    assert await values(engine, at, isolation=COMMITTED) == [b"b"]
    bounds = await engine.bounds(at)
    assert bounds.stable_end == bounds.end


async def test_whoever_owned_a_shard_before_is_fenced(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    async with engine.own("shard") as older:
        await engine.transact(older, [write(at, b"older")])
        async with engine.own("shard") as newer:
            with pytest.raises(Fenced):
                await engine.transact(older, [write(at, b"too late")], {"g": {at: Committed(1)}})
            await engine.transact(newer, [write(at, b"newer")])
            assert (older.shard, newer.shard) == ("shard", "shard")
    assert await values(engine, at) == [b"older", b"newer"]
    assert await engine.offsets("g") == {}


async def test_owners_of_different_shards_do_not_meet(engine: Engine, make_topic: MakeTopic) -> None:
    at = await make_topic()
    async with engine.own("one") as one, engine.own("two") as two:
        await engine.transact(one, [write(at, b"1")])
        await engine.transact(two, [write(at, b"2")])
        await engine.transact(one, [write(at, b"3")])
    assert await values(engine, at, isolation=COMMITTED) == [b"1", b"2", b"3"]


async def test_a_transaction_that_lost_its_caller_is_whole_or_not_there(engine: Engine, make_topic: MakeTopic) -> None:
    await make_topic(partitions=2)
    first, second = At("t", 0), At("t", 1)
    async with engine.own("shard") as owner:
        task = asyncio.create_task(engine.transact(owner, [write(first, b"a"), write(second, b"b")]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await engine.transact(owner, [write(first, b"after")])
    seen = [
        b"a" in await values(engine, first, isolation=COMMITTED),
        b"b" in await values(engine, second, isolation=COMMITTED),
    ]
    assert seen in ([True, True], [False, False])
    assert (await values(engine, first, isolation=COMMITTED))[-1] == b"after"


async def test_transactions_outlive_the_engine(engine: Engine, make_topic: MakeTopic, home: Home) -> None:
    await make_topic(partitions=2)
    first, second = At("t", 0), At("t", 1)
    async with engine.own("shard") as owner:
        await engine.transact(owner, [write(first, b"a"), write(second, b"b")], {"g": {first: Committed(3)}})
        before = [await records(engine, at, isolation=COMMITTED) for at in (first, second)]
    await home.stop()
    engine = await home.start()
    assert [await records(engine, at, isolation=COMMITTED) for at in (first, second)] == before
    assert (await engine.offsets("g"))[first].offset == 3
    async with engine.own("shard") as owner:
        await engine.transact(owner, [write(first, b"c")])
    assert await values(engine, first, isolation=COMMITTED) == [b"a", b"c"]
