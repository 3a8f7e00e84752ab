"""The cache of open files."""

from __future__ import annotations

from levada.log.disk import Disk
from levada.log.files import Files, Opened
from levada.log.index import Indexes


def opened(path: str) -> Opened:
    return Opened(Disk().create(path), Indexes.empty(0, 100))


def test_what_was_used_last_stays(tmp_path: object) -> None:
    files = Files(open_max=2)
    one, two, three = (opened(f"{tmp_path}/{name}") for name in "123")
    files.put(1, one)
    files.put(2, two)
    assert files.get(1) is one
    files.put(3, three)
    assert (files.get(1), files.get(2), files.get(3)) == (one, None, three)
    files.drop(1)
    files.drop(1)
    assert files.get(1) is None and len(files) == 1
