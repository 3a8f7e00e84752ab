from __future__ import annotations

import pytest

from levada.cli.places import Place, place
from levada.cli.session import WrongUsage


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Place(start="earliest")),
        ("latest", Place(start="latest")),
        ("0", Place(offset=0)),
        ("1500", Place(offset=1500)),
        ("+10", Place(shift=10)),
        ("-10", Place(shift=-10)),
        ("1970-01-01T00:00:01Z", Place(timestamp_ms=1000)),
        ("1970-01-01T01:00:01+01:00", Place(timestamp_ms=1000)),
        ("1970-01-01T00:00:01", Place(timestamp_ms=1000)),
        ("1970-01-02", Place(timestamp_ms=86_400_000)),
    ],
)
def test_a_place_is_said_in_five_ways(text: str, expected: Place) -> None:
    assert place(text, "--to", shifts=True) == expected


@pytest.mark.parametrize("text", ["", "soon", "-", "1.5", "2026-13-01", "+x"])
def test_anything_else_is_refused_with_what_can_be_said(text: str) -> None:
    with pytest.raises(WrongUsage, match="must be earliest, latest, an offset"):
        place(text, "--to", shifts=True)


def test_a_shift_is_only_from_where_a_group_is() -> None:
    with pytest.raises(WrongUsage):
        place("-10", "--from")


def test_it_is_handed_on_as_the_manager_takes_it() -> None:
    assert place("7", "--to").seeking() == {"to": 7}
    assert place("latest", "--to").seeking() == {"to": "latest"}
    assert place("-3", "--to", shifts=True).seeking() == {"shift": -3}
    assert place("1970-01-01", "--to").seeking() == {"timestamp_ms": 0}
