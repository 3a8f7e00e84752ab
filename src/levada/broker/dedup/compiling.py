"""How functions are compiled: once, and kept beside the source, in the user's cache, or, where neither can be written to, not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(*signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function, with a signature at once. It runs without the interpreter's lock."""

    njit: Any = numba.njit

    def compile_it(function: Callable[..., Any]) -> Any:
        try:
            return njit(*signature, cache=True, nogil=True)(function)
        except RuntimeError:  # numba finds no place for its cache
            return njit(*signature, nogil=True)(function)

    return compile_it
