"""aiokafka's compiled reader and builder of record batches, imported when they are first needed: it takes a while.

Under one lock, since its modules import one another in a circle: two threads that begin at two ends of it would each find a
half-made module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from threading import Lock
from typing import Any, Final

_importing: Final = Lock()


@cache
def reader() -> tuple[Callable[[memoryview], Iterable[Any]], tuple[type[Exception], ...]]:
    """The reader and what it raises on garbage."""
    with _importing:
        from aiokafka.errors import CorruptRecordException
        from aiokafka.record._crecords import DefaultRecordBatch

    return DefaultRecordBatch, (CorruptRecordException, UnicodeDecodeError, OverflowError, MemoryError)


@cache
def builder() -> Callable[..., Any]:
    """The builder."""
    with _importing:
        from aiokafka.record._crecords import DefaultRecordBatchBuilder

    made: Callable[..., Any] = DefaultRecordBatchBuilder
    return made
