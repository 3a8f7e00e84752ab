"""Random members, random time, random restarts; and what must hold whatever they do.

The model is what the clients were told: who they are, in which generation, and what they still wait for.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from levada.broker.groups import GroupCoordinator, Joined, State
from levada.broker.groups.group import Group
from levada.errors import (
    CoordinatorUnavailable,
    FencedInstance,
    IllegalGeneration,
    InconsistentProtocol,
    LevadaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from support.groups import Groups, Seat, Waiting, subscription

SESSION_MS = 10_000
REBALANCE_MS = 20_000
NEW_MEMBER_JOIN_MS = 40_000
#: No call waits longer: a rebalance and a sync each end within the longest timeout, a new member within its own.
PATIENCE_MS = 2 * (REBALANCE_MS + SESSION_MS) + NEW_MEMBER_JOIN_MS

protocol_lists = st.sampled_from(
    [
        {"range": subscription("a")},
        {"range": subscription("a"), "sticky": subscription("a")},
        {"sticky": subscription("a", "b"), "range": subscription("a", "b")},
    ]
)
instances = st.sampled_from([None, None, "one", "two"])


@dataclass
class Client:
    """A client as it knows itself: its seat once it has one, and the call it waits for."""

    instance_id: str | None
    seat: Seat | None = None
    joining: Waiting | None = None
    syncing: Waiting | None = None
    since_ms: int = 0

    @property
    def waits(self) -> bool:
        return self.joining is not None or self.syncing is not None


class Members(RuleBasedStateMachine):
    """Clients of one group."""

    @initialize(delay_ms=st.sampled_from([0, 3_000]), size_max=st.sampled_from([2, 100]))
    def start(self, delay_ms: int, size_max: int) -> None:
        self.groups = Groups(
            initial_delay_ms=delay_ms, size_max=size_max, new_member_join_ms=NEW_MEMBER_JOIN_MS, session_ms_max=60_000
        )
        self.clients: list[Client] = []
        self.generation_told = 0
        #: The disk was full since the broker started: a generation may have been told that is not kept.
        self.was_full = False
        #: generation → its leader, as told
        self.leaders: dict[int, str] = {}
        #: (generation, assignment) → member: what was told by the leader of that generation
        self.shares: dict[tuple[int, bytes], str] = {}

    # -- what clients do -----------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.clients) < 6)
    @rule(instance_id=instances, protocols=protocol_lists, knows_id=st.booleans(), knows_skip=st.booleans())
    def a_client_starts(
        self, instance_id: str | None, protocols: dict[str, bytes], knows_id: bool, knows_skip: bool
    ) -> None:
        client = Client(instance_id, since_ms=self.groups.now_ms)
        client.joining = self.groups.enter(
            instance_id=instance_id,
            protocols=protocols,
            knows_id=knows_id,
            knows_skip=knows_skip,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        self.clients.append(client)
        self.read_answers()

    @rule(session_ms=st.sampled_from([SESSION_MS, 6_000]))
    def a_client_fetches_its_id_and_is_never_seen_again(self, session_ms: int) -> None:
        self.groups.join(session_ms=session_ms, rebalance_ms=REBALANCE_MS)
        self.read_answers()

    @rule(pick=st.integers(0, 5), protocols=protocol_lists)
    def a_member_joins_again(self, pick: int, protocols: dict[str, bytes]) -> None:
        client = self.seated(pick)
        if client is not None and not client.waits:
            assert client.seat is not None
            client.since_ms = self.groups.now_ms
            client.joining = self.groups.again(
                client.seat, protocols=protocols, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS
            )
            self.read_answers()

    @rule(pick=st.integers(0, 5))
    def a_member_that_waits_joins_again_on_another_connection(self, pick: int) -> None:
        waiting = [one for one in self.clients if one.joining is not None and one.joining.member_id]
        if waiting:
            client = waiting[pick % len(waiting)]
            before = client.joining
            assert before is not None
            second = self.groups.join(
                before.member_id,
                instance_id=client.instance_id,
                protocols={"range": subscription("a")},
                session_ms=SESSION_MS,
                rebalance_ms=REBALANCE_MS,
            )
            if second.is_answered and second.error is InconsistentProtocol:
                return
            client.joining = second
            assert before.is_answered, "the first call is waited for by nobody, but holds up its connection"
            self.read_answers()

    @rule(pick=st.integers(0, 5), generation_off=st.sampled_from([0, 0, 0, 0, -1, 1]))
    def a_member_syncs(self, pick: int, generation_off: int) -> None:
        client = self.seated(pick)
        if client is None or client.waits or client.seat is None:
            return
        seat = client.seat
        assignments: dict[str, bytes] = {}
        if seat.leads:
            members = [one.member_id for one in seat.joined.members]
            assignments = {one: f"{seat.generation}:{one}:{random.random()}".encode() for one in members}
        syncing = self.groups.sync(seat, assignments, generation=seat.generation + generation_off)
        if generation_off:
            assert syncing.error in (IllegalGeneration, UnknownMember, FencedInstance)
            return
        client.since_ms = self.groups.now_ms
        client.syncing = syncing
        self.read_answers()

    @rule(pick=st.integers(0, 5))
    def a_member_sends_a_heartbeat(self, pick: int) -> None:
        client = self.seated(pick)
        if client is None or client.waits or client.seat is None:
            return
        error = self.groups.beat(client.seat)
        assert error in (None, RebalanceInProgress, IllegalGeneration, UnknownMember, FencedInstance)
        self.learn(client, error)

    @rule()
    def all_members_send_a_heartbeat(self) -> None:
        for pick in range(len(self.clients)):
            self.a_member_sends_a_heartbeat(pick)

    @rule(turns=st.integers(1, 8))
    def a_while_passes_and_all_stay_alive(self, turns: int) -> None:
        for _ in range(turns):
            self.groups.after(SESSION_MS // 3)
            self.read_answers()
            self.all_members_send_a_heartbeat()

    @rule()
    def all_do_what_clients_do(self) -> None:
        """Join again when told to, then sync, the leader last."""
        for client in self.clients:
            if client.seat is not None and not client.waits and self.groups.beat(client.seat) is RebalanceInProgress:
                client.joining = self.groups.again(client.seat, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS)
                client.since_ms = self.groups.now_ms
        self.read_answers()
        for leads in (False, True):
            for pick, client in enumerate([one for one in self.clients if one.seat is not None]):
                if client.seat is not None and client.seat.leads is leads:
                    self.a_member_syncs(pick, 0)

    @rule(pick=st.integers(0, 5))
    def a_member_leaves(self, pick: int) -> None:
        client = self.seated(pick)
        if client is not None and client.seat is not None:
            (error,) = self.groups.leave(client.seat)
            assert error in (None, UnknownMember, FencedInstance)
            self.clients.remove(client)
            assert all(call.is_answered for call in (client.joining, client.syncing) if call is not None)
            self.read_answers()

    @rule(pick=st.integers(0, 5))
    def a_client_dies(self, pick: int) -> None:
        if self.clients:
            self.clients.pop(pick % len(self.clients))

    @rule(pick=st.integers(0, 5), back=st.integers(0, 3))
    def a_member_commits(self, pick: int, back: int) -> None:
        client = self.seated(pick)
        if client is None or client.seat is None:
            return
        seat, group = client.seat, self.group()
        generation = max(0, seat.generation - back)
        try:
            self.groups.coordinator.check_commit("g", seat.member_id, generation, seat.instance_id)
        except LevadaError:
            return
        assert group is not None
        assert generation == group.generation, "a commit of an old generation was taken"
        assert seat.member_id in group.members, "a commit of a stranger was taken"
        assert group.state is not State.COMPLETING

    @rule(ms=st.sampled_from([1, 500, 3_000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS, 2 * REBALANCE_MS]))
    def time_passes(self, ms: int) -> None:
        self.groups.after(ms)
        self.read_answers()

    @rule()
    def the_broker_is_killed_and_starts_again(self) -> None:
        kept = self.groups.kept["g"].generation if "g" in self.groups.kept else 0
        if kept < self.generation_told:
            assert self.was_full, "a generation was told that is not kept"
            self.generation_told = kept
            self.leaders = {generation: one for generation, one in self.leaders.items() if generation <= kept}
            assert all(generation <= kept for generation, _ in self.shares), "an assignment was told that is not kept"
        self.was_full = self.groups.disk_is_full
        self.groups.restart()
        for client in self.clients:  # their connections broke, so nobody answers what they asked
            client.joining = client.syncing = None

    @rule(is_full=st.booleans())
    def the_disk_fills_or_has_room_again(self, is_full: bool) -> None:
        self.groups.disk_is_full = is_full
        self.was_full = self.was_full or is_full

    @rule(is_closed=st.just(True))
    def everyone_is_patient(self, is_closed: bool) -> None:
        """Nobody does anything for a long time: then every call was answered and the group is empty."""
        self.groups.after(PATIENCE_MS)
        self.read_answers()
        assert not any(client.waits for client in self.clients)
        group = self.group()
        assert group is None or group.state is State.EMPTY
        assert self.groups.coordinator.next_deadline() is None

    # -- what they are told --------------------------------------------------------------------------------------

    def read_answers(self) -> None:
        for answer in self.groups.answers:
            if isinstance(answer, Joined) and answer.error is None:
                self.check_joined(answer)
        self.groups.answers.clear()
        for client in self.clients:
            if client.joining is not None and client.joining.is_answered:
                answer, client.joining = client.joining.answer, None
                if answer.error is None:
                    client.seat = Seat("g", answer, client.instance_id)
                else:
                    self.learn(client, type(answer.error))
            if client.syncing is not None and client.syncing.is_answered:
                answer, client.syncing = client.syncing.answer, None
                if answer.error is None:
                    self.check_synced(client, answer.assignment)
                else:
                    self.learn(client, type(answer.error))

    def check_joined(self, joined: Joined) -> None:
        group = self.group()
        assert group is not None
        assert self.generation_told <= joined.generation <= group.generation, "the generation went back"
        self.generation_told = joined.generation
        if not joined.members:
            return
        assert joined.leader_id == joined.member_id, "only the leader is shown the members"
        assert len({one.member_id for one in joined.members}) == len(joined.members)
        if not joined.skip_assignment:
            leader = self.leaders.setdefault(joined.generation, joined.leader_id)
            assert leader == joined.leader_id, "two leaders of one generation"

    def check_synced(self, client: Client, assignment: bytes) -> None:
        assert client.seat is not None
        if assignment:
            generation, member_id, _ = assignment.split(b":")
            assert int(generation) == client.seat.generation, "an assignment of another generation"
            if client.instance_id is None:
                assert member_id.decode() == client.seat.member_id, "somebody else's assignment"
            key = (client.seat.generation, assignment)
            assert self.shares.setdefault(key, client.instance_id or member_id.decode()) in (
                client.instance_id,
                member_id.decode(),
            ), "one share told to two members"

    def learn(self, client: Client, error: type[LevadaError] | None) -> None:
        if error in (UnknownMember, FencedInstance):
            client.seat = None
        assert error is not MemberIdRequired
        assert error is not CoordinatorUnavailable or self.groups.disk_is_full

    def seated(self, pick: int) -> Client | None:
        seated = [client for client in self.clients if client.seat is not None]
        return seated[pick % len(seated)] if seated else None

    def group(self) -> Group | None:
        coordinator: GroupCoordinator = self.groups.coordinator
        return coordinator._groups.get("g")

    # -- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def the_group_is_consistent(self) -> None:
        group = self.group() if hasattr(self, "groups") else None
        if group is None:
            return
        members = group.members
        assert (group.leader_id is None) == (not members), "a leader without members, or members without a leader"
        assert group.leader_id is None or group.leader_id in members
        assert not members.keys() & group.pending.keys(), "a member that is also pending"
        held = {member.instance_id: member.id for member in members.values() if member.instance_id is not None}
        assert held == group.instances, "an instance id with no holder, or two"
        assert group.awaiting_join == sum(member.awaits_join for member in members.values())
        assert group.unsynced <= members.keys()
        assert (group.state is State.EMPTY) == (not members and group.state is not State.PREPARING)
        assert not any(member.awaits_join and member.awaits_sync for member in members.values())

    @invariant()
    def members_wait_only_where_they_may(self) -> None:
        group = self.group() if hasattr(self, "groups") else None
        if group is None:
            return
        for member in group.members.values():
            assert not member.awaits_join or group.state is State.PREPARING
            assert not member.awaits_sync or group.state is State.COMPLETING
            if group.state in (State.COMPLETING, State.STABLE) and not member.is_excused:
                assert member.session is not None and member.session.deadline_ms is not None, "a session without end"
        if group.state is State.PREPARING:
            assert group.join_timer is not None and group.join_timer.deadline_ms is not None, "a wait without end"
        if group.unsynced:
            assert group.sync_timer is not None and group.sync_timer.deadline_ms is not None, "a wait without end"

    @invariant()
    def nobody_waits_beyond_its_deadline(self) -> None:
        for client in getattr(self, "clients", []):
            if client.waits:
                assert self.groups.now_ms - client.since_ms <= PATIENCE_MS


Members.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestMembers = Members.TestCase
