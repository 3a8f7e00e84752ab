"""What a topic may be called, and the names that are the engine's own.

These rules hold on every engine. Which names are kept from users is the broker's rule: `broker/topics.py`.
"""

from __future__ import annotations

import re
from typing import Final

from levada.errors import InvalidPartitions, InvalidTopicName

#: Longest topic name. A partition's directory is `<topic>-<partition>`, and a file name has at most 255 bytes.
NAME_LENGTH_MAX: Final = 249
#: Keeps the partition in a directory's name within five digits.
PARTITIONS_MAX: Final = 100_000

TOPICS: Final = "__levada.topics"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
NODES: Final = "__levada.nodes"

#: What the engine itself keeps its state in; always one partition, never deleted.
KEPT_TOPICS: Final = frozenset({TOPICS, CONSUMER_OFFSETS, TRANSACTION_STATE})
#: The offsets of this group are the topics' keyless counters (broker/publishing/spread.py): no group that anybody reads with.
KEYLESS_GROUP: Final = "__levada.keyless"
#: How far topics are archived: what lies below its offsets is in the topic's table (engine/embedded/archived.py).
ARCHIVE_GROUP: Final = "__levada.archive"
#: Every topic whose records only Levada itself has reason to write.
INTERNAL_TOPICS: Final = frozenset(
    {
        CONSUMER_OFFSETS,
        TRANSACTION_STATE,
        TOPICS,
        "__levada.stage",
        "__levada.sinks",
        "__levada.pipelines",
        "__levada.schedule",
        "__levada.leases",
        NODES,
    }
)

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def check_name(name: str) -> None:
    """Raise InvalidTopicName, naming the rule that is broken."""
    if not name:
        raise InvalidTopicName("a topic name has at least one character")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidTopicName(f"a topic name has at most {NAME_LENGTH_MAX} characters, this one has {len(name)}")
    if name in (".", ".."):
        raise InvalidTopicName(f'a topic cannot be called "{name}"')
    if not _NAME.fullmatch(name):
        raise InvalidTopicName(f"topic name {name!r}: only [A-Za-z0-9._-] are allowed")


def check_partitions(name: str, partitions: int) -> None:
    """Raise InvalidPartitions unless a topic can have so many."""
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidPartitions(f"topic {name}: {partitions} partitions; must be from 1 to {PARTITIONS_MAX}")
