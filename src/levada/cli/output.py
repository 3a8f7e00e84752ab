"""What commands print: tables for people, JSON for machines."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

_BETWEEN: Final = "  "
#: No column is folded narrower than this.
_WIDTH_MIN: Final = 8


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """One line each, what belongs together beside one another."""
    rows = list(pairs)
    widest = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{widest}}{_BETWEEN}{value}")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """A table; numbers to the right, "-" for what is not there. `empty` is said where there are no rows.

    On a terminal the widest column is folded until all of it fits; in a file a table is as wide as it needs to be.
    """
    cells = [[_cell(cell) for cell in row] for row in rows]
    if not cells:
        print(empty)
        return
    on_terminal = sys.stdout.isatty()
    numeric = [all(right for _, right in column) for column in zip(*cells, strict=True)]
    texts = [[text for text, _ in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    if on_terminal:
        _fit(widths, shutil.get_terminal_size().columns)
    bold, plain = ("\x1b[1m", "\x1b[0m") if on_terminal and not os.environ.get("NO_COLOR") else ("", "")
    print(f"{bold}{_line(columns, widths, numeric)}{plain}")
    for row in texts:
        folded = [_folded(text, width) for text, width in zip(row, widths, strict=True)]
        for index in range(max(map(len, folded))):
            print(_line([parts[index] if index < len(parts) else "" for parts in folded], widths, numeric))


def _cell(cell: Any) -> tuple[str, bool]:
    """Its text, and whether it may stand to the right."""
    if cell is None:
        return "-", True
    return (f"{cell:,}", True) if isinstance(cell, int) else (str(cell), False)


def _line(texts: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    placed = (
        text.rjust(width) if right else text.ljust(width)
        for text, width, right in zip(texts, widths, numeric, strict=True)
    )
    return _BETWEEN.join(placed).rstrip()


def _fit(widths: list[int], room: int) -> None:
    while sum(widths) + len(_BETWEEN) * (len(widths) - 1) > room and max(widths) > _WIDTH_MIN:
        widths[widths.index(max(widths))] -= 1


def _folded(text: str, width: int) -> list[str]:
    return [text[at : at + width] for at in range(0, len(text), width)] or [""]
