"""A limit on rows per second, kept over whole batches: a bucket that fills at the rate and may be overdrawn by one batch."""

from __future__ import annotations

from typing import Final

#: A batch has at most what may pass in this time, so that the rate is kept to within it.
WINDOW_S: Final = 2.0


class Pace:
    """Who sends asks `wait_s` before each batch, and says with `sent` how much it was. The clock is the caller's.

    Over any stretch of time no more than `rate` × that time passes, and one batch of `rows_max` beside it.
    """

    def __init__(self, rate: float | None, now_s: float) -> None:
        if rate is not None and rate <= 0:
            raise ValueError(f"a rate of {rate:g} rows/s: must be more than 0")
        self._rate = rate
        self._free_s = now_s

    def rows_max(self, otherwise: int) -> int:
        """The most a batch may have."""
        return otherwise if self._rate is None else min(otherwise, max(1, int(self._rate * WINDOW_S)))

    def wait_s(self, now_s: float) -> float:
        """How long until the next batch may go out."""
        return max(0.0, self._free_s - now_s)

    def sent(self, rows: int, now_s: float) -> None:
        """What was not used while nothing was sent is not saved up."""
        if self._rate is not None:
            self._free_s = max(self._free_s, now_s) + rows / self._rate
