"""What is committed for groups: places only ahead of where they stand."""

from __future__ import annotations

from levada.spark.jobs.translation import Translated, advanced


def test_nobody_is_sent_back() -> None:
    places = [Translated("a", 0, 5, 0), Translated("a", 1, 7, 2), Translated("b", 0, 0, 0)]
    assert advanced(places, {"a": {0: 9, 1: 3}}) == {"a": {1: 7}, "b": {0: 0}}


def test_the_second_time_there_is_nothing_to_commit() -> None:
    places = [Translated("a", 0, 5, 0), Translated("b", 0, 0, 0)]
    standing: dict[str, dict[int, int]] = {}
    for group, moved in advanced(places, standing).items():
        standing[group] = dict(moved)
    assert advanced(places, standing) == {}
