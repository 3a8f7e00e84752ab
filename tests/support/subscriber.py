"""A native consumer nobody here wrote: the Subscribe call of the generated stubs, read by a thread of its own.

with subscribed(client, topics=["t"], group="g") as consumer:
    consumer.wait_owned({0, 1})
    consumer.wait_read(10)
    assert consumer.commit({0: 5}) == {}
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc

from levada.v1 import stream_pb2 as pb
from support.rpc import Refusal, Stubs, refusal_of
from support.wait import wait_until

PATIENCE_S = 30.0


class Subscriber:
    """One call. What the broker says is noted as it comes; every record is granted anew at once unless told otherwise."""

    def __init__(self, client: Stubs, topic: str, *, grants: bool = True, **opening: Any) -> None:
        self.topic = topic
        self.assigned: list[Any] = []
        self.records: list[tuple[int, int, bytes]] = []
        self.refusal: Refusal | None = None
        self._grants = grants
        self._ids = itertools.count(1)
        self._committed: dict[int, Any] = {}
        self._requests: queue.SimpleQueue[pb.SubscribeRequest | None] = queue.SimpleQueue()
        self._requests.put(pb.SubscribeRequest(open=pb.SubscribeRequest.Open(**opening)))
        self._call = client.stream.Subscribe(iter(self._requests.get, None))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            for answer in self._call:
                self._take(answer)
        except grpc.RpcError as error:
            self.refusal = refusal_of(error)

    def _take(self, answer: Any) -> None:
        match answer.WhichOneof("kind"):
            case "assigned":
                self.assigned.append(answer.assigned)
            case "committed":
                self._committed[answer.committed.id] = answer.committed
            case "records":
                rows = [(answer.records.partition, one.offset, one.value) for one in answer.records.records]
                self.records += rows
                if self._grants and rows:
                    self.say(grant=pb.SubscribeRequest.Grant(records=len(rows)))

    # What the consumer knows

    @property
    def member_id(self) -> str:
        return str(self.assigned[-1].member_id)

    @property
    def generation(self) -> int:
        return int(self.assigned[-1].generation)

    @property
    def owned(self) -> set[int]:
        """The partitions it was told last, of its topic."""
        return (
            {one.partition for one in self.assigned[-1].partitions if one.topic == self.topic}
            if self.assigned
            else set()
        )

    def offsets(self, partition: int) -> list[int]:
        return [offset for index, offset, _ in self.records if index == partition]

    # What it does

    def say(self, **request: Any) -> None:
        self._requests.put(pb.SubscribeRequest(**request))

    def alive(self) -> None:
        self.say(alive=pb.SubscribeRequest.SignOfLife())

    def commit(self, offsets: Mapping[int, int], generation: int = 0) -> dict[int, str]:
        """Commit, wait for the answer, and return the reason of each refusal by partition."""
        number = next(self._ids)
        rows = [pb.PartitionOffset(topic=self.topic, partition=index, offset=to) for index, to in offsets.items()]
        self.say(commit=pb.SubscribeRequest.CommitOffsets(id=number, offsets=rows, generation=generation))
        answer = wait_until(lambda: self._committed.pop(number, None), PATIENCE_S, f"an answer; {self.refusal}")
        return {one.partition: one.error.reason for one in answer.errors}

    def close(self) -> None:
        """End the call, as a consumer that leaves."""
        self._call.cancel()
        self._requests.put(None)
        self._reader.join(PATIENCE_S)

    # What is waited for

    def wait_owned(self, partitions: set[int]) -> None:
        wait_until(lambda: self.assigned and self.owned == partitions, PATIENCE_S, lambda: f"{self!r} has {partitions}")

    def wait_owned_count(self, count: int) -> None:
        wait_until(lambda: self.assigned and len(self.owned) == count, PATIENCE_S, lambda: f"{self!r} has {count}")

    def wait_read(self, count: int) -> None:
        wait_until(lambda: len(self.records) >= count, PATIENCE_S, lambda: f"{self!r} read {count}")

    def wait_refused(self) -> Refusal:
        return wait_until(lambda: self.refusal, PATIENCE_S, lambda: f"{self!r} is refused")

    def __repr__(self) -> str:
        return f"Subscriber(owned={self.owned}, read={len(self.records)}, refusal={self.refusal})"


@contextmanager
def subscribed(client: Stubs, topic: str, *, grants: bool = True, **opening: Any) -> Iterator[Subscriber]:
    """A consumer of `topic` (in its topics, unless others or a number of a fixed group are given)."""
    if "consumer" not in opening:
        opening.setdefault("topics", [topic])
    consumer = Subscriber(client, topic, grants=grants, **opening)
    try:
        yield consumer
    finally:
        consumer.close()
