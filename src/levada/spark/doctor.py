"""Is everything here that Spark needs? Each check says what it found and, where that will not do, what to do.

Nothing that may be missing is imported before it was looked for.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from levada.errors import LevadaError
from levada.spark.java import HOW_TO_GET, NoJava, java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INSTALL: Final = "pip install 'levada[spark]'"
#: What the extra `spark` asks for.
NEEDED: Final = {
    "pyspark": ">=4.3,<4.4",
    "pyarrow": ">=18",
    "deltalake": ">=1.6.6",
    "fastavro": ">=1.10",
    "pandas": ">=2.2,<3",
    "jinja2": ">=3.1",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    found: str
    #: Where it is not ok, or could be better.
    to_do: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def here(bootstrap: str | None) -> Iterator[Check]:
    """This machine, and the broker if one is named. Nothing is started but `java -version`."""
    yield check_java()
    yield from check_packages(NEEDED, _version)
    yield check_source()
    yield check_python(os.environ)
    yield from check_spark_home(os.environ)
    if bootstrap is not None:
        yield check_broker(bootstrap)


def check_java(environment: Mapping[str, str] = os.environ) -> Check:
    try:
        found = java(environment)
    except NoJava as error:
        said = str(error).removesuffix(HOW_TO_GET).rstrip("; :")
        return Check("Java", False, said, HOW_TO_GET)
    source = "JAVA_HOME" if environment.get("JAVA_HOME") else "the path"
    return Check("Java", True, f"{found.version} ({found.path}, from {source})")


def check_packages(wanted: Mapping[str, str], version_of: Callable[[str], str | None]) -> Iterator[Check]:
    for name, versions in wanted.items():
        version = version_of(name)
        if version is None:
            yield Check(name, False, "is not installed", _INSTALL)
        elif not fits(version, versions):
            yield Check(name, False, f"{version}; {versions} is needed", f"{_INSTALL} --upgrade")
        else:
            yield Check(name, True, version)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def fits(version: str, versions: str) -> bool:
    """Whether a version is within ">=4.3,<4.4"."""
    for one in filter(None, (part.strip() for part in versions.split(","))):
        sign, bound = re.match(r"(>=|<=|==|<|>|!=|~=)?\s*(.*)", one).groups()  # type: ignore[union-attr]
        width = max(len(_numbers(version)), len(_numbers(bound)))
        mine, theirs = _numbers(version, width), _numbers(bound, width)
        holds = {
            ">=": mine >= theirs,
            "<=": mine <= theirs,
            "<": mine < theirs,
            ">": mine > theirs,
            "!=": mine != theirs,
        }
        if not holds.get(sign, mine[: len(_numbers(bound))] == _numbers(bound)):
            return False
    return True


def _numbers(version: str, width: int = 0) -> tuple[int, ...]:
    found = tuple(int(one) for one in re.findall(r"\d+", re.split(r"[^\d.]", version)[0]))
    return found + (0,) * (width - len(found))


def check_source() -> Check:
    """Spark finds `format("levada")` by this package's name."""
    name = 'format("levada")'
    if importlib.util.find_spec("pyspark_levada") is None:
        return Check(
            name, False, "the package pyspark_levada is not on the path", "install levada with pip, not by copying"
        )
    return Check(name, True, "is found by Spark (pyspark_levada)")


def check_python(environment: Mapping[str, str]) -> Check:
    """What local executors run on, and what clusters are told to."""
    version = ".".join(map(str, sys.version_info[:3]))
    named = environment.get("PYSPARK_PYTHON")
    if named is None:
        return Check("Python", True, f"{version} ({sys.executable}); executors are told to use it too")
    probe = "import sys, levada; print('.'.join(map(str, sys.version_info[:3])))"
    try:
        said = subprocess.run([named, "-c", probe], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(
            "PYSPARK_PYTHON",
            False,
            f"{named} cannot be run here: {error}",
            "unset it, or name a Python that has levada",
        )
    if said.returncode != 0:
        return Check(
            "PYSPARK_PYTHON", False, f"{named} has no levada", f"{named} -m pip install 'levada[spark]', or unset it"
        )
    found = said.stdout.strip()
    if found.rpartition(".")[0] != version.rpartition(".")[0]:
        return Check(
            "PYSPARK_PYTHON",
            False,
            f"{named} is Python {found}, and this is {version}",
            "both must be the same x.y: unset it",
        )
    return Check("PYSPARK_PYTHON", True, f"{found} ({named})")


def check_spark_home(environment: Mapping[str, str]) -> Iterator[Check]:
    """SPARK_HOME makes pyspark start another Spark than the one it came with."""
    named = environment.get("SPARK_HOME")
    spec = importlib.util.find_spec("pyspark")
    if named is None or spec is None or spec.origin is None:
        return
    own = Path(spec.origin).parent
    if Path(named).resolve() == own.resolve():
        yield Check("SPARK_HOME", True, "is pyspark's own")
    else:
        yield Check("SPARK_HOME", False, f"{named} is not the Spark that pyspark brings ({own})", "unset it")


def check_broker(bootstrap: str) -> Check:
    from levada.wire.blocking import BlockingClient

    try:
        with BlockingClient(bootstrap, client_id="levada-doctor", connect_timeout_ms=5_000) as client:
            topics = len(client.topics())
    except (LevadaError, ValueError) as error:
        return Check("broker", False, str(error), "`levada up` starts one; --bootstrap HOST:PORT names another")
    return Check("broker", True, f"{bootstrap} answers, with {topics:,} topic{'' if topics == 1 else 's'}")


def cluster(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[Check]:
    """The executors of a running session, by a small job on each."""
    import pyspark

    version = spark.version
    if version.split(".")[:2] != pyspark.__version__.split(".")[:2]:
        yield Check(
            "Spark", False, f"{version}, and pyspark is {pyspark.__version__}", f"pip install pyspark=={version}.*"
        )
    else:
        yield Check("Spark", True, f"{version} on {spark.sparkContext.master}")
    try:
        found = executors(spark, [*wanted, "levada", "numba"])
    except Exception as error:
        from levada.spark.pipelines.failures import cause

        yield Check("executors", False, cause(error), "the same Python x.y must be at PYSPARK_PYTHON on all of them")
        return
    for host, seen in sorted(found.items()):
        yield check_executor(host, seen, wanted)


def check_executor(host: str, seen: Mapping[str, Any], wanted: Mapping[str, str]) -> Check:
    """One host's Python and packages beside what is needed."""
    name = f"executor {host}"
    has = seen["packages"]
    wrong = [f"no {one}" for one, version in has.items() if version is None]
    wrong += [
        f"{one} {has[one]} ({versions} is needed)"
        for one, versions in wanted.items()
        if has.get(one) and not fits(has[one], versions)
    ]
    python = f"Python {seen['python']} ({seen['executable']})"
    if wrong:
        return Check(
            name, False, f"{python}: {', '.join(wrong)}", f"there: {seen['executable']} -m pip install 'levada[spark]'"
        )
    return Check(name, True, f"{python}, levada {has.get('levada')}, pyarrow {has.get('pyarrow')}")


def executors(spark: SparkSession, packages: list[str]) -> dict[str, dict[str, Any]]:
    """By host: which Python its executors run, and which versions of packages it has."""

    # A function inside a function is sent by value: an executor without levada can still say that it has none.
    def look(_: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        import socket
        import sys
        from importlib import metadata

        def version(name: str) -> str | None:
            try:
                return metadata.version(name)
            except metadata.PackageNotFoundError:
                return None

        seen = {
            "python": ".".join(map(str, sys.version_info[:3])),
            "executable": sys.executable,
            "packages": {name: version(name) for name in packages},
        }
        yield socket.gethostname(), seen

    context = spark.sparkContext
    tasks = max(2, 4 * context.defaultParallelism)
    return dict(context.parallelize(range(tasks), tasks).mapPartitions(look).collect())
