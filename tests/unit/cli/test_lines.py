from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levada.cli.lines import Draft, objects, plain
from levada.cli.shapes import shape
from levada.client.records import Record
from levada.errors import InvalidRequest

NOTHING = Draft(None)


def test_a_line_is_a_value_without_its_end() -> None:
    drafts = plain([b"a\n", b"b\r\n", b"\n", b"last"], Draft(None, key=b"k", partition=3), None)
    assert [(one.value, one.key, one.partition) for one in drafts] == [
        (value, b"k", 3) for value in (b"a", b"b", b"", b"last")
    ]


def test_a_separator_parts_key_and_value_at_its_first_place() -> None:
    drafts = list(plain([b"k::v::w\n", b"::\n"], NOTHING, "::"))
    assert [(one.key, one.value) for one in drafts] == [(b"k", b"v::w"), (b"", b"")]
    with pytest.raises(InvalidRequest, match="line 2 has no '::'"):
        list(plain([b"k::v\n", b"kv\n"], NOTHING, "::"))


def test_what_is_given_for_all_counts_where_a_line_says_nothing() -> None:
    template = Draft(None, key=b"k", headers=(("all", b"1"),), partition=2)
    plain_one, own = objects([b'{"value": "v"}', b'{"value": "v", "key": null, "headers": {"own": "2"}}'], template)
    assert (plain_one.key, plain_one.headers, plain_one.partition) == (b"k", (("all", b"1"),), 2)
    assert (own.key, own.headers) == (None, (("all", b"1"), ("own", b"2")))


def test_a_value_that_is_no_text_is_the_json_it_is() -> None:
    values = [
        one.value
        for one in objects([b'{"value": {"a": [1, "\xc3\xa1"]}}', b'{"value": 1.5}', b'{"value": true}'], NOTHING)
    ]
    assert values == ['{"a":[1,"á"]}'.encode(), b"1.5", b"true"]


@given(
    value=st.none() | st.binary(),
    key=st.none() | st.binary(),
    headers=st.lists(st.tuples(st.text(), st.none() | st.binary()), max_size=3),
    timestamp_ms=st.integers(0, 4_000_000_000_000),
)
def test_what_is_printed_as_json_is_read_back_as_it_was(
    value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes | None]], timestamp_ms: int
) -> None:
    printed: list[str] = []
    record = Record("t", 4, 9, timestamp_ms, key, value, tuple(headers))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", printed.append)
        shape(raw=False, as_json=True, form=None)(record)
    assert json.loads(printed[0])["offset"] == 9
    (draft,) = objects([printed[0].encode()], NOTHING)
    assert draft[:4] == (value, key, tuple(headers), 4)
    assert draft.timestamp_ms == timestamp_ms
