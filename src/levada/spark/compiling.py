"""How functions are compiled: once per machine. Importing this is what loads numba.

The machine code is kept where NUMBA_CACHE_DIR says, else beside the source, else in the user's cache directory, which is where an
installation ends up that cannot be written to. An executor's user may have no home at all: then it is compiled in each process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numba
from numba import uint8

#: numba's types; its own hints leave the making of tuples out.
types: Final[Any] = numba.types
#: Bytes to look at, whether or not they could be written to.
BYTES: Final = types.Array(uint8, 1, "C", readonly=True)


def compiled(*signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function, with a signature at once. It runs without the interpreter's lock."""
    njit: Any = numba.njit

    def compile_it(function: Callable[..., Any]) -> Any:
        try:
            return njit(*signature, cache=True, nogil=True)(function)
        except RuntimeError:  # numba finds no place for its cache
            return njit(*signature, nogil=True)(function)

    return compile_it
