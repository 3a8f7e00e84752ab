"""Where a snapshot may be written: only where nothing is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from levada.errors import InvalidRequest
from levada.spark.jobs.snapshot import refuse_what_is_there


def make_table(at: Path) -> str:
    from deltalake import write_deltalake

    write_deltalake(str(at), pa.table({"key": [b"k"]}))
    return at.as_uri()


def test_a_table_that_is_there_is_refused_whatever_its_address(tmp_path: Path) -> None:
    there = make_table(tmp_path / "accounts.delta")
    assert there.startswith("file://")
    with pytest.raises(InvalidRequest, match="it is there already; name another place, or remove it"):
        refuse_what_is_there(there, "delta")


def test_a_path_that_is_there_is_refused_in_any_form(tmp_path: Path) -> None:
    for form in ("parquet", "delta", "csv"):
        with pytest.raises(InvalidRequest, match="it is there already"):
            refuse_what_is_there(str(tmp_path), form)


def test_what_is_not_there_may_be_made(tmp_path: Path) -> None:
    refuse_what_is_there(str(tmp_path / "new.delta"), "delta")
    refuse_what_is_there((tmp_path / "new.delta").as_uri(), "delta")
    refuse_what_is_there("s3://bucket/accounts", "parquet")
