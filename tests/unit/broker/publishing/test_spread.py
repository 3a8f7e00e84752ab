"""The keyless counter: exactly even, goes on after a stop, never repeats a stretch."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Mapping
from uuid import UUID, uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from levada.broker.publishing import spread as spread_module
from levada.broker.publishing.spread import GROUP, Spread
from levada.engine.port import At, Committed, TopicInfo
from levada.errors import InvalidRequest, UnknownTopic


class Kept:
    """What of an engine the counter needs: topics, and offsets that are durable once committed."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicInfo] = {}
        self.durable: dict[At, Committed] = {}
        self.commits = 0
        self.version = 0

    def create(self, name: str, partitions: int = 4, topic_id: UUID | None = None) -> None:
        self.topics[name] = TopicInfo(name=name, id=topic_id or uuid4(), partitions=partitions, settings={})

    def delete(self, name: str) -> None:
        del self.topics[name]
        self.durable.pop(At(name, 0), None)

    def get(self, name: str) -> TopicInfo | None:
        return self.topics.get(name)

    async def offsets(self, group: str) -> Mapping[At, Committed]:
        assert group == GROUP
        await asyncio.sleep(0)
        return dict(self.durable)

    async def commit_offsets(self, group: str, offsets: Mapping[At, Committed]) -> None:
        assert group == GROUP
        await asyncio.sleep(0)
        self.commits += 1
        self.durable.update(offsets)


def spread_over(kept: Kept) -> Spread:
    return Spread(kept, kept)  # type: ignore[arg-type]  # as much of both as it uses


async def test_concurrent_publishers_share_one_counter() -> None:
    kept = Kept()
    kept.create("t")
    spread = spread_over(kept)
    firsts = await asyncio.gather(*(spread.take("t", 5) for _ in range(2000)))
    assert sorted(firsts) == [5 * number for number in range(2000)]
    landed = Counter((first + place) % 4 for first in firsts for place in range(5))
    assert landed == {0: 2500, 1: 2500, 2: 2500, 3: 2500}


async def test_many_records_cost_one_durable_write() -> None:
    kept = Kept()
    kept.create("t")
    spread = spread_over(kept)
    for _ in range(1000):
        await spread.take("t", 60)
    assert kept.commits == 1


async def test_more_than_a_stretch_can_be_taken_at_once() -> None:
    kept = Kept()
    kept.create("t")
    spread = spread_over(kept)
    many = 3 * spread_module.STRETCH
    assert await spread.take("t", many) == 0
    assert await spread.take("t", 1) == many


async def test_a_topic_that_is_made_again_begins_anew() -> None:
    kept = Kept()
    kept.create("t")
    spread = spread_over(kept)
    await spread.take("t", 7)
    kept.delete("t")
    with pytest.raises(UnknownTopic):
        await spread.take("t", 1)
    kept.create("t")
    assert await spread.take("t", 1) == 0


async def test_at_closing_a_topic_that_has_gone_is_left_out() -> None:
    kept = Kept()
    kept.create("t")
    spread = spread_over(kept)
    await spread.take("t", 7)
    kept.delete("t")
    await spread.close()
    assert kept.durable == {}


async def test_asking_for_nothing_is_refused() -> None:
    kept = Kept()
    kept.create("t")
    with pytest.raises(InvalidRequest, match="at least 1"):
        await spread_over(kept).take("t", 0)


class Counting(RuleBasedStateMachine):
    """Against a model of one line: what was ever handed out."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.kept = Kept()
        self.kept.create("t")
        self.spread = spread_over(self.kept)
        self.handed_out: list[range] = []
        self.must_go_on_at: int | None = 0

    @rule(counts=st.lists(st.integers(1, 40_000), min_size=1, max_size=5))
    def publishers_take(self, counts: list[int]) -> None:
        async def all_at_once() -> list[int]:
            return await asyncio.gather(*(self.spread.take("t", count) for count in counts))

        taken = [range(first, first + count) for first, count in zip(self.loop.run(all_at_once()), counts, strict=True)]
        if self.must_go_on_at is not None:
            assert min(stretch.start for stretch in taken) == self.must_go_on_at
        self.handed_out += taken
        self.must_go_on_at = max(stretch.stop for stretch in taken)

    @rule()
    def a_clean_stop_and_start(self) -> None:
        self.loop.run(self.spread.close())
        self.spread = spread_over(self.kept)

    @rule()
    def a_crash_and_start(self) -> None:
        self.spread = spread_over(self.kept)
        self.must_go_on_at = None

    @rule(partitions=st.integers(1, 50))
    def the_topic_grows(self, partitions: int) -> None:
        info = self.kept.topics["t"]
        self.kept.create("t", info.partitions + partitions, info.id)

    @invariant()
    def nothing_is_handed_out_twice(self) -> None:
        ordered = sorted(self.handed_out, key=lambda stretch: stretch.start)
        assert all(one.stop <= other.start for one, other in itertools.pairwise(ordered))

    def teardown(self) -> None:
        self.loop.close()


TestCounting = Counting.TestCase
TestCounting.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
