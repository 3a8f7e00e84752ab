"""What makes time pass for a group coordinator, which has no clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from levada.broker.groups import now_ms as group_clock_ms
from levada.config import MINUTE_MS
from levada.engine.embedded.offsets import OffsetStore
from levada.errors import StorageError
from levada.fronts.kafka import notice


class Coordinator(Protocol):
    """What has deadlines: the coordinator of classic groups, or that of native ones."""

    def on_earlier_deadline(self, wake: Callable[[], None] | None) -> None: ...

    def next_deadline(self) -> int | None: ...

    def tick(self, now_ms: int) -> None: ...

    def sweep(self, has_offsets: Callable[[str], bool], now_ms: int) -> Sequence[str]: ...


class GroupTimer:
    """Calls the coordinator when something is due: one timer of the event loop, and none while no member waits.

    Given the store of offsets, it also looks every `sweep_ms()` for empty groups whose offsets are all gone, and has them
    forgotten.
    """

    def __init__(
        self,
        groups: Coordinator,
        store: OffsetStore | None = None,
        *,
        sweep_ms: Callable[[], int] = lambda: 10 * MINUTE_MS,
        now_ms: Callable[[], int] = group_clock_ms,
    ) -> None:
        self._groups = groups
        self._store = store
        self._sweep_ms = sweep_ms
        self._now_ms = now_ms
        self._alarm: asyncio.TimerHandle | None = None
        self._next_sweep: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """From here on deadlines are kept, on the running event loop."""
        self._groups.on_earlier_deadline(self._set_alarm)
        self._set_alarm()
        self._plan_sweep()

    def stop(self) -> None:
        self._groups.on_earlier_deadline(None)
        for handle in (self._alarm, self._next_sweep):
            if handle is not None:
                handle.cancel()
        self._alarm = self._next_sweep = None

    def replan(self) -> None:
        """`sweep_ms` may be another."""
        if self._next_sweep is not None:
            self._next_sweep.cancel()
            self._plan_sweep()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        deadline_ms = self._groups.next_deadline()
        if deadline_ms is not None:
            delay_s = max(0, deadline_ms - self._now_ms()) / 1000
            self._alarm = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        try:
            self._groups.tick(self._now_ms())
        finally:
            self._set_alarm()

    def _plan_sweep(self) -> None:
        if self._store is not None:
            self._next_sweep = asyncio.get_running_loop().call_later(self._sweep_ms() / 1000, self._sweep)

    def _sweep(self) -> None:
        try:
            self._groups.sweep(self._has_offsets, self._now_ms())
        except StorageError as reason:
            notice.log().warning("empty groups are not forgotten", cause=str(reason))
        finally:
            self._plan_sweep()

    def _has_offsets(self, group_id: str) -> bool:
        assert self._store is not None
        return bool(self._store.fetch(group_id)) or bool(self._store.pending(group_id))
