"""What stands in __levada.pipelines, and what a person is told of it."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levada.cli.pipeline_told import as_dict, described, duration, no_runner, rows, shown_state
from levada.errors import TimedOut
from levada.records.build import build
from levada.spark.runner import board as boards
from levada.spark.runner.board import ABSENT_AFTER_MS, Board, Ledger
from levada.spark.runner.records import Actual, RunnerSeen, State, Wanted, decoded, encoded
from levada.wire.answers import EARLIEST, TopicPartition
from levada.wire.fetch import Fetched


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def actual(**fields: object) -> Actual:
    return Actual(**{"state": State.RUNNING, "since_ms": now_ms() - 5_000, **fields})  # type: ignore[arg-type]


def runner(**fields: object) -> RunnerSeen:
    given = {"id": "r1", "host": "h1", "pid": 7, "since_ms": 1, "seen_ms": now_ms(), "pipelines": "/srv/p", **fields}
    return RunnerSeen(**given)  # type: ignore[arg-type]


def ledger(*, seen: RunnerSeen | None = None, wanted: dict[str, Wanted] | None = None, **pipelines: Actual) -> Ledger:
    made = Ledger()
    if seen is not None:
        made.take(b"runner", encoded(seen))
    for name, one in pipelines.items():
        made.take(f"actual/{name}".encode(), encoded(one))
    for name, wish in (wanted or {}).items():
        made.take(f"wanted/{name}".encode(), encoded(wish))
    return made


@given(run=st.booleans(), epoch=st.integers(0, 2**31), asked=st.integers(0, 2**31), by=st.text(max_size=20))
def test_wishes_come_back_as_they_were(run: bool, epoch: int, asked: int, by: str) -> None:
    wish = Wanted(run=run, epoch=epoch, asked=asked, at_ms=17, by=by)
    assert decoded(Wanted, encoded(wish)) == wish


def test_states_come_back_as_they_were() -> None:
    one = actual(cause="boom", progress={"rows_s": 1.5, "lost": ["offsets 0 to 9"]}, sources=[{"topic": "é"}])
    assert decoded(Actual, encoded(one)) == one


def test_fields_of_a_newer_version_are_passed_over() -> None:
    assert decoded(Wanted, b'{"run": false, "mood": "good"}') == Wanted(run=False)


@pytest.mark.parametrize("value", [b"", b"[]", b"7", b"{", b'{"state": "dancing", "since_ms": 1}', b"{}"])
def test_what_nobody_of_us_wrote_is_passed_over(value: bytes) -> None:
    made = ledger(a=actual())
    made.take(b"actual/a", value)
    made.take(b"runner", value)
    made.take(None, value)
    made.take(b"\xff", value)
    assert made.actual["a"].state is State.RUNNING and made.runner is None


def test_a_record_without_a_value_takes_its_key_away() -> None:
    made = ledger(seen=runner(), wanted={"a": Wanted()}, a=actual())
    for key in (b"actual/a", b"wanted/a", b"runner", b"actual/never"):
        made.take(key, None)
    assert (made.actual, made.wanted, made.runner) == ({}, {}, None)


def test_a_runner_is_up_while_it_gives_signs_of_life() -> None:
    now = now_ms()
    assert ledger(seen=runner(seen_ms=now)).is_attended(now + ABSENT_AFTER_MS - 1)
    assert not ledger(seen=runner(seen_ms=now)).is_attended(now + ABSENT_AFTER_MS)
    assert not ledger(seen=runner(left_ms=now)).is_attended(now)
    assert not ledger().is_attended(now)


def test_without_a_runner_nothing_is_told_as_running() -> None:
    there, gone = ledger(seen=runner(), a=actual()), ledger(seen=runner(seen_ms=now_ms() - 60_000), a=actual())
    assert shown_state(there.actual["a"], there) is State.RUNNING
    assert shown_state(gone.actual["a"], gone) is State.WAITING
    stopped = ledger(a=actual(state=State.STOPPED))
    assert shown_state(stopped.actual["a"], stopped) is State.STOPPED
    assert as_dict(gone)["pipelines"][0]["state"] == "waiting" and as_dict(gone)["runner"]["up"] is False


def test_that_there_is_no_runner_is_said_with_how_to_start_one() -> None:
    assert no_runner(ledger(seen=runner())) == ""
    assert no_runner(ledger()).startswith("No runner has been seen yet: `levada runner")
    said = no_runner(ledger(seen=runner(seen_ms=now_ms() - 300_000)))
    assert said.startswith("No runner has been seen since ") and "5 min ago (process 7 on h1)" in said
    assert "`levada runner --pipelines /srv/p` starts one" in said
    assert "was stopped 2 min ago" in no_runner(ledger(seen=runner(left_ms=now_ms() - 120_000)))


def test_a_pipeline_is_listed_with_its_figures_and_its_trouble() -> None:
    good = actual(progress={"rows_s": 1234.4, "lag": 7, "batch": 3, "lost": []})
    bad = actual(state=State.FAILED, cause="boom", next_try_ms=now_ms() + 8_400, progress={"batch": -1})
    made = rows(ledger(seen=runner(), good=good, bad=bad))
    assert made[0] == ("bad", "failed", None, None, None, "5 s", "boom; next try in 8 s")
    assert made[1] == ("good", "running", 1234, 7, 3, "5 s", "")


def test_all_that_is_known_of_a_pipeline_is_told() -> None:
    one = actual(
        state=State.FAILED,
        cause="boom",
        failures=3,
        next_try_ms=now_ms() + 4_400,
        note="its file was changed",
        file="/srv/p/a.py",
        version="v1",
        epoch=2,
        checkpoint="/home/a",
        sources=[{"topic": "orders", "starting": "earliest"}],
        sinks=[{"topic": "copies"}, {"table": "/lake/copies"}],
        progress={
            "batch": 4,
            "rows": 10,
            "batch_ms": 200,
            "rows_s": 50.0,
            "rows_total": 99,
            "lag": None,
            "lost": ["l1"],
        },
    )
    made = ledger(seen=runner(), wanted={"a": Wanted(run=True, by="ann@h1", at_ms=now_ms() - 3_000)}, a=one)
    told = dict(described("a", one, made))
    assert told["state"] == "failed for 5 s" and told["wanted"] == "running, by ann@h1 3 s ago"
    assert told["failed"] == "boom, 3 times in a row" and told["next try"] == "in 4 s"
    assert told["reads"] == "orders from earliest" and told["writes"] == "topic copies, table /lake/copies"
    assert told["lag"] == "not known" and told["lost"] == "l1" and told["checkpoint"] == "/home/a, epoch 2"
    assert json.loads(json.dumps(as_dict(made)))["pipelines"][0]["wanted"]["run"] is True


def test_durations_are_told_in_the_unit_that_says_most() -> None:
    assert [duration(one) for one in (0, 1.4, 119, 120, 7_199, 7_200, 200_000)] == [
        "0 s", "1 s", "119 s", "2 min", "119 min", "2 h", "2 d",
    ]  # fmt: skip


class Faltering:
    """A client of a broker whose fetches are empty for as many times as is said, though it told where the log ends."""

    def __init__(self, *names: str, empty: int = 0, stable: int = -1) -> None:
        self.empty, self.stable = empty, stable
        self.positions: list[int] = []
        self.end = 0
        self._log: list[bytes] = []
        self.add(*names)

    def add(self, *names: str) -> None:
        for name in names:
            record = (f"wanted/{name}".encode(), encoded(Wanted(run=False)))
            self._log.append(bytes(build([record], base_offset=self.end, timestamp_ms=1)))
            self.end += 1

    def list_offsets(self, places: dict[TopicPartition, int], **_: Any) -> dict[TopicPartition, Any]:
        return {at: SimpleNamespace(offset=0 if when == EARLIEST else self.end) for at, when in places.items()}

    def fetch(self, positions: dict[TopicPartition, int], **_: Any) -> dict[TopicPartition, Fetched]:
        [(at, position)] = positions.items()
        self.positions.append(position)
        if self.empty:
            self.empty -= 1
            return {at: Fetched(0, last_stable_offset=self.stable)}
        return {at: Fetched(0, last_stable_offset=self.end, records=b"".join(self._log[position:]), aborted=[])}


def board(client: Any) -> Board:
    return Board(client)


def test_a_fetch_without_records_leaves_no_wish_behind() -> None:
    """A broker that has just come to lead the partition may know less for a moment than the end it told."""
    client = Faltering("a", "b", empty=3, stable=1)
    read = board(client)
    assert list(read.read().wanted) == ["a", "b"]
    assert client.positions == [0, 0, 0, 0]
    client.add("c")
    client.empty = 2
    assert list(read.read().wanted) == ["a", "b", "c"]


def test_a_broker_that_does_not_tell_all_is_not_taken_at_its_word_and_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(boards, "_PATIENCE_S", 0.0)
    client = Faltering("a", empty=1000)
    read = board(client)
    with pytest.raises(TimedOut, match=r"ends at offset 1, and .* nothing comes from offset 0 on"):
        read.read()
    client.empty = 0
    assert list(read.read().wanted) == ["a"]


def test_the_end_of_a_log_that_compaction_emptied_is_reached() -> None:
    client = Faltering("a", empty=1, stable=1)
    read = board(client)
    assert read.read().wanted == {}
    client.add("b")
    assert list(read.read().wanted) == ["b"]
