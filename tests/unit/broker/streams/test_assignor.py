from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levada.broker.streams.assignor import assign
from levada.engine.port import At

MEMBERS = "abcdef"
TOPICS = "xyz"

topic_sets = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True)
topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)


def all_of(partitions: dict[str, int]) -> set[At]:
    return {At(topic, index) for topic, count in partitions.items() for index in range(count)}


def sizes(shares: dict[str, frozenset[At]]) -> list[int]:
    return sorted(len(share) for share in shares.values())


def moves(before: dict[str, frozenset[At]], after: dict[str, frozenset[At]]) -> int:
    """How many partitions went from one member to another that was there before too."""
    had = {at: member for member, share in before.items() for at in share}
    return sum(had.get(at, member) != member for member, share in after.items() for at in share)


def test_six_partitions_and_three_members_make_two_each() -> None:
    shares = assign({"a": ["t"], "b": ["t"], "c": ["t"]}, {"t": 6}, {})
    assert sizes(shares) == [2, 2, 2]
    assert frozenset().union(*shares.values()) == all_of({"t": 6})


def test_a_newcomer_takes_only_its_share() -> None:
    two = assign({"a": ["t"], "b": ["t"]}, {"t": 6}, {})
    three = assign({"a": ["t"], "b": ["t"], "c": ["t"]}, {"t": 6}, two)
    assert moves(two, three) == 2
    assert three["a"] < two["a"] and three["b"] < two["b"]


def test_what_a_leaver_had_goes_to_the_others_and_nothing_else_moves() -> None:
    three = assign({"a": ["t"], "b": ["t"], "c": ["t"]}, {"t": 6}, {})
    two = assign({"a": ["t"], "c": ["t"]}, {"t": 6}, three)
    assert sizes(two) == [3, 3]
    assert three["a"] < two["a"] and three["c"] < two["c"]


def test_each_topic_is_spread_over_the_members() -> None:
    one = assign({"a": ["x", "y"]}, {"x": 4, "y": 4}, {})
    two = assign({"a": ["x", "y"], "b": ["x", "y"]}, {"x": 4, "y": 4}, one)
    for share in two.values():
        assert sorted(at.topic for at in share) == ["x", "x", "y", "y"]


def test_load_is_handed_on_over_a_member_between() -> None:
    """a reads x, b reads x and y, c reads y: c can only be helped by b, and b by a's taking more of x."""
    owned = {"a": [], "b": [At("x", 0), At("x", 1)], "c": [At("y", index) for index in range(4)]}
    shares = assign({"a": ["x"], "b": ["x", "y"], "c": ["y"]}, {"x": 2, "y": 4}, owned)
    assert sizes(shares) == [2, 2, 2]


def test_a_member_with_nothing_to_read_has_nothing() -> None:
    assert assign({"a": ["gone"], "b": ["t"]}, {"t": 2}, {"a": [At("gone", 0)]}) == {
        "a": frozenset(),
        "b": frozenset(all_of({"t": 2})),
    }


def test_ten_thousand_partitions_are_shared_in_one_go() -> None:
    one = assign({"a": ["t"]}, {"t": 10_000}, {})
    two = assign({"a": ["t"], "b": ["t"]}, {"t": 10_000}, one)
    assert sizes(two) == [5_000, 5_000] and moves(one, two) == 5_000


@given(topics, st.integers(1, 6), st.integers(1, 6), topics)
def test_equal_members_differ_by_at_most_one_and_move_as_little_as_can_be(
    before: dict[str, int], count: int, later: int, after: dict[str, int]
) -> None:
    names = list(TOPICS)
    had = assign(dict.fromkeys(MEMBERS[:count], names), before, {})
    have = assign(dict.fromkeys(MEMBERS[6 - later :], names), after, had)

    assert sorted(at for share in have.values() for at in share) == sorted(all_of(after)), "each has one owner"
    assert sizes(have)[-1] - sizes(have)[0] <= 1
    kept = {member: len(had.get(member, frozenset()) & all_of(after)) for member in have}
    low, over = divmod(len(all_of(after)), later)
    # The larger shares belong to those who have most: what they hold beyond that must go, and nothing else.
    quotas = [low + (place < over) for place in range(later)]
    must_go = sum(max(0, held - quota) for held, quota in zip(sorted(kept.values(), reverse=True), quotas, strict=True))
    assert sum(len(had.get(member, frozenset()) & have[member]) for member in have) == sum(kept.values()) - must_go


@given(st.lists(topic_sets, min_size=1, max_size=5), topics, st.lists(topic_sets, min_size=1, max_size=5), topics)
def test_unequal_members_are_as_even_as_their_subscriptions_allow(
    first: list[list[str]], before: dict[str, int], second: list[list[str]], after: dict[str, int]
) -> None:
    had = assign(dict(zip(MEMBERS, first, strict=False)), before, {})
    subscriptions = dict(zip(MEMBERS, second, strict=False))
    have = assign(subscriptions, after, had)

    read = {at for at in all_of(after) if any(at.topic in names for names in second)}
    assert sorted(at for share in have.values() for at in share) == sorted(read)
    assert all(at.topic in subscriptions[member] for member, share in have.items() for at in share)
    loads = {member: len(share) for member, share in have.items()}
    assert sorted(loads.values()) == best_loads(subscriptions, sorted(read))


def best_loads(subscriptions: dict[str, list[str]], read: list[At]) -> list[int]:
    """The evenest loads there are, found by handing partitions out one by one with a complete search for a lighter way."""
    owner: dict[At, str] = {}
    loads = dict.fromkeys(subscriptions, 0)
    for at in read:
        # The lightest member that can be reached by exchanging: breadth first over who could hand what to whom.
        came_from: dict[str, tuple[str, At] | None] = {
            m: None for m, names in subscriptions.items() if at.topic in names
        }
        queue = list(came_from)
        for member in queue:
            for held in [one for one, who in owner.items() if who == member]:
                for other, names in subscriptions.items():
                    if held.topic in names and other not in came_from:
                        came_from[other] = (member, held)
                        queue.append(other)
        taker = min(queue, key=lambda member: loads[member])
        loads[taker] += 1
        while (step := came_from[taker]) is not None:
            giver, held = step
            owner[held] = taker
            taker = giver
        owner[at] = taker
    return sorted(loads.values())
