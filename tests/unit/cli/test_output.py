from __future__ import annotations

import pytest

from levada.cli import output
from levada.cli.output import print_pairs, print_table


def test_numbers_stand_to_the_right_and_nothing_ends_in_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "partitions"), [("a", 4), ("longer", 1200), ("none", None)], empty="")
    assert capsys.readouterr().out == (
        "topic   partitions\n"
        "a                4\n"
        "longer       1,200\n"
        "none             -\n"
    )  # fmt: skip


def test_where_there_is_nothing_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic",), [], empty="no topics yet")
    assert capsys.readouterr().out == "no topics yet\n"


def test_on_a_terminal_the_widest_column_is_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output.sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "24")
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(("name", "number"), [("x" * 30, 7)], empty="")
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 24 for line in lines)
    assert lines[1:] == ["x" * 16 + "       7", "x" * 14]


def test_pairs_stand_beside_one_another(capsys: pytest.CaptureFixture[str]) -> None:
    print_pairs([("a", "1"), ("longer", "2")])
    assert capsys.readouterr().out == "a       1\nlonger  2\n"
