"""Plain JSON objects are read by a pass of their own: row for row what the parser for all of JSON makes of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from levada.spark.formats import flat
from levada.spark.formats.flat import is_flat, read_flat
from levada.spark.formats.json_values import Json
from levada.spark.formats.plain import String
from levada.spark.formats.reading import Read

SCHEMA = (
    "id STRING, tiny TINYINT, small SMALLINT, n INT, big BIGINT, amount DOUBLE, ok BOOLEAN, at TIMESTAMP, `größe` INT"
)
FIELDS = ["id", "tiny", "small", "n", "big", "amount", "ok", "at", "größe"]


def by_the_parser(schema: str, values: list[bytes | None]) -> Read:
    """What is read without the short way."""
    array = pa.array(values, pa.binary())
    bad = String().read(array).bad
    empty = array.is_null().to_numpy(zero_copy_only=False).copy()
    empty[list(bad)] = True
    return Json(schema)._lines(array, empty, bad, False)


def aside(schema: str, *values: str) -> list[bool]:
    """Which of these are left to the parser."""
    array = pa.array([value.encode() for value in values], pa.binary())
    kept: list[bool] = read_flat(array, Json(schema).type, np.zeros(len(values), np.bool_)).aside.tolist()
    return kept


def cells(values: pa.StructArray) -> list[Any]:
    """Every cell as one can compare it: NaN is like NaN, −0 unlike 0, and the year 0 is a time like others."""
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in values.flatten()]
    return [values.is_null().to_pylist(), *([repr(cell) for cell in column.to_pylist()] for column in columns)]


def check(values: list[bytes | None], schema: str = SCHEMA) -> None:
    # Plain ones beside them: otherwise all would be left to the parser as soon as one row in eight is.
    plain: list[bytes | None] = [b'{"id": "plain", "n": 1}'] * (8 * len(values))
    read, told = Json(schema).read(pa.array(values + plain, pa.binary())), by_the_parser(schema, values + plain)
    assert read.bad == told.bad
    read.values.validate(full=True)
    assert cells(read.values) == cells(told.values)
    assert read.values.type == told.values.type


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=8),
    st.integers(-(2**70), 2**70),
    st.integers(-200, 200),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False, places=4).map(float),
    st.datetimes().map(lambda time: time.isoformat() + "Z"),
    st.datetimes().map(lambda time: time.isoformat(timespec="milliseconds") + "Z"),
    st.datetimes().map(lambda time: time.isoformat(timespec="seconds") + "Z"),
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2)
)
right = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.text(),
        "tiny": st.none() | st.integers(-128, 127),
        "small": st.none() | st.integers(-(2**15), 2**15 - 1),
        "n": st.none() | st.integers(-(2**31), 2**31 - 1),
        "big": st.none() | st.integers(-(2**63), 2**63 - 1),
        "amount": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60),
        "ok": st.none() | st.booleans(),
        "at": st.none() | st.datetimes().map(lambda time: time.isoformat() + "Z"),
        "größe": st.none() | st.integers(-5, 5),
        "unknown": anything,
    },
)
odd = st.dictionaries(st.sampled_from([*FIELDS, "unknown", "i", "ids", ""]) | st.text(), anything)


@st.composite
def written(draw: st.DrawFn, objects: st.SearchStrategy[dict[str, Any]]) -> bytes:
    """An object in one of the ways in which it can be written."""
    blanks = draw(st.sampled_from(["", " ", "\t", "\n", " \r\n "]))
    text = json.dumps(
        draw(objects),
        ensure_ascii=draw(st.booleans()),
        separators=(f"{blanks},{blanks}", f"{blanks}:{blanks}"),
        indent=draw(st.sampled_from([None, 2])),
    )
    # What json writes for a lone surrogate without escapes is not UTF-8; that is another test's.
    return (blanks + text + blanks).encode(errors="replace")


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """An object with bytes put in, taken out or changed."""
    text = bytearray(draw(written(right)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        text[at : at + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b"", b'"', b"{", b"}", b",", b":", b"\\", b"0", b"-", b".", b"\n", b"e1", b"[", b"x"])
        )
    return bytes(text)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.none() | written(right), max_size=6))
def test_what_is_right_is_read_alike(values: list[bytes | None]) -> None:
    check(values)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.none() | written(odd) | damaged(), min_size=1, max_size=4))
@example([b'{"id": "a", "id": "b"}'])
@example([b'{"id": null, "id": "b"}'])
@example([b'{"n": 1}{"n": 2}'])
@example([b'{"n": 1} {'])
@example([b'{"n": 1,}'])
@example([b'{,"n": 1}'])
@example([b'{"n" 1}'])
@example([b'{"n": }'])
@example([b'{"n":'])
@example([b"{"])
@example([b'{"n'])
@example([b'{"n"'])
@example([b""])
@example([b"  "])
@example([b"[]"])
@example([b'{"unknown": tru}', b'{"unknown": nul}', b'{"unknown": fals}', b'{"unknown": 01}', b'{"unknown": 1.}'])
@example([b'{"unknown": truex}', b'{"unknown": 1x}', b'{"unknown": "\x01"}'])
def test_whatever_is_not_plain_is_what_the_parser_says(values: list[bytes | None]) -> None:
    check(values)


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-0",
        "7",
        "-7",
        "127",
        "128",
        "-128",
        "-129",
        "32767",
        "32768",
        "2147483647",
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
        "1.0",
        "1.5",
        "1e2",
        "1E2",
        "00",
        "01",
        "-01",
        ".",
        ".5",
        "5.",
        "-",
        "+1",
        "1_0",
        "0x1",
        "NaN",
        "Infinity",
        "1-1",
    ],
)
def test_numbers(text: str) -> None:
    check([f'{{"{field}": {text}}}'.encode() for field in FIELDS])


def test_powers_of_ten_are_exact() -> None:
    assert [int(power) for power in flat._POWERS] == [10**places for places in range(23)]


@settings(deadline=None)
@given(st.from_regex(r"-?(0|[1-9][0-9]{0,19})(\.[0-9]{1,24})?", fullmatch=True))
def test_decimals_are_the_nearest_there_are(text: str) -> None:
    (row,) = Json("amount DOUBLE").read(pa.array([f'{{"amount": {text}}}'.encode()], pa.binary())).values.to_pylist()
    assert repr(row["amount"]) == repr(float(text))


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-01T12:00:07Z",
        "2026-03-01T12:00:07.123Z",
        "2026-03-01T12:00:07.123456Z",
        "2024-02-29T23:59:59Z",
        "2025-02-29T23:59:59Z",
        "2000-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "1969-12-31T23:59:59.999999Z",
        "1600-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "0000-01-01T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-04-00T00:00:00Z",
        "2026-04-01T24:00:00Z",
        "2026-04-01T00:60:00Z",
        "2026-04-01T00:00:60Z",
        "2026-04-01 00:00:00Z",
        "2026-04-01T00:00:00",
        "2026-04-01T00:00:00z",
        "2026-04-01T00:00:00.1Z",
        "2026-04-01T00:00:00,123Z",
        "2026-04-01T00:00:00.12xZ",
        "2026-04-01T00:00:00+01:00",
        "2026-04-01",
        "",
    ],
)
def test_times(text: str) -> None:
    check([f'{{"at": "{text}"}}'.encode(), f'{{"id": "{text}"}}'.encode()])


def test_plain_rows_are_not_left_to_the_parser() -> None:
    plain = '{"id": "ü", "n": -5, "amount": 12.25, "ok": true, "at": "2026-03-31T12:00:07.5Z"}'.replace(".5Z", ".500Z")
    assert aside(SCHEMA, plain, '{"more": null, "ok": false, "id": null}', "{}", ' { "n" : 1 } ') == [False] * 4
    assert aside(SCHEMA, '{"id": "a\\n"}', '{"amount": 1e3}', '{"more": []}', '{"n": 1') == [True] * 4


def test_only_objects_of_plain_fields() -> None:
    for schema in ("a ARRAY<INT>", "a STRUCT<b: INT>", "a FLOAT", "a DATE", "a DECIMAL(5, 2)", "a TIMESTAMP_NTZ"):
        assert not is_flat(Json(schema).type), schema
    assert not is_flat(Json('`a"b` INT').type) and not is_flat(Json("`a\\b` INT").type)
    assert is_flat(Json(SCHEMA).type)
    assert is_flat(Json(", ".join(f"f{number} INT" for number in range(63))).type)
    assert not is_flat(Json(", ".join(f"f{number} INT" for number in range(64))).type)


def test_slices_of_arrays() -> None:
    array = pa.array([b'{"n": 1}', b'{"n": 2}', None, b'{"n": 3e0}', *[b'{"n": 4}'] * 16], pa.binary())[1:]
    assert [row and row["n"] for row in Json("n INT").read(array).values.to_pylist()][:3] == [2, None, None]
    assert list(Json("n INT").read(array).bad) == [2]
