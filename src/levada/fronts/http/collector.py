"""What Prometheus is told, read from plain counters when it asks.

Families with a sample for each partition come in pieces, so that the loop is not held up by ten thousand topics. Only
partitions that were used since the start have counters; a topic that nobody touches costs nothing here either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import ProcessCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from levada import __version__
from levada.engine.embedded.offset_table import OWN_PREFIX
from levada.engine.embedded.partition import Partition
from levada.engine.histogram import Histogram
from levada.errors import LevadaError
from levada.fronts.http.health import free_bytes
from levada.fronts.http.sources import Sources

#: Samples of one piece: about a millisecond's work.
PIECE: Final = 200

_AT: Final = ("topic", "partition")
_Family = type[CounterMetricFamily] | type[GaugeMetricFamily]
_Row = tuple[Sequence[str], float]

#: Name, what it is, and where a partition counts it.
_PER_PARTITION: Final[Sequence[tuple[_Family, str, str, Callable[[Partition], int]]]] = (
    (CounterMetricFamily, "levada_messages_in", "Records stored.", lambda each: each.records_in),
    (CounterMetricFamily, "levada_bytes_in", "Bytes of records stored, as they came.", lambda each: each.bytes_in),
    (CounterMetricFamily, "levada_messages_out", "Records sent to readers.", lambda each: each.records_out),
    (CounterMetricFamily, "levada_bytes_out", "Bytes of records sent to readers.", lambda each: each.bytes_out),
    (GaugeMetricFamily, "levada_log_size_bytes", "Bytes of records on disk.", lambda each: each.log.size_bytes),
)


class BrokerCollector(Collector):
    """Reads all that the broker counts. To be called on its loop."""

    def __init__(self, sources: Sources, loop_delay: Histogram) -> None:
        self._sources = sources
        self._engine = sources.engine
        self._loop_delay = loop_delay
        self._process = ProcessCollector(registry=None)

    def collect(self) -> Iterable[Metric]:
        return self.pieces(free_bytes(self._sources))

    def pieces(self, free: int) -> Iterator[Metric]:
        """Every family, those with many samples in several pieces one after the other. `free`: room on the disk."""
        yield from self._broker(free)
        yield from self._latencies()
        yield from self._buffers()
        yield from self._partitions()
        yield from self._dedup()
        yield from self._lag()
        yield from self._process.collect()

    def _broker(self, free: int) -> Iterator[Metric]:
        engine, infos = self._engine, self._engine.view.all()
        info = InfoMetricFamily("levada", "This broker.")
        info.add_metric((), {"version": __version__, "cluster_id": engine.cluster_id, "node": self._sources.node_name})
        yield info
        yield _gauge("levada_topics", "Topics, internal ones included.", len(infos))
        yield _gauge("levada_partitions", "Partitions of all topics.", sum(each.partitions for each in infos))
        partitions = engine.open_partitions()
        yield _gauge("levada_open_partitions", "Partitions used since the start.", len(partitions))
        damaged = sum(each.damage is not None for each in partitions)
        yield _gauge("levada_damaged_partitions", "Partitions that are read up to their damage only.", damaged)
        failed = sum(each.sync_error is not None for each in partitions)
        yield _gauge("levada_unsynced_partitions", "Partitions that take no writes since a failed sync.", failed)
        yield _gauge("levada_disk_free_bytes", "Room on the disk of the data directory.", free)
        yield _gauge("levada_nodes", "Nodes of the cluster, this broker included.", len(self._sources.nodes()))
        connections = GaugeMetricFamily("levada_connections", "What clients have open.", labels=("front",))
        for front, held in self._sources.connections.items():
            connections.add_metric((front,), len(held))
        yield connections

    def _latencies(self) -> Iterator[Metric]:
        publish = self._sources.publish_latency
        yield _histogram(
            "levada_publish_latency_seconds", "From a publish request to its answer.", publish.items(), ("front",)
        )
        synced = [("", self._engine.sync_latency)]
        yield _histogram("levada_fsync_latency_seconds", "Making a partition's records durable.", synced)
        delay = [("", self._loop_delay)]
        yield _histogram("levada_event_loop_delay_seconds", "How long whoever is ready waits for its turn.", delay)

    def _buffers(self) -> Iterator[Metric]:
        held = self._sources.held
        if held is not None:
            buffers = GaugeMetricFamily("levada_kafka_held_bytes", "Memory held for Kafka clients.", labels=("what",))
            buffers.add_metric(("requests",), held.taken_bytes)
            buffers.add_metric(("answers",), held.unsent_bytes)
            yield buffers
        waiting = [((at.topic, str(at.partition)), load) for at, load in self._sources.waiting().items()]
        records = (((labels), load.records) for labels, load in waiting)
        yield from _pieces(
            GaugeMetricFamily, "levada_publish_waiting_messages", "Published natively, not durable yet.", _AT, records
        )
        sizes = (((labels), load.size) for labels, load in waiting)
        yield from _pieces(GaugeMetricFamily, "levada_publish_waiting_bytes", "The same in bytes.", _AT, sizes)

    def _partitions(self) -> Iterator[Metric]:
        partitions = [((each.at.topic, str(each.at.partition)), each) for each in self._engine.open_partitions()]
        for kind, name, doc, count in _PER_PARTITION:
            rows = ((labels, count(partition)) for labels, partition in partitions)
            yield from _pieces(kind, name, doc, _AT, rows)

    def _dedup(self) -> Iterator[Metric]:
        counts = self._sources.dedup()
        columns: Sequence[tuple[_Family, str, str, Iterable[_Row]]] = (
            (
                CounterMetricFamily,
                "levada_dedup_dropped_messages",
                "Repeats that were not stored again.",
                (((each.topic,), each.dropped) for each in counts),
            ),
            (
                CounterMetricFamily,
                "levada_dedup_swept_entries",
                "Ids forgotten because their window has passed.",
                (((each.topic,), each.swept) for each in counts),
            ),
            (
                GaugeMetricFamily,
                "levada_dedup_entries",
                "Ids remembered now.",
                (((each.topic,), each.entries) for each in counts),
            ),
        )
        for kind, name, doc, rows in columns:
            yield from _pieces(kind, name, doc, ("topic",), rows)

    def _lag(self) -> Iterator[Metric]:
        yield from _pieces(
            GaugeMetricFamily,
            "levada_group_lag_messages",
            "Records that a group has not read yet: the partition's end less the group's offset.",
            ("group", *_AT),
            self._lags(),
        )

    def _lags(self) -> Iterator[_Row]:
        store = self._engine.offset_store
        for group in sorted(store.groups()):
            if group.startswith(OWN_PREFIX):
                continue
            for at, committed in store.fetch(group).items():
                try:
                    end = self._engine.partition(*at).end
                except LevadaError:
                    continue  # deleted while we looked, or it cannot be opened, which its check tells
                yield (group, at.topic, str(at.partition)), max(0, end - committed.offset)


def _gauge(name: str, doc: str, value: float) -> Metric:
    return GaugeMetricFamily(name, doc, value)


def _histogram(name: str, doc: str, counted: Iterable[tuple[str, Histogram]], labels: Sequence[str] = ()) -> Metric:
    family = HistogramMetricFamily(name, doc, labels=labels)
    for label, histogram in counted:
        buckets = [(floatToGoString(bound), float(count)) for bound, count in histogram.buckets()]
        family.add_metric((label,) if labels else (), buckets, histogram.total_ns / 1e9)
    return family


def _pieces(kind: _Family, name: str, doc: str, labels: Sequence[str], rows: Iterable[_Row]) -> Iterator[Metric]:
    """A family in pieces; at least one, so that what there is to measure is known also while it is nought."""
    family = kind(name, doc, labels=labels)
    yield family  # its heading alone
    family, count = kind(name, doc, labels=labels), 0
    for row_labels, value in rows:
        family.add_metric(row_labels, value)
        count += 1
        if count == PIECE:
            yield family
            family, count = kind(name, doc, labels=labels), 0
    if count:
        yield family
