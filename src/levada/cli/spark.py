"""What every command that runs Spark shares: where broker, master and files are, and what is said when something is missing."""

from __future__ import annotations

import importlib.util
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from levada.cli.session import WrongUsage, session
from levada.errors import InvalidConfig, LevadaError

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
_NEEDED: Final = ("pyspark", "pyarrow", "pandas", "deltalake", "fastavro")

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="LEVADA_BOOTSTRAP",
        metavar="HOST:PORT",
        help="Where Kafka's protocol is spoken: Levada, or Apache Kafka.",
        show_default=DEFAULT_BOOTSTRAP,
    ),
]
SparkServer = Annotated[
    str | None,
    typer.Option(
        "--server",
        "-s",
        envvar="LEVADA_SERVER",
        metavar="HOST:PORT",
        help="A Levada by its gRPC address, which says where its Kafka port is.",
        show_default=False,
    ),
]


def _known_master(master: str) -> str:
    """WrongUsage where Spark knows no such master."""
    from levada.spark.session import check_name

    try:
        check_name(master)
    except InvalidConfig as error:
        raise WrongUsage(f"--{error}") from None
    return master


Master = Annotated[
    str,
    typer.Option(
        "--master",
        envvar="LEVADA_MASTER",
        help="Spark's master: local[N], or spark://HOST:PORT.",
        callback=_known_master,
    ),
]
Home = Annotated[
    Path,
    typer.Option(
        "--home",
        envvar="LEVADA_HOME",
        metavar="DIR",
        help="Keeps checkpoints and lake tables; on a cluster, a directory that all of it sees.",
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Spark's warnings, and the whole trace of what goes wrong.")
]
DEFAULT_HOME: Final = Path("levada-pipelines")
DEFAULT_MASTER: Final = "local[*]"


class SparkMissing(LevadaError):
    """Spark is not installed."""


class Interrupted(LevadaError):
    """Interrupted."""


def need_spark() -> None:
    """SparkMissing, saying how to get it. From here on SIGTERM ends a command as Ctrl-C does: in order."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise SparkMissing(f"{', '.join(missing)} is not installed: pip install 'levada[spark]'")
    # py4j tells the root logger, with a trace, that Ctrl-C was pressed; without a handler that goes to stderr.
    logging.getLogger().addHandler(logging.NullHandler())
    # pyspark tells this one, as JSON with Java's trace, what it raises as well.
    logging.getLogger("DataFrameQueryContextLogger").disabled = True
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def bootstrap_of(bootstrap: str | None, server: str | None) -> str:
    """Where Kafka's protocol is spoken: as given, as the server says, or where `levada up` has it. WrongUsage, Unreachable."""
    if bootstrap is not None:
        return bootstrap
    if server is None:
        return DEFAULT_BOOTSTRAP
    with session(server) as client:
        found = next((node.kafka for node in client.manager.nodes() if node.self), "")
    if not found:
        raise WrongUsage(f"--server {server} does not say where its Kafka port is: give --bootstrap HOST:PORT")
    return found


def need_broker(bootstrap: str) -> None:
    """Unreachable, at once and not after Spark has started."""
    from levada.errors import Unreachable
    from levada.wire.blocking import BlockingClient

    try:
        with BlockingClient(bootstrap, client_id="levada-cli", connect_timeout_ms=5_000):
            pass
    except Unreachable as error:
        raise Unreachable(
            f"{error}\n`levada up` starts a broker; another one is named by --bootstrap HOST:PORT or LEVADA_BOOTSTRAP."
        ) from None
    except ValueError as error:
        raise WrongUsage(f"--bootstrap {bootstrap!r}: {error}") from None


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Set by Ctrl-C and SIGTERM. pyspark's own handler would cancel the micro-batch."""
    told = threading.Event()

    def tell(*_: Any) -> None:
        told.set()

    before = {one: signal.signal(one, tell) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def interruption_told(text: str) -> Iterator[None]:
    """What is said when Ctrl-C or SIGTERM ends a command that does not end otherwise."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(text) from None
