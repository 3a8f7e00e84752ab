"""What all commands that run Spark share."""

from __future__ import annotations

import pytest

from levada.cli import EXIT_INTERRUPTED, exit_code
from levada.cli.spark import Interrupted, interruption_told
from levada.errors import UnknownTopic


def test_an_interruption_is_told_in_the_words_of_its_command() -> None:
    with pytest.raises((Interrupted, KeyboardInterrupt)) as raised, interruption_told("interrupted; run it again"):
        raise KeyboardInterrupt
    assert isinstance(raised.value, Interrupted)
    assert str(raised.value) == "interrupted; run it again"
    assert raised.value.__suppress_context__, "nobody wants to see where it was"


def test_nothing_else_is_taken_for_one() -> None:
    with interruption_told("interrupted"):
        pass
    with pytest.raises(UnknownTopic), interruption_told("interrupted"):
        raise UnknownTopic


def test_the_shell_is_told_of_it() -> None:
    assert exit_code(Interrupted("interrupted")) == EXIT_INTERRUPTED == 130
