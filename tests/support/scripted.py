"""A cluster that exists only as a script: it runs the steps of a call, without sockets and on a clock of its own.

Requests are really encoded and answers really decoded, in the versions the script offers. `on(key, handler)` says what nodes
answer: the handler is given (node, request, version) and returns the fields of the answer, or raises what the I/O would.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from typing import Any

from levada.errors import LevadaError
from levada.wire import codec
from levada.wire.apis import APIS, ApiKey
from levada.wire.calls import Calls
from levada.wire.calls.transactional import TransactionalCalls
from levada.wire.channel import Offer
from levada.wire.codes import ErrorCode
from levada.wire.effects import Pause, Post, Send, Wait
from levada.wire.retry import ClientConfig

Handler = Callable[[int, Any, int], Mapping[str, Any]]


class Script(Calls):
    """A client whose cluster is two brokers, 1 and 2, unless told otherwise."""

    def __init__(
        self, *, versions: Mapping[int, tuple[int, int]] | None = None, tv2: bool = True, **settings: Any
    ) -> None:
        super().__init__("boot:1,boot:2", ClientConfig(**settings), now=lambda: self.clock_ms / 1000)
        self.clock_ms = 0.0
        offered = {key: (api.min_version, api.max_version) for key, api in APIS.items()} | dict(versions or {})
        self.offer = Offer(offered, {"transaction.version": 2 if tv2 else 1})
        self.cluster.features = self.offer.features
        #: topic → partition → (leader, epoch)
        self.leaders: dict[str, dict[int, tuple[int, int]]] = {}
        self.ids: dict[str, Any] = {}
        self.asked: list[tuple[int, str, int]] = []
        self.pauses: list[float] = []
        self.handlers: dict[int, Handler] = {ApiKey.METADATA: self.metadata}
        self.brokers = {1: ("one", 1), 2: ("two", 2)}

    def on(self, key: int, handler: Handler) -> None:
        self.handlers[key] = handler

    def count(self, name: str) -> int:
        return Counter(asked for _, asked, _ in self.asked)[name]

    def metadata(self, _node: int, request: Any, _version: int) -> Mapping[str, Any]:
        names = self.leaders if request.topics is None else [topic.name for topic in request.topics]
        return {
            "brokers": [{"node_id": node, "host": host, "port": port} for node, (host, port) in self.brokers.items()],
            "controller_id": 1,
            "topics": [self.topic(name) for name in names],
        }

    def topic(self, name: str) -> dict[str, Any]:
        if name not in self.leaders:
            return {"name": name, "error_code": 3}
        partitions = [
            {"partition_index": index, "leader_id": node, "leader_epoch": epoch, "error_code": 5 if node < 0 else 0}
            for index, (node, epoch) in self.leaders[name].items()
        ]
        return {"name": name, "partitions": partitions, **({"topic_id": self.ids[name]} if name in self.ids else {})}

    def run_blocking(self, steps: Generator[Any, Any, Any]) -> Any:
        outcome: Any = None
        error: LevadaError | None = None
        while True:
            try:
                effect = steps.send(outcome) if error is None else steps.throw(error)
            except StopIteration as done:
                return done.value
            outcome, error = None, None
            try:
                outcome = self.perform(effect)
            except LevadaError as raised:
                error = raised

    def perform(self, effect: Any) -> Any:
        match effect:
            case Post(send):
                self.cluster.address(send.node)
                return self.answer(send)
            case Wait(ticket):
                if isinstance(ticket, LevadaError):
                    raise ticket
                return ticket
            case Pause(ms):
                self.pauses.append(ms)
                self.clock_ms += ms
                return None
        raise AssertionError(effect)

    def answer(self, send: Send) -> Any:
        """Answers are made at once and handed out when waited for; so are failures that come after sending."""
        version = self.offer.best(send.api_key, send.min_version, send.max_version)
        body = b"".join(send.encode(version))
        request = codec.read_request(send.api_key, version, body)
        self.asked.append((send.node, APIS[send.api_key].name, version))
        try:
            fields = self.handlers[send.api_key](send.node, request, version)
        except LevadaError as error:
            if getattr(error, "before_sending", False):
                raise
            return error
        return send.decode(version, memoryview(codec.write_response(send.api_key, version, fields)))

    def producer(self, transactional_id: str) -> ScriptedProducer:
        return ScriptedProducer(self, transactional_id)


class ScriptedProducer(TransactionalCalls):
    client: Script

    def run_blocking(self, steps: Generator[Any, Any, Any]) -> Any:
        return self.client.run_blocking(steps)


class Partition:
    """A leader's log, with Kafka's rule for producers: any sequence at first, then the next, or a repeat. Batches count as one offset each."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.next_sequence: int | None = None

    def append(self, batch: bytes) -> tuple[int, int]:
        """(error code, base offset)"""
        sequence, count = struct.unpack_from(">ii", batch, 53)
        if sequence >= 0 and batch in self.batches:
            return 0, self.batches.index(batch)
        if sequence >= 0 and self.next_sequence not in (None, sequence):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        if sequence >= 0:
            self.next_sequence = sequence + count
        self.batches.append(batch)
        return 0, len(self.batches) - 1
