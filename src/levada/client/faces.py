"""The client for code that does not await: the async classes' methods by name, each of which waits for its coroutine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from levada.client.blocking import Face, LoopThread, blocking, loop_thread, speak_of, without_await
from levada.client.client import AsyncClient
from levada.client.consumer import AsyncConsumer
from levada.client.delivery import Deliveries, Delivery
from levada.client.manager import AsyncManager
from levada.client.producer import AsyncProducer
from levada.client.records import Headers, Record
from levada.errors import UnknownPartition

A = TypeVar("A")
F = TypeVar("F")
P = ParamSpec("P")


class Manager(Face[AsyncManager]):
    """`client.manager`: creates, shows, changes and deletes.

        client.manager.create_topic("orders", partitions=4, settings={"levada.dedup": "id"})
        for topic in client.manager.topics():
            print(topic.name, topic.partitions)

    What is refused changes nothing.
    """

    create_topic = blocking(AsyncManager.create_topic)
    topics = blocking(AsyncManager.topics)
    topic = blocking(AsyncManager.topic)
    expand_topic = blocking(AsyncManager.expand_topic)
    alter_topic = blocking(AsyncManager.alter_topic)
    delete_topic = blocking(AsyncManager.delete_topic)
    groups = blocking(AsyncManager.groups)
    group = blocking(AsyncManager.group)
    register_group = blocking(AsyncManager.register_group)
    offsets = blocking(AsyncManager.offsets)
    seek = blocking(AsyncManager.seek)
    commit = blocking(AsyncManager.commit)
    delete_group = blocking(AsyncManager.delete_group)
    nodes = blocking(AsyncManager.nodes)
    join_node = blocking(AsyncManager.join_node)
    leave_node = blocking(AsyncManager.leave_node)
    heartbeat = blocking(AsyncManager.heartbeat)
    placement = blocking(AsyncManager.placement)
    stats = blocking(AsyncManager.stats)


class Producer(Face[AsyncProducer]):
    """Publishes records, from any number of threads. Made by `client.producer(…)`.

        with client.producer(value=levada.JSON) as producer:
            delivery = producer.publish("orders", {"id": 7}, key=b"user-1")
            print(delivery.result())         # Position(topic='orders', partition=1, offset=0, duplicate=False)

    Records of a partition are stored in the order they were published, and none twice, whatever happens to connection and
    broker. A record waits for others for at most `linger_ms`, and not at all once somebody waits for its delivery.
    """

    flush = blocking(AsyncProducer.flush)
    close = blocking(AsyncProducer.close)

    def publish(
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
        # Handed over on the caller's thread; only where that has to wait does the loop do it.
        inner = self._inner
        try:
            delivery = inner.offer(topic, value, key, headers, partition, message_id, timestamp_ms)
        except UnknownPartition:
            delivery = None
        if delivery is not None:
            return delivery
        return self._thread.run(
            inner.publish(
                topic,
                value,
                key=key,
                headers=headers,
                partition=partition,
                message_id=message_id,
                timestamp_ms=timestamp_ms,
            )
        )

    publish.__doc__ = without_await(AsyncProducer.publish.__doc__)

    def publish_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Deliveries:
        """Hand many records over at once: the fastest way. With `keys`, one for each value.

            positions = producer.publish_many("orders", [b"one", b"two"]).result()

        Waits for room as `publish` does, for each batch of them.
        """
        inner = self._inner
        handover = inner.handover(topic, values, keys=keys, partition=partition, timestamp_ms=timestamp_ms)
        while not inner.advance(handover):
            self._thread.run(inner.until_possible(topic))
        return Deliveries(handover.parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Consumer(Face[AsyncConsumer]):
    """Reads records; for one thread at a time. Made by `client.consumer(…)`.

        with client.consumer("orders", group="billing", value=levada.JSON) as consumer:
            for record in consumer:
                print(record.partition, record.offset, record.value)

    Records of a partition come in order. With `auto_commit`, what the user is done with is committed every `auto_commit_ms` and at
    the end: a record is done with when the next one is asked for, or when a handler has returned. So after a crash the record that
    was being worked on comes again, and none is left out. Signs of life go out by themselves, however long a record takes.

    When another member joins, partitions are handed over: what is in hand may be finished within 5 s (at most the session's time)
    and is committed before the new owner begins, so that nothing comes twice. What takes longer comes again there, and
    `commit()` says so.

    A partition whose log is damaged is read up to there; then reading raises DamagedLog, once. Whoever reads on gets the others.
    """

    run = blocking(AsyncConsumer.run)
    commit = blocking(AsyncConsumer.commit)
    seek = blocking(AsyncConsumer.seek)
    pause = blocking(AsyncConsumer.pause)
    resume = blocking(AsyncConsumer.resume)
    assignment = blocking(AsyncConsumer.assignment)
    position = blocking(AsyncConsumer.position)
    lag = blocking(AsyncConsumer.lag)
    ready = blocking(AsyncConsumer.ready)
    close = blocking(AsyncConsumer.close)

    def __iter__(self) -> Iterator[Record]:
        inner = self._inner
        while True:
            chunk = inner.take_chunk()
            if chunk is not None:
                yield from chunk
            elif not self._thread.run(inner.until_arrived()):
                return

    def poll(self, max_records: int = 500, timeout_ms: int = 1_000) -> list[Record]:
        # What is there already needs no other thread.
        return self._inner.poll_now(max_records) or self._thread.run(self._inner.poll(max_records, timeout_ms))

    poll.__doc__ = without_await(AsyncConsumer.poll.__doc__)

    def stop(self) -> None:
        """End iteration or `run` in order, from anywhere: a handler, another thread, a signal handler."""
        self._inner.stop()

    def __enter__(self) -> Self:
        self._thread.run(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(all_done=kind is None)


def _making(
    make: Callable[Concatenate[AsyncClient, P], A], face: Callable[[A, LoopThread], F]
) -> Callable[Concatenate[Face[AsyncClient], P], F]:
    """The same method; what it makes is made on the loop, and comes with its blocking face."""

    def made(client: Face[AsyncClient], /, *args: P.args, **kwargs: P.kwargs) -> F:
        async def there() -> A:
            return make(client._inner, *args, **kwargs)

        return face(client._thread.run(there()), client._thread)

    speak_of(made, make)
    return made


class Client(Face[AsyncClient]):
    """A connection to a broker. Made by `levada.connect`.

        with levada.connect("localhost:9094") as client:
            client.manager.create_topic("orders", partitions=4)

    Closing it closes the producers and consumers it has made.
    """

    producer = _making(AsyncClient.producer, Producer)
    consumer = _making(AsyncClient.consumer, Consumer)
    read = blocking(AsyncClient.read)
    close = blocking(AsyncClient.close)

    def __init__(self, inner: AsyncClient, thread: LoopThread) -> None:
        super().__init__(inner, thread)
        #: Topics, groups, the cluster.
        self.manager = Manager(inner.manager, thread)

    @property
    def address(self) -> str:
        return self._inner.address

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(address: str = "localhost:9094", *, timeout_ms: int = 30_000, client_id: str = "") -> Client:
    """Connect to a broker: `with levada.connect(…) as client`, or `client.close()` in the end.

    Unreachable, at once, where nothing answers. `timeout_ms` is for single calls; `client_id` is how the broker's log and
    groups call this client.
    """
    thread = loop_thread()

    async def made() -> AsyncClient:
        return await AsyncClient(address, timeout_ms=timeout_ms, client_id=client_id).__aenter__()

    return Client(thread.run(made()), thread)
