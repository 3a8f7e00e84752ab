"""A pipeline that is started again where the machine was too busy for it: a few times, and for no other reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from levada.spark.pipelines.errors import TooBusy

if TYPE_CHECKING:
    from levada.spark.pipelines.running import Running

STARTS: Final = 3


class Patient:
    """Made, it is started. `running` is the one of now."""

    def __init__(self, start: Callable[[], Running]) -> None:
        self._start = start
        self._left = STARTS - 1
        self.running = start()

    def ended(self) -> bool:
        """Whether it has ended, well or not, and was not started again."""
        if self.running.active:
            return False
        if not (self._left and isinstance(self.running.failure, TooBusy)):
            return True
        self._left -= 1
        self.running = self._start()
        return False
