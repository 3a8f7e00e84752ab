from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levada.broker.groups.timers import Timer, Timers


def recording(ran: list[str], name: str) -> Timer:
    return Timer(lambda now_ms: ran.append(f"{name}@{now_ms}"))


def test_what_is_due_runs_in_the_order_of_its_deadlines() -> None:
    timers, ran = Timers(), list[str]()
    for name, deadline_ms in ("b", 20), ("a", 10), ("c", 30):
        timers.at(recording(ran, name), deadline_ms)
    assert timers.next_deadline() == 10
    timers.tick(25)
    assert ran == ["a@25", "b@25"]
    assert timers.next_deadline() == 30


def test_a_deadline_that_moved_later_is_not_kept_early() -> None:
    timers, ran = Timers(), list[str]()
    timer = recording(ran, "a")
    timers.at(timer, 10)
    timers.at(timer, 50)
    timers.tick(49)
    assert ran == []
    assert timers.next_deadline() == 50
    timers.tick(50)
    assert ran == ["a@50"]


def test_a_deadline_that_moved_forward_is_kept_once() -> None:
    timers, ran = Timers(), list[str]()
    timer = recording(ran, "a")
    timers.at(timer, 50)
    timers.at(timer, 10)
    assert timers.next_deadline() == 10
    timers.tick(100)
    assert ran == ["a@100"]
    assert timers.next_deadline() is None


def test_a_cancelled_timer_does_not_run_and_can_be_set_again() -> None:
    timers, ran = Timers(), list[str]()
    timer = recording(ran, "a")
    timers.at(timer, 10)
    timers.cancel(timer)
    timers.cancel(timer)
    assert timers.next_deadline() is None
    timers.at(timer, 20)
    timers.tick(20)
    assert ran == ["a@20"]


def test_a_timer_that_runs_may_set_itself_again() -> None:
    timers, ran = Timers(), list[int]()

    def run(now_ms: int) -> None:
        ran.append(now_ms)
        timers.at(timer, now_ms + 10)

    timer = Timer(run)
    timers.at(timer, 10)
    timers.tick(10)
    timers.tick(15)
    timers.tick(20)
    assert ran == [10, 20]


def test_moving_a_deadline_later_leaves_one_entry_in_the_heap() -> None:
    timers = Timers()
    timer = recording([], "a")
    for deadline_ms in range(1, 10_000):
        timers.at(timer, deadline_ms)
    assert len(timers) == 1


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers()
    for _ in range(10_000):
        timer = recording([], "a")
        timers.at(timer, 1_000_000)
        timers.cancel(timer)
    assert len(timers) < 200


def test_the_driver_is_woken_only_when_the_first_deadline_moves_forward() -> None:
    timers, woken = Timers(), list[int]()
    timers.on_earlier = lambda: woken.append(timers.next_deadline() or 0)
    first = recording([], "a")
    timers.at(first, 100)
    timers.at(recording([], "b"), 200)
    timers.at(first, 300)
    timers.at(recording([], "c"), 50)
    assert woken == [100, 50]


moves = st.lists(
    st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 60)), st.integers(0, 15)), max_size=60
)


@given(moves)
def test_timers_keep_their_last_deadline_whatever_was_agreed_before(moves: list[tuple[int, int | None, int]]) -> None:
    """Each step moves or cancels one of five timers and lets time pass; a dict of deadlines is the model."""
    timers, now_ms = Timers(), 0
    ran: list[int] = []
    model: dict[int, int] = {}
    all_timers = [Timer(lambda _, name=name: ran.append(name)) for name in range(5)]  # type: ignore[misc]
    for name, delay_ms, passes_ms in moves:
        if delay_ms is None:
            timers.cancel(all_timers[name])
            model.pop(name, None)
        else:
            timers.at(all_timers[name], now_ms + delay_ms)
            model[name] = now_ms + delay_ms
        assert timers.next_deadline() == min(model.values(), default=None)
        now_ms += passes_ms
        ran.clear()
        timers.tick(now_ms)
        due = {name for name, deadline_ms in model.items() if deadline_ms <= now_ms}
        assert sorted(ran) == sorted(due)
        model = {name: deadline_ms for name, deadline_ms in model.items() if name not in due}
