"""Typer: parse, call, print. One file per noun; `main` turns what goes wrong into a sentence and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Final, NoReturn

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3
EXIT_NOT_FOUND: Final = 4
EXIT_TRY_AGAIN: Final = 5
EXIT_INTERRUPTED: Final = 130

#: As `levada --help` tells it.
EXIT_CODES: Final = (
    "Exit codes: 0 done · 1 refused or failed · 2 wrong usage · 3 nothing answers at the address · 4 no such topic, "
    "partition, group, node or pipeline · 5 overloaded, late or stopping: try again · 130 interrupted."
)


def main() -> None:
    """The `levada` command."""
    leave_when_interrupted()
    # Commands start processes; gRPC would say at each of them that it cannot prepare for a fork.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from levada.cli.app import app
    from levada.errors import LevadaError

    try:
        app(standalone_mode=True)
    except LevadaError as error:
        _complain(error, str(error))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        if error.filename is None:
            raise
        _complain(error, f"{error.filename}: {error.strerror}")


def leave_when_interrupted() -> None:
    """Have Ctrl-C end the process on the spot: while modules are loaded, nothing has begun that would have to end in order.

    A KeyboardInterrupt would come out of whatever module is being loaded, with a story to tell; and where Python happens to be in a
    destructor or a callback of its import system, it is dropped, and the command goes on as if nothing had been pressed.
    """

    def leave(*_: Any) -> NoReturn:
        os._exit(EXIT_INTERRUPTED)

    signal.signal(signal.SIGINT, leave)


def raise_when_interrupted() -> None:
    """Have Ctrl-C raise KeyboardInterrupt, as Python does by itself: from when a command has something to end in order."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _complain(error: Exception, text: str) -> NoReturn:
    if "--json" in sys.argv:
        import json

        print(json.dumps({"error": type(error).__name__, "message": text}), file=sys.stderr)
    else:
        print(f"levada: {text}", file=sys.stderr)
    sys.exit(exit_code(error))


def exit_code(error: Exception) -> int:
    """What the shell is told."""
    from levada import errors as e
    from levada.cli.session import WrongUsage
    from levada.cli.spark import Interrupted
    from levada.spark.pipelines.errors import UnknownPipeline

    if isinstance(error, WrongUsage):
        return EXIT_USAGE
    if isinstance(error, e.Unreachable | e.ConnectionLost):
        return EXIT_UNREACHABLE
    if isinstance(error, e.UnknownTopic | e.UnknownGroup | e.UnknownPartition | e.UnknownNode | UnknownPipeline):
        return EXIT_NOT_FOUND
    if isinstance(error, e.Overloaded | e.TimedOut | e.ShuttingDown):
        return EXIT_TRY_AGAIN
    if isinstance(error, Interrupted):
        return EXIT_INTERRUPTED
    return EXIT_FAILED
