"""Which Java Spark would start, and whether it will do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from levada.errors import LevadaError

#: What Spark 4 runs on.
JAVA_MIN: Final = 17
HOW_TO_GET: Final = (
    f"install a JDK or JRE {JAVA_MIN} or newer (apt-get install openjdk-{JAVA_MIN}-jre-headless, brew install "
    f"openjdk@{JAVA_MIN}), or set JAVA_HOME to one"
)


class NoJava(LevadaError):
    """Spark needs Java, and there is none that will do."""


class Java(NamedTuple):
    """A Java: the command, its version as it says it, and the number that counts (17 of "17.0.2", 8 of "1.8.0")."""

    path: str
    version: str
    major: int


def java_command(environment: Mapping[str, str] = os.environ) -> str | None:
    """The command that Spark's scripts take: JAVA_HOME's, else the one on the path."""
    if home := environment.get("JAVA_HOME"):
        return str(Path(home, "bin", "java"))
    return shutil.which("java", path=environment.get("PATH"))


def java(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java that Spark will run on. NoJava, with what to do."""
    path = java_command(environment)
    if path is None:
        raise NoJava(f"there is no Java: neither JAVA_HOME nor the path has one; {HOW_TO_GET}")
    try:
        said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        source = "JAVA_HOME says so" if environment.get("JAVA_HOME") else "it is on the path"
        raise NoJava(f"{path} ({source}) cannot be run: {error}; {HOW_TO_GET}") from None
    found = version_of(said.stderr + said.stdout)
    if found is None:
        raise NoJava(f"{path} does not say its version; {HOW_TO_GET}")
    version, major = found
    if major < JAVA_MIN:
        raise NoJava(f"{path} is Java {version}; Spark needs {JAVA_MIN} or newer: {HOW_TO_GET}")
    return Java(path, version, major)


def version_of(said: str) -> tuple[str, int] | None:
    """Out of what `java -version` prints."""
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', said)
    return (found[1], int(found[2])) if found else None
