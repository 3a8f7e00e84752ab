"""Random members, registrations, topics, time and restarts; and what must hold whatever they do.

The model is what the clients were told, and the topics there are.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from levada.broker.streams import Kind
from levada.engine.port import At
from levada.errors import GroupKindMismatch, IllegalGeneration, UnknownGroup, UnknownMember, UnknownTopic
from support.streams import SESSION_MS, Consumer, Streams

TOPICS = ("t", "u")
topic_sets = st.sampled_from([("t",), ("u",), ("t", "u")])
picks = st.integers(0, 7)


class Groups(RuleBasedStateMachine):
    """One group id, under which everything is tried."""

    def __init__(self) -> None:
        super().__init__()
        self.streams = Streams(topics={"t": 3, "u": 2})
        #: Those who were never told to go, and did not go.
        self.running: list[Consumer] = []
        #: Those who are gone, and the generation they were in.
        self.gone: list[Consumer] = []
        self.generation = 0
        #: Of the fixed form: how many consumers, for which topics.
        self.consumers: int | None = None
        self.registered: set[str] = set()

    # What clients do

    @precondition(lambda self: len(self.running) < 6)
    @rule(topics=topic_sets)
    def somebody_joins(self, topics: tuple[str, ...]) -> None:
        try:
            consumer = self.streams.join(*topics)
        except GroupKindMismatch:
            assert self.consumers is not None
        except UnknownTopic:
            assert not set(topics) <= self.streams.topics.partitions().keys()
        else:
            assert self.consumers is None
            assert consumer.generation > self.generation, "a new generation at every change"
            self.running.append(consumer)
        self.read()

    @rule(number=st.integers(0, 3), generation_off=st.sampled_from([0, 0, 0, -1, 1]))
    def somebody_attaches(self, number: int, generation_off: int) -> None:
        generation = self.generation + generation_off
        older = next((one for one in self.running if one.member is not None and one.member.consumer == number), None)
        try:
            consumer = self.streams.attach(number, generation)
        except (GroupKindMismatch, UnknownGroup):
            assert self.consumers is None
        except IllegalGeneration:
            assert generation != self.generation
        except Exception:
            assert self.consumers is not None and number >= self.consumers
        else:
            assert self.consumers is not None and number < self.consumers
            assert generation in (0, self.generation)
            assert older is None or older.fenced is not None, "two under one number"
            self.running.append(consumer)
        self.read()

    @rule(topic=st.sampled_from(TOPICS), consumers=st.integers(1, 4))
    def somebody_registers(self, topic: str, consumers: int) -> None:
        had_members = bool(self.running)
        try:
            registered = self.streams.register(consumers, topic=topic)
        except GroupKindMismatch:
            assert self.consumers is None and had_members
        except UnknownTopic:
            assert topic not in self.streams.topics.partitions()
        else:
            assert registered.same == (self.consumers == consumers and topic in self.registered)
            assert (registered.generation == self.generation) == (self.consumers == consumers)
            if self.consumers != consumers:
                assert all(one.fenced is IllegalGeneration for one in self.running), "an old consumer goes on"
            self.consumers = consumers
            self.registered.add(topic)
        self.read()

    @rule(pick=picks)
    def somebody_leaves(self, pick: int) -> None:
        if self.running:
            consumer = self.running.pop(pick % len(self.running))
            self.streams.leave(consumer)
            self.gone.append(consumer)
            self.read()

    @rule(pick=picks)
    def somebody_gives_a_sign_of_life(self, pick: int) -> None:
        if self.running:
            self.streams.alive(self.running[pick % len(self.running)])

    @rule()
    def all_give_a_sign_of_life(self) -> None:
        for consumer in self.running:
            self.streams.alive(consumer)

    @rule(pick=picks, topic=st.sampled_from(TOPICS), partition=st.integers(0, 8), back=st.sampled_from([0, 0, 0, 1]))
    def a_running_member_commits(self, pick: int, topic: str, partition: int, back: int) -> None:
        if self.running:
            consumer = self.running[pick % len(self.running)]
            owns = At(topic, partition) in consumer.now.partitions
            taken = self.takes_commit(consumer, consumer.generation - back, At(topic, partition))
            assert taken == (owns and not back)

    @rule(pick=picks, topic=st.sampled_from(TOPICS), partition=st.integers(0, 8), anew=st.booleans())
    def a_member_that_is_gone_commits(self, pick: int, topic: str, partition: int, anew: bool) -> None:
        if self.gone:
            consumer = self.gone[pick % len(self.gone)]
            generation = self.generation if anew else consumer.generation
            assert not self.takes_commit(consumer, generation, At(topic, partition)), "a fenced member's commit"

    # What happens to them

    @rule(ms=st.sampled_from([1, SESSION_MS // 2, SESSION_MS - 1, SESSION_MS]))
    def time_passes(self, ms: int) -> None:
        self.streams.after(ms)
        self.read()

    @rule(topic=st.sampled_from(TOPICS), more=st.integers(1, 3))
    def a_topic_is_made_or_expanded(self, topic: str, more: int) -> None:
        self.streams.expand(topic, min(9, self.streams.topics.partitions().get(topic, 0) + more))
        self.read()

    @rule(topic=st.sampled_from(TOPICS), again=st.booleans())
    def a_topic_is_deleted(self, topic: str, again: bool) -> None:
        if topic not in self.streams.topics.partitions():
            return
        self.streams.topics.drop(topic)
        if again:
            self.streams.topics.put(topic, 2)
        self.streams.groups.topics_changed(self.streams.now_ms)
        self.registered.discard(topic)
        if not self.registered:
            self.consumers = None
        self.read()

    @rule()
    def the_broker_is_killed(self) -> None:
        self.streams.restart()
        self.gone += self.running
        self.running = []
        self.read()

    # What was told

    def read(self) -> None:
        for consumer in [one for one in self.running if one.fenced is not None]:
            self.running.remove(consumer)
            self.gone.append(consumer)
        for consumer in self.running + self.gone:
            generations = [told.generation for told in consumer.told]
            assert generations == sorted(generations), "the generation went back"
        if self.streams.groups.kind("g") is not None:
            generation = self.streams.groups.describe("g").generation
            assert generation >= self.generation, "the generation went back"
            self.generation = generation

    def takes_commit(self, consumer: Consumer, generation: int, at: At) -> bool:
        try:
            self.streams.groups.check_commit("g", consumer.id, generation, at)
        except (IllegalGeneration, UnknownMember):
            return False
        return True

    # What must hold

    @invariant()
    def the_generation_is_kept(self) -> None:
        if self.streams.groups.kind("g") is not None:
            assert self.streams.groups.describe("g").generation == self.generation
            assert self.streams.kept["g"].generation == self.generation, "a kill would give it out again"

    @invariant()
    def all_are_in_the_generation_of_now(self) -> None:
        for consumer in self.running:
            assert consumer.generation == self.generation
        if self.streams.groups.kind("g") is not None:
            members = {one.member_id for one in self.streams.groups.describe("g").members}
            assert members == {one.id for one in self.running}

    @invariant()
    def each_partition_has_one_owner(self) -> None:
        owned = [at for one in self.running for at in one.now.partitions]
        assert len(owned) == len(set(owned)), "two owners"
        there = {At(topic, p) for topic, count in self.streams.topics.partitions().items() for p in range(count)}
        if self.consumers is None:
            read = {topic for one in self.running if one.member is not None for topic in one.member.topics}
            assert set(owned) == {at for at in there if at.topic in read}, "nobody reads it, or it is not there"
            return
        numbers = {one.member.consumer for one in self.running if one.member is not None}
        expected = {at for at in there if at.topic in self.registered and at.partition % self.consumers in numbers}
        assert set(owned) == expected

    @invariant()
    def equal_members_have_equal_shares(self) -> None:
        subscriptions = {one.member.topics for one in self.running if one.member is not None}
        if self.consumers is None and len(subscriptions) == 1:
            sizes = [len(one.now.partitions) for one in self.running]
            assert max(sizes) - min(sizes) <= 1

    @invariant()
    def the_kind_is_what_was_asked_for(self) -> None:
        kind = self.streams.groups.kind("g")
        assert (kind is Kind.FIXED) == (self.consumers is not None)


Groups.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestGroups = Groups.TestCase
