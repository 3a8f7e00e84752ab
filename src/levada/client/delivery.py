"""What publishing returns: a handle on what becomes of a record, or of many."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from levada.client.draft import Draft
from levada.client.records import Position
from levada.errors import LevadaError


class Delivery:
    """What becomes of one record.

    delivery = producer.publish("orders", b"...")
    position = delivery.result()           # with levada.connect: waits, and has the record sent at once
    position = await delivery              # with levada.aio
    delivery.add_callback(lambda done: print(done.exception()))
    """

    __slots__ = ("_draft", "_index")

    def __init__(self, draft: Draft, index: int) -> None:
        self._draft = draft
        self._index = index

    @property
    def done(self) -> bool:
        """True once it is stored or refused."""
        return self._draft.done

    def result(self, timeout: float | None = None) -> Position:
        """Wait until the record is stored and say where. Raises what the broker refused; TimedOut after `timeout` seconds.

        Blocks: in a coroutine, await the delivery instead.
        """
        if not self._draft.done:
            self._draft.wait(timeout)
        return self._draft.position(self._index)

    def exception(self, timeout: float | None = None) -> LevadaError | None:
        """Wait, and say why the record was refused; None if it is stored."""
        self._draft.wait(timeout)
        try:
            self._draft.position(self._index)
        except LevadaError as error:
            return error
        return None

    def add_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call `callback(delivery)` when it is done: on the client's own thread, so let it be short, and never wait in it."""
        self._draft.tell(self, callback)

    def __await__(self) -> Generator[Any, None, Position]:
        draft = self._draft
        if not draft.done:
            draft.hurry()
            yield from draft.future().__await__()
        return draft.position(self._index)

    def __repr__(self) -> str:
        return f"<Delivery to {self._draft.topic}, {'done' if self.done else 'on its way'}>"


class Deliveries:
    """What becomes of the records of one `publish_many`, in their order.

    positions = producer.publish_many("orders", values).result()
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: list[tuple[Draft, int, int]]) -> None:
        #: Draft, the first record's place in it, how many.
        self._parts = parts

    def __len__(self) -> int:
        return sum(count for _, _, count in self._parts)

    @property
    def done(self) -> bool:
        return all(draft.done for draft, _, _ in self._parts)

    def result(self, timeout: float | None = None) -> list[Position]:
        """Wait for all and say where each lies. Raises the first refusal; TimedOut after `timeout` seconds for a batch."""
        for draft, _, _ in self._parts:
            draft.hurry()
        for draft, _, _ in self._parts:
            draft.wait(timeout)
        return self._positions()

    def __await__(self) -> Generator[Any, None, list[Position]]:
        for draft, _, _ in self._parts:
            draft.hurry()
        for draft, _, _ in self._parts:
            if not draft.done:
                yield from draft.future().__await__()
        return self._positions()

    def __iter__(self) -> Iterator[Delivery]:
        """One by one."""
        return (Delivery(draft, first + n) for draft, first, count in self._parts for n in range(count))

    def _positions(self) -> list[Position]:
        return [draft.position(first + n) for draft, first, count in self._parts for n in range(count)]

    def __repr__(self) -> str:
        return f"<Deliveries of {len(self)} records, {'done' if self.done else 'on their way'}>"
