"""How functions are compiled: once per machine. Importing this is what loads numba.

The machine code is kept where NUMBA_CACHE_DIR says, else beside the source, else in the user's cache directory, which is where an
installation ends up that cannot be written to. An executor's user may have no home at all: then it is kept in a directory of its
own among the temporary files, and where even that cannot be had, compiled in each process.

numba knows machine code again by the file of its function alone. Here functions use others', so it is kept under names that tell all our
sources with such functions apart: after an upgrade nothing old is run.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numba
from numba import uint8

#: numba's types; its own hints leave the making of tuples out.
types: Final[Any] = numba.types
#: Bytes to look at, whether or not they could be written to.
BYTES: Final = types.Array(uint8, 1, "C", readonly=True)
_njit: Final[Any] = partial(numba.njit, nogil=True, _nrt=False)


def compiled(*signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function, with a signature at once. It runs without the interpreter's lock, and fills arrays that it is given: it has
    none of its own, so none needs to be counted, which for a function called for each byte or row would cost more than its work."""

    def compile_it(function: Callable[..., Any]) -> Any:
        function.__qualname__ += f".{_sources()}"
        try:
            return _njit(*signature, cache=True)(function)
        except RuntimeError:  # numba finds no place for its cache
            return _elsewhere(function, *signature)

    return compile_it


@cache
def _sources() -> str:
    """A digest of all files with compiled functions."""
    here, digest = Path(__file__).parent, hashlib.sha256()
    for file in sorted(here.rglob("*.py")):
        if b"compiling import" in (text := file.read_bytes()):
            digest.update(str(file.relative_to(here)).encode() + b"\0" + text)
    return digest.hexdigest()[:12]


def _elsewhere(function: Callable[..., Any], *signature: Any) -> Any:
    place = private_directory(Path(tempfile.gettempdir()) / f"levada-compiled-{os.getuid()}")
    if place is None:
        return _njit(*signature)(function)
    settings: Any = numba.config
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(place)
    try:
        return _njit(*signature, cache=True)(function)
    finally:
        settings.CACHE_DIR = before


def private_directory(place: Path) -> Path | None:
    """The directory, made where it is not there; None unless it is ours alone: what lies in it is run."""
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return place if ours else None
