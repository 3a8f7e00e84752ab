"""Kafka's own message formatters read `__consumer_offsets` and `__transaction_state`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.brokers import Broker
from support.driver import Driver
from support.transaction_calls import Wire

CONSUMER = "org.apache.kafka.tools.consumer."


@pytest.fixture
def formatted(drivers: Callable[[str], Driver], broker: Broker) -> Callable[[str, str], list[Any]]:
    """Every record of a topic as one of Kafka's formatters shows it."""

    def show(topic: str, formatter: str) -> list[Any]:
        words = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--from-beginning", "--timeout-ms", "4000"]
        answer = drivers("java-4.3").call(
            "tool",
            main=CONSUMER + "ConsoleConsumer",
            arguments=[*words, "--formatter", CONSUMER + formatter],
            stdin="",
        )
        return list(objects(answer["out"]))

    return show


def objects(text: str) -> Iterator[Any]:
    """JSON objects one after another, with or without lines between them."""
    decoder = json.JSONDecoder()
    while text := text.strip():
        found, end = decoder.raw_decode(text)
        yield found
        text = text[end:]


def test_kafka_reads_the_transactions(broker: Broker, topic: str, formatted: Callable[[str, str], list[Any]]) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.create(topic, 2)
        producer = wire.begin(topic)
        assert wire.produce(topic, producer, topic, b"v", partition=1) == 0
        _, after = wire.end(topic, producer, commit=True)
        assert wire.add_partitions(topic, after, topic, [0]) == {0: 0}
        assert wire.end(topic, after, commit=False, version=4)[0] == 0
    rows = formatted("__transaction_state", "TransactionLogMessageFormatter")
    states = [row["value"]["data"] for row in rows if row["key"]["data"]["transactionalId"] == topic]
    shown = [(row["transactionStatus"], row["producerEpoch"], row.get("clientTransactionVersion", 0)) for row in states]
    # Empty; Ongoing, PrepareCommit, CompleteCommit with TV2; Ongoing, PrepareAbort, CompleteAbort with TV1.
    assert shown == [(0, 0, 0), (1, 0, 2), (2, 1, 2), (4, 1, 2), (1, 1, 0), (3, 1, 0), (5, 1, 0)]
    assert states[1]["transactionPartitions"] == [{"topic": topic, "partitionIds": [1]}]
    assert {row["producerId"] for row in states} == {producer[0]}


def test_kafka_reads_the_offsets(broker: Broker, topic: str, formatted: Callable[[str, str], list[Any]]) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.create(topic, 1)
        producer = wire.begin(topic)
        assert wire.commit_offset(topic, producer, topic, topic, 42, metadata="mé") == 0
        assert wire.end(topic, producer, commit=True)[0] == 0
    rows = formatted("__consumer_offsets", "OffsetsMessageFormatter")
    [offset] = [row for row in rows if row["key"]["data"]["group"] == topic]
    assert offset["key"]["data"] == {"group": topic, "topic": topic, "partition": 0}
    value = offset["value"]["data"]
    assert (value["offset"], value["metadata"]) == (42, "mé") and value["commitTimestamp"] > 0
