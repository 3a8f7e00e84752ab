"""Compile small Java programs once per class path, and say how to run them.

Classes go to the cache directory under a name made of the source and the class path, so a second run compiles nothing
and an edited program is compiled anew.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from support.jars import cache_dir, jars

#: Class path by the version of kafka-clients it holds.
CLIENTS = {"3.9": "clients-3.9", "4.3": "kafka/libs"}
#: A JVM that starts fast and stays small, for programs that live seconds.
SMALL_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Xshare:auto")
SOURCES = Path(__file__).resolve().parent.parent / "acceptance" / "java"


def compiled(program: str, version: str) -> Path:
    """The directory with the program's classes for these clients."""
    source = SOURCES / f"{program}.java"
    library = jars(CLIENTS[version])
    marker = (cache_dir() / CLIENTS[version] / ".complete").read_bytes()
    name = hashlib.sha256(source.read_bytes() + marker).hexdigest()[:16]
    target = cache_dir() / "classes" / f"{program}-{version}-{name}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        done = subprocess.run(
            ["javac", "-nowarn", "-cp", library, "-d", f"{scratch}/out", str(source)], capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{source.name} does not compile with kafka-clients {version}: {done.stderr}")
        try:
            os.rename(f"{scratch}/out", target)
        except FileExistsError:
            pass  # another run was faster
    return target


def java_command(program: str, version: str) -> list[str]:
    """The command that runs a program of tests/acceptance/java with these clients."""
    classes = f"{compiled(program, version)}:{jars(CLIENTS[version])}"
    return ["java", *SMALL_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classes, program]
