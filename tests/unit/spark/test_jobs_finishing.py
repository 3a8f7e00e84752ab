"""A target keeps everything until the job is finished; afterwards nothing more is done in it."""

from __future__ import annotations

import pytest

from levada.errors import InvalidRequest
from levada.spark.jobs.ledger import Step
from levada.spark.jobs.repartition import refuse_more
from levada.spark.jobs.topics import HELD, Topic, is_held


def topic(**settings: str) -> Topic:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Topic("orders.v6", None, 6, "murmur2", "round_robin", {**HELD, "levada.router": "murmur2", **named}, {})  # type: ignore[arg-type]


def step(verified: int) -> Step:
    return Step(3, {0: 8, 1: 5}, {0: 8, 1: 5}, {0: (0, 4, 8), 1: (0, 5, 5)}, {}, verified=verified)


def test_a_target_is_held_only_while_nothing_can_be_removed_from_it() -> None:
    assert is_held(topic())
    assert not is_held(topic(cleanup_policy="compact"))
    assert not is_held(topic(retention_ms="604800000"))
    assert not is_held(topic(retention_bytes="1000"))


def test_on_apache_kafka_its_own_settings_count() -> None:
    settings = {name: value for name, value in HELD.items() if not name.startswith("levada.")}
    assert is_held(topic()._replace(settings=settings))
    assert not is_held(topic()._replace(settings={**settings, "cleanup.policy": "compact"}))


def test_what_was_compared_is_counted_by_passes() -> None:
    assert (step(1).verified_ends, step(1).is_verified) == ({0: 4, 1: 5}, False)
    assert (step(2).verified_ends, step(2).is_verified) == ({0: 8, 1: 5}, True)
    assert step(0).verified_ends == step(0).begins == {0: 0, 1: 0}


def test_finished_and_nothing_has_come() -> None:
    refuse_more("orders", "orders.v6", step(2), {0: 8, 1: 5})


def test_what_comes_after_the_end_is_not_copied_and_the_way_to_take_it_over_is_named() -> None:
    with pytest.raises(
        InvalidRequest, match=r"3 records came to orders since; .* replay orders orders.v6 --from"
    ) as told:
        refuse_more("orders", "orders.v6", step(2), {0: 9, 1: 5, 2: 2})
    assert """--from '{"0": 8, "1": 5, "2": 0}' --keep-timestamps""" in str(told.value)


def test_a_target_that_could_lose_records_before_it_was_whole_is_not_gone_on_with() -> None:
    with pytest.raises(InvalidRequest, match="not whole, and somebody has changed settings"):
        refuse_more("orders", "orders.v6", step(1), {0: 8, 1: 5})
