"""What dedup costs: a check, the memory of ten million messages, and publishing with and without it.

    .venv/bin/python bench/dedup.py                 # all of it, about two minutes
    .venv/bin/python bench/dedup.py checks          # only the table
    .venv/bin/python bench/dedup.py publish         # only publishing, through librdkafka and through the Python client

Checks are of whole batches of 500, in time of one core. New ones are parsed, hashed, looked up and remembered, and the growing of
the table is included; for repeats also the list of first positions is made. Publishing is 100-byte messages (20-byte ids) into one partition of a broker in a process of its own, durability
`os`; off, id and payload take turns, and the median of the rounds counts. Client and broker share the machine's cores: where the
client is the slower of the two, the difference looks smaller than it is; what the broker's process itself spends on a message says more.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PER_BATCH = 500
MODES = ("off", "id", "payload")
VALUE = b"%020d" + b"x" * 80


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def batches(count: int, *, by_id: bool) -> Iterator[Any]:
    """Batches of new messages, made by writing numbers into one that is there: making them must not be what is measured."""
    import numpy as np

    from levada.records.batch import Batch
    from levada.records.build import build

    marker = b"#" * 20
    made = [
        (None, b"x" * 100, [("message_id", marker)]) if by_id else (None, marker + b"x" * 80) for _ in range(PER_BATCH)
    ]
    buffer = build(made)
    data = np.frombuffer(buffer, np.uint8)
    places = [buffer.index(marker)]
    while len(places) < PER_BATCH:
        places.append(buffer.index(marker, places[-1] + 1))
    columns = np.array(places)[:, None] + np.arange(20)
    powers = 10 ** np.arange(19, -1, -1, dtype=np.uint64)
    batch = Batch(memoryview(buffer))
    for start in range(0, count, PER_BATCH):
        numbers = np.arange(start, start + PER_BATCH, dtype=np.uint64)
        data[columns] = (numbers[:, None] // powers % 10 + 48).astype(np.uint8)
        yield batch


def checks(count: int) -> None:
    from uuid import UUID

    from levada.broker.dedup.memory import Memory
    from levada.broker.dedup.places import Place
    from levada.broker.dedup.warm import warm_up
    from levada.engine.port import At

    warm_up()
    place = Place(UUID(int=1), At("t", 0))
    print(f"\n{count:,} messages       new, ns    repeat, ns   longest call, ms   memory, MB   resident, MB")
    for by_id in (True, False):
        before = resident_mb()
        memory = Memory(by_id=by_id)
        new_ns, longest_ns, offset = 0, 0, 0
        for batch in batches(count, by_id=by_id):
            began = time.thread_time_ns()
            screening = memory.screen(place, batch, offset, 1_000, 60_000)
            took = time.thread_time_ns() - began
            new_ns += took
            longest_ns = max(longest_ns, took)
            offset += PER_BATCH
            assert not screening.repeats
        repeat_ns, repeats = 0, 0
        for batch in batches(count // 10, by_id=by_id):
            began = time.thread_time_ns()
            screening = memory.screen(place, batch, offset, 1_000, 60_000)
            repeat_ns += time.thread_time_ns() - began
            repeats += len(screening.repeats)
        assert repeats == count // 10 == len(memory) // 10
        what = "id of 20 bytes" if by_id else "payload of 100"
        print(
            f"{what:20}{new_ns / count:12.0f}{repeat_ns / repeats:14.0f}{longest_ns / 1e6:19.1f}"
            f"{memory.table.size_bytes / 1e6:13.0f}{resident_mb() - before:15.0f}"
        )
        del memory


@contextmanager
def broker() -> Iterator[dict[str, Any]]:
    command = Path(sys.executable).with_name("levada")
    with tempfile.TemporaryDirectory() as home:
        flags = ["--kafka-port", "0", "--grpc-port", "0", "--no-http", "--set", "levada.durability=os"]
        process = subprocess.Popen(
            [str(command), "up", "--json", "--data", f"{home}/data", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()
            process.wait()


def cpu_s(pid: int) -> float:
    """What a process has used of the machine's cores so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def by_librdkafka(ready: dict[str, Any], topic: str, count: int, mode: str) -> float:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": ready["kafka"],
            "linger.ms": 20,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    produce = producer.produce
    tail = b"x" * 80
    began = time.perf_counter()
    for number in range(count):
        key = b"%020d" % number
        if mode == "id":
            produce(topic, b"x" * 100, headers=[("message_id", key)])
        else:
            produce(topic, key + tail)
        if not number % 10_000:
            producer.poll(0)
    assert producer.flush(120) == 0
    return count / (time.perf_counter() - began)


def by_python(ready: dict[str, Any], topic: str, count: int, mode: str) -> float:
    import levada

    tail = b"x" * 80
    values = [b"%020d" % number + tail for number in range(count)]
    with levada.connect(ready["grpc"]) as client, client.producer() as producer:
        began = time.perf_counter()
        if mode == "id":
            for number, value in enumerate(values):
                producer.publish(topic, value, message_id=f"{number:020d}")
        else:
            producer.publish_many(topic, values)
        producer.flush()
        return count / (time.perf_counter() - began)


def publish(count: int, rounds: int) -> None:
    import levada

    ways: dict[str, Callable[..., float]] = {"librdkafka": by_librdkafka, "levada.connect": by_python}
    print(f"\npublish, {count:,} messages of 100 bytes, median of {rounds} rounds, messages/s")
    with broker() as ready, levada.connect(ready["grpc"]) as client:
        for name, way in ways.items():
            # What the message carries is the same in both: the id costs the client something, too.
            for mode, likes in (("id", "id"), ("payload", "payload")):
                rates: dict[str, list[float]] = {"off": [], mode: []}
                costs: dict[str, list[float]] = {"off": [], mode: []}
                for turn in range(rounds + 1):
                    for setting in rates:
                        topic = f"{name}-{mode}-{setting}-{turn}"
                        client.manager.create_topic(topic, partitions=1, settings={"levada.dedup": setting})
                        before = cpu_s(ready["pid"])
                        rate = way(ready, topic, count, likes)
                        if turn:  # the first round warms up
                            rates[setting].append(rate)
                            costs[setting].append((cpu_s(ready["pid"]) - before) / count * 1e6)
                        client.manager.delete_topic(topic)
                off, on = (statistics.median(rates[setting]) for setting in ("off", mode))
                spent_off, spent_on = (statistics.median(costs[setting]) for setting in ("off", mode))
                print(
                    f"  {name:16}{mode:9} off {off:12,.0f}    on {on:12,.0f}    {on / off:.2f}×"
                    f"    broker's µs a message: {spent_off:.2f} → {spent_on:.2f}"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["all", "checks", "publish"], default="all")
    parser.add_argument("--messages", type=int, default=10_000_000, help="remembered, for checks")
    parser.add_argument("--published", type=int, default=500_000, help="in each round of publishing")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.what in ("all", "checks"):
        checks(given.messages)
    if given.what in ("all", "publish"):
        publish(given.published, given.rounds)


if __name__ == "__main__":
    main()
