"""What all formats share: how a column of bytes is read, and how the bad ones are told from the good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

#: Few, and a bad row has the good ones beside it read again and again; many, and each part is a call.
_PARTS: Final = 16


class Read(NamedTuple):
    """A column as it was read: null where the bytes were null or bad."""

    values: pa.Array
    #: Row → why it could not be read.
    bad: dict[int, str]


class Format(Protocol):
    """How bytes are read. It can be pickled."""

    #: Its name, for messages.
    name: str
    type: pa.DataType

    def read(self, values: pa.Array, *, first_only: bool = False) -> Read:
        """Read these bytes, row by row if need be. Null stays null. With `first_only` nothing is promised after the first bad row."""
        ...


def salvaged(read: Callable[[int, int], pa.Array], rows: int, kind: pa.DataType, *, first_only: bool = False) -> Read:
    """Read all rows at once; where that fails, read them in parts, until what fails is one row.

    `read` gives the rows from the first up to, not including, the second, or raises ArrowException or ValueError.
    """
    pieces: list[pa.Array] = []
    bad: dict[int, str] = {}

    def attempt(begin: int, end: int) -> None:
        if first_only and bad:
            pieces.append(pa.nulls(end - begin, kind))
            return
        try:
            pieces.append(read(begin, end))
        except (pa.ArrowException, ValueError) as error:
            if end - begin == 1:
                pieces.append(pa.nulls(1, kind))
                bad[begin] = str(error).removesuffix(" in row 0")  # of the one row that was tried
            else:
                step = -(-(end - begin) // _PARTS)
                for start in range(begin, end, step):
                    attempt(start, min(start + step, end))

    if rows:
        attempt(0, rows)
    return Read(pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces or [pa.nulls(0, kind)]), bad)
