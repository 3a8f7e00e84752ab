"""Which topics a user may have, and what creating one that exists means.

Names that begin with `__levada.` or `dlq.` are ours: users create none. Levada's own parts may use the internal topics
and `dlq.<existing topic>`. Creating again is the seeds' rule: the same number of partitions changes nothing, more are
added, fewer are refused. (Over the Kafka wire Kafka's answers hold instead, TOPIC_ALREADY_EXISTS among them.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from levada.config import TOPIC_SETTINGS, Setting, TopicConfig, check_topic_settings, topic_config
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
from levada.errors import (
    InvalidTopicName,
    PartitionsCannotShrink,
    PolicyViolation,
    ReservedName,
    TopicExists,
    UnknownTopic,
)

OWN_PREFIX: Final = "__levada."
DEAD_LETTER_PREFIX: Final = "dlq."
BOOKKEEPING_TOPICS: Final = frozenset({TOPICS, CONSUMER_OFFSETS, TRANSACTION_STATE})
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


class Topics:
    """Creates, changes and describes topics for native fronts. A refusal changes nothing."""

    def __init__(
        self,
        engine: Engine,
        view: TopicView,
        *,
        defaults: Mapping[str, str],
        partitions: int = 1,
        deletable: bool = True,
    ) -> None:
        """`defaults` are the broker's for topic settings, `partitions` those of a topic made without a number."""
        self._engine = engine
        self._view = view
        self._defaults = defaults
        self._partitions = partitions
        self._deletable = deletable
        self._config = lru_cache(maxsize=1024)(lambda settings: topic_config(dict(settings), defaults))

    def get(self, name: str) -> TopicInfo:
        """UnknownTopic."""
        info = self._view.get(name)
        if info is None:
            raise UnknownTopic(f"there is no topic {name!r}")
        return info

    def all(self, *, internal: bool = False) -> Sequence[TopicInfo]:
        """By name; the broker's own only where asked for."""
        return [info for info in self._view.all() if internal or not info.internal]

    def config_of(self, info: TopicInfo) -> TopicConfig:
        """What holds for the topic, defaults included."""
        return self._config(tuple(sorted(info.settings.items())))

    async def create(
        self, name: str, partitions: int | None = None, settings: Mapping[str, str] | None = None
    ) -> tuple[TopicInfo, Creation]:
        """Have a topic with so many partitions: made, found as it is, or expanded. Settings are those of a new one.

        InvalidTopicName, ReservedName, InvalidPartitions, PartitionsCannotShrink, InvalidConfig.
        """
        check_user_topic(name)
        own = {"levada.router": NATIVE_ROUTER, **(settings or {})}
        check_topic_settings(own)
        while True:
            existing = self._view.get(name)
            try:
                return await self._have(name, existing, partitions, own)
            except (TopicExists, UnknownTopic):
                if (self._view.get(name) is None) == (existing is None):
                    raise
                # Somebody made or deleted it meanwhile: what is asked for means something else now.

    async def _have(
        self, name: str, existing: TopicInfo | None, partitions: int | None, settings: Mapping[str, str]
    ) -> tuple[TopicInfo, Creation]:
        if existing is None:
            wanted = self._partitions if partitions is None else partitions
            outcome = creation(name, None, wanted)
            return await self._engine.create(TopicSpec(name=name, partitions=wanted, settings=settings)), outcome
        wanted = existing.partitions if partitions is None else partitions
        outcome = creation(name, existing.partitions, wanted)
        if outcome is Creation.SAME:
            return existing, outcome
        return await self._engine.expand(name, wanted), outcome

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
        if not self._deletable:
            raise PolicyViolation(f"topic {name}: delete.topic.enable is false on this broker")
        await self._engine.delete(name)

    async def describe(self, name: str) -> Description:
        """UnknownTopic."""
        info = self.get(name)
        bounds = [await self._engine.bounds(At(name, partition)) for partition in range(info.partitions)]
        return Description(info, bounds, [self._setting(each, info) for each in TOPIC_SETTINGS.values()])

    def _setting(self, setting: Setting, info: TopicInfo) -> SettingValue:
        default = self._defaults.get(setting.name, setting.default)
        value = info.settings.get(setting.name, default)
        return SettingValue(setting.name, value, setting.name in info.settings, setting.doc)
