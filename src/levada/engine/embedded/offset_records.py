"""Committed offsets ⇄ records of `__consumer_offsets`."""

from __future__ import annotations

from typing import Final, NamedTuple

from levada.engine.embedded.internal_records import (
    GROUP_METADATA_KEY,
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
    Unknown,
    read,
    version_of,
    write,
)
from levada.engine.port import At, Committed

#: Version 1 alone has room for a time of its own to expire at.
_VERSION: Final = 4
_VERSION_THAT_EXPIRES: Final = 1


class OffsetKey(NamedTuple):
    """The place of one group in one partition."""

    group: str
    at: At

    def bytes(self) -> bytes:
        fields = {"group": self.group, "topic": self.at.topic, "partition": self.at.partition}
        return write(OFFSET_COMMIT_KEY, OFFSET_COMMIT_KEY.versions.high, fields)


class GroupKey(NamedTuple):
    """A group's own state."""

    group: str

    def bytes(self) -> bytes:
        return write(GROUP_METADATA_KEY, GROUP_METADATA_KEY.versions.high, {"group": self.group})


def key_of(data: bytes) -> OffsetKey | GroupKey:
    """CorruptBatch; Unknown for a kind of key that only newer groups have."""
    kind = version_of(data)
    if kind in OFFSET_COMMIT_KEY.versions:
        fields = read(OFFSET_COMMIT_KEY, data)
        return OffsetKey(fields["group"], At(fields["topic"], fields["partition"]))
    if kind in GROUP_METADATA_KEY.versions:
        return GroupKey(read(GROUP_METADATA_KEY, data)["group"])
    raise Unknown(f"keys of kind {kind} are not known here")


def value_of(committed: Committed, expire_ms: int = -1) -> bytes:
    """`expire_ms` is the moment an old client asked for, −1 for none."""
    return write(
        OFFSET_COMMIT_VALUE,
        _VERSION if expire_ms == -1 else _VERSION_THAT_EXPIRES,
        {
            "offset": committed.offset,
            "leader_epoch": committed.leader_epoch,
            "metadata": committed.metadata,
            "commit_timestamp": committed.commit_ms,
            "expire_timestamp": expire_ms,
        },
    )


def committed_of(value: bytes) -> tuple[Committed, int]:
    """(the offset, when it expires, −1 for by the broker's rule). CorruptBatch; Unknown."""
    fields = read(OFFSET_COMMIT_VALUE, value)
    committed = Committed(fields["offset"], fields["leader_epoch"], fields["metadata"], fields["commit_timestamp"])
    return committed, fields["expire_timestamp"]
