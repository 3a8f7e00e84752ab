"""All native consumers of this broker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from levada.broker.delivery.credit import Credit, Pool
from levada.broker.delivery.membership import Membership, OwnChoice, Seat
from levada.broker.delivery.opener import Opener
from levada.broker.delivery.parcels import Counted, Parcels
from levada.broker.delivery.pump import Deliver, Pump
from levada.broker.delivery.subscription import Subscription
from levada.broker.delivery.wanted import Wanted
from levada.broker.streams import Positions, StreamGroups
from levada.engine.port import Engine


class Subscriptions:
    """Opens them, and knows those that are open."""

    def __init__(
        self,
        engine: Engine,
        groups: StreamGroups,
        positions: Positions,
        now_ms: Callable[[], int],
        counted: Counted = lambda at, records, size: None,
        opener: Opener | None = None,
    ) -> None:
        self._engine = engine
        self._groups = groups
        self._positions = positions
        self._now_ms = now_ms
        self._counted = counted
        self.opener = opener or Opener()
        #: Of each group that has consumers here.
        self._pools: dict[str, Pool] = {}
        self._open: dict[Subscription, str] = {}

    async def open(self, wanted: Wanted, deliver: Deliver) -> Subscription:
        """Read what is wanted. The first delivery is Assigned; each is awaited before the next.

        InvalidRequest, UnknownTopic, UnknownPartition, and all that joining a group may be refused for.
        """
        wanted.check()
        view = await self._engine.topics()
        for at in wanted.partitions:
            await self._engine.bounds(at)
        membership = self._membership(wanted)
        credit = Credit(wanted.records_max, self._pool(wanted.group))
        parcels = Parcels(wanted, credit, deliver, self._counted, self.opener)
        pump = Pump(self._engine, view, wanted, credit, deliver, durable=membership.durable, parcels=parcels)
        membership.assigned = pump.assign
        try:
            membership.join()
        except BaseException:
            self._forget_pool(wanted.group)
            raise
        subscription = Subscription(
            self._engine,
            membership,
            pump,
            credit,
            session_timeout_ms=wanted.session_timeout_ms,
            closed=self._closed,
        )
        self._open[subscription] = wanted.group
        subscription.start()
        return subscription

    def all(self) -> Collection[Subscription]:
        """Those that are open; for measuring."""
        return tuple(self._open)

    def out(self) -> Mapping[str, int]:
        """Records delivered and not granted anew, by group; for measuring."""
        return {group: pool.out for group, pool in self._pools.items()}

    async def close(self) -> None:
        """End all of them, as when the broker stops."""
        for subscription in tuple(self._open):
            await subscription.close()

    def _membership(self, wanted: Wanted) -> Membership:
        if wanted.group:
            return Seat(self._groups, self._positions, wanted, self._now_ms)
        return OwnChoice(wanted)

    def _pool(self, group: str) -> Pool | None:
        return self._pools.setdefault(group, Pool()) if group else None

    def _closed(self, subscription: Subscription) -> None:
        group = self._open.pop(subscription)
        self._forget_pool(group)

    def _forget_pool(self, group: str) -> None:
        if group not in self._open.values():
            self._pools.pop(group, None)
