"""What a command's Spark session makes of Java's words and of what goes wrong. There is no Spark."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException

from levada.cli.spark_session import SparkFailed, _kept, once_each, spark_session
from levada.errors import LevadaError, UnknownTopic

JAVA_SAYS = "org.apache.spark.SparkException: the disk is full\n\tat org.apache.spark.Some.where(Some.scala:1)"


class OddFailure(LevadaError):
    """It failed oddly."""


class Java:
    """Stands for Spark: says something to its log, and starts or fails to."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.says = "WARN this and that\n"
        self.failure: Exception | None = None
        self.log: Path | None = None
        self.settings: dict[str, str] = {}
        self.is_stopped = False

    def start(self, master: str, app: str, *, log: Path | None = None, **settings: str) -> Any:
        self.log, self.settings = log, settings
        if log is not None:
            log.write_text(self.says)
        if self.failure is not None:
            raise self.failure
        return self

    def stop(self) -> None:
        self.is_stopped = True

    @property
    def kept(self) -> Path:
        return self.place / "tmp" / f"levada-{os.getpid()}-spark.log"

    @property
    def sentence(self) -> str:
        return f"What Spark said is in {self.kept}; --verbose shows it."


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Java:
    found = Java(tmp_path)
    for name in ("scratch", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("levada.spark.scratch.scratch", lambda: tmp_path / "scratch")
    monkeypatch.setattr("levada.spark.session.session", found.start)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return found


def run(failing: BaseException | None = None, *, verbose: bool = False, failure: type[LevadaError] = OddFailure) -> Any:
    with spark_session("local[2]", "tests", verbose=verbose, failure=failure) as spark:
        if failing is not None:
            raise failing
        return spark


def test_only_what_has_changed_and_is_not_empty_is_told() -> None:
    heard: list[str] = []
    tell = once_each(heard.append)
    for text in ("", "no executor", "no executor", "", "", "no executor", "no worker", "no worker"):
        tell(text)
    assert heard == ["no executor", "no executor", "no worker"]


def test_each_teller_remembers_for_itself() -> None:
    heard: list[str] = []
    for tell in (once_each(heard.append), once_each(heard.append)):
        tell("no executor")
    assert heard == ["no executor"] * 2


def test_a_log_with_something_in_it_is_kept_where_temporary_files_are(java: Java) -> None:
    log = java.place / "scratch" / "spark.log"
    log.write_text("WARN this and that\n")
    assert _kept(log) == java.sentence
    assert java.kept.read_text() == "WARN this and that\n"
    assert not log.exists()


def test_a_log_without_a_word_is_not_kept(java: Java) -> None:
    log = java.place / "scratch" / "spark.log"
    assert _kept(None) == _kept(log) == ""
    log.touch()
    assert _kept(log) == ""
    assert not java.kept.exists()


def test_a_log_that_cannot_be_kept_is_not_spoken_of(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    log = java.place / "scratch" / "spark.log"
    log.write_text("WARN this and that\n")
    monkeypatch.setattr(tempfile, "tempdir", str(java.place / "none"))
    assert _kept(log) == ""


def test_where_all_goes_well_nothing_is_said_or_kept(java: Java, capfd: pytest.CaptureFixture[str]) -> None:
    assert run() is java
    assert java.is_stopped
    assert java.log == java.place / "scratch" / "spark.log"
    assert "spark.log.level" not in java.settings
    assert not java.kept.exists()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("error", [Py4JError(JAVA_SAYS), AnalysisException(JAVA_SAYS)])
def test_what_spark_fails_with_is_a_sentence_that_names_the_log(
    java: Java, error: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(OddFailure) as raised:
        run(error)
    assert str(raised.value) == f"the disk is full\n{java.sentence}"
    assert raised.value.__cause__ is error
    assert java.kept.read_text() == java.says
    assert java.is_stopped
    assert capfd.readouterr() == ("", "")


def test_so_it_is_where_spark_does_not_start(java: Java) -> None:
    java.failure = Py4JError(JAVA_SAYS)
    with pytest.raises(SparkFailed) as raised:
        run(failure=SparkFailed)
    assert str(raised.value) == f"the disk is full\n{java.sentence}"


def test_a_log_that_says_nothing_is_not_named(java: Java) -> None:
    java.says = ""
    with pytest.raises(OddFailure) as raised:
        run(Py4JError(JAVA_SAYS))
    assert str(raised.value) == "the disk is full"


def test_a_meaning_of_our_own_passes_as_it_is(java: Java) -> None:
    error = UnknownTopic("there is no topic 'orders'")
    with pytest.raises(UnknownTopic) as raised:
        run(error)
    assert raised.value is error
    assert java.is_stopped
    assert not java.kept.exists()


def test_what_is_neither_ours_nor_sparks_is_raised_again_beside_the_log(
    java: Java, capfd: pytest.CaptureFixture[str]
) -> None:
    error = ValueError("a bug")
    with pytest.raises(ValueError, match="a bug") as raised:
        run(error)
    assert raised.value is error
    assert capfd.readouterr().err == f"levada: {java.sentence}\n"


def test_an_interruption_keeps_nothing(java: Java, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(KeyboardInterrupt())
    assert java.is_stopped
    assert not java.kept.exists()
    assert capfd.readouterr() == ("", "")


def test_with_verbose_javas_words_and_the_whole_trace_are_shown(java: Java, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OddFailure) as raised:
        run(Py4JError(JAVA_SAYS), verbose=True)
    assert str(raised.value) == "the disk is full"
    assert (java.log, java.settings) == (None, {"spark.log.level": "WARN"})
    assert "Traceback" in (said := capfd.readouterr().err) and "\tat org.apache.spark.Some.where" in said
