from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from levada.broker.nodes import TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX, TIMEOUT_MS_MIN, Nodes, order
from levada.errors import InvalidNode, UnknownNode

ADDRESS = "localhost:9094"
T0 = 1_000_000


def make_nodes(own_id: str = "n1", *others: str) -> Nodes:
    nodes = Nodes(own_id, T0)
    for node_id in others:
        nodes.join(node_id, ADDRESS, T0)
    return nodes


def test_numbers_in_ids_count_as_numbers() -> None:
    ids = ["n10", "n2", "n1", "n", "m3", "n2-b", "n2-a", "10", "9", "n01"]
    assert sorted(ids, key=order) == ["9", "10", "m3", "n", "n01", "n1", "n2", "n2-a", "n2-b", "n10"]


@given(st.lists(st.text("ab.-_019", min_size=1), max_size=12))
def test_the_order_of_ids_is_one_order(ids: list[str]) -> None:
    backwards = ids[::-1]
    assert sorted(ids, key=order) == sorted(backwards, key=order)
    assert len({str(order(each)) for each in ids}) == len(set(ids)), "two ids count alike"


def test_the_leader_is_the_smallest_id() -> None:
    nodes = make_nodes("n3", "n10", "n2")
    assert nodes.ids() == ["n2", "n3", "n10"]
    assert nodes.leader().id == "n2"
    nodes.leave("n2")
    assert nodes.leader().id == "n3"


def test_a_node_that_gives_no_sign_of_life_is_put_out_when_its_time_has_run_out() -> None:
    nodes = make_nodes("n1", "n2")
    nodes.join("n3", ADDRESS, T0, timeout_ms=200)
    assert nodes.next_deadline() == T0 + 200
    assert nodes.expire(T0 + 199) == []
    assert [node.id for node in nodes.expire(T0 + 200)] == ["n3"]
    assert nodes.ids() == ["n1", "n2"]
    assert [node.id for node in nodes.expire(T0 + TIMEOUT_MS_DEFAULT)] == ["n2"]
    assert nodes.next_deadline() is None


def test_a_heartbeat_keeps_a_node_in() -> None:
    nodes = make_nodes("n1", "n2")
    nodes.heartbeat("n2", T0 + 10_000)
    assert nodes.expire(T0 + TIMEOUT_MS_DEFAULT) == []
    assert nodes.next_deadline() == T0 + 10_000 + TIMEOUT_MS_DEFAULT


def test_this_broker_never_expires_and_cannot_leave() -> None:
    nodes = make_nodes("n1")
    assert nodes.expire(T0 * 1_000_000) == []
    with pytest.raises(InvalidNode, match="n1 is this broker itself"):
        nodes.leave("n1")
    nodes.heartbeat("n1", T0 + 5)
    assert nodes.all()[0].last_heartbeat_ms == T0 + 5


def test_another_cannot_join_as_this_broker() -> None:
    nodes = make_nodes("n1")
    nodes.own_at("localhost:1", "localhost:2")
    with pytest.raises(InvalidNode, match="this broker itself, at localhost:1"):
        nodes.join("n1", "elsewhere:1", T0)
    assert nodes.join("n1", "localhost:1", T0 + 1).own
    assert nodes.all()[0].kafka == "localhost:2"


def test_joining_again_says_where_the_node_is_now_and_is_a_sign_of_life() -> None:
    nodes = make_nodes("n1", "n2")
    node = nodes.join("n2", "other:1", T0 + 500, kafka="other:2", timeout_ms=300)
    assert node == nodes.get("n2")
    assert (node.address, node.kafka, node.joined_ms, node.deadline_ms) == ("other:1", "other:2", T0, T0 + 800)


def test_a_node_that_is_not_there_is_named_with_those_that_are() -> None:
    nodes = make_nodes("n1", "n2")
    for call in (lambda: nodes.heartbeat("n7", T0), lambda: nodes.leave("n7")):
        with pytest.raises(UnknownNode, match="no node 'n7'; the nodes are n1, n2"):
            call()


@pytest.mark.parametrize("node_id", ["", "a b", "ä", "n/1", "x" * 250, "n1\n"])
def test_an_id_that_cannot_be_one_is_refused(node_id: str) -> None:
    nodes = make_nodes()
    with pytest.raises(InvalidNode, match="1 to 249"):
        nodes.join(node_id, ADDRESS, T0)
    with pytest.raises(InvalidNode):
        Nodes(node_id, T0)
    assert nodes.ids() == ["n1"]


@pytest.mark.parametrize(
    "address",
    [
        "",
        "host",
        ":1",
        "host:",
        "host:0",
        "host:65536",
        "host:x",
        "host:+1",
        "a b:1",
        "::1:9094",
        "host:1\n",
        "host:1:2",
    ],
)
def test_an_address_that_cannot_be_one_is_refused(address: str) -> None:
    nodes = make_nodes()
    with pytest.raises(InvalidNode, match="must be host:port"):
        nodes.join("n2", address, T0)
    if address:
        with pytest.raises(InvalidNode, match="must be host:port"):
            nodes.join("n2", ADDRESS, T0, kafka=address)
    assert nodes.ids() == ["n1"]


@pytest.mark.parametrize("address", ["host:1", "10.0.0.1:65535", "[::1]:9094", "a.b-c_d:80"])
def test_an_address_that_can_be_one_is_taken(address: str) -> None:
    assert make_nodes().join("n2", address, T0).address == address


@pytest.mark.parametrize("timeout_ms", [-1, TIMEOUT_MS_MIN - 1, TIMEOUT_MS_MAX + 1])
def test_a_timeout_out_of_range_is_refused(timeout_ms: int) -> None:
    nodes = make_nodes()
    with pytest.raises(InvalidNode, match=f"{TIMEOUT_MS_MIN} to {TIMEOUT_MS_MAX}"):
        nodes.join("n2", ADDRESS, T0, timeout_ms=timeout_ms)
    assert nodes.ids() == ["n1"]


def test_kept_nodes_have_one_timeout_to_give_a_sign_of_life() -> None:
    before = make_nodes("n1", "n2")
    after = Nodes("n1", T0 + 1_000_000)
    after.restore(before.all(), T0 + 1_000_000)
    assert after.ids() == ["n1", "n2"]
    assert after.next_deadline() == T0 + 1_000_000 + TIMEOUT_MS_DEFAULT
    assert [node.own for node in after.all()] == [True, False]
    assert after.all()[1].joined_ms == T0


def test_a_kept_node_of_a_broker_that_is_called_otherwise_now_is_no_longer_itself() -> None:
    after = Nodes("n9", T0)
    after.restore(make_nodes("n1").all(), T0)
    assert [(node.id, node.own) for node in after.all()] == [("n1", False), ("n9", True)]


class Membership(RuleBasedStateMachine):
    """Nodes against a dict of deadlines."""

    ids = st.sampled_from(["n1", "n2", "n3", "n10"])

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = T0
        self.nodes = Nodes("n2", T0)
        self.timeouts: dict[str, int] = {}
        self.deadlines: dict[str, int] = {}

    @rule(node_id=ids, timeout_ms=st.sampled_from([100, 500, 1000]))
    def join(self, node_id: str, timeout_ms: int) -> None:
        if node_id == "n2":
            self.nodes.join(node_id, "", self.now_ms, timeout_ms=timeout_ms)
            return
        self.nodes.join(node_id, ADDRESS, self.now_ms, timeout_ms=timeout_ms)
        self.timeouts[node_id] = timeout_ms
        self.deadlines[node_id] = self.now_ms + timeout_ms

    @rule(node_id=ids)
    def leave(self, node_id: str) -> None:
        if node_id == "n2":
            with pytest.raises(InvalidNode):
                self.nodes.leave(node_id)
        elif node_id in self.deadlines:
            self.nodes.leave(node_id)
            del self.deadlines[node_id]
        else:
            with pytest.raises(UnknownNode):
                self.nodes.leave(node_id)

    @rule(node_id=ids)
    def heartbeat(self, node_id: str) -> None:
        if node_id == "n2" or node_id in self.deadlines:
            self.nodes.heartbeat(node_id, self.now_ms)
            if node_id != "n2":
                self.deadlines[node_id] = self.now_ms + self.timeouts[node_id]
        else:
            with pytest.raises(UnknownNode):
                self.nodes.heartbeat(node_id, self.now_ms)

    @rule(passed_ms=st.integers(0, 600))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        late = {node_id for node_id, deadline_ms in self.deadlines.items() if deadline_ms <= self.now_ms}
        assert {node.id for node in self.nodes.expire(self.now_ms)} == late
        for node_id in late:
            del self.deadlines[node_id]

    @precondition(lambda self: self.deadlines)
    @rule()
    def restart(self) -> None:
        kept = self.nodes.all()
        self.nodes = Nodes("n2", self.now_ms)
        self.nodes.restore(kept, self.now_ms)
        self.deadlines = {node_id: self.now_ms + self.timeouts[node_id] for node_id in self.deadlines}

    @invariant()
    def the_same_are_in(self) -> None:
        expected = sorted({"n2", *self.deadlines}, key=lambda node_id: int(node_id[1:]))
        assert self.nodes.ids() == expected
        assert self.nodes.leader().id == expected[0]
        assert self.nodes.next_deadline() == min(self.deadlines.values(), default=None)


TestMembership = Membership.TestCase
