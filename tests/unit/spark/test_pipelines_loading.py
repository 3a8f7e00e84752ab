"""Files of pipelines: what they declare, and what is said of those that cannot be loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from levada.spark import declared
from levada.spark.pipelines.errors import NeedsSession, NoPipelines, WrongFile
from levada.spark.pipelines.loading import check_names

GOOD = """
from levada.spark import lake, pipeline, topic

@pipeline(source=topic("orders"), sink=[topic("revenue"), lake("revenue")])
def revenue(orders):
    return orders
"""


def write(directory: Path, text: str, name: str = "file.py") -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(WrongFile) as refused:
        declared(path)
    assert str(path) in str(refused.value)
    return str(refused.value).replace(str(path), "FILE")


def test_a_files_pipelines_come_in_its_order(tmp_path):
    path = write(tmp_path, GOOD + GOOD.replace("def revenue", "def another"))
    assert [(one.name, one.line) for one in declared(path)] == [("revenue", 4), ("another", 10)]


def test_the_example_is_a_pipeline():
    (one,) = declared(Path(__file__).parents[3] / "examples" / "orders.py")
    assert (one.name, [sink.id for sink in one.sinks]) == ("revenue", ["revenue", "revenue"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def (", "FILE, line 1: SyntaxError: "),
        ("import levada\n\nprint(unknown)", "FILE, line 3: NameError: name 'unknown' is not defined"),
        ("import no_such_module", "FILE, line 1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("x = 1", "FILE: declares no pipeline"),
        (GOOD.replace('topic("orders")', 'topic("orders", format="jsn")'), "FILE, line 4: pipeline 'revenue': valueFormat: 'jsn'"),
        (GOOD.replace('[topic("revenue"), lake("revenue")]', "[]"), "FILE, line 4: pipeline 'revenue': it has no sinks"),
        (GOOD.replace("topic(", "topik(", 1), "FILE, line 4: NameError"),
        (GOOD.replace('topic("orders")', 'topic("orders", watermarks=1)'), "FILE, line 4: TypeError: "),
        (GOOD + GOOD, "FILE, line 10: there is a pipeline 'revenue' already: line 4"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_its_line(tmp_path, text, said):
    assert refusal(write(tmp_path, text)).startswith(said)


def test_an_error_in_a_helper_names_the_line_that_imports_it(tmp_path):
    write(tmp_path, "x = 1 / 0", "helping.py")
    assert refusal(write(tmp_path, "\nimport helping")).startswith("FILE, line 2: ZeroDivisionError")


def test_files_that_are_not_there(tmp_path):
    assert "no such file" in refusal(tmp_path / "none.py")
    assert "is not a file" in refusal(tmp_path)


def test_a_file_without_pipelines_is_told_from_one_that_cannot_be_loaded(tmp_path):
    with pytest.raises(NoPipelines):
        declared(write(tmp_path, "x = 1"))


def test_a_file_that_uses_spark_while_it_is_loaded_says_so(tmp_path):
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        pytest.skip("a session runs in this process")
    path = write(tmp_path, "from pyspark.sql import functions as F\n\nLARGE = F.col('amount') > 10\n")
    with pytest.raises(NeedsSession, match=r"file\.py, line 3"):
        declared(path)


def test_pipelines_of_a_module_that_is_imported_are_not_the_files_own(tmp_path):
    write(tmp_path, GOOD, "others.py")
    path = write(tmp_path, GOOD.replace("def revenue", "def own") + "import others")
    assert [one.name for one in declared(path)] == ["own"]


def test_a_name_twice_in_two_files_is_refused(tmp_path):
    both = [one for name in ("a.py", "b.py") for one in declared(write(tmp_path, GOOD, name))]
    with pytest.raises(WrongFile, match=r"b\.py, line 4: there is a pipeline 'revenue' already: .*a\.py, line 4"):
        check_names(both)


def test_a_changed_file_and_a_changed_helper_are_read_anew(tmp_path):
    path = write(tmp_path, GOOD.replace("return orders", "return helping.answer()") + "\nimport helping")
    for answer in (1, 2):
        write(tmp_path, f"def answer():\n    return {answer}", "helping.py")
        assert declared(path)[0](None) == answer


def test_two_directories_may_have_helpers_of_one_name(tmp_path):
    loaded = []
    for name in ("one", "two"):
        write(tmp_path / name, f"NAME = {name!r}", "helping.py")
        path = write(tmp_path / name, GOOD.replace("return orders", "return helping.NAME") + "\nimport helping")
        loaded += declared(path)
    assert [one(None) for one in loaded] == ["one", "two"]


def test_nothing_of_a_file_stays_behind(tmp_path):
    write(tmp_path, "", "helping.py")
    modules, path = set(sys.modules), list(sys.path)
    declared(write(tmp_path, GOOD + "import helping"))
    assert (set(sys.modules), sys.path) == (modules, path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file.py", "helping.py"]


def test_a_file_that_fails_leaves_nothing_behind_either(tmp_path):
    write(tmp_path, "", "helping.py")
    modules, path = set(sys.modules), list(sys.path)
    refusal(write(tmp_path, "import helping\n1 / 0"))
    assert (set(sys.modules), sys.path) == (modules, path)


def test_a_file_named_like_a_module_does_not_take_its_place(tmp_path):
    import json

    write(tmp_path, GOOD, "json.py")
    declared(tmp_path / "json.py")
    assert sys.modules["json"] is json


def test_a_test_suites_own_copy_of_a_helper_is_left_alone(tmp_path, monkeypatch):
    write(tmp_path, "NAME = 'mine'", "helping_here.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    import helping_here

    declared(write(tmp_path, GOOD + "import helping_here"))
    assert sys.modules["helping_here"] is helping_here


HELPED = """
import helping
import package.inner
from helping import Money, doubled
from levada.spark import pipeline, topic

RATE = 3

def work(x):
    return doubled(x) * RATE + helping.one() + package.inner.two() + Money(4).amount

@pipeline(source=topic("a"), sink=topic("b"))
def any(a):
    return work
"""


def test_functions_reach_a_process_that_has_neither_the_file_nor_its_helpers(tmp_path):
    """T5: what goes to executors goes by value."""
    write(
        tmp_path / "code",
        "from dataclasses import dataclass\n\ndef doubled(x):\n    return 2 * x\n\ndef one():\n    return 1\n\n"
        "@dataclass\nclass Money:\n    amount: int\n",
        "helping.py",
    )
    write(tmp_path / "code", "", "package/__init__.py")
    write(tmp_path / "code", "def two():\n    return 2\n", "package/inner.py")
    (one,) = declared(write(tmp_path / "code", HELPED))
    pickled = tmp_path / "function"
    pickled.write_bytes(cloudpickle.dumps(one(None)))
    (tmp_path / "code").rename(tmp_path / "elsewhere")
    program = f"import pickle; print(pickle.load(open({str(pickled)!r}, 'rb'))(10))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd="/")
    assert (said.stdout.strip(), said.stderr) == (str(2 * 10 * 3 + 1 + 2 + 4), "")
