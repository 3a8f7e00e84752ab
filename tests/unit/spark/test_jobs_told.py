"""What a job shows while it runs, and says when it is done."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from levada.cli import job_told
from levada.cli.job_view import Hidden, Live, Tasks, tasks, view
from levada.spark.jobs.dedup import Deduplicated
from levada.spark.jobs.repartition import Ready, Repartitioned
from levada.spark.jobs.replay import Replayed
from levada.spark.jobs.topics import Topic


class Job(NamedTuple):
    stageIds: list[int]  # noqa: N815


class Stage(NamedTuple):
    numTasks: int  # noqa: N815
    numCompletedTasks: int  # noqa: N815


class Tracker:
    """Spark's, which knows of two jobs and has forgotten one of their stages."""

    def getActiveJobsIds(self) -> list[int]:  # noqa: N802
        return [1, 2, 3]

    def getJobInfo(self, job: int) -> Job | None:  # noqa: N802
        return {1: Job([10, 11]), 2: Job([12])}.get(job)

    def getStageInfo(self, stage: int) -> Stage | None:  # noqa: N802
        return {10: Stage(8, 8), 12: Stage(4, 1)}.get(stage)


def test_tasks_of_all_jobs_that_run() -> None:
    assert tasks(Tracker()) == Tasks(9, 12)


def test_a_bar_shows_records_where_they_are_told_and_tasks_else() -> None:
    live = Live()
    said: list[dict[str, Any]] = []
    live._progress.update = lambda _task, **fields: said.append(fields)  # type: ignore[method-assign,assignment]
    live.doing("orders → copy", 1000)
    live._draw(Tasks(9, 12))
    live.came(250)
    live._draw(Tasks(1, 4))
    assert (said[-2]["completed"], said[-2]["total"]) == (9, 12)
    assert (said[-1]["completed"], said[-1]["total"]) == (250, 1000)
    assert "250 of 1,000" in said[-1]["said"] and "tasks 1/4" in said[-1]["said"]


def test_nothing_is_shown_to_machines() -> None:
    assert type(view(as_json=True)) is Hidden


def test_a_replay_says_how_much_and_how_to_do_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    job_told.replayed("a", "b", Replayed(1200, 2, True, "job", {0: 0}, {0: 1200}), 2.0)
    assert (
        capsys.readouterr().out
        == "a → b, which is new, with the settings of a: 1,200 records in 2 batches, 2.0 s (600/s)\n"
    )
    job_told.replayed("a", "b", Replayed(0, 0, False, "job", {0: 0}, {0: 1200}), 2.0)
    assert "--again" in capsys.readouterr().out


def test_a_dedup_says_what_it_left_out_and_what_it_could_not_tell(capsys: pytest.CaptureFixture[str]) -> None:
    job_told.deduplicated("a", Deduplicated("b", True, "payload", 10, 9, 7, 1, "job"), 1.0)
    out = capsys.readouterr().out
    assert "7 records in 1 batch, 1.0 s" in out
    assert "3 repeats left out of 10 records, told by payload" in out
    assert "1 record without one, all kept" in out


@pytest.mark.parametrize(
    ("finish", "finished", "coming", "left", "said"),
    [
        (False, False, 0, [], "run this again with --finish"),
        (False, False, 7, [], "7 records came to a meanwhile. To move over"),
        (True, True, 0, [], "b is finished, with the settings of a"),
        (True, False, 7, [], "not finished: 7 records came to a meanwhile"),
        (True, False, 0, ["readers"], "not finished: readers could not be moved"),
    ],
)
def test_a_repartition_says_what_is_next(
    capsys: pytest.CaptureFixture[str], finish: bool, finished: bool, coming: int, left: list[str], said: str
) -> None:
    source = Topic("a", None, 1, "murmur2", "zero", {}, {})  # type: ignore[arg-type]
    ready = Ready(source, source._replace(name="b"), False, {}, {}, 1, finish)
    job_told.repartitioned(ready, Repartitioned("b", False, 0, 0, None, [], {}, left, coming, "job", finished), 1.0)
    assert said in capsys.readouterr().out
