"""Where scripts/tools.py put Kafka's jars and other people's programs, and what a test does when they are not there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def cache_dir() -> Path:
    return Path(os.environ.get("LEVADA_CACHE") or Path.home() / ".cache" / "levada").expanduser()


def need(tool: str, found: bool) -> None:
    """Skip loudly where a tool is missing; in CI that is a failure, because there nothing may go untested."""
    if found:
        return
    message = f"{tool} is missing: run `make tools`"
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def jars(directory: str) -> str:
    """The class path of a directory of the cache: `kafka/libs` or `clients-3.9`."""
    return f"{_complete(directory)}/*"


def spark_connector() -> str:
    """What `spark.jars` is given for Spark's own Kafka connector."""
    return ",".join(sorted(str(jar) for jar in _complete("spark-kafka").glob("*.jar")))


def _complete(directory: str) -> Path:
    path = cache_dir() / directory
    need(f"Kafka's jars ({directory})", (path / ".complete").exists())
    need("a JDK", bool(shutil.which("javac")))
    return path
