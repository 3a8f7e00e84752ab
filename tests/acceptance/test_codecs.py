"""Every codec, from every client to every client, and the codec a topic insists on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support import clients
from support.brokers import Broker
from support.driver import Client, Driver, Sent

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: Compressible, larger than one lz4 block together, with every byte in it, and one value that no codec can shrink.
VALUES = [b"row %d " % number * 50 + bytes(range(256)) for number in range(120)] + [bytes(range(256)) * 300]


def records_of(writer: str, partition: int) -> list[Sent]:
    return [Sent(writer.encode() + value, b"key %d" % index, partition) for index, value in enumerate(VALUES)]


@pytest.fixture(scope="module")
def written(drivers: Callable[[str], Driver], broker: Broker) -> Callable[[str], str]:
    """The topic of a codec, where each client has written to a partition of its own; made when first asked for."""
    done: dict[str, str] = {}

    def topic_of(codec: str) -> str:
        if codec not in done:
            topic = done[codec] = f"codec-{codec}"
            Client(drivers("librdkafka"), broker.bootstrap).create(topic, len(clients.ALL))
            for partition, writer in enumerate(clients.ALL):
                client = Client(drivers(writer), broker.bootstrap)
                client.produce(topic, records_of(writer, partition), codec=codec)
        return done[codec]

    return topic_of


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("reader", clients.ALL)
def test_what_every_client_compresses_every_client_reads(
    codec: str, reader: str, written: Callable[[str], str], with_client: Callable[[str], Client]
) -> None:
    found = with_client(reader).consume(written(codec))
    for partition, writer in enumerate(clients.ALL):
        ours = sorted((seen for seen in found if seen.partition == partition), key=lambda seen: seen.offset)
        assert [seen.offset for seen in ours] == list(range(len(VALUES))), f"{writer} → {reader}"
        expected = [(sent.key, sent.value) for sent in records_of(writer, partition)]
        assert [(seen.key, seen.value) for seen in ours] == expected, f"{writer} → {reader}"


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_that_insists_on_a_codec_stores_it_whatever_the_producer_sent(
    codec: str, topic: str, admin: Client, with_client: Callable[[str], Client]
) -> None:
    admin.create(topic, 2, {"compression.type": codec})
    sent = {partition: records_of("any", partition)[:20] for partition in (0, 1)}
    admin.produce(topic, sent[0], codec="zstd" if codec == "gzip" else "gzip")
    with_client("java-4.3").produce(topic, sent[1], codec="none")
    found = with_client("kafka-python").consume(topic)
    for partition, records in sent.items():
        values = [seen.value for seen in found if seen.partition == partition]
        assert values == [record.value for record in records]
