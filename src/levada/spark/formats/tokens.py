"""Compiled: the tokens of plain JSON, that is text without escapes, short numbers, words, and times in UTC.

Each function takes the place where its token begins and gives the one after it, or NONE for anything that is not plain.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import int64, uint64

from levada.spark.compiling import compiled

#: Places are unsigned, since those below 0 would be counted from the end, at a cost for each byte.
ONE, NONE = np.uint64(1), np.uint64(2**64 - 1)
_TWO, _THREE, _FOUR = np.uint64(2), np.uint64(3), np.uint64(4)
QUOTE, MINUS, COLON, TRUE, FALSE, NULL = b'"-:tfn'
_BACKSLASH, _POINT, _ZERO, _NINE, _Z, _T, _SPACE = b"\\.09ZT "
#: More digits might not fit into 64 bits.
_DIGITS_MAX: Final = 18
_DAYS: Final = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


@compiled()
def skip(data, at, end):  # type: ignore[no-untyped-def]
    """The place of the next byte that is no blank."""
    while at < end and data[at] <= _SPACE and data[at] in (_SPACE, 10, 9, 13):
        at += ONE
    return at


@compiled()
def text(data, at, end):  # type: ignore[no-untyped-def]
    """The place of the quote that ends a plain text; NONE where it has an escape or a control character, or does not end."""
    while at < end:
        byte = data[at]
        if byte == QUOTE:
            return at
        if byte == _BACKSLASH or byte < _SPACE:
            return NONE
        at += ONE
    return NONE


@compiled()
def number(data, at, end):  # type: ignore[no-untyped-def]
    """(the place after it, its digits as a number, how many of them stand behind the point). NONE for what is no plain number."""
    first, digits, behind = at, int64(0), int64(0)
    while at < end and _ZERO <= data[at] <= _NINE:
        digits = digits * 10 + int64(data[at] - _ZERO)
        at += ONE
    count = int64(at - first)
    if count == 0 or (count > 1 and data[first] == _ZERO):
        return NONE, digits, behind
    if at < end and data[at] == _POINT:
        at += ONE
        point = at
        while at < end and _ZERO <= data[at] <= _NINE:
            digits = digits * 10 + int64(data[at] - _ZERO)
            at += ONE
        behind = int64(at - point)
        if behind == 0:
            return NONE, digits, behind
    if count + behind > _DIGITS_MAX:
        return NONE, digits, behind
    return at, digits, behind


@compiled()
def word(data, at, end):  # type: ignore[no-untyped-def]
    """The place after `true`, `false` or `null`; NONE for anything else."""
    left = end - at
    if left >= 4 and data[at] == TRUE and data[at + ONE] == 114 and data[at + _TWO] == 117:
        return at + _FOUR if data[at + _THREE] == 101 else NONE
    if left >= 4 and data[at] == NULL and data[at + ONE] == 117 and data[at + _TWO] == 108:
        return at + _FOUR if data[at + _THREE] == 108 else NONE
    if left >= 5 and data[at] == FALSE and data[at + ONE] == 97 and data[at + _TWO] == 108:
        follows = data[at + _THREE] == 115 and data[at + _FOUR] == 101
        return at + np.uint64(5) if follows else NONE
    return NONE


@compiled()
def _digits(data, at, count):  # type: ignore[no-untyped-def]
    """The number in so many digits; −1 if one of them is none."""
    found = int64(0)
    for step in range(uint64(count)):
        byte = data[at + step]
        if not _ZERO <= byte <= _NINE:
            return int64(-1)
        found = found * 10 + int64(byte - _ZERO)
    return found


@compiled()
def time(data, at, end):  # type: ignore[no-untyped-def]
    """(whether it is a plain time in UTC, its µs since 1970): `2026-03-01T12:00:07Z`, or with 3 or 6 digits behind the second."""
    size = int64(end - at)
    if size not in (20, 24, 27) or data[end - ONE] != _Z:
        return False, int64(0)
    dashes = data[at + _FOUR] == MINUS and data[at + np.uint64(7)] == MINUS and data[at + np.uint64(10)] == _T
    colons = data[at + np.uint64(13)] == COLON and data[at + np.uint64(16)] == COLON
    if not (dashes and colons):
        return False, int64(0)
    year, month, day = _digits(data, at, 4), _digits(data, at + np.uint64(5), 2), _digits(data, at + np.uint64(8), 2)
    hour, minute = _digits(data, at + np.uint64(11), 2), _digits(data, at + np.uint64(14), 2)
    second, micros = _digits(data, at + np.uint64(17), 2), int64(0)
    if size > 20:
        if data[at + np.uint64(19)] != _POINT:
            return False, int64(0)
        micros = _digits(data, at + np.uint64(20), size - 21)
        if micros < 0:
            return False, int64(0)
        if size == 24:
            micros *= 1000
    if year < 1 or not 1 <= month <= 12 or day < 1:
        return False, int64(0)
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _DAYS[month - 1] + leap:
        return False, int64(0)
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
        return False, int64(0)
    # Days since 1970 of a calendar whose years begin in March, so that the leap day is the last.
    if month <= 2:
        year -= 1
    era = year // 400
    within = year - era * 400
    march = (month + 9) % 12
    days = era * 146097 + within * 365 + within // 4 - within // 100 + (153 * march + 2) // 5 + day - 1 - 719468
    return True, ((days * 24 + hour) * 60 + minute) * 60_000_000 + second * 1_000_000 + micros
