"""Metrics and health of a running broker, as Prometheus and a probe see them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from levada.engine.port import At, Committed, TopicSpec
from levada.fronts.kafka.listener import Listener
from levada.server import Server
from levada.v1 import stream_pb2 as pb
from support.broker import make_config, running
from support.engines import forbid_syncs_here
from support.native_consumer import NativeConsumer
from support.rpc import connect_async, record

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path / "data") as server:
        yield server


def base(server: Server) -> str:
    return "http://{}:{}".format(*server.addresses["http"])


class Scraped:
    """What one scrape told."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.text = text

    def value(self, sample: str, **labels: str) -> float | None:
        for family in self.families.values():
            for found in family.samples:
                if found.name == sample and found.labels == labels:
                    return found.value
        return None

    def labels(self, family: str) -> list[Mapping[str, str]]:
        return [sample.labels for sample in self.families[family].samples]


async def scrape(server: Server) -> Scraped:
    async with httpx.AsyncClient(base_url=base(server)) as http:
        answer = await http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Scraped(answer.text)


async def grpc_client(server: Server) -> str:
    return "{}:{}".format(*server.addresses["grpc"])


def produce(bootstrap: str, topic: str, count: int) -> None:
    """One request a record."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
        assert producer.flush(30) == 0


def consume(bootstrap: str, topic: str, group: str, count: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(count, 30)
    assert len(found) == count
    consumer.commit(offsets=[TopicPartition(topic, 0, count)], asynchronous=False)
    consumer.close()


async def test_what_kafka_clients_do_is_counted(server: Server) -> None:
    await server.engine.create(TopicSpec(name="t", partitions=2))
    bootstrap = "{}:{}".format(*server.addresses["kafka"])
    await asyncio.to_thread(produce, bootstrap, "t", 100)
    await asyncio.to_thread(consume, bootstrap, "t", "g", 6)
    found = await scrape(server)
    at = {"topic": "t", "partition": "0"}
    assert found.value("levada_messages_in_total", **at) == 100
    assert found.value("levada_messages_out_total", **at) >= 6
    size = found.value("levada_log_size_bytes", **at)
    assert size and size == found.value("levada_bytes_in_total", **at)
    assert found.value("levada_bytes_out_total", **at) > 0
    assert found.value("levada_group_lag_messages", group="g", **at) == 94
    assert found.value("levada_publish_latency_seconds_count", front="kafka") >= 1
    assert found.value("levada_publish_latency_seconds_sum", front="kafka") > 0


async def test_what_native_clients_do_is_counted(server: Server) -> None:
    await server.engine.create(TopicSpec(name="t", partitions=1))
    async with connect_async(await grpc_client(server)) as client:
        for _ in range(3):
            await client.stream.Publish(pb.PublishRequest(topic="t", records=[record(b"x"), record(b"y")]))
        await client.stream.Read(pb.ReadRequest(topic="t", partition=0, offset=2))
    found = await scrape(server)
    assert found.value("levada_messages_in_total", topic="t", partition="0") == 6
    assert found.value("levada_messages_out_total", topic="t", partition="0") == 4
    assert found.value("levada_publish_latency_seconds_count", front="native") == 3


async def test_how_far_the_archive_is_behind_is_told(server: Server) -> None:
    await server.engine.create(TopicSpec(name="t", partitions=1, settings={"levada.archive": "/lake/t"}))
    at = At("t", 0)
    async with connect_async(await grpc_client(server)) as client:
        await client.stream.Publish(pb.PublishRequest(topic="t", records=[record(b"x")] * 5))
    await server.engine.commit_offsets("__levada.archive", {at: Committed(2)})
    await server.engine.commit_offsets("__levada.keyless", {at: Committed(1)})
    server.engine.partition(*at).shrinker.waiting_bytes = 17
    found = await scrape(server)
    place = {"topic": "t", "partition": "0"}
    assert found.value("levada_group_lag_messages", group="__levada.archive", **place) == 3
    assert found.value("levada_group_lag_messages", group="__levada.keyless", **place) is None
    assert found.value("levada_retention_waiting_bytes", **place) == 17


async def test_syncs_are_timed(tmp_path: Path) -> None:
    async with running(tmp_path / "data", {"levada.durability": "fsync"}) as server:
        before = (await scrape(server)).value("levada_fsync_latency_seconds_count")
        await server.engine.create(TopicSpec(name="t", partitions=1))
        found = await scrape(server)
        assert found.value("levada_fsync_latency_seconds_count") > (before or 0)
        buckets = [
            (float(sample.labels["le"]), sample.value)
            for sample in found.families["levada_fsync_latency_seconds"].samples
            if sample.name.endswith("_bucket")
        ]
        assert buckets == sorted(buckets)
        assert buckets[-1] == (float("inf"), found.value("levada_fsync_latency_seconds_count"))


async def test_dedup_counts_what_was_not_stored_again(server: Server) -> None:
    settings = {"levada.dedup": "id"}
    async with connect_async(await grpc_client(server)) as client:
        await client.stream.CreateTopic(pb.CreateTopicRequest(name="t", partitions=1, settings=settings))
        for _ in range(3):
            await client.stream.Publish(pb.PublishRequest(topic="t", records=[record(b"x", message_id="1")]))
    found = await scrape(server)
    assert found.value("levada_dedup_dropped_messages_total", topic="t") == 2
    assert found.value("levada_dedup_entries", topic="t") == 1
    assert found.value("levada_dedup_swept_entries_total", topic="t") == 0


async def test_the_loops_delay_is_measured_from_the_first_scrape_on(server: Server) -> None:
    assert (await scrape(server)).value("levada_event_loop_delay_seconds_count") == 0
    async with asyncio.timeout(20):
        while not (await scrape(server)).value("levada_event_loop_delay_seconds_count"):
            time.sleep(0.3)  # noqa: ASYNC251  # this is what is measured
    found = await scrape(server)
    assert found.value("levada_event_loop_delay_seconds_sum") > 0.01


async def test_everything_that_is_told_is_documented_and_the_other_way_round(server: Server) -> None:
    await server.engine.commit_offsets("g", {await _topic(server): Committed(0)})
    found = await scrape(server)
    told = {re.sub("_total$", "", line.split()[2]) for line in found.text.splitlines() if line.startswith("# TYPE")}
    table = DOCS.read_text().partition("## Metrics")[2].partition("###")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = {re.sub("_total$", "", name) for row in rows for name in re.findall("`([^`]+)`", row)}
    assert {name for name in told if not name.startswith("process_")} == documented - {"process_*"}
    labels = found.families["levada_group_lag_messages"].samples[0].labels
    assert labels == {"group": "g", "topic": "t", "partition": "0"}


async def _topic(server: Server, name: str = "t") -> At:
    await server.engine.create(TopicSpec(name=name, partitions=1))
    return At(name, 0)


async def test_a_groups_strange_name_does_not_break_the_text(server: Server) -> None:
    group = 'a"b\\c\nd, e{f}é'
    await server.engine.commit_offsets(group, {await _topic(server): Committed(0)})
    await server.engine.commit_offsets("__levada.own", {At("t", 0): Committed(0)})
    found = await scrape(server)
    assert [labels["group"] for labels in found.labels("levada_group_lag_messages")] == [group]


async def test_many_partitions_come_in_one_family_each(server: Server) -> None:
    await server.engine.create(TopicSpec(name="many", partitions=1201))
    for index in range(1201):
        server.engine.partition("many", index)
    found = await scrape(server)
    labels = [each for each in found.labels("levada_messages_in") if each["topic"] == "many"]
    assert sorted(int(each["partition"]) for each in labels) == list(range(1201))
    assert found.text.count("# TYPE levada_messages_in_total ") == 1


async def test_a_deleted_topic_is_no_longer_told_of(server: Server) -> None:
    at = await _topic(server, "gone")
    await server.engine.commit_offsets("g", {at: Committed(0)})
    assert "gone" in (await scrape(server)).text
    await server.engine.delete("gone")
    assert "gone" not in (await scrape(server)).text


async def health(server: Server, path: str) -> tuple[int, dict[str, str]]:
    return await health_at(base(server), path)


async def health_at(address: str, path: str) -> tuple[int, dict[str, str]]:
    """The status, and what is wrong."""
    async with httpx.AsyncClient(base_url=address) as http:
        answer = await http.get(path)
    body = answer.json()
    wrong = {name: check["why"] for name, check in body["checks"].items() if not check["ok"]}
    assert body["status"] == ("failed" if wrong else "ok")
    return answer.status_code, wrong


async def test_a_broker_that_is_well_says_so(server: Server) -> None:
    assert await health(server, "/healthz") == (200, {})
    assert await health(server, "/readyz") == (200, {})


async def test_a_damaged_partition_is_named_and_the_rest_is_ready(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with running(data) as server:
        at = await _topic(server)
        bootstrap = "{}:{}".format(*server.addresses["kafka"])
        for _ in range(3):
            await asyncio.to_thread(produce, bootstrap, at.topic, 1)
    log = data / "topics" / "t-0" / ("0" * 20 + ".log")
    broken = bytearray(log.read_bytes())
    broken[70] ^= 0xFF
    log.write_bytes(broken)
    async with running(data) as server:
        partition = server.engine.partition("t", 0)
        await partition.scrub()
        status, wrong = await health(server, "/healthz")
        assert (status, list(wrong)) == (503, ["damaged"])
        assert wrong["damaged"].startswith("t-0: ") and log.name in wrong["damaged"]
        assert await health(server, "/readyz") == (200, {})
        assert (await scrape(server)).value("levada_damaged_partitions") == 1


async def test_a_failed_sync_is_named(server: Server) -> None:
    at = await _topic(server)
    server.engine.partition(*at).sync_failed(OSError(5, "Input/output error"))
    for path in ("/healthz", "/readyz"):
        status, wrong = await health(server, path)
        assert (status, list(wrong)) == (503, ["sync_failed"])
        assert "t-0: the disk could not make it durable" in wrong["sync_failed"]
    assert (await scrape(server)).value("levada_unsynced_partitions") == 1


async def test_a_closing_broker_says_so_until_the_others_have_their_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, tuple[int, dict[str, str]]] = {}
    stop = Listener.stop

    async with running(tmp_path / "data") as server:
        address = base(server)

        async def look_and_stop(listener: Listener, grace_s: float) -> None:
            for path in ("/readyz", "/healthz"):
                seen[path] = await health_at(address, path)
            await stop(listener, grace_s)

        monkeypatch.setattr(Listener, "stop", look_and_stop)
    assert seen == {"/readyz": (503, {"closing": "the broker is closing"}), "/healthz": (200, {})}
    with pytest.raises(httpx.ConnectError):
        await health_at(address, "/readyz")


async def test_a_front_that_is_turned_off_is_not_there(tmp_path: Path) -> None:
    from dataclasses import replace

    server = Server(replace(make_config(tmp_path / "data"), http_port=None))
    await server.start()
    assert "http" not in server.addresses
    await server.stop(1.0)


async def test_scraping_waits_for_no_disk(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    await _topic(server)
    await scrape(server)
    forbid_syncs_here(monkeypatch)
    assert (await scrape(server)).value("levada_topics") is not None


async def test_what_native_consumers_get_is_counted_once_and_what_they_have_not_finished_is_shown(
    server: Server,
) -> None:
    """More is in the log than may be delivered: what is read again later is not counted twice."""
    await server.engine.create(TopicSpec(name="out", partitions=1))
    async with connect_async(await grpc_client(server)) as client:
        for _ in range(30):
            records = [record(b"x" * 100) for _ in range(100)]
            await client.stream.Publish(pb.PublishRequest(topic="out", records=records))
        consumer = await NativeConsumer(client, topics=["out"], group="slow", grants=False, raw=True).open()
        consumer.read_on()
        await consumer.until(lambda: consumer.count == 1_000)
        found = await scrape(server)
        assert found.value("levada_delivered_unfinished_messages", group="slow") == 1_000
        assert found.value("levada_messages_out_total", topic="out", partition="0") == 1_000
        await consumer.grant(1_000)
        await consumer.until(lambda: consumer.count == 2_000)
        await consumer.grant(1_000)
        await consumer.until(lambda: consumer.count == 3_000)
        found = await scrape(server)
        assert found.value("levada_messages_out_total", topic="out", partition="0") == 3_000
        await consumer.close()
