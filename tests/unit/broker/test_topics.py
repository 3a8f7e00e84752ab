from __future__ import annotations

import pytest

from levada.broker.topics import (
    Creation,
    check_queue_name,
    check_user_topic,
    creation,
    dead_letter_topic,
)
from levada.errors import InvalidPartitions, InvalidTopicName, PartitionsCannotShrink, ReservedName


@pytest.mark.parametrize("name", ["", "x" * 250, ".", "..", "a/b", "a b", "ü", "a\n", "a\0b"])
def test_a_name_outside_the_rule_is_refused_naming_the_rule(name: str) -> None:
    with pytest.raises(InvalidTopicName, match=r"character|only \[A-Za-z0-9\._-\]|cannot be called"):
        check_user_topic(name)


@pytest.mark.parametrize("name", ["a.b_c-9", "x" * 249, "...", "-", "__mine", "dlq", "__levada"])
def test_a_name_within_the_rule_is_taken(name: str) -> None:
    check_user_topic(name)


@pytest.mark.parametrize("name", ["__levada.x", "dlq.x", "__consumer_offsets", "__transaction_state", "dlq."])
def test_the_broker_keeps_its_own_names(name: str) -> None:
    with pytest.raises(ReservedName, match="the broker's own"):
        check_user_topic(name)


def test_creating_again_never_takes_partitions_away() -> None:
    assert creation("t", None, 4) is Creation.NEW
    assert creation("t", 4, 4) is Creation.SAME
    assert creation("t", 4, 6) is Creation.EXPAND
    with pytest.raises(PartitionsCannotShrink, match="has 6 partitions"):
        creation("t", 6, 3)


@pytest.mark.parametrize("wanted", [0, -1, 100_001])
def test_a_topic_has_one_to_a_hundred_thousand_partitions(wanted: int) -> None:
    with pytest.raises(InvalidPartitions, match="1 to 100000"):
        creation("t", None, wanted)


def test_a_queue_leaves_room_for_the_name_of_its_dead_letters() -> None:
    check_queue_name("q" * 245)
    assert len(dead_letter_topic("q" * 245)) == 249
    with pytest.raises(InvalidTopicName, match="at most 245"):
        check_queue_name("q" * 246)
