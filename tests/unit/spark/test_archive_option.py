"""The option `history` of a read."""

from __future__ import annotations

from typing import Any

import pytest

from levada.spark.history import NoHistory, history_of
from levada.spark.options.reading import WrongOption
from levada.spark.options.source import SourceOptions


def option(value: str) -> str:
    return SourceOptions.of({"bootstrap": "127.0.0.1:9092", "subscribe": "t", "history": value}).history


@pytest.mark.parametrize("value", ["auto", "off", "/lake/t", "s3://bucket/t"])
def test_history_is_a_word_or_a_table(value: str) -> None:
    assert option(value) == value


def test_words_are_taken_in_any_case_and_auto_where_nothing_is_said() -> None:
    assert (option("OFF"), option("")) == ("off", "auto")


@pytest.mark.parametrize("value", ["lake/t", "on", "./t"])
def test_what_is_neither_is_refused_with_what_is_allowed(value: str) -> None:
    with pytest.raises(WrongOption, match=r"history: .* is not allowed; auto, off, an absolute path, or a URI"):
        option(value)


def test_a_table_is_of_one_topic() -> None:
    client: Any = None
    with pytest.raises(WrongOption, match="a table is of one topic, and a, b are read"):
        history_of(client, ["b", "a"], "/lake/a")
    assert isinstance(history_of(client, ["a"], "off"), NoHistory)
