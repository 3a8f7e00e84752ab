"""A command waits for nothing it does not need."""

from __future__ import annotations

import subprocess
import sys

HEAVY = (
    "asyncio",
    "google.protobuf",
    "grpc",
    "levada.client",
    "levada.server",
    "numba",
    "pydantic",
    "rich",
    "starlette",
)


def test_the_commands_are_known_without_loading_what_they_use() -> None:
    names = ("app", "cluster", "consume", "group", "produce", "topic", "up")
    lines = [f"import levada.cli.{name}" for name in names]
    lines += ["import sys", f"print([name for name in {HEAVY} if name in sys.modules])"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
