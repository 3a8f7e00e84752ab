"""What a client believes about the leader, against what is: Fetch, ListOffsets and OffsetForLeaderEpoch ask alike."""

from __future__ import annotations

from levada.engine.embedded.partition import Partition
from levada.errors import FencedLeaderEpoch, UnknownLeaderEpoch


def check_epoch(partition: Partition, believed: int) -> None:
    """Refuse a client that knows of an older, or of a newer leader epoch; −1 claims nothing."""
    if believed < 0 or believed == partition.leader_epoch:
        return
    if believed < partition.leader_epoch:
        raise FencedLeaderEpoch(f"{partition.at}: leader epoch {believed} is over, it is {partition.leader_epoch} now")
    raise UnknownLeaderEpoch(f"{partition.at}: leader epoch {believed} is not known, it is {partition.leader_epoch}")
