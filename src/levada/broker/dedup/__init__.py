"""Message dedup. Importing this loads nothing heavy: numba comes with the first topic that wants it."""

from levada.broker.dedup.dedup import Dedup
from levada.broker.dedup.shelf import Shelf
from levada.broker.dedup.stored import Stored

__all__ = ["Dedup", "Shelf", "Stored"]
