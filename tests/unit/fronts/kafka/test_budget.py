from __future__ import annotations

from levada.config import MiB
from levada.fronts.kafka.budget import ANSWER_BYTES_MAX, Budget
from levada.fronts.kafka.call import Kept


def never() -> None:
    raise AssertionError("granted twice")


def test_what_fits_is_granted_at_once() -> None:
    budget = Budget(100)
    assert budget.take(60, never)
    assert budget.take(60, never)
    assert budget.taken_bytes == 120


def test_a_frame_larger_than_the_limit_is_granted_when_nothing_else_is_held() -> None:
    assert Budget(100).take(1000, never)


def test_whoever_waits_is_granted_in_order_as_bytes_are_given_back() -> None:
    budget = Budget(100)
    granted: list[str] = []
    assert budget.take(150, never)
    for name in ("first", "second", "third"):
        assert not budget.take(70, lambda name=name: granted.append(name))  # type: ignore[misc]
    budget.give(150)
    assert granted == ["first", "second"]
    assert budget.taken_bytes == 140
    budget.give(70)
    assert granted == ["first", "second", "third"]


def test_nobody_overtakes_whoever_waits() -> None:
    budget = Budget(100)
    assert budget.take(100, never)
    assert not budget.take(10, lambda: None)
    budget.taken_bytes = 0
    assert not budget.take(1, lambda: None)


def test_someone_who_went_is_not_granted_anything() -> None:
    budget = Budget(100)
    budget.take(100, never)
    budget.take(50, never)
    budget.forget(never)
    budget.give(100)
    assert budget.taken_bytes == 0


def test_one_frame_at_a_time_is_received_to_its_end_when_all_is_taken() -> None:
    budget = Budget(100)
    granted: list[str] = []
    takers = {name: (lambda name=name: granted.append(name)) for name in "abcd"}
    for name in "abc":
        assert budget.take(40, takers[name])
    assert not budget.take(40, takers["d"])
    assert budget.grow(500, takers["a"])
    assert not budget.grow(10, takers["b"])
    assert not budget.grow(10, takers["c"])
    assert budget.grow(500, takers["a"])
    budget.give(1040, takers["a"])
    assert granted == ["b", "c"]
    budget.give(50, takers["b"])
    assert granted == ["b", "c", "d"]
    assert budget.taken_bytes == 90 and not budget.is_scarce


def test_answers_shrink_as_unsent_ones_pile_up() -> None:
    budget = Budget(256 * MiB)
    assert budget.answer_bytes_max() == ANSWER_BYTES_MAX
    budget.unsent_bytes = 112 * MiB
    assert budget.answer_bytes_max() == 4 * MiB
    budget.unsent_bytes = 500 * MiB
    assert budget.answer_bytes_max() == 0


def test_unsent_answers_never_keep_writers_waiting() -> None:
    budget = Budget(100)
    budget.unsent_bytes = 10_000
    assert budget.take(50, never)


def test_kept_answers_are_forgotten_when_a_topic_changes() -> None:
    kept = Kept()
    kept.put("a", 1, b"one")
    assert kept.get("a", 1) == b"one"
    assert kept.get("a", 2) is None
    kept.put("b", 2, b"two")
    assert kept.get("a", 2) is None


def test_kept_answers_are_not_many() -> None:
    kept = Kept()
    for number in range(1000):
        kept.put(number, 1, b"x")
    assert len(kept._bodies) <= 32
