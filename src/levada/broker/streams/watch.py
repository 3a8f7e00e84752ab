"""What tells the groups that topics were made, expanded or deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from levada.broker.streams import notice
from levada.broker.streams.coordinator import StreamGroups
from levada.engine.port import TopicView


class TopicWatch:
    """One task that sleeps until a topic changes. Changes that come together are looked at together."""

    def __init__(self, view: TopicView, groups: StreamGroups, now_ms: Callable[[], int]) -> None:
        self._view = view
        self._groups = groups
        self._now_ms = now_ms
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """On the running event loop. What changed before is looked at first."""
        self._task = asyncio.create_task(self._run(), name="levada-topic-watch")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            version = self._view.version
            try:
                self._groups.topics_changed(self._now_ms())
            except Exception as error:  # a group that fails must not leave all others unaware for good
                notice.not_told(error)
            await self._view.changed(version)
