"""`levada doctor` and the session's settings, on machines that have and have not what is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from levada.spark import doctor
from levada.spark.doctor import (
    Check,
    check_executor,
    check_java,
    check_packages,
    check_python,
    check_spark_home,
    fits,
)
from levada.spark.java import NoJava, java, version_of
from levada.spark.session import local_cores, settings


def a_java(directory: Path, says: str) -> Path:
    """A program that says to be this Java."""
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    path.chmod(0o755)
    return path


def test_java_is_javas_home_then_the_path(tmp_path):
    home = a_java(tmp_path / "home", 'openjdk version "21.0.1" 2023-10-17')
    path = a_java(tmp_path / "path", 'openjdk version "17.0.9" 2023-10-17')
    both = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}
    assert java(both) == (str(home), "21.0.1", 21)
    assert java({"PATH": str(path.parent)}).major == 17


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"PATH": ""}, "neither JAVA_HOME nor the path has one"),
        ({"JAVA_HOME": "/no/such/java"}, "JAVA_HOME says so"),
    ],
)
def test_without_java_it_is_said_what_to_do(environment, said):
    with pytest.raises(NoJava) as refused:
        java(environment)
    assert said in str(refused.value)
    assert "openjdk" in str(refused.value)
    found = check_java(environment)
    assert not found.ok
    assert said in found.found
    assert "JAVA_HOME" in found.to_do


def test_an_old_java_is_refused_by_its_number(tmp_path):
    a_java(tmp_path, 'java version "1.8.0_292"')
    with pytest.raises(NoJava, match=r"is Java 1\.8\.0_292; Spark needs 17"):
        java({"JAVA_HOME": str(tmp_path)})
    a_java(tmp_path / "silent", "hello")
    with pytest.raises(NoJava, match="does not say its version"):
        java({"JAVA_HOME": str(tmp_path / "silent")})


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ('openjdk version "17.0.2" 2022-01-18', ("17.0.2", 17)),
        ('openjdk version "25" 2025-09-16', ("25", 25)),
        ('java version "1.8.0_292"', ("1.8.0_292", 8)),
        ("nonsense", None),
    ],
)
def test_versions_of_java(said, found):
    assert version_of(said) == found


@pytest.mark.parametrize(
    ("version", "versions", "does"),
    [
        ("4.3.0", ">=4.3,<4.4", True),
        ("4.3", ">=4.3,<4.4", True),
        ("4.4.0", ">=4.3,<4.4", False),
        ("4.2.9", "<4.4,>=4.3", False),
        ("2.3.3", "<3,>=2.2", True),
        ("3.0.0rc1", "<3,>=2.2", False),
        ("18", ">=18", True),
        ("17.9", ">=18.0.0", False),
        ("1.2.3", "==1.2", True),
        ("1.3", "==1.2", False),
        ("9", "", True),
    ],
)
def test_whether_a_version_fits(version, versions, does):
    assert fits(version, versions) is does


def test_what_is_needed_is_what_the_extra_asks_for():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    asked = [f"{name}{versions}" for name, versions in doctor.NEEDED.items()]
    assert sorted(asked) == sorted(project["optional-dependencies"]["spark"])


def test_packages_that_are_missing_or_of_the_wrong_version():
    has = {"pyspark": "3.5.0", "pyarrow": "26.0"}
    found = list(check_packages({"pandas": "<3", "pyarrow": ">=18", "pyspark": ">=4.3,<4.4"}, has.get))
    assert [(one.name, one.ok) for one in found] == [("pandas", False), ("pyarrow", True), ("pyspark", False)]
    assert found[2].found == "3.5.0; >=4.3,<4.4 is needed"
    assert found[0].to_do == "pip install 'levada[spark]'"


def test_the_executors_python_must_be_able_to_do_it(tmp_path):
    assert check_python({}).ok
    assert check_python({"PYSPARK_PYTHON": sys.executable}).ok
    assert "cannot be run" in check_python({"PYSPARK_PYTHON": str(tmp_path / "none")}).found
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    assert check_python({"PYSPARK_PYTHON": str(bare)}).found.endswith("has no levada")
    bare.write_text("#!/bin/sh\necho 3.1.0\n")
    assert "is Python 3.1.0" in check_python({"PYSPARK_PYTHON": str(bare)}).found


def test_another_sparks_home_is_told(tmp_path):
    import pyspark

    assert list(check_spark_home({})) == []
    assert [one.ok for one in check_spark_home({"SPARK_HOME": str(Path(pyspark.__file__).parent)})] == [True]
    assert [one.ok for one in check_spark_home({"SPARK_HOME": str(tmp_path)})] == [False]


def test_an_executor_without_packages_is_told_what_to_install():
    seen = {"python": "3.12.1", "executable": "/usr/bin/python3", "packages": {"levada": None, "pyarrow": "9.0"}}
    found = check_executor("w1", seen, {"pyarrow": ">=18"})
    assert not found.ok
    assert "no levada, pyarrow 9.0 (>=18 is needed)" in found.found
    assert "/usr/bin/python3 -m pip install 'levada[spark]'" in found.to_do
    seen["packages"] = {"levada": "0.1.0", "pyarrow": "26"}
    assert check_executor("w1", seen, {"pyarrow": ">=18"}).ok


def test_a_broker_that_is_there_and_one_that_is_not(levada_broker):
    assert doctor.check_broker(levada_broker.bootstrap).ok
    found = doctor.check_broker("127.0.0.1:1")
    assert not found.ok
    assert "levada up" in found.to_do


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "levada", "doctor", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_the_command_says_what_is_wrong_and_ends_with_1(levada_broker):
    said = run("--bootstrap", levada_broker.bootstrap, "--json", JAVA_HOME="/no/such/java")
    found = json.loads(said.stdout)
    assert (said.returncode, found["ok"]) == (1, False)
    wrong = [Check(**one) for one in found["checks"] if not one["ok"]]
    assert [one.name for one in wrong] == ["Java"]


def test_the_command_says_that_all_is_well(levada_broker, tmp_path):
    a_java(tmp_path, 'openjdk version "17.0.9"')
    said = run("--bootstrap", levada_broker.bootstrap, JAVA_HOME=str(tmp_path))
    assert said.returncode == 0, said.stdout
    assert "✓ Java" in said.stdout
    assert "✗" not in said.stdout


def test_without_java_executors_are_not_asked(levada_broker):
    said = run("--bootstrap", levada_broker.bootstrap, "--master", "local[1]", JAVA_HOME="/no/such/java")
    assert said.returncode == 1
    assert "✗ executors" in said.stdout


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[2,4]", 2),
        ("local[ 2, 4 ]", 2),
        ("spark://h:7077", None),
        ("localhost", None),
    ],
)
def test_cores_of_a_local_master(master, cores):
    assert local_cores(master) == cores
    assert settings(master).get("spark.sql.shuffle.partitions") == (str(cores) if cores else None)


def test_all_cores():
    assert local_cores("local[*]") == os.cpu_count()
