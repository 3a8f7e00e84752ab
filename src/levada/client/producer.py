"""The producer: gathers records into batches, routes them by the topic's rules, and sends each exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final, Literal, Self

from levada.client.channel import Channel
from levada.client.delivery import Deliveries, Delivery
from levada.client.forks import FORKED
from levada.client.handover import Handover
from levada.client.outbox import Outbox
from levada.client.records import Headers, encode_headers
from levada.client.route import BATCH_BYTES_MAX, REQUEST_BYTES_MAX, Route
from levada.client.routes import Routes
from levada.client.serializers import BYTES, Bytes, Serializer
from levada.client.shortcut import Shortcut
from levada.errors import (
    InvalidRequest,
    InvalidTimestamp,
    Overloaded,
    RecordTooLarge,
    UnknownPartition,
)
from levada.records.batch import HEADER_SIZE
from levada.records.compression import codec_id
from levada.records.pack import ROW_OVERHEAD, size_of
from levada.v1 import stream_pb2 as pb

_ACKS: Final = {"all": pb.ACKS_ALL, "none": pb.ACKS_NONE}
_NO_HEADERS: Final[list[tuple[str, bytes | None]]] = []


class AsyncProducer:
    """Publishes records. Made by `client.producer(…)`.

        async with client.producer(value=levada.JSON) as producer:
            delivery = await producer.publish("orders", {"id": 7}, key=b"user-1")
            print(await delivery)                # Position(topic='orders', partition=1, offset=0, duplicate=False)

    Records of a partition are stored in the order they were published, and none twice, whatever happens to connection and
    broker. A record waits for others for at most `linger_ms`, and not at all once somebody waits for its delivery.
    """

    def __init__(
        self,
        channel: Channel,
        routes: Routes,
        shortcut: Shortcut,
        *,
        linger_ms: float,
        batch_bytes: int,
        acks: Literal["all", "none"],
        compression: str,
        key: Serializer,
        value: Serializer,
        buffer_bytes: int,
        max_block_ms: int,
        delivery_timeout_ms: int,
        request_timeout_ms: int,
        gone: Callable[[AsyncProducer], None],
    ) -> None:
        """`gone` is called when it is closed."""
        if acks not in _ACKS:
            raise InvalidRequest(f"acks is {acks!r}; it must be one of {', '.join(map(repr, _ACKS))}")
        for name, number in (("batch_bytes", batch_bytes), ("buffer_bytes", buffer_bytes), ("max_block_ms", max_block_ms + 1),
                             ("delivery_timeout_ms", delivery_timeout_ms), ("request_timeout_ms", request_timeout_ms),
                             ("linger_ms", linger_ms + 1)):  # fmt: skip
            if number < 1:
                raise InvalidRequest(f"{name} is too small")
        self._routes = routes
        self._key = None if isinstance(key, Bytes) else key.dumps
        self._value = None if isinstance(value, Bytes) else value.dumps
        self._max_block_s = max_block_ms / 1000
        self._outbox = Outbox(
            channel,
            routes,
            shortcut,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            acks=_ACKS[acks],
            codec=codec_id(compression),
            buffer_bytes=buffer_bytes,
            delivery_timeout_ms=delivery_timeout_ms,
            request_timeout_ms=request_timeout_ms,
        )
        self._accumulator = self._outbox.accumulator
        self._closed: str | None = None
        self._over = asyncio.Event()
        self._gone = gone

    # Publishing

    async def publish(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        message_id: str | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Hand a record over. Returns as soon as there is room for it; the delivery says what became of it.

        Without a partition the topic's router chooses one by the key, or the broker's counter where there is none. A
        `message_id` counts on topics with levada.dedup=id. UnknownTopic, UnknownPartition, RecordTooLarge, InvalidRecord;
        Overloaded when there was no room for `max_block_ms`.
        """
        until = 0.0
        while True:
            route = await self._routes.get(topic)
            try:
                delivery = self.offer(topic, value, key, headers, partition, message_id, timestamp_ms)
            except UnknownPartition:
                if (await self._routes.renew(topic)).same_as(route):
                    raise
                continue
            if delivery is not None:
                return delivery
            until = until or time.monotonic() + self._max_block_s
            await self._wait_for_room(topic, until)

    def offer(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        message_id: str | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery | None:
        """publish, from any thread and without waiting: None where the topic is not known yet, or where there is no room."""
        route = self._routes.known(topic)
        if route is None or self._closed is not None:
            self._check_open()
            return None
        if value is not None and (self._value is not None or value.__class__ is not bytes):
            value = (self._value or BYTES.dumps)(value)
        if key is not None and (self._key is not None or key.__class__ is not bytes):
            key = (self._key or BYTES.dumps)(key)
        if timestamp_ms is None:
            timestamp_ms = int(time.time() * 1000)
        elif timestamp_ms < 0:
            raise InvalidTimestamp(f"timestamp_ms is {timestamp_ms}; it is milliseconds since 1970")
        if headers is None and message_id is None:
            encoded = _NO_HEADERS
            size = ROW_OVERHEAD + (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
        else:
            encoded = encode_headers(headers, message_id)
            size = size_of(key, value, encoded)
        if size + HEADER_SIZE > route.batch_bytes_max:
            self._check_size(route, size)
        if partition is None:
            where = route.of_key(key) if key else route.keyless_to
        else:
            where = route.partition(key, partition)
        found = self._accumulator.add(route, where, (timestamp_ms, key, value, encoded), size)
        return None if found is None else Delivery(*found)

    async def publish_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Deliveries:
        """Hand many records over at once: the fastest way. With `keys`, one for each value.

            positions = await (await producer.publish_many("orders", [b"one", b"two"]))

        Waits for room as `publish` does, for each batch of them.
        """
        handover = self.handover(topic, values, keys=keys, partition=partition, timestamp_ms=timestamp_ms)
        while not self.advance(handover):
            await self.until_possible(topic)
        return Deliveries(handover.parts)

    def handover(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Handover:
        """Records that are about to be handed over, as bytes."""
        if timestamp_ms is not None and timestamp_ms < 0:
            raise InvalidTimestamp(f"timestamp_ms is {timestamp_ms}; it is milliseconds since 1970")
        encoded_keys = None if keys is None else _encoded(keys, self._key)
        encoded = _encoded(values, self._value)
        if encoded_keys is not None and len(encoded_keys) != len(encoded):
            raise InvalidRequest(f"there are {len(encoded_keys)} keys for {len(encoded)} values")
        return Handover(topic, encoded, encoded_keys, partition, timestamp_ms)

    def advance(self, handover: Handover) -> bool:
        """Hand over what there is room for, from any thread and without waiting. True when that was all."""
        route = self._routes.known(handover.topic)
        if route is None or self._closed is not None:
            self._check_open()
            return False
        if handover.largest + ROW_OVERHEAD + HEADER_SIZE > route.batch_bytes_max:
            self._check_size(route, handover.largest + ROW_OVERHEAD)
        return handover.advance(self._accumulator, route)

    async def until_possible(self, topic: str) -> None:
        """Until something can be handed over: the topic is known, and there is room. UnknownTopic, Overloaded."""
        await self._routes.get(topic)
        await self._wait_for_room(topic, time.monotonic() + self._max_block_s)

    async def _wait_for_room(self, topic: str, until: float) -> None:
        if not await self._outbox.until_room(until):
            self._check_open()
            raise Overloaded(
                f"topic {topic}: {self._accumulator.buffered} bytes wait for the broker's answer, and there was no room for "
                f"{self._max_block_s:g} s (buffer_bytes is {self._accumulator.buffer_bytes})"
            )
        self._check_open()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise InvalidRequest(self._closed)

    def _check_size(self, route: Route, size: int) -> None:
        if size + HEADER_SIZE > BATCH_BYTES_MAX < route.max_message_bytes:
            raise RecordTooLarge(
                f"a record of {size - ROW_OVERHEAD} bytes; the broker takes requests of at most {REQUEST_BYTES_MAX}, whatever "
                f"a topic's max.message.bytes is (topic {route.topic}: {route.max_message_bytes})"
            )
        # What is computed is the most it can be; close to the limit the broker decides.
        if size - ROW_OVERHEAD > route.max_message_bytes:
            raise RecordTooLarge(
                f"a record of {size - ROW_OVERHEAD} bytes; topic {route.topic} takes batches of at most "
                f"{route.max_message_bytes} (max.message.bytes)"
            )

    # The end

    async def flush(self, timeout: float | None = None) -> None:
        """Send everything now and wait until all of it is answered. TimedOut after `timeout` seconds.

        Raises the first refusal since the last flush that nobody has asked a delivery about, so that none goes unnoticed.
        """
        await self._outbox.flush(timeout)

    async def close(self, timeout: float | None = None) -> None:
        """Take no more, flush, then stop. After `timeout` seconds what is left fails with ConnectionLost.

        A second call waits for the first, and does nothing else.
        """
        if self._closed is not None:
            await self._over.wait()
            return
        self._closed = "the producer is closed"
        self._accumulator.close()
        try:
            await self.flush(timeout)
        finally:
            try:
                await self._outbox.close()
            finally:
                self._over.set()
                self._gone(self)

    def forked(self) -> None:
        """This is another process now: the connection belongs to the one that made it."""
        self._closed = FORKED
        self._over.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _encoded(values: Iterable[Any], dumps: Callable[[Any], bytes] | None) -> list[bytes | None]:
    if dumps is None:
        listed = list(values)
        if all(value.__class__ is bytes for value in listed):
            return listed
        dumps, values = BYTES.dumps, listed
    return [None if value is None else dumps(value) for value in values]
