"""How a pipeline is doing, out of Spark's reports; and what is said of a failure."""

from __future__ import annotations

import pytest
from pyspark.errors import SparkRuntimeException

from levada.errors import UnknownTopic
from levada.spark.pipelines.errors import TooBusy
from levada.spark.pipelines.failures import cause, failed, java_cause, place, python_cause
from levada.spark.pipelines.progress import Progresses, behind


def report(batch, rows=0, *, end=None, late=0, state=(), watermark=None):
    return {
        "batchId": batch,
        "numInputRows": rows,
        "processedRowsPerSecond": rows * 2.0,
        "durationMs": {"addBatch": 400, "latestOffset": 10, "triggerExecution": 500},
        "eventTime": {"watermark": watermark} if watermark else {},
        "stateOperators": [
            {"numRowsTotal": total, "memoryUsedBytes": size, "numRowsDroppedByWatermark": late} for total, size in state
        ],
        "sources": [{"endOffset": end}],
    }


def test_nothing_yet():
    assert Progresses().progress(lag=7).as_json()["batch"] == -1
    assert Progresses().progress(lag=7).lag == 7


def test_reports_add_up_and_are_counted_once():
    all_of_them = Progresses()
    all_of_them.add([report(0, 10, late=1, state=[(5, 100)]), report(1, 20, late=2, state=[(6, 200), (1, 1)])])
    all_of_them.add([report(1, 20, late=2, state=[(6, 200), (1, 1)])])
    found = all_of_them.progress()
    assert (found.batch, found.rows, found.rows_total, found.late_rows) == (1, 20, 30, 5)
    assert (found.rows_s, found.batch_ms, found.state_rows, found.state_bytes) == (40.0, 500, 7, 201)


def test_a_batch_without_rows_does_not_hide_the_rate_of_the_last_with_some():
    all_of_them = Progresses()
    all_of_them.add([report(0, 10), report(1, 0, state=[(0, 0)], watermark="2026-01-01T00:00:00.000Z")])
    found = all_of_them.progress()
    assert (found.batch, found.rows, found.rows_total, found.watermark) == (1, 0, 10, "2026-01-01T00:00:00.000Z")
    assert found.rows_s > 0


def test_an_idle_report_is_not_the_batch_whose_number_it_has():
    """Spark gives it the number of the next one."""
    idle = {**report(0, end={"to": {"a": {"0": 5}}}), "durationMs": {"latestOffset": 8, "triggerExecution": 14}}
    all_of_them = Progresses()
    all_of_them.add([idle])
    assert all_of_them.progress().batch == -1
    assert all_of_them.positions == {("a", 0): 5}
    all_of_them.add([idle, report(0, 10, end={"to": {"a": {"0": 15}}})])
    found = all_of_them.progress()
    assert (found.batch, found.rows, found.rows_total) == (0, 10, 10)
    assert all_of_them.positions == {("a", 0): 15}


def test_positions_come_from_the_ends_of_batches_and_stay_where_a_batch_says_nothing():
    all_of_them = Progresses()
    all_of_them.add([report(0, 1, end='{"to": {"a": {"0": 5, "1": 7}}, "from": {"a": {"0": 0}}, "ids": {}}')])
    all_of_them.add([report(1, 1, end={"to": {"a": {"0": 6}}}), report(2, 0, end=None)])
    assert all_of_them.positions == {("a", 0): 6, ("a", 1): 7}


def test_what_was_lost_is_told():
    lost = '{"to": {"a": {"0": 9}}, "lost": [{"topic": "a", "partition": 0, "start": 0, "end": 4, "why": "deleted"}]}'
    all_of_them = Progresses()
    all_of_them.add([report(0, 5, end=lost), report(1, 5, end='{"to": {"a": {"0": 14}}}')])
    assert all_of_them.progress().lost == ("offsets 0 to 3 of a-0: deleted",)


def test_lag_is_what_lies_between_and_never_negative():
    assert behind({("a", 0): 10, ("a", 1): 5, ("a", 2): 3}, {("a", 0): 4, ("a", 1): 6}) == 6


WORKER = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (host executor driver): org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/pyspark/worker.py", line 100, in main
    process()
  File "/home/me/pipelines/orders.py", line 12, in parse
    return 1 / x
           ~~^~~
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def test_of_a_trace_the_cause_and_the_line_are_told():
    assert (
        python_cause(WORKER) == "ZeroDivisionError: division by zero (/home/me/pipelines/orders.py, line 12, in parse)"
    )


def test_of_our_own_errors_the_sentence_is_enough():
    text = WORKER.replace(
        "ZeroDivisionError: division by zero",
        "levada.spark.formats.formatter.BadRecord: the record at offset 7 of orders-0 cannot be read",
    )
    assert python_cause(text) == "the record at offset 7 of orders-0 cannot be read"


def test_an_error_without_a_message_is_told_by_its_name():
    text = WORKER.replace("ZeroDivisionError: division by zero", "AssertionError")
    assert python_cause(text) == "AssertionError (/home/me/pipelines/orders.py, line 12, in parse)"


def test_a_message_of_several_lines_is_told_whole():
    text = WORKER.replace("division by zero", "one\ntwo")
    assert python_cause(text).startswith("ZeroDivisionError: one\ntwo (")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", "[DIVIDE_BY_ZERO] Division by zero."),
        ("java.lang.RuntimeException: no\n\tat x.y(z)", "no"),
        ("", "Spark does not say why"),
        ("\tat x.y(z)", "Spark does not say why"),
    ],
)  # fmt: skip
def test_of_java_what_it_says_without_its_wrapping(text, said):
    assert java_cause(text) == said


def test_where_in_a_file_it_was():
    try:
        int("x")
    except ValueError as error:
        assert place(error, __file__).startswith(f" ({__file__}, line ")
        assert place(error, "/another/file.py") == ""


def test_a_machine_that_is_too_busy_is_told_apart():
    slow = failed("pipeline 'x'", SparkRuntimeException("Python worker failed to connect back.\n\tat x.y(z)"), "x.py")
    assert isinstance(slow, TooBusy)
    assert "too busy" in str(slow)
    assert not isinstance(failed("pipeline 'x'", KeyError("y"), "x.py"), TooBusy)


def test_errors_of_python_itself():
    assert cause(UnknownTopic("there is no topic 'x'")) == "there is no topic 'x'"
    assert cause(KeyError("x")) == "KeyError: 'x'"
