"""Typer: parse, call, print. One file per noun; `main` turns what goes wrong into a sentence and an exit code.

Exit codes: 0 done · 1 refused or failed · 2 wrong usage · 3 nothing answers at the address · 4 no such topic or group.
"""

from __future__ import annotations

import json
import sys
from typing import NoReturn

EXIT_FAILED = 1
EXIT_UNREACHABLE = 3
EXIT_NOT_FOUND = 4
_INTERRUPTED = 130

#: Kafka's codes for a topic, partition or group that is not there.
_NOT_FOUND_CODES = frozenset((3, 69, 100))


def main() -> None:
    """The `levada` command."""
    from levada.cli.app import app
    from levada.errors import LevadaError

    try:
        app(standalone_mode=True)
    except LevadaError as error:
        _complain(error, str(error))
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except OSError as error:
        if error.filename is None:
            raise
        _complain(error, f"{error.filename}: {error.strerror}")


def _complain(error: Exception, text: str) -> NoReturn:
    if "--json" in sys.argv:
        print(json.dumps({"error": type(error).__name__, "message": text}), file=sys.stderr)
    else:
        print(f"levada: {text}", file=sys.stderr)
    sys.exit(exit_code(error))


def exit_code(error: Exception) -> int:
    """What the shell is told."""
    from levada.errors import BrokerRefused, ConnectionLost, UnknownGroup, UnknownPartition, UnknownTopic, Unreachable

    if isinstance(error, Unreachable | ConnectionLost):
        return EXIT_UNREACHABLE
    if isinstance(error, UnknownTopic | UnknownGroup | UnknownPartition):
        return EXIT_NOT_FOUND
    if isinstance(error, BrokerRefused) and error.code in _NOT_FOUND_CODES:
        return EXIT_NOT_FOUND
    return EXIT_FAILED
