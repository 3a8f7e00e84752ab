from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levada.broker.placement import extended, placement
from levada.errors import InvalidNode, InvalidReplicationFactor

NODES = ["n1", "n2", "n3"]

some_nodes = st.lists(st.text("abc123", min_size=1, max_size=4), min_size=1, max_size=8, unique=True)
some_partitions = st.integers(0, 40)
some_copies = st.integers(1, 12)


def test_leaders_go_round_and_replicas_wrap_on_from_them() -> None:
    assert placement(NODES, 4, 2) == [["n1", "n2"], ["n2", "n3"], ["n3", "n1"], ["n1", "n2"]]


def test_there_are_never_more_copies_than_nodes() -> None:
    assert placement(NODES, 2, 5) == [["n1", "n2", "n3"], ["n2", "n3", "n1"]]


@pytest.mark.parametrize("copies", [0, -1])
def test_at_least_one_copy_is_asked_for(copies: int) -> None:
    with pytest.raises(InvalidReplicationFactor, match=f"replication factor {copies}: must be at least 1"):
        placement(NODES, 1, copies)


def test_without_nodes_there_is_no_plan() -> None:
    with pytest.raises(InvalidNode):
        placement([], 1, 1)


@given(some_nodes, some_partitions, some_copies)
def test_every_partition_has_its_copies_on_different_nodes(nodes: list[str], partitions: int, copies: int) -> None:
    plan = placement(nodes, partitions, copies)
    assert len(plan) == partitions
    for replicas in plan:
        assert len(set(replicas)) == len(replicas) == min(copies, len(nodes))
        assert set(replicas) <= set(nodes)


@given(some_nodes, some_partitions, some_copies)
def test_no_node_leads_or_holds_more_than_one_partition_beyond_its_share(
    nodes: list[str], partitions: int, copies: int
) -> None:
    plan = placement(nodes, partitions, copies)
    for held in ([replicas[0] for replicas in plan], [node for replicas in plan for node in replicas]):
        counts = [held.count(node) for node in nodes]
        share = min(copies, len(nodes)) if len(held) > partitions else 1
        assert max(counts) - min(counts) <= share


@given(some_nodes, some_partitions, some_partitions, some_copies)
def test_growing_comes_to_the_same_plan_as_making_it_so_large(
    nodes: list[str], first: int, more: int, copies: int
) -> None:
    assert extended(placement(nodes, first, copies), nodes, first + more, copies) == placement(
        nodes, first + more, copies
    )


@given(some_nodes, some_nodes, some_partitions, some_partitions, some_copies)
def test_growing_on_other_nodes_leaves_existing_partitions_alone(
    before: list[str], after: list[str], first: int, more: int, copies: int
) -> None:
    plan = placement(before, first, copies)
    grown = extended(plan, after, first + more, copies)
    assert grown[:first] == plan
    assert grown[first:] == placement(after, first + more, copies)[first:]
