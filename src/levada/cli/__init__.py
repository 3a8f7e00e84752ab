"""Typer: parse, call, print. One file per noun; `main` turns what goes wrong into a sentence and an exit code.

Exit codes: 0 done · 1 refused or failed · 2 wrong usage · 3 nothing answers at the address · 4 no such topic or group.
"""

from __future__ import annotations

import sys

EXIT_FAILED = 1
EXIT_UNREACHABLE = 3
EXIT_NOT_FOUND = 4


def main() -> None:
    """The `levada` command."""
    from levada.cli.app import app
    from levada.errors import LevadaError

    try:
        app()
    except LevadaError as error:
        print(f"levada: {error}", file=sys.stderr)
        sys.exit(_exit_code(error))
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stderr.close()
        sys.exit(0)


def _exit_code(error: Exception) -> int:
    from levada.errors import ConnectionLost, UnknownGroup, UnknownPartition, UnknownTopic, Unreachable

    if isinstance(error, Unreachable | ConnectionLost):
        return EXIT_UNREACHABLE
    if isinstance(error, UnknownTopic | UnknownGroup | UnknownPartition):
        return EXIT_NOT_FOUND
    return EXIT_FAILED
