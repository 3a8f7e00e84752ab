"""Where the memory is put down between two lives of the broker. The rules have no files: somebody who has them gives one of these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class Piece(Protocol):
    """One that is being written."""

    def write(self, part: bytes) -> None: ...

    def finish(self) -> None:
        """Put it in the place of the one that has its name. After a crash it is the one or the other, whole."""
        ...

    def discard(self) -> None:
        """Let it be as if it had not been begun."""
        ...


class Shelf(Protocol):
    """Named pieces of bytes. Everything here waits for the disk and is called in worker threads. OSError."""

    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes | None:
        """None where there is no such piece."""
        ...

    def parts(self, name: str) -> Iterator[bytes]:
        """The same, some MiB at a time; nothing where there is no such piece."""
        ...

    def begin(self, name: str) -> Piece: ...

    def remove(self, name: str) -> None: ...
