"""Which topics a user may have, and what creating one that exists means.

Names that begin with `__levada.` or `dlq.` are ours: users create none. Levada's own parts may use the internal topics
and `dlq.<existing topic>`. Creating again is the seeds' rule: the same number of partitions changes nothing, more are
added, fewer are refused. (Over the Kafka wire Kafka's answers hold instead, TOPIC_ALREADY_EXISTS among them.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from levada.config import TOPIC_SETTINGS, Setting, TopicConfig, check_topic_settings
from levada.engine.names import (
    CONSUMER_OFFSETS,
    NAME_LENGTH_MAX,
    TOPICS,
    TRANSACTION_STATE,
    check_name,
    check_partitions,
    is_internal,
)
from levada.engine.port import At, Bounds, Engine, TopicInfo, TopicSpec, TopicView
from levada.engine.settings import LiveSettings
from levada.errors import (
    InvalidTopicName,
    PartitionsCannotShrink,
    PolicyViolation,
    ReservedName,
    TopicExists,
    UnknownTopic,
    nearest,
)

OWN_PREFIX: Final = "__levada."
DEAD_LETTER_PREFIX: Final = "dlq."
BOOKKEEPING_TOPICS: Final = frozenset({TOPICS, CONSUMER_OFFSETS, TRANSACTION_STATE})
#: So many partitions are looked at in one turn of the loop.
_LOOKS: Final = 16
#: With so many names at most, what was not found is compared.
_COMPARED_MAX: Final = 1_000
#: Where keys go in topics that are made natively, unless they say something else.
NATIVE_ROUTER: Final = "fnv1a64"
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


class SettingValue(NamedTuple):
    """A setting as it holds for a topic. `is_set`: on the topic itself; else it is a default."""

    name: str
    value: str
    is_set: bool
    doc: str


class Description(NamedTuple):
    """A topic: what it is, how far each partition goes, and every setting that holds."""

    info: TopicInfo
    bounds: Sequence[Bounds]
    settings: Sequence[SettingValue]


def unknown_topic(name: str, view: TopicView) -> UnknownTopic:
    """With the topic that was meant, perhaps. Of very many names none is looked for: the broker has other things to do."""
    known = [info.name for info in view.all() if not info.internal]
    return UnknownTopic(f"there is no topic {name!r}{nearest(name, known) if len(known) <= _COMPARED_MAX else ''}")


class Topics:
    """Creates, changes and describes topics for native fronts. A refusal changes nothing."""

    def __init__(
        self, engine: Engine, view: TopicView, settings: LiveSettings, config_of: Callable[[str], TopicConfig]
    ) -> None:
        self._engine = engine
        self._view = view
        self._settings = settings
        #: What holds for a topic, defaults included. UnknownTopic.
        self.config_of = config_of

    def get(self, name: str) -> TopicInfo:
        """UnknownTopic."""
        info = self._view.get(name)
        if info is None:
            raise unknown_topic(name, self._view)
        return info

    def all(self, *, internal: bool = False) -> Sequence[TopicInfo]:
        """By name; the broker's own only where asked for."""
        return [info for info in self._view.all() if internal or not info.internal]

    async def create(
        self,
        name: str,
        partitions: int | None = None,
        settings: Mapping[str, str] | None = None,
        replication_factor: int = 1,
    ) -> tuple[TopicInfo, Creation]:
        """Have a topic with so many partitions: made, found as it is, or expanded. All else is for a new one.

        InvalidTopicName, ReservedName, InvalidPartitions, PartitionsCannotShrink, InvalidReplicationFactor, InvalidConfig.
        """
        check_user_topic(name)
        own = {"levada.router": NATIVE_ROUTER, **(settings or {})}
        check_topic_settings(own)
        count = self._settings.number("num.partitions") if partitions is None else partitions
        new = TopicSpec(name=name, partitions=count, settings=own, replication_factor=replication_factor)
        while True:
            existing = self._view.get(name)
            try:
                return await self._have(new, existing, partitions)
            except (TopicExists, UnknownTopic):
                if (self._view.get(name) is None) == (existing is None):
                    raise
                # Somebody made or deleted it meanwhile: what is asked for means something else now.

    async def _have(
        self, new: TopicSpec, existing: TopicInfo | None, partitions: int | None
    ) -> tuple[TopicInfo, Creation]:
        if existing is None:
            outcome = creation(new.name, None, new.partitions)
            return await self._engine.create(new), outcome
        wanted = existing.partitions if partitions is None else partitions
        outcome = creation(new.name, existing.partitions, wanted)
        if outcome is Creation.SAME:
            return existing, outcome
        return await self._engine.expand(new.name, wanted), outcome

    async def expand(self, name: str, partitions: int) -> TopicInfo:
        """Add partitions up to this many. UnknownTopic, InvalidPartitions, PartitionsCannotShrink, PolicyViolation."""
        return await self._engine.expand(self.get(name).name, partitions)

    async def alter(self, name: str, settings: Mapping[str, str | None]) -> TopicInfo:
        """Set settings or, with None, unset them: all or none. UnknownTopic, InvalidConfig, PolicyViolation."""
        self.get(name)
        check_topic_settings(dict.fromkeys(settings.keys() - TOPIC_SETTINGS.keys(), ""))  # names to be unset, too
        return await self._engine.alter(name, settings)

    async def delete(self, name: str) -> None:
        """With all its records, and every group's offsets in it. UnknownTopic, PolicyViolation."""
        self.get(name)
        check_deletable(name)
        if not self._settings.flag("delete.topic.enable"):
            raise PolicyViolation(f"topic {name}: delete.topic.enable is false on this broker")
        await self._engine.delete(name)

    async def describe(self, name: str) -> Description:
        """UnknownTopic."""
        info = self.get(name)
        bounds = []
        for partition in range(info.partitions):
            bounds.append(await self._engine.bounds(At(name, partition)))
            if partition % _LOOKS == 0:
                await asyncio.sleep(0)  # the first look at a partition opens its files: let others have their turn
        return Description(info, bounds, [self._setting(each, info) for each in TOPIC_SETTINGS.values()])

    def _setting(self, setting: Setting, info: TopicInfo) -> SettingValue:
        default = self._settings.topic_defaults.get(setting.name, setting.default)
        value = info.settings.get(setting.name, default)
        return SettingValue(setting.name, value, setting.name in info.settings, setting.doc)
