"""Topics full of records, as a well-tuned producer leaves them: uncompressed batches of about 64 KiB.

The batches are built once and sent again and again; the broker gives each its offsets. So filling takes what the broker takes.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator

from levada.records.build import build
from levada.records.read import Record
from levada.wire.answers import EARLIEST, LATEST, TopicPartition
from levada.wire.blocking import BlockingClient

PARTITIONS = 4
BATCH_ROWS = 500
USERS = 1_000
#: How many different batches there are.
_VARIETY = 32

JSON_SCHEMA = "id STRING, user STRING, amount DOUBLE, quantity INT"


def create(bootstrap: str, topic: str) -> None:
    with BlockingClient(bootstrap) as client:
        client.create_topic(topic, PARTITIONS)


def delete(bootstrap: str, topic: str) -> None:
    with BlockingClient(bootstrap) as client:
        client.delete_topic(topic)


def fill(bootstrap: str, topic: str, rows: int, *, typed: bool = False) -> None:
    """Create the topic and spread `rows` records over its partitions; keys of 8 bytes, values of about 100."""
    create(bootstrap, topic)
    batches = [bytes(_batch(number, typed)) for number in range(_VARIETY)]

    def turns() -> Iterator[tuple[tuple[str, int], bytes]]:
        for number in range(rows // BATCH_ROWS):
            yield (topic, number % PARTITIONS), batches[number // PARTITIONS % _VARIETY]

    with BlockingClient(bootstrap) as client:
        client.produce_stream(turns(), in_flight=PARTITIONS)
    if (found := count(bootstrap, topic)) != rows:
        raise RuntimeError(f"{topic} holds {found} records instead of {rows}")


def count(bootstrap: str, topic: str) -> int:
    """How many offsets the topic holds, transaction markers among them."""
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    with BlockingClient(bootstrap) as client:
        first = client.list_offsets(dict.fromkeys(places, EARLIEST))
        end = client.list_offsets(dict.fromkeys(places, LATEST))
    return sum(end[place].offset - first[place].offset for place in places)


def _batch(number: int, typed: bool) -> bytearray:
    chance = random.Random(number)
    value = _order if typed else _bytes
    now_ms = int(time.time() * 1000)
    records = [
        Record(place, now_ms + place, b"%08d" % chance.randrange(10**8), value(chance), ())
        for place in range(BATCH_ROWS)
    ]
    return build(records)


def _bytes(chance: random.Random) -> bytes:
    return chance.randbytes(100)


def _order(chance: random.Random) -> bytes:
    order = {
        "id": f"order-{chance.randrange(10**12):012}",
        "user": f"user-{chance.randrange(USERS):04}",
        "amount": chance.randrange(1, 100_000) / 100,
        "quantity": chance.randrange(1, 10),
    }
    return json.dumps(order).encode()
