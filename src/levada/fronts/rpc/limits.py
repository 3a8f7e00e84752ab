"""How many of something a request may name. Looked at before anything is made of them."""

from __future__ import annotations

from collections.abc import Sized
from typing import Final

from levada.engine.names import PARTITIONS_MAX
from levada.errors import InvalidRequest

#: Partitions, offsets or topics that one request may name: as many as a topic may have partitions.
NAMED_MAX: Final = PARTITIONS_MAX


def check_count(given: Sized, most: int, what: str) -> None:
    """InvalidRequest, naming the count and the limit."""
    if len(given) > most:
        raise InvalidRequest(f"the request has {len(given)} {what}; at most {most} are taken")
