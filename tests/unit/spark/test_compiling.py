"""Compiled code is kept, wherever there is room for it, and never in a place that others can write to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from levada.spark.compiling import private_directory

#: A module whose functions are compiled with a signature, so that importing it is all there is to do.
IMPORT = "import levada.spark.columns.batches as b; print(sum(len(f.stats.cache_hits) for f in (b._count, b._fill)))"
NOWHERE = """
import numba.core.caching as caching
caching.CacheImpl._locator_classes = [caching.UserProvidedCacheLocator]
"""


def hits(environment: dict[str, str], before: str = "") -> int:
    """How many of two functions came from a cache."""
    run = subprocess.run(
        [sys.executable, "-c", before + IMPORT],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(run.stdout)


def test_the_second_process_finds_what_the_first_compiled(tmp_path: Path) -> None:
    place = {"NUMBA_CACHE_DIR": str(tmp_path)}
    assert hits(place) == 0
    assert hits(place) == 2


def test_what_was_compiled_of_other_sources_is_not_run(tmp_path: Path) -> None:
    place, other = (
        {"NUMBA_CACHE_DIR": str(tmp_path)},
        "import levada.spark.compiling as c; c._sources = lambda: 'other';",
    )
    assert hits(place) == 0
    assert hits(place, other) == 0
    assert hits(place, other) == 2
    assert hits(place) == 2


def test_without_source_or_home_to_write_to_it_is_kept_with_the_temporary_files(tmp_path: Path) -> None:
    place = {"TMPDIR": str(tmp_path)}
    assert hits(place, NOWHERE) == 0
    assert hits(place, NOWHERE) == 2


def test_a_directory_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    made = private_directory(tmp_path / "ours")
    assert made == tmp_path / "ours"
    assert private_directory(made) == made
    made.chmod(0o770)
    assert private_directory(made) is None
    (tmp_path / "link").symlink_to(tmp_path)
    assert private_directory(tmp_path / "link") is None
    assert private_directory(tmp_path / "nothing" / "below") is None


@pytest.mark.parametrize("module", ["levada", "levada.server", "levada.client.client", "levada.cli"])
def test_whoever_does_without_spark_loads_nothing_of_it(module: str) -> None:
    code = f"import sys, {module}; print([name for name in ('pyarrow', 'pyspark', 'fastavro', 'pandas') if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
