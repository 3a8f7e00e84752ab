"""What a native consumer asks for when it opens a subscription."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from levada.config import MiB
from levada.engine.port import At, Isolation
from levada.errors import InvalidRequest

#: Most records a consumer holds that it has not granted anew.
RECORDS_MAX: Final = 1_000
BYTES_MAX: Final = 1 * MiB
#: More than any transport carries in one piece is no use to anybody.
BYTES_LIMIT: Final = 64 * MiB
SESSION_TIMEOUT_MS: Final = 10_000


class Start(enum.Enum):
    """Where reading begins where there is no offset, and where the offset is not in the partition any more."""

    EARLIEST = "earliest"
    LATEST = "latest"
    #: Nowhere: OffsetOutOfRange, with the range there is.
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One of three: `group` and `topics`, as a member among others; `group` and `consumer`, as that consumer of a fixed group;
    `partitions` alone, outside of any group."""

    topics: Sequence[str] = ()
    group: str = ""
    partitions: Sequence[At] = ()
    #: Of a fixed group: which consumer, and of which generation.
    consumer: int | None = None
    generation: int = 0
    start: Start = Start.EARLIEST
    #: Where to begin in `partitions`; in those that are not here, by `start`.
    offsets: Mapping[At, int] = field(default_factory=dict)
    records_max: int = RECORDS_MAX
    #: Most bytes read and not yet taken by the consumer's transport; a single batch may be larger.
    bytes_max: int = BYTES_MAX
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    #: Batches as they are stored instead of records.
    raw: bool = False
    client_id: str = ""
    host: str = ""
    #: How long whoever is given its partitions waits for it to hand them over.
    hand_over_ms: int = 0

    def check(self) -> None:
        """InvalidRequest, naming what contradicts what."""
        if self.group:
            if self.partitions:
                raise InvalidRequest(f"group {self.group} shares out the partitions of its topics: none can be chosen")
            if self.consumer is None and not self.topics:
                raise InvalidRequest(f"a member of group {self.group} names at least one topic")
        elif not self.partitions:
            raise InvalidRequest("a subscription needs a group, or partitions of one's own choice")
        elif self.consumer is not None or self.topics:
            raise InvalidRequest("without a group, name partitions, and neither topics nor a consumer's number")
        elif len(set(self.partitions)) != len(self.partitions):
            raise InvalidRequest("a partition is named twice")
        if strays := [str(at) for at in self.offsets if at not in self.partitions]:
            raise InvalidRequest(f"there is an offset to begin at for {', '.join(strays)}, which was not chosen")
        if self.hand_over_ms < 0:
            raise InvalidRequest(f"hand_over_ms is {self.hand_over_ms}; it must be at least 0")
        if not 1 <= self.records_max <= RECORDS_MAX:
            raise InvalidRequest(f"records_max is {self.records_max}; it must be from 1 to {RECORDS_MAX}")
        if not 1 <= self.bytes_max <= BYTES_LIMIT:
            raise InvalidRequest(f"bytes_max is {self.bytes_max}; it must be from 1 to {BYTES_LIMIT}")
