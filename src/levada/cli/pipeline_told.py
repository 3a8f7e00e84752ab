"""Pipelines of a runner for people: how they are, in words and figures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from levada.spark.runner.board import Ledger
    from levada.spark.runner.records import Actual, State


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def shown_state(actual: Actual, ledger: Ledger) -> State:
    """What its runner said last, unless that runner is gone: then it runs no more, whatever it said."""
    from levada.spark.runner.records import ATTENDED, State

    return State.WAITING if actual.state in ATTENDED and not ledger.is_attended(now_ms()) else actual.state


def no_runner(ledger: Ledger) -> str:
    """Where no runner is up, a sentence that says so."""
    seen = ledger.runner
    if ledger.is_attended(now_ms()):
        return ""
    if seen is None:
        return "No runner has been seen yet: `levada runner --pipelines DIR` starts one."
    start = f"`levada runner --pipelines {seen.pipelines or 'DIR'}` starts one"
    if seen.left_ms:
        return f"There is no runner: the last one ({seen}) was stopped {ago(seen.left_ms)} ago. {start}."
    return f"No runner has been seen since {clock(seen.seen_ms)}, {ago(seen.seen_ms)} ago ({seen}). {start}."


def clock(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


def ago(moment_ms: int) -> str:
    return duration((now_ms() - moment_ms) / 1000)


def duration(seconds: float) -> str:
    """In the one unit that says most."""
    whole = max(0, round(seconds))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if whole >= 2 * size:
            return f"{whole // size} {unit}"
    return f"{whole} s"


def why(actual: Actual) -> str:
    """What a person should know of it, in a line."""
    said = [actual.cause if is_told(actual) else f"failed before: {actual.cause}"] if actual.cause else []
    if actual.next_try_ms is not None:
        said.append(f"next try in {duration(max(0, actual.next_try_ms - now_ms()) / 1000)}")
    if lost := actual.progress.get("lost"):
        said.append(lost[-1])
    if actual.note:
        said.append(actual.note)
    return "; ".join(said)


def is_told(actual: Actual) -> bool:
    """Whether its cause is why it is as it is, and not why it failed before."""
    from levada.spark.runner.records import State

    return actual.state is State.FAILED


def rows(ledger: Ledger) -> list[tuple[Any, ...]]:
    """A line of `levada pipeline list` for each."""
    found = []
    for name, one in sorted(ledger.actual.items()):
        state = shown_state(one, ledger)
        runs = state == "running"
        rate, lag, batch = (one.progress.get(each) for each in ("rows_s", "lag", "batch"))
        found.append(
            (
                name,
                str(state),
                round(rate) if runs and rate is not None else None,
                lag,
                batch if batch is not None and batch >= 0 else None,
                ago(one.since_ms),
                why(one),
            )
        )
    return found


def as_dict(ledger: Ledger) -> dict[str, Any]:
    """For machines: the runner, and all pipelines with what is wanted of them."""
    from levada.spark.runner.records import Wanted

    pipelines = []
    for name, one in sorted(ledger.actual.items()):
        wish = ledger.wanted.get(name, Wanted())
        pipelines.append(
            {"pipeline": name, **asdict(one), "state": str(shown_state(one, ledger)), "wanted": asdict(wish)}
        )
    runner = None if ledger.runner is None else {**asdict(ledger.runner), "up": ledger.is_attended(now_ms())}
    return {"runner": runner, "pipelines": pipelines}


def described(name: str, actual: Actual, ledger: Ledger) -> Iterator[tuple[str, str]]:
    """All that is known of one, named."""
    wish = ledger.wanted.get(name)
    state = shown_state(actual, ledger)
    yield "pipeline", f"{name}{f': {actual.about}' if actual.about else ''}"
    yield "state", f"{state} for {ago(actual.since_ms)}"
    if wish is not None:
        yield "wanted", f"{'running' if wish.run else 'stopped'}, by {wish.by} {ago(wish.at_ms)} ago"
    if actual.cause:
        times = f", {actual.failures} times in a row" if actual.failures > 1 else ""
        yield "failed" if is_told(actual) else "failed before", f"{actual.cause}{times}"
    if actual.next_try_ms is not None:
        yield "next try", f"in {duration(max(0, actual.next_try_ms - now_ms()) / 1000)}"
    if actual.note:
        yield "note", actual.note
    yield from _flow(actual)
    yield from _figures(actual.progress)
    yield "file", f"{actual.file}{f' (version {actual.version})' if actual.version else ''}"
    if actual.checkpoint:
        yield "checkpoint", f"{actual.checkpoint}, epoch {actual.epoch}"


def _flow(actual: Actual) -> Iterator[tuple[str, str]]:
    if actual.sources:
        yield "reads", ", ".join(f"{one.get('topic')} from {one.get('starting')}" for one in actual.sources)
    if actual.sinks:
        yield "writes", ", ".join(sink_name(one) for one in actual.sinks)
    if actual.trigger:
        yield "trigger", actual.trigger


def sink_name(sink: dict[str, Any]) -> str:
    return f"table {sink['table']}" if "table" in sink else f"topic {sink.get('topic')}"


def _figures(progress: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if progress.get("batch", -1) < 0:
        return
    yield "batch", f"{progress['batch']:,}: {progress['rows']:,} rows in {progress['batch_ms']:,} ms"
    yield "rows/s", f"{progress['rows_s']:,.0f}; {progress['rows_total']:,} rows in this run"
    lag = progress.get("lag")
    yield "lag", "not known" if lag is None else f"{lag:,} records"
    if progress.get("state_rows"):
        yield "state rows", f"{progress['state_rows']:,}"
    if progress.get("late_rows"):
        yield "too late", f"{progress['late_rows']:,} rows left out"
    for one in progress.get("lost", ()):
        yield "lost", one
