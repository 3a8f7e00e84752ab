"""Keep the processor's cores from falling asleep.

On a virtual machine waking an idle core takes tens of microseconds, as much as a broker needs for a small request, so a client
that waits for every answer measures that too. A server that is tuned for latency never lets its cores sleep
(`idle=poll`); here processes of the lowest class, SCHED_IDLE, spin instead: whoever else wants a core has it at once.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager


def _spin() -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while True:
        pass


@contextmanager
def awake() -> Iterator[None]:
    """One spinning process for each core, for the length of the block."""
    context = multiprocessing.get_context("fork")
    spinners = [context.Process(target=_spin, daemon=True) for _ in range(os.cpu_count() or 1)]
    for spinner in spinners:
        spinner.start()
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.join()
