from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest

from levada.engine.embedded.producer_ids import ProducerIds
from levada.errors import StorageFull


class Blocks:
    """Ten ids at a time, reserved at once."""

    def __init__(self) -> None:
        self.reserved = 1
        self.failure: Exception | None = None

    def reserve(self) -> range:
        if self.failure is not None:
            raise self.failure
        self.reserved += 1
        return range((self.reserved - 1) * 10, self.reserved * 10)

    def submit(self, work: Callable[[], range]) -> Future[range]:
        future: Future[range] = Future()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future


def test_no_id_is_given_twice() -> None:
    blocks = Blocks()
    ids = ProducerIds(range(10), blocks.reserve, blocks.submit)
    assert [ids.next() for _ in range(100)] == list(range(100))


def test_the_next_block_is_reserved_before_it_is_needed() -> None:
    blocks = Blocks()
    ids = ProducerIds(range(10), blocks.reserve, blocks.submit)
    for _ in range(5):
        ids.next()
    assert blocks.reserved == 1
    ids.next()
    assert blocks.reserved == 2


def test_a_disk_that_cannot_reserve_is_asked_again() -> None:
    blocks = Blocks()
    blocks.failure = StorageFull()
    ids = ProducerIds(range(10), blocks.reserve, blocks.submit)
    for _ in range(10):
        ids.next()
    with pytest.raises(StorageFull):
        ids.next()
    blocks.failure = None
    assert ids.next() == 10
