"""Topics with a history of every kind: transactions that were aborted, null and empty keys, tombstones, headers, expansion, repeats."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from levada.records.build import build
from levada.records.read import Record, read_all
from levada.routing import partition_for
from levada.wire.answers import EARLIEST, LATEST, READ_COMMITTED, TopicPartition
from levada.wire.blocking import BlockingClient

#: An hour ago: nothing of it is too old to be kept.
FIRST_MS = time.time_ns() // 1_000_000 - 3_600_000


class Told(NamedTuple):
    """A record without its offset."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = FIRST_MS


@contextmanager
def client_of(bootstrap: str) -> Iterator[BlockingClient]:
    with BlockingClient(bootstrap, client_id="tests") as client:
        yield client


def told(count: int, seed: int = 1, *, first: int = 0, keys: int = 30) -> list[Told]:
    """Records a tenth of a second apart, give or take two: some without a key or with an empty one, some without a value."""
    chance = random.Random(seed)
    found = []
    for number in range(first, first + count):
        key = chance.choice([None, b"", *[f"key-{chance.randrange(keys)}".encode() for _ in range(8)]])
        value = None if chance.random() < 0.1 else f"value {number}".encode()
        headers = (("message_id", f"{number}".encode()), ("odd", None)) if number % 3 else ()
        time_ms = FIRST_MS + number * 100 + chance.randrange(-2000, 2000)
        found.append(Told(key, value, headers, time_ms))
    return found


def produce(
    client: BlockingClient,
    topic: str,
    records: Sequence[Told],
    *,
    partitions: int,
    router: str = "murmur2",
    batch: int = 20,
    transactional_id: str | None = None,
    abort: bool = False,
) -> None:
    """In batches, each key where the router puts it, the others round the partitions; in one transaction, where one is named."""
    by_partition: dict[int, list[Told]] = {}
    for number, record in enumerate(records):
        at = partition_for(record.key, router, partitions) if record.key else number % partitions
        by_partition.setdefault(at, []).append(record)
    producer = client.transactional_producer(transactional_id) if transactional_id else None
    if producer is not None:
        producer.init()
    for partition, held in by_partition.items():
        for begin in range(0, len(held), batch):
            part = held[begin : begin + batch]
            data = build([Record(at, one.timestamp_ms, one.key, one.value, one.headers) for at, one in enumerate(part)])
            if producer is not None:
                producer.send({(topic, partition): data})
            else:
                client.produce((topic, partition), data)
    if producer is not None:
        (producer.abort if abort else producer.commit)()


def consume(client: BlockingClient, topic: str) -> dict[int, list[Record]]:
    """All committed records of each partition, in order."""
    partitions = range(len(client.topics([topic])[topic].partitions))
    at = [TopicPartition(topic, partition) for partition in partitions]
    starts = client.list_offsets(dict.fromkeys(at, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(at, LATEST), isolation=READ_COMMITTED)
    return {one.partition: _read(client, one, starts[one].offset, ends[one].offset) for one in at}


def _read(client: BlockingClient, at: TopicPartition, position: int, end: int) -> list[Record]:
    found: list[Record] = []
    while position < end:
        piece = client.fetch({at: position}, isolation=READ_COMMITTED)[at]
        found += read_all(piece.records, from_offset=position, aborted=piece.aborted or (), committed_only=True)
        reached = _end(bytes(piece.records), position)
        position = reached if reached > position else end
    return [record for record in found if record.offset < end]


def _end(data: bytes, position: int) -> int:
    from levada.records.batch import batches

    for batch in batches(memoryview(data)):
        position = max(position, batch.next_offset)
    return position


def by_key(held: dict[int, list[Record]]) -> dict[bytes, list[tuple[bytes | None, int]]]:
    """What each key's records are, in order; of keys that lie in one partition."""
    found: dict[bytes, list[tuple[bytes | None, int]]] = {}
    for records in held.values():
        for record in records:
            if record.key:
                found.setdefault(record.key, []).append((record.value, record.timestamp_ms))
    return found


def contents(held: dict[int, list[Record]]) -> list[tuple[object, ...]]:
    """What is there, wherever it lies."""
    return sorted(
        (
            (record.key, record.value, record.headers, record.timestamp_ms)
            for records in held.values()
            for record in records
        ),
        key=repr,
    )
