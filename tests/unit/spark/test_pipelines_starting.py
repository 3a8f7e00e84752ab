"""Pipelines on a machine that is too busy for them."""

from __future__ import annotations

from levada.spark.pipelines.errors import PipelineFailed, TooBusy
from levada.spark.pipelines.starting import STARTS, Patient


class Tried:
    """As much of a running pipeline as is looked at."""

    def __init__(self, failure: Exception | None = None, *, active: bool = False) -> None:
        self.failure, self.active = failure, active


def patient(*tries: Tried) -> Patient:
    left = iter(tries)
    return Patient(lambda: next(left))


def test_one_that_runs_has_not_ended_and_one_that_ended_well_is_not_started_again():
    assert not patient(Tried(active=True)).ended()
    assert patient(Tried()).ended()


def test_a_busy_machine_is_tried_again():
    last = Tried()
    one = patient(Tried(TooBusy("busy")), Tried(TooBusy("busy")), last)
    assert [one.ended() for _ in range(3)] == [False, False, True]
    assert one.running is last


def test_a_machine_that_stays_busy_is_not_tried_for_ever():
    one = patient(*(Tried(TooBusy(str(number))) for number in range(STARTS)))
    while not one.ended():
        pass
    assert str(one.running.failure) == str(STARTS - 1)


def test_any_other_failure_is_the_end():
    assert patient(Tried(PipelineFailed("wrong"))).ended()
