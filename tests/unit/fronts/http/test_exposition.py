from __future__ import annotations

import time
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from levada.fronts.http.exposition import FEW, PIECE_NS, Table, exposition, label


async def text_of(*families: Table) -> str:
    return b"".join([piece async for piece in exposition(families)]).decode()


def slow_rows(count: int) -> Iterator[tuple[str, int]]:
    for number in range(count):
        if number % FEW == 0:
            time.sleep(PIECE_NS / 1e9)
        yield label("n", str(number)), number


async def test_a_table_is_written_in_pieces_under_one_heading() -> None:
    count = 10 * FEW + 1
    assert len(list(Table("counter", "things_total", "Things.", slow_rows(count)).pieces())) == 13
    text = await text_of(Table("counter", "things_total", "Things.", slow_rows(count)))
    (family,) = text_string_to_metric_families(text)
    assert (family.name, family.type, family.documentation) == ("things", "counter", "Things.")
    assert [sample.value for sample in family.samples] == list(range(count))


async def test_an_empty_table_still_says_what_it_is() -> None:
    (family,) = text_string_to_metric_families(await text_of(Table("gauge", "none", "Nothing yet.", ())))
    assert (family.name, family.type, family.samples) == ("none", "gauge", [])


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_value_of_a_label_is_read_back(value: str) -> None:
    text = b"".join(Table("gauge", "a", "A.", [(label("v", value), 7)]).pieces()).decode()
    # Lines end with \n and nothing else; the parser splits on every line break there is.
    assert text.count("\n") == 3
    if value.splitlines() in ([], [value]):
        (family,) = text_string_to_metric_families(text)
        assert [(sample.labels, sample.value) for sample in family.samples] == [({"v": value}, 7)]
