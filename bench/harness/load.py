"""Load from clients nobody here wrote: Java's performance tools, librdkafka, kcat.

Each function drives one broker with fixed settings and says how fast it went. The Java tools run in a JVM of their own each
time, warmed up by their first records, which are not counted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported, not declared

from support.jars import cache_dir, jars

TOOLS = "org.apache.kafka.tools."
CLIENT_JVM = ("-Xmx512m", "-Xms512m", "-XX:+UseParallelGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
SOURCE = Path(__file__).resolve().parent.parent / "java" / "Bench.java"


def create(bootstrap: str, topic: str, partitions: int) -> None:
    create_many(bootstrap, [topic], partitions)


def create_many(bootstrap: str, topics: Sequence[str], partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for start in range(0, len(topics), 200):
        wanted = [NewTopic(topic, partitions, 1) for topic in topics[start : start + 200]]
        for future in admin.create_topics(wanted, operation_timeout=60, request_timeout=120).values():
            future.result()
    time.sleep(0.3)


def java(*arguments: str, timeout_s: float = 900) -> str:
    done = subprocess.run(["java", *CLIENT_JVM, *arguments], capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        raise RuntimeError(f"java {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def java_produce(bootstrap: str, topic: str, count: int, size: int, *, warm: int = 0) -> float:
    """ProducerPerformance with acks=all as fast as it goes → records a second after the warm-up."""
    words = ["--topic", topic, "--num-records", str(count + warm), "--record-size", str(size), "--throughput", "-1"]
    if warm:
        words += ["--warmup-records", str(warm)]
    settings = ["acks=all", "linger.ms=5", "batch.size=65536", "buffer.memory=134217728"]
    tool = ["-cp", jars("kafka/libs"), f"{TOOLS}ProducerPerformance", "--bootstrap-server", bootstrap]
    out = java(*tool, *words, "--command-property", *settings)
    [*_, last] = re.findall(r"([\d.]+) records/sec \(", out)
    return float(last)


def java_consume(bootstrap: str, topic: str, count: int) -> float:
    """ConsumerPerformance over everything in the topic → records a second while fetching."""
    tool = ["-cp", jars("kafka/libs"), f"{TOOLS}ConsumerPerformance", "--bootstrap-server", bootstrap]
    out = java(*tool, "--topic", topic, "--num-records", str(count), "--timeout", "60000", "--hide-header")
    fields = out.strip().splitlines()[-1].split(", ")
    return float(fields[9])  # fetch.nMsg.sec: without the time the group took to form


def librdkafka_produce(bootstrap: str, topic: str, partitions: int, count: int, size: int) -> float:
    """librdkafka through its batch call, acks=all → records a second, flush included."""
    config = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 1_000_000}
    producer = Producer({**config, "queue.buffering.max.messages": 500_000, "queue.buffering.max.kbytes": 1 << 20})
    payload = os.urandom(size)
    chunk = [{"value": payload, "partition": index % partitions} for index in range(min(10_000, count))]
    start = time.perf_counter()
    for _ in range(count // len(chunk)):
        while len(producer) > 400_000:
            producer.poll(0.01)
        if producer.produce_batch(topic, chunk) != len(chunk):
            raise RuntimeError("librdkafka's queue is full")
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("not everything was delivered")
    return count / (time.perf_counter() - start)


def kcat_consume(bootstrap: str, topic: str, count: int) -> float:
    """kcat, librdkafka in C, from the beginning to the end of every partition → records a second.

    Its queue is made large: with the default of 100,000 records librdkafka pauses for up to a second whenever the broker
    is ahead of it, so a broker that answers faster would be read more slowly.
    """
    queue = ["-X", "queued.min.messages=10000000", "-X", "queued.max.messages.kbytes=2000000"]
    command = ["kcat", "-b", bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%o\n", *queue]
    start = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        subprocess.run(command, stdout=output, check=True, timeout=600)
        took = time.perf_counter() - start
        output.seek(0)
        seen = sum(1 for _ in output)
    if seen != count:
        raise RuntimeError(f"kcat read {seen} of {count} records")
    return count / took


def bench_java(*arguments: str) -> dict[str, float]:
    """Run bench/java/Bench.java, compiled once, and read the line it prints."""
    name = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    classes = cache_dir() / "classes" / f"Bench-{name}"
    if not classes.exists():
        subprocess.run(["javac", "-nowarn", "-cp", jars("kafka/libs"), "-d", str(classes), str(SOURCE)], check=True)
    out = java("-cp", f"{classes}:{jars('kafka/libs')}", "Bench", *arguments)
    found: dict[str, float] = json.loads(out.strip().splitlines()[-1])
    return found


def librdkafka_sync(bootstrap: str, topic: str, warm: int, count: int) -> dict[str, float]:
    """One record at a time through librdkafka, each acknowledged before the next → p50 and p99 in milliseconds."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "socket.nagle.disable": True})
    took, payload = [], b"x" * 100
    answers: list[object] = []

    def delivered(error: object, _message: object) -> None:
        answers.append(error)

    for index in range(-warm, count):
        start = time.perf_counter()
        producer.produce(topic, payload, partition=0, on_delivery=delivered)
        while len(answers) < index + warm + 1:
            producer.poll(1)
        if answers[-1] is not None:
            raise RuntimeError(f"not delivered: {answers[-1]}")
        if index >= 0:
            took.append((time.perf_counter() - start) * 1000)
    took.sort()
    return {"p50_ms": took[len(took) // 2], "p99_ms": took[int(len(took) * 0.99)]}
