"""A consumer's commits: those the user asks for, and those that happen by themselves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from levada.client.feed import Feed
from levada.client.inbox import Inbox
from levada.client.records import At
from levada.client.refusals import is_passing
from levada.client.track import Track
from levada.errors import IllegalGeneration, LevadaError, TimedOut

#: How long a consumer that is being closed waits for a broker that is not connected.
_ABSENT_S: Final = 1.0

#: How long a generation that has begun may take to be told.
_NEWS_S: Final = 2.0

#: A partition as it is followed: another one, or another turn, after it was moved or taken away.
_Standing = tuple[Track | None, int]


class Commits:
    """Stores how far the group has come, and notes in the tracks what is stored."""

    def __init__(self, feed: Feed, inbox: Inbox, timeout_s: float) -> None:
        self._feed = feed
        self._inbox = inbox
        self._timeout_s = timeout_s
        #: As the broker last told it.
        self.generation = 0
        self._told = asyncio.Event()
        #: Of what is being handed over: the generation it was read in.
        self.read_in: dict[At, int] = {}
        #: What went to others before all that was handed out of it was committed; until the user is told.
        self.lost: set[At] = set()

    @property
    def patience_s(self) -> float:
        """How long whoever goes waits for his last commit: not for a broker that is not there."""
        return self._timeout_s if self._feed.is_connected else min(_ABSENT_S, self._timeout_s)

    async def store(
        self, offsets: Mapping[At, int], *, retry: bool = True, timeout_s: float | None = None
    ) -> Mapping[At, LevadaError]:
        """What was refused, by partition; all others are stored. TimedOut, after trying again where the connection was lost."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        standing = {at: self._standing(at) for at in offsets}
        errors: Mapping[At, LevadaError] = {}
        try:
            async with asyncio.timeout(timeout_s):
                while offsets:
                    try:
                        errors = await self._store(offsets, standing, retry=retry)
                        break
                    except LevadaError as error:
                        if not retry or not is_passing(error):
                            raise
        except TimeoutError:
            raise TimedOut(f"offsets were not committed within {timeout_s:g} s") from None
        for at, offset in offsets.items():
            track = self._track(at)
            if track is not None and at not in errors:
                track.committed = offset
        return errors

    async def _store(
        self, offsets: Mapping[At, int], standing: Mapping[At, _Standing], *, retry: bool
    ) -> Mapping[At, LevadaError]:
        """Of what was moved since, nothing is stored: whoever moved it would have done so in vain."""

        def stands(at: At) -> bool:
            return self._standing(at) == standing[at]

        errors: dict[At, LevadaError] = {at: _moved(at) for at in offsets if not stands(at)}
        generation = self.generation
        refused = await self._commit({at: offset for at, offset in offsets.items() if at not in errors})
        errors |= refused
        if retry and any(self._is_ours(at, error) for at, error in refused.items()):
            # A generation has begun that we hear of any moment: what is still ours is taken in that.
            await self._other_than(generation)
            again = [at for at, error in refused.items() if self._is_ours(at, error) and stands(at)]
            for at in again:
                del errors[at]
            errors |= await self._commit({at: offsets[at] for at in again})
        return errors

    def begin(self, generation: int) -> int:
        """The broker has told of this generation. The one before."""
        before, self.generation = self.generation, generation
        told, self._told = self._told, asyncio.Event()
        told.set()
        return before

    async def _other_than(self, generation: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NEWS_S):
                while self.generation == generation:
                    await self._told.wait()

    def _is_ours(self, at: At, error: LevadaError) -> bool:
        return isinstance(error, IllegalGeneration) and self._track(at) is not None

    def _track(self, at: At) -> Track | None:
        return self._inbox.tracks.get(at) or self._inbox.leaving.get(at)

    def _standing(self, at: At) -> _Standing:
        track = self._track(at)
        return track, track.turn if track is not None else 0

    async def _commit(self, offsets: Mapping[At, int]) -> Mapping[At, LevadaError]:
        """Each in the generation it was read in."""
        parts: dict[int, dict[At, int]] = {}
        for at, offset in offsets.items():
            parts.setdefault(self.read_in.get(at, self.generation), {})[at] = offset
        errors: dict[At, LevadaError] = {}
        for generation, part in parts.items():
            errors.update(await self._feed.commit(part, generation))
        return errors

    async def hand_over(self, ats: Sequence[At], offsets: Mapping[At, int]) -> None:
        """These go to their new owners, with how far this consumer came where that is given."""
        generation = min((self.read_in.pop(at) for at in ats if at in self.read_in), default=self.generation)
        try:
            async with asyncio.timeout(self._timeout_s):
                self.lost.update(await self._feed.commit(offsets, generation, ats))
        except (LevadaError, TimeoutError):
            self.lost.update(offsets)

    async def store_quietly(self, offsets: Mapping[At, int], *, timeout_s: float | None = None) -> None:
        """What is refused here is committed by whoever owns the partition now."""
        with contextlib.suppress(LevadaError):
            await self.store(offsets, retry=False, timeout_s=timeout_s)

    async def store_often(self, every_ms: int) -> None:
        """What the user is done with, again and again."""
        while True:
            await asyncio.sleep(every_ms / 1000)
            await self.store_quietly(self._inbox.finished())


def _moved(at: At) -> IllegalGeneration:
    return IllegalGeneration(f"{at} was moved or taken away before this was committed")
