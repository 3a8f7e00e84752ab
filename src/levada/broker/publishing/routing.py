"""Which partition each record goes to: the one it names, else by its key, else by the topic's rule for records without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from levada.config import TopicConfig
from levada.engine.port import TopicInfo
from levada.errors import UnknownPartition
from levada.routing import ROUTERS

if TYPE_CHECKING:
    from levada.broker.publishing.record import NewRecord
    from levada.broker.publishing.spread import Spread


def check_partition(info: TopicInfo, partition: int) -> None:
    """UnknownPartition, naming those there are."""
    if not 0 <= partition < info.partitions:
        raise UnknownPartition(f"topic {info.name} has partitions 0 to {info.partitions - 1}, not {partition}")


async def route(
    info: TopicInfo, config: TopicConfig, records: Sequence[NewRecord], spread: Spread
) -> dict[int, list[int]]:
    """Partition → places in `records`, in their order. UnknownPartition: before any place of the counter was taken."""
    by_key = ROUTERS[config.router]
    places: dict[int, list[int]] = {}
    keyless: list[int] = []
    for place, record in enumerate(records):
        if record.partition is not None:
            check_partition(info, record.partition)
            places.setdefault(record.partition, []).append(place)
        elif record.key:
            places.setdefault(by_key(record.key, info.partitions), []).append(place)
        else:
            keyless.append(place)
    if not keyless:
        return places
    if config.keyless == "zero" or info.partitions == 1:
        places.setdefault(0, []).extend(keyless)
    elif config.keyless == "sticky":
        # What comes together stays together, and the next request goes on to the next partition.
        places.setdefault(await spread.take(info.name, 1) % info.partitions, []).extend(keyless)
    else:
        first = await spread.take(info.name, len(keyless))
        for number, place in enumerate(keyless, first):
            places.setdefault(number % info.partitions, []).append(place)
    for held in places.values():
        held.sort()
    return places
