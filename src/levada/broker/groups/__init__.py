"""Consumer groups: who reads which partition. See coordinator.py."""

from levada.broker.groups.calls import (
    Described,
    DescribedMember,
    Join,
    Joined,
    JoinedMember,
    Leaving,
    Left,
    Listed,
    Sync,
    Synced,
)
from levada.broker.groups.clock import now_ms
from levada.broker.groups.config import GroupConfig
from levada.broker.groups.coordinator import GroupCoordinator
from levada.broker.groups.state import Kind, State

__all__ = [
    "Described",
    "DescribedMember",
    "GroupConfig",
    "GroupCoordinator",
    "Join",
    "Joined",
    "JoinedMember",
    "Kind",
    "Leaving",
    "Left",
    "Listed",
    "State",
    "Sync",
    "Synced",
    "now_ms",
]
