"""Where each leader epoch of a partition began.

A client that comes back after the log lost its tail asks where the epoch it last saw ended, and so finds out how far its
own offsets still hold.

File (`leader-epoch-checkpoint`, Kafka's), text: version `0` | number of entries | a line `<epoch> <start offset>` for each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from levada.errors import DamagedIndex

FILE_NAME: Final = "leader-epoch-checkpoint"
UNDEFINED: Final = -1
_VERSION: Final = "0"


class Epoch(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The epochs that have records in the log; both numbers of an entry are larger than those of the entry before."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[Epoch] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Epoch]:
        return iter(self._entries)

    @property
    def latest(self) -> int:
        """The epoch of the last record; −1 when there is none."""
        return self._entries[-1].epoch if self._entries else UNDEFINED

    def assign(self, epoch: int, start_offset: int) -> bool:
        """A record of this epoch was written at this offset; True when that is news, and the file has to be written.

        Entries that contradict it were about records that are gone, and go too.
        """
        entries = self._entries
        if entries and epoch == entries[-1].epoch and start_offset >= entries[-1].start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(Epoch(epoch, start_offset))
        return True

    def end_offset_for(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """The largest epoch up to the one asked for, and where it ended; (−1, −1) when that cannot be said.

        `end_offset` is the log's: where the newest epoch ends for now. Of an epoch older than all that is left, the
        end is where the oldest one left begins.
        """
        if epoch == UNDEFINED or not self._entries:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return epoch, end_offset
        following = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if following == len(self._entries):
            return UNDEFINED, UNDEFINED
        found = self._entries[following - 1].epoch if following else epoch
        return found, self._entries[following].start_offset

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at this offset; −1 when it lies before the first entry."""
        position = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[position - 1].epoch if position else UNDEFINED

    def truncate(self, to: int) -> bool:
        """The log now ends before this offset: forget epochs that began there or later. True when the file has to be written."""
        kept = bisect_left(self._entries, to, key=lambda entry: entry.start_offset)
        changed = kept < len(self._entries)
        del self._entries[kept:]
        return changed

    def trim(self, before: int) -> bool:
        """The log now starts at this offset: the epoch it lies in begins there, older ones go. True when the file has to be written."""
        position = bisect_right(self._entries, before, key=lambda entry: entry.start_offset)
        if not position or (position == 1 and self._entries[0].start_offset == before):
            return False
        self._entries[:position] = [Epoch(self._entries[position - 1].epoch, before)]
        return True

    def encode(self) -> bytes:
        lines = [_VERSION, str(len(self._entries)), *(f"{entry.epoch} {entry.start_offset}" for entry in self._entries)]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> LeaderEpochs:
        """Read the file back. DamagedIndex when it is not one."""
        try:
            version, count, *lines = data.decode("ascii").splitlines()
            entries = [Epoch(*map(int, line.split(" "))) for line in lines]
            if version != _VERSION or int(count) != len(entries) or any(min(entry) < 0 for entry in entries):
                raise ValueError
        except (ValueError, TypeError):
            raise DamagedIndex(f"{FILE_NAME} is not of version {_VERSION}, or cut short") from None
        epochs = cls()
        for entry in entries:
            epochs.assign(*entry)
        return epochs
