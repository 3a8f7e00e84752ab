"""`levada demo`: everything at once, as a newcomer meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from datetime import timedelta
from pathlib import Path

import psutil

from levada.cli.demo import example
from levada.spark.demo.orders import OrderStream
from support.levada import COMMAND
from support.wait import wait_until


def test_each_order_is_in_the_ledger_once_and_nothing_is_later_than_the_pipeline_waits() -> None:
    stream, seen, sent = OrderStream(seed=1), set[str](), 0
    for minutes in range(1, 181):
        now = stream.opened + timedelta(minutes=minutes)
        for _, value in stream.until(now):
            sent += 1
            try:
                order = json.loads(value)
                seen.add(order["id"])
            except (ValueError, KeyError):
                continue
            if "at" in order:
                assert timedelta() <= now - stream.opened.fromisoformat(order["at"]) <= timedelta(minutes=21)
    assert sent == sum(stream.sent.values()) and min(stream.sent.values()) > 0
    ordered = sum(takings.orders for takings in stream.ledger.values())
    assert stream.sent["orders"] < ordered  # those that are late are in the ledger before they are sent


def test_the_same_seed_is_the_same_day() -> None:
    days = [list(OrderStream(seed=3).until(OrderStream(seed=3).opened + timedelta(minutes=10))) for _ in range(2)]
    assert days[0] == days[1]


def test_the_example_is_found() -> None:
    assert "def revenue" in example().read_text()


def test_what_comes_out_is_what_was_ordered_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
    demo = subprocess.Popen(
        [COMMAND, "demo", "--json"],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # Until a first row is in the table: a minute of the shops is final, and every part of it has worked.
        wait_until(
            lambda: demo.poll() is not None or list(tmp_path.glob("scratch/levada-demo-*/lake/revenue/**/*.parquet")),
            150,
            "no revenue in the table",
        )
        family = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(signal.SIGINT)
        out, err = demo.communicate(timeout=120)
    finally:
        demo.kill()
    assert demo.returncode == 0, err
    found = json.loads(out)
    assert found["wrong"] == [] and found["rows"] > 0
    assert found["rows"] == found["rows_in_table"]
    assert found["read"] > 0 and found["interrupted"]
    wait_until(lambda: not any(one.is_running() for one in family), 30, "processes of the demo live on")
    assert list((tmp_path / "scratch").glob("levada-*")) == []


def test_a_directory_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    done = subprocess.run([COMMAND, "demo", "--keep", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1 and "is not empty" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]
