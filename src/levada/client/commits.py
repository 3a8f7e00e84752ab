"""A consumer's commits: those the user asks for, and those that happen by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping

from levada.client.feed import Feed
from levada.client.inbox import Inbox
from levada.client.records import At
from levada.client.refusals import is_passing
from levada.errors import LevadaError, TimedOut


class Commits:
    """Stores how far the group has come, and notes in the tracks what is stored."""

    def __init__(self, feed: Feed, inbox: Inbox, timeout_s: float) -> None:
        self._feed = feed
        self._inbox = inbox
        self._timeout_s = timeout_s
        #: As the broker last told it.
        self.generation = 0

    async def store(self, offsets: Mapping[At, int], *, retry: bool = True) -> Mapping[At, LevadaError]:
        """What was refused, by partition; all others are stored. TimedOut, after trying again where the connection was lost."""
        deadline = time.monotonic() + self._timeout_s
        errors: Mapping[At, LevadaError] = {}
        while offsets:
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    errors = await self._feed.commit(offsets, self.generation)
                break
            except TimeoutError:
                raise TimedOut(f"offsets were not committed within {self._timeout_s:g} s") from None
            except LevadaError as error:
                if not retry or not is_passing(error):
                    raise
        for at, offset in offsets.items():
            track = self._inbox.tracks.get(at)
            if track is not None and at not in errors:
                track.committed = offset
        return errors

    async def store_quietly(self, offsets: Mapping[At, int]) -> None:
        """What is refused here is committed by whoever owns the partition now."""
        with contextlib.suppress(LevadaError):
            await self.store(offsets, retry=False)

    async def store_often(self, every_ms: int) -> None:
        """What the user is done with, again and again."""
        while True:
            await asyncio.sleep(every_ms / 1000)
            await self.store_quietly(self._inbox.finished())
