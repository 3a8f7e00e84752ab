"""Putting compacted segments in the place of others, so that a stop at any moment leaves the old ones or the new ones.

In this order, each durable before the next:

1. `<base>.log.cleaned`, with `.index` `.timeindex` `.txnindex`, is written. Found after a crash, it is removed.
2. It is renamed to `.swap`. Found after a crash, the swap is carried out. But as long as any `.cleaned` file is there, no
   `.swap` from its offset on counts, so that of several segments a beginning is swapped, or all.
3. `cleaner-offset-checkpoint` says how far the log is compacted, since from now on it may have gaps. Whoever carries out a
   swap after a crash writes it too: at least the end of what is swapped in, and more than its base offset.
4. `Log.install`: the segments that were replaced go, `.swap` becomes the segment.

The checkpoint must never run ahead of the segments: a value that was overwritten by a tombstone, and left behind in what
counts as compacted, would be there again once the tombstone is gone.
"""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from typing import Final

from levada.log import directory
from levada.log.disk import Disk

#: Being written.
CLEANED: Final = ".cleaned"
#: Durable and decided.
SWAP: Final = ".swap"


class Swap:
    """Steps 2 and 3 for one log, and their undoing. Waits for the disk."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def decide(self, cleaned_to: int) -> None:
        """All `.cleaned` files are whole: once this is done they will be swapped in, now or at the next start."""
        self._disk.fsync_dir(self._path)
        for name in self._files(CLEANED):
            self._disk.rename(name, name.removesuffix(CLEANED) + SWAP)
        self._disk.fsync_dir(self._path)
        directory.write_checkpoint(self._disk, self._path, directory.CLEANED_FILE, cleaned_to)

    def undo(self, cleaned_to: int) -> None:
        """Remove what was written; the log is compacted up to where it was before. Stopped half-way, all of it counts or none."""
        swaps = self._files(SWAP)
        if swaps:
            directory.write_checkpoint(self._disk, self._path, directory.CLEANED_FILE, cleaned_to)
            # As long as the first of them is `.cleaned`, none of them counts.
            self._disk.rename(swaps[0], swaps[0].removesuffix(SWAP) + CLEANED)
            self._disk.fsync_dir(self._path)
            self._remove(swaps[1:])
        self._remove(self._files(CLEANED))

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            self._disk.unlink(name)
        if names:
            self._disk.fsync_dir(self._path)

    def _files(self, ending: str) -> list[str]:
        names = sorted(name for name in self._disk.listdir(self._path) if name.endswith(ending))
        return [os.path.join(self._path, name) for name in names]
