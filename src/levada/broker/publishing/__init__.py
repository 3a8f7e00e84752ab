"""Native publishing: from records to partitions, by the topic's rules."""

from levada.broker.publishing.gate import Gate
from levada.broker.publishing.publisher import Publisher
from levada.broker.publishing.record import NewRecord, Position, Repeat
from levada.broker.publishing.spread import Spread

__all__ = ["Gate", "NewRecord", "Position", "Publisher", "Repeat", "Spread"]
