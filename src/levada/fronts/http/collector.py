"""What Prometheus is told, read from plain counters when it asks.

Only partitions that were used since the start have counters: a topic that nobody touches costs nothing here either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

from prometheus_client import ProcessCollector
from prometheus_client.metrics_core import GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric

from levada import __version__
from levada.broker.dedup import Counts
from levada.engine.embedded.offset_table import OWN_PREFIX
from levada.engine.embedded.partition import Partition
from levada.engine.histogram import Histogram
from levada.engine.names import ARCHIVE_GROUP
from levada.engine.port import At
from levada.errors import LevadaError
from levada.fronts.http.exposition import Table, label
from levada.fronts.http.health import free_bytes
from levada.fronts.http.sources import Sources

#: Kind and name, what it is, and where a partition counts it.
_PER_PARTITION: Final[Sequence[tuple[Literal["counter", "gauge"], str, str, Callable[[Partition], int]]]] = (
    ("counter", "levada_messages_in_total", "Records stored.", lambda each: each.records_in),
    ("counter", "levada_bytes_in_total", "Bytes of records stored, as they came.", lambda each: each.bytes_in),
    ("counter", "levada_messages_out_total", "Records sent to readers.", lambda each: each.records_out),
    ("counter", "levada_bytes_out_total", "Bytes of records sent to readers.", lambda each: each.bytes_out),
    ("gauge", "levada_log_size_bytes", "Bytes of records on disk.", lambda each: each.log.size_bytes),
    (
        "gauge",
        "levada_retention_waiting_bytes",
        "Bytes that would be deleted if they were archived.",
        lambda each: each.shrinker.waiting_bytes,
    ),
)
_DEDUP: Final[Sequence[tuple[Literal["counter", "gauge"], str, str, Callable[[Counts], int]]]] = (
    ("counter", "levada_dedup_dropped_messages_total", "Repeats not stored again.", lambda each: each.dropped),
    ("counter", "levada_dedup_swept_entries_total", "Ids whose window has passed.", lambda each: each.swept),
    ("counter", "levada_dedup_evicted_entries_total", "Ids forgotten too early.", lambda each: each.evicted),
    ("gauge", "levada_dedup_entries", "Ids remembered now.", lambda each: each.entries),
)


class System(NamedTuple):
    """What the system tells of this process and its disk. Asking takes a while where many files are open."""

    free_bytes: int
    process: Sequence[Metric]

    @classmethod
    def ask(cls, sources: Sources) -> System:
        """In a worker thread."""
        return cls(free_bytes(sources), list(ProcessCollector(registry=None).collect()))


class BrokerCollector:
    """Reads all that the broker counts. To be called on its loop."""

    def __init__(self, sources: Sources, loop_delay: Histogram) -> None:
        self._sources = sources
        self._engine = sources.engine
        self._loop_delay = loop_delay

    def families(self, system: System) -> Iterator[Metric | Table]:
        """Every family, one after the other."""
        yield from self._broker(system.free_bytes)
        yield from self._health()
        yield from self._latencies()
        yield from self._buffers()
        yield from self._partitions()
        yield from self._dedup()
        yield Table(
            "gauge",
            "levada_group_lag_messages",
            "Records that a group has not read yet: the partition's end less the group's offset.",
            self._lags(),
        )
        yield from system.process

    def _broker(self, free_bytes: int) -> Iterator[Metric]:
        infos = self._engine.view.all()
        about = InfoMetricFamily("levada", "This broker.")
        cluster_id, node = self._engine.cluster_id, self._sources.node_name
        about.add_metric((), {"version": __version__, "cluster_id": cluster_id, "node": node})
        yield about
        yield GaugeMetricFamily("levada_topics", "Topics, internal ones included.", len(infos))
        partitions = sum(each.partitions for each in infos)
        yield GaugeMetricFamily("levada_partitions", "Partitions of all topics.", partitions)
        nodes = len(self._sources.nodes())
        yield GaugeMetricFamily("levada_nodes", "Nodes of the cluster, this broker included.", nodes)
        yield GaugeMetricFamily("levada_disk_free_bytes", "Room on the disk of the data directory.", free_bytes)
        connections = GaugeMetricFamily("levada_connections", "What clients have open.", labels=("front",))
        for front, held in self._sources.connections.items():
            connections.add_metric((front,), len(held))
        yield connections

    def _health(self) -> Iterator[Metric]:
        partitions = self._engine.open_partitions()
        yield GaugeMetricFamily("levada_open_partitions", "Partitions used since the start.", len(partitions))
        damaged = sum(each.damage is not None for each in partitions)
        yield GaugeMetricFamily("levada_damaged_partitions", "Partitions that are read up to their damage.", damaged)
        failed = sum(each.sync_error is not None for each in partitions)
        yield GaugeMetricFamily("levada_unsynced_partitions", "Partitions whose last sync failed.", failed)

    def _latencies(self) -> Iterator[Metric]:
        name, doc = "levada_publish_latency_seconds", "From a publish request to its answer."
        publish = HistogramMetricFamily(name, doc, labels=("front",))
        for front, histogram in self._sources.publish_latency.items():
            publish.add_metric((front,), *_counted(histogram))
        yield publish
        synced = HistogramMetricFamily("levada_fsync_latency_seconds", "Making a partition's records durable.")
        synced.add_metric((), *_counted(self._engine.sync_latency))
        yield synced
        name, doc = "levada_event_loop_delay_seconds", "How long whoever is ready waits for its turn."
        delay = HistogramMetricFamily(name, doc)
        delay.add_metric((), *_counted(self._loop_delay))
        yield delay

    def _buffers(self) -> Iterator[Metric | Table]:
        held = self._sources.held
        buffers = GaugeMetricFamily("levada_kafka_held_bytes", "Memory held for Kafka clients.", labels=("what",))
        if held is not None:
            buffers.add_metric(("requests",), held.taken_bytes)
            buffers.add_metric(("answers",), held.unsent_bytes)
        yield buffers
        waiting = self._sources.waiting()
        name, doc = "levada_publish_waiting", "Published natively and not durable yet"
        records = ((_at(at), load.records) for at, load in waiting.items())
        yield Table("gauge", f"{name}_messages", f"{doc}.", records)
        sizes = ((_at(at), load.size) for at, load in waiting.items())
        yield Table("gauge", f"{name}_bytes", f"{doc}, in bytes.", sizes)
        name, doc = (
            "levada_delivered_unfinished_messages",
            "Delivered to native consumers of a group and not granted anew.",
        )
        delivered = self._sources.delivered()
        yield Table("gauge", name, doc, ((label("group", group), out) for group, out in delivered.items()))

    def _partitions(self) -> Iterator[Table]:
        partitions = self._engine.open_partitions()
        for kind, name, doc, count in _PER_PARTITION:
            yield Table(kind, name, doc, ((_at(each.at), count(each)) for each in partitions))

    def _dedup(self) -> Iterator[Table]:
        topics = self._sources.dedup()
        for kind, name, doc, count in _DEDUP:
            yield Table(kind, name, doc, ((label("topic", each.topic), count(each)) for each in topics))

    def _lags(self) -> Iterator[tuple[str, int]]:
        store = self._engine.offset_store
        for group in sorted(store.groups()):
            if group.startswith(OWN_PREFIX) and group != ARCHIVE_GROUP:
                continue
            name = label("group", group)
            for at, committed in store.fetch(group).items():
                try:
                    end = self._engine.end_of(at)
                except LevadaError:
                    continue  # deleted while we looked, or it cannot be opened: then its writers and readers are told
                yield f"{name},{_at(at)}", max(0, end - committed.offset)


def _at(at: At) -> str:
    return f'topic="{at.topic}",partition="{at.partition}"'


def _counted(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """As prometheus-client takes it: buckets and sum."""
    buckets = [("+Inf" if bound == float("inf") else repr(bound), float(count)) for bound, count in histogram.buckets()]
    return buckets, histogram.total_ns / 1e9
