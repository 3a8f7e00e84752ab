"""Message dedup. Importing this loads nothing heavy: numba comes with the first topic that wants it."""

from levada.broker.dedup.dedup import Dedup
from levada.broker.dedup.shelf import Shelf
from levada.broker.dedup.stored import Partition, Stored
from levada.broker.dedup.topic import OFF, Counts

__all__ = ["OFF", "Counts", "Dedup", "Partition", "Shelf", "Stored"]
