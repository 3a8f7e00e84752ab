from __future__ import annotations

import asyncio

import pytest

from levada.engine.embedded.housekeeping import Timetable


async def test_jobs_run_when_they_are_due_and_again() -> None:
    runs: list[str] = []
    thrice = asyncio.Event()

    async def quick() -> None:
        runs.append("quick")
        if runs.count("quick") == 3:
            thrice.set()

    async def slow() -> None:
        runs.append("slow")

    timetable = Timetable()
    timetable.add("quick", lambda: 2, quick)
    timetable.add("slow", lambda: 60_000, slow)
    timetable.start()
    async with asyncio.timeout(30):
        await thrice.wait()
    await timetable.stop()
    assert "slow" not in runs


async def test_a_job_that_fails_comes_again() -> None:
    failures = 0
    twice = asyncio.Event()

    async def broken() -> None:
        nonlocal failures
        failures += 1
        if failures == 2:
            twice.set()
        raise RuntimeError("not today")

    timetable = Timetable()
    timetable.add("broken", lambda: 1, broken)
    timetable.start()
    async with asyncio.timeout(30):
        await twice.wait()
    await timetable.stop()


async def test_stopping_waits_for_the_job_that_runs() -> None:
    started = asyncio.Event()
    finished = False

    async def work() -> None:
        nonlocal finished
        started.set()
        await asyncio.sleep(0.02)
        finished = True

    timetable = Timetable()
    timetable.add("work", lambda: 0, work)
    timetable.start()
    await started.wait()
    await timetable.stop()
    assert finished


async def test_a_slow_job_does_not_keep_others_waiting() -> None:
    others = asyncio.Event()
    release = asyncio.Event()

    async def quick() -> None:
        others.set()

    timetable = Timetable()
    timetable.add("slow", lambda: 0, lambda: release.wait())
    timetable.add("quick", lambda: 5, quick)
    timetable.start()
    async with asyncio.timeout(30):
        await others.wait()
    release.set()
    await timetable.stop()


async def test_a_job_in_a_hurry_runs_soon_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levada.engine.embedded.housekeeping.HURRY_S", 0.005)
    runs = 0
    ran = asyncio.Event()

    async def work() -> None:
        nonlocal runs
        runs += 1
        ran.set()

    timetable = Timetable()
    job = timetable.add("work", lambda: 60_000, work)
    timetable.start()
    await asyncio.sleep(0)
    for _ in range(10):
        job.hurry()
    async with asyncio.timeout(30):
        await ran.wait()
    await asyncio.sleep(0.02)
    await timetable.stop()
    assert runs == 1


async def test_a_timetable_that_was_never_started_stops() -> None:
    await Timetable().stop()
