"""Native delivery: from partitions to one consumer, bounded; and reading once, outside of any group."""

from levada.broker.delivery.deliveries import Assigned, Batches, Delivery, Failed, Records
from levada.broker.delivery.opener import Opener
from levada.broker.delivery.reading import OutOfRange, Portion, read_once
from levada.broker.delivery.subscription import Subscription
from levada.broker.delivery.subscriptions import Subscriptions
from levada.broker.delivery.wanted import Start, Wanted

__all__ = [
    "Assigned",
    "Batches",
    "Delivery",
    "Failed",
    "Opener",
    "OutOfRange",
    "Portion",
    "Records",
    "Start",
    "Subscription",
    "Subscriptions",
    "Wanted",
    "read_once",
]
