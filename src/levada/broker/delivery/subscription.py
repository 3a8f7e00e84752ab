"""One native consumer, as whoever speaks for it sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from levada.broker.delivery.credit import Credit
from levada.broker.delivery.membership import Membership
from levada.broker.delivery.pump import Pump
from levada.engine.port import At, Committed, Engine
from levada.errors import LevadaError, OffsetOutOfRange

_log = structlog.get_logger("levada.delivery")


class Subscription:
    """An open subscription, made by Subscriptions.open. Whoever has it awaits `wait` for the reason it ends, and `close`s it.

    Partitions that are not owned, or not any more, are passed over in `seek`, `pause` and `resume`: the consumer has been told,
    or is about to be.
    """

    def __init__(
        self,
        engine: Engine,
        membership: Membership,
        pump: Pump,
        credit: Credit,
        *,
        session_timeout_ms: int,
        closed: Callable[[Subscription], None],
    ) -> None:
        self._engine = engine
        self._membership = membership
        self._pump = pump
        self._credit = credit
        self._session_timeout_ms = session_timeout_ms
        self._closed = closed
        self._ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []
        membership.fenced = self._end

    def start(self) -> None:
        self._tasks.append(asyncio.create_task(self._run(), name="levada-subscription"))

    @property
    def member_id(self) -> str:
        return self._membership.member_id

    @property
    def generation(self) -> int:
        """As the consumer was last told; 0 before the first time."""
        return self._pump.generation_told

    @property
    def out(self) -> int:
        """Records delivered and not granted anew."""
        return self._credit.out

    def grant(self, count: int) -> None:
        """So many more records may be delivered; never more than `records_max` are out. InvalidRequest."""
        self._credit.grant(count)

    def let_run(self) -> None:
        """The consumer will say nothing more: what its transport takes counts as granted, and the call itself as a sign of life."""
        self._pump.free()
        if self.member_id and not self._ended.done():
            self._tasks.append(asyncio.create_task(self._keep_alive(), name="levada-keep-alive"))

    async def commit(self, offsets: Mapping[At, Committed], generation: int = 0) -> Mapping[At, LevadaError]:
        """Store offsets for the group, as the member it is in this generation; 0 is the last it was told of.

        Answers with what was refused and why; all others are stored. IllegalGeneration of a partition: it is not, or not since
        then, this consumer's, or the group's offsets were moved. InvalidRequest without a group.
        """
        return await self._membership.commit(offsets, generation or self._pump.generation_told)

    def hand_over(self, ats: Iterable[At]) -> None:
        """This consumer is done with these, which it has lost: their new owners begin. UnknownMember."""
        self._membership.hand_over(ats)

    async def seek(self, offsets: Mapping[At, int]) -> None:
        """Read on from these offsets, within [start, end]; Assigned is told before any record from there.

        OffsetOutOfRange with the range there is: nothing has moved.
        """
        for at, offset in offsets.items():
            if self._pump.owns(at):
                start, _, end = await self._engine.bounds(at)
                if not start <= offset <= end:
                    raise OffsetOutOfRange(
                        f"{at}: offset {offset} is not within {start} to {end}", start=start, end=end
                    )
        self._pump.move({at: offset for at, offset in offsets.items() if self._pump.owns(at)})

    def pause(self, ats: Iterable[At]) -> None:
        """Deliver nothing of these partitions from now on. What the transport has already is underway."""
        self._pump.pause(at for at in ats if self._pump.owns(at))

    def resume(self, ats: Iterable[At]) -> None:
        """Deliver again, from where it stopped."""
        self._pump.resume(at for at in ats if self._pump.owns(at))

    def alive(self) -> None:
        """A sign of life. UnknownMember."""
        self._membership.alive()

    async def wait(self) -> None:
        """Until it is over. Raises why, unless it was closed: IllegalGeneration or UnknownMember when the group goes on without
        it, OffsetOutOfRange by policy, UnknownTopic, or what `deliver` raised."""
        reason = await asyncio.shield(self._ended)
        if reason is not None:
            raise reason

    async def close(self) -> None:
        """Leave the group at once, and deliver nothing more. Once is enough, and twice does no harm."""
        self._end(None)
        here = asyncio.current_task()
        if others := [task for task in self._tasks if task is not here]:
            await asyncio.wait(others)

    async def _run(self) -> None:
        try:
            await self._pump.run()
        except LevadaError as reason:
            self._end(reason)
        except Exception as reason:  # the transport's, or our own
            _log.debug("a subscription ended", member=self.member_id, reason=repr(reason))
            self._end(reason)

    async def _keep_alive(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._session_timeout_ms / 3000)
                self._membership.alive()
        except LevadaError as reason:
            self._end(reason)

    def _end(self, reason: BaseException | None) -> None:
        if self._ended.done():
            return
        self._ended.set_result(reason)
        self._pump.stop()
        self._credit.close()
        here = asyncio.current_task()
        for task in self._tasks:
            if task is not here:
                task.cancel()
        self._closed(self)
        self._membership.leave()
