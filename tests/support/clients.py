"""The foreign clients, how each is started, and what each can do.

A client that lacks a feature is left out of that test's parameters rather than skipped in it; its driver's head says what
it lacks and why.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from support.driver import Driver, python_command
from support.jars import need
from support.java import java_command

ALL = ("librdkafka", "kafka-python", "aiokafka", "kcat", "java-3.9", "java-4.3")

#: What not every client can do.
LACKS = {
    "admin": {"kcat"},
    "committing for a group": {"kcat"},
    "stepwise transactions": {"kcat"},
    "null header values": {"kafka-python", "kcat"},
    "timestamps": {"kcat"},
    "telling offsets": {"kcat"},
    "cooperative rebalancing": {"aiokafka"},
    "static membership": {"aiokafka"},
    "refusing old settings": {"aiokafka"},
    "murmur2": {"librdkafka", "kcat"},
}


def able(feature: str) -> list[str]:
    return [name for name in ALL if name not in LACKS[feature]]


def driver(name: str, errors: Path) -> Driver:
    """A driver of this client, not started yet."""
    if name.startswith("java-"):
        return Driver(name, java_command("Driver", name.removeprefix("java-")), errors)
    if name == "kcat":
        need("kcat", bool(shutil.which("kcat")))
    return Driver(name, python_command(f"with_{name.replace('-', '_')}.py"), errors)
