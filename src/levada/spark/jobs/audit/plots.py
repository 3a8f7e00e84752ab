"""Plots as SVG, drawn by hand: a page needs nothing but itself. Colours are the page's (`var(--…)`), so that it can be light or dark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

#: As wide as they are shown, about, so that text is as large as it says.
WIDTH: Final = 520
WIDE: Final = 1090
_LABEL: Final = 110
_FIGURE: Final = 126
_ROW: Final = 26
_BAR: Final = 16


class Bar(NamedTuple):
    """A labelled bar, of parts in these colours."""

    label: str
    parts: Sequence[tuple[float, str]]
    text: str
    title: str = ""


def bars(rows: Sequence[Bar], *, mark: float | None = None) -> str:
    """Bars below one another, to one scale; `mark` is a line through all of them."""
    if not rows:
        return ""
    most = max(max(sum(size for size, _ in row.parts) for row in rows), mark or 0.0) or 1.0
    room = WIDTH - _LABEL - _FIGURE
    height = len(rows) * _ROW + 4
    drawn = []
    for number, row in enumerate(rows):
        top = number * _ROW + (_ROW - _BAR) / 2
        middle = number * _ROW + _ROW / 2
        drawn.append(f"<g><title>{escape(row.title or row.text)}</title>")
        drawn.append(_text(_LABEL - 10, middle, row.label, "end", "label"))
        drawn.append(f'<rect class="track" x="{_LABEL}" y="{top:.1f}" width="{room}" height="{_BAR}" rx="3"/>')
        left = float(_LABEL)
        for size, colour in row.parts:
            width = size / most * room
            if width > 0:
                shown = max(width, 1.5)
                drawn.append(
                    f'<rect x="{left:.1f}" y="{top:.1f}" width="{shown:.1f}" height="{_BAR}" rx="3" fill="var(--{colour})"/>'
                )
            left += width
        drawn.append(_text(WIDTH - _FIGURE + 12, middle, row.text, "start", "figure"))
        drawn.append("</g>")
    if mark:
        x = _LABEL + mark / most * room
        drawn.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}"/>')
    return _svg(WIDTH, height, drawn)


def columns(slots: Sequence[tuple[int, int]], slot_ms: int) -> str:
    """Records over time: (beginning in ms, records) of the slots that have some."""
    if not slots:
        return ""
    top, height, foot, left = 10, 150, 24, 58
    first, last = slots[0][0], slots[-1][0] + slot_ms
    most = max(records for _, records in slots)
    room = WIDE - left - 8
    drawn = []
    for share in (0.0, 0.5, 1.0):
        y = top + height * (1 - share)
        drawn.append(f'<line class="grid" x1="{left}" x2="{WIDE - 8}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(_text(left - 8, y, short(most * share), "end", "label"))
    for start, records in slots:
        x = left + (start - first) / (last - first) * room
        width = max(slot_ms / (last - first) * room - 0.8, 1.0)
        tall = max(records / most * height, 1.0)
        title = f"{moment(start)}: {records:,} records"
        drawn.append(
            f'<rect x="{x:.1f}" y="{top + height - tall:.1f}" width="{width:.1f}" height="{tall:.1f}" rx="1.5" '
            f'fill="var(--one)"><title>{escape(title)}</title></rect>'
        )
    bottom = top + height + foot - 9
    drawn.append(_text(left, bottom, moment(first), "start", "label"))
    drawn.append(_text(WIDE - 8, bottom, moment(last), "end", "label"))
    return _svg(WIDE, top + height + foot, drawn)


def _text(x: float, y: float, text: str, anchor: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(width: float, height: float, drawn: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img">{"".join(drawn)}</svg>'


def short(number: float) -> str:
    """ "1.2 M" """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def size(number: float) -> str:
    """ "1.5 MiB" """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} TiB"


def moment(time_ms: int | None) -> str:
    """ "2026-01-31 12:00:00" """
    if time_ms is None:
        return "–"
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):  # a producer may have stamped it with anything
        return str(time_ms)
