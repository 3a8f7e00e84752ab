"""Which topics a user may have, and what creating one that exists means.

Names that begin with `__levada.` or `dlq.` are ours: users create none. Levada's own parts may use the internal topics
and `dlq.<existing topic>`. Creating again is the seeds' rule: the same number of partitions changes nothing, more are
added, fewer are refused. (Over the Kafka wire Kafka's answers hold instead, TOPIC_ALREADY_EXISTS among them.)
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from levada.engine.names import (
    CONSUMER_OFFSETS,
    NAME_LENGTH_MAX,
    TOPICS,
    TRANSACTION_STATE,
    check_name,
    check_partitions,
    is_internal,
)
from levada.errors import InvalidTopicName, PartitionsCannotShrink, PolicyViolation, ReservedName

OWN_PREFIX: Final = "__levada."
DEAD_LETTER_PREFIX: Final = "dlq."
BOOKKEEPING_TOPICS: Final = frozenset({TOPICS, CONSUMER_OFFSETS, TRANSACTION_STATE})
#: Longest name of a topic that is read as a queue: its dead letters go to `dlq.<topic>`.
QUEUE_NAME_LENGTH_MAX: Final = NAME_LENGTH_MAX - len(DEAD_LETTER_PREFIX)


class Creation(Enum):
    """What creating a topic comes to."""

    NEW = "new"
    SAME = "same"
    EXPAND = "expand"


def is_reserved(name: str) -> bool:
    """True for the names that users cannot create."""
    return name.startswith((OWN_PREFIX, DEAD_LETTER_PREFIX)) or is_internal(name)


def check_user_topic(name: str) -> None:
    """Raise InvalidTopicName or ReservedName unless a user may create a topic of this name."""
    check_name(name)
    if is_reserved(name):
        raise ReservedName(
            f'topic {name}: names that begin with "{OWN_PREFIX}" or "{DEAD_LETTER_PREFIX}", '
            "and the internal topics' names, are the broker's own"
        )


def check_creatable(name: str, *, exists: Callable[[str], bool]) -> None:
    """As check_user_topic, but our own parts may make the topics DESIGN.md names and dead-letter topics of existing ones."""
    if is_internal(name) or (name.startswith(DEAD_LETTER_PREFIX) and exists(name.removeprefix(DEAD_LETTER_PREFIX))):
        check_name(name)
    else:
        check_user_topic(name)


def check_deletable(name: str) -> None:
    """Raise PolicyViolation for the topics without which the broker forgets topics, offsets or transactions."""
    if name in BOOKKEEPING_TOPICS:
        raise PolicyViolation(f"topic {name} is the broker's own bookkeeping and cannot be deleted")


def check_queue_name(name: str) -> None:
    """Raise InvalidTopicName if no dead-letter topic could be made for a queue of this name."""
    check_name(name)
    if len(name) > QUEUE_NAME_LENGTH_MAX:
        raise InvalidTopicName(
            f"a queue's name has at most {QUEUE_NAME_LENGTH_MAX} characters, this one has {len(name)}"
        )


def dead_letter_topic(name: str) -> str:
    return DEAD_LETTER_PREFIX + name


def creation(name: str, existing: int | None, wanted: int) -> Creation:
    """Decide what create(name, wanted) does where the topic has `existing` partitions, or None if there is none."""
    check_partitions(name, wanted)
    if existing is None:
        return Creation.NEW
    if wanted < existing:
        raise PartitionsCannotShrink(f"topic {name} has {existing} partitions; it cannot be made to have {wanted}")
    return Creation.SAME if wanted == existing else Creation.EXPAND
