"""Kafka's own classes and tools read what is written here, and the other way round: batches, snapshots, transaction indexes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from levada.log.aborted import AbortedIndex, AbortedTransaction
from levada.log.producers import Producers
from levada.records.batch import batches
from levada.records.build import build
from levada.records.compression import CODECS
from levada.records.read import Marker, Record, read, read_marker
from levada.records.rewrite import empty, keep
from support.batches import make_batch, make_marker, make_record
from support.jars import jars
from support.java import SMALL_JVM, java_command
from support.levada import LevadaBroker


def dump(*files: Path) -> str:
    """What Kafka's DumpLogSegments says of these files."""
    command = ["java", *SMALL_JVM, "-cp", jars("kafka/libs"), "org.apache.kafka.tools.DumpLogSegments"]
    names = ",".join(str(file) for file in files)
    done = subprocess.run(
        [*command, "--deep-iteration", "--print-data-log", "--files", names],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    return directory


def expected_records(base_offset: int) -> list[Record]:
    """What Batches.java puts into every batch."""
    return [
        Record(
            base_offset + i,
            1_700_000_000_000 - i * 3,
            None if i % 10 == 0 else b"key-%d" % i,
            None if i % 7 == 0 else b"value-%d-" % i * 20,
            (("é", b"\x01"), ("none", None)) if i % 5 == 0 else (),
        )
        for i in range(1000)
    ]


def test_batches_that_kafka_built_are_read_in_every_codec(tmp_path: Path) -> None:
    file = tmp_path / "batches"
    subprocess.run([*java_command("Batches", "4.3"), str(file)], check=True, timeout=120)
    found = list(batches(file.read_bytes()))
    assert sorted(batch.codec for batch in found[:-2]) == sorted(CODECS.values())
    for batch in found[:-2]:
        batch.check()
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 1, batch.base_offset)
        assert batch.is_transactional and batch.leader_epoch == 3
        assert list(read(batch)) == expected_records(batch.base_offset)
    for batch, commit in zip(found[-2:], (True, False), strict=True):
        batch.check()
        assert read_marker(batch) == Marker(commit, 42)


@pytest.mark.parametrize("codec", CODECS)
def test_batches_that_librdkafka_built_are_read_in_every_codec(tmp_path: Path, codec: str) -> None:
    values = [b"value %d " % number * (number % 50 + 1) for number in range(500)]
    broker = LevadaBroker(tmp_path)
    broker.start()
    try:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.codec": codec, "linger.ms": 50})
        for value in values:
            producer.produce("topic", value, b"key", headers=[("none", None), ("one", b"1")])
        assert producer.flush(30) == 0
    finally:
        broker.stop()
    files = sorted(broker.partition_dir("topic", 0).glob("*.log"))
    found = list(batches(b"".join(file.read_bytes() for file in files)))
    # librdkafka sends a batch as it is where compressing does not make it smaller.
    assert CODECS[codec] in {batch.codec for batch in found}
    records = [record for batch in found for record in read(batch)]
    assert [record.value for record in records] == values
    assert {record.headers for record in records} == {(("none", None), ("one", b"1"))}


def test_kafka_reads_every_batch_built_here(partition: Path) -> None:
    written, offset = bytearray(), 0
    for codec in CODECS:
        records = expected_records(offset)
        written += build(records, codec=codec, base_offset=offset, leader_epoch=5)
        offset = records[-1].offset + 1
    file = partition / "00000000000000000000.log"
    file.write_bytes(written)
    output = dump(file)
    assert output.count("isvalid: true") == len(CODECS)
    assert re.findall(r"compresscodec: (\w+)", output) == list(CODECS)
    for line, record in zip(re.findall(r"^\| (offset: .*)", output, re.M), _all_records(), strict=True):
        assert line.startswith(f"offset: {record.offset} CreateTime: {record.timestamp_ms} ")
        assert f"keySize: {-1 if record.key is None else len(record.key)} " in line
        assert f"valueSize: {-1 if record.value is None else len(record.value)} " in line
        assert ("headerKeys: [é,none]" in line) == bool(record.headers)


def _all_records() -> list[Record]:
    return [record for number in range(len(CODECS)) for record in expected_records(1000 * number)]


def test_kafka_reads_what_compaction_writes(partition: Path) -> None:
    tombstone = make_batch(records=[make_record(0, value=None), make_record(1)])
    parts = [
        keep(tombstone, lambda record: True, delete_horizon_ms=1_800_000_000_000),
        empty(make_batch(3, base_offset=2, producer_id=8, sequence=5)),
        keep(make_batch(5, base_offset=5, codec="lz4"), lambda record: record.offset in (6, 8)),
        keep(make_marker(producer_id=6, base_offset=10), lambda record: True, delete_horizon_ms=1_900_000_000_000),
    ]
    file = partition / "00000000000000000000.log"
    file.write_bytes(b"".join(bytes(part) for part in parts if part is not None))
    output = dump(file)
    assert output.count("isvalid: true") == 4
    assert re.findall(r"deleteHorizonMs: OptionalLong\[(\d+)\]", output) == ["1800000000000", "1900000000000"]
    assert "baseOffset: 2 lastOffset: 4 count: 0 baseSequence: 5 lastSequence: 7 producerId: 8" in output
    assert "endTxnMarker: COMMIT" in output
    timestamp_ms = make_record().timestamp_ms
    assert re.findall(r"^\| offset: (\d+) CreateTime: (\d+)", output, re.M)[:2] == [
        ("0", str(timestamp_ms)),
        ("1", str(timestamp_ms)),
    ]


def test_kafka_reads_snapshots_and_transaction_indexes(partition: Path) -> None:
    producers, index, offset = Producers(), AbortedIndex(), 100
    for batch in (
        make_batch(3, producer_id=1, sequence=2**31 - 1),
        make_batch(2, producer_id=5, producer_epoch=3, transactional=True),
        make_marker(commit=False, producer_id=5, producer_epoch=3, coordinator_epoch=4),
        make_batch(2, producer_id=5, producer_epoch=3, sequence=2, transactional=True),
        make_marker(producer_id=6, coordinator_epoch=1),
    ):
        batch.stamp(offset, 0)
        offset = batch.next_offset
        completed = producers.applied(batch, 1_700_000_000_000)
        if completed is not None and not completed.commit:
            index.append(AbortedTransaction.of(completed))
    snapshot = partition / f"{offset:020d}.snapshot"
    snapshot.write_bytes(producers.snapshot())
    transactions = partition / f"{100:020d}.txnindex"
    transactions.write_bytes(index.encode())
    output = dump(snapshot, transactions)
    assert "version: 0 producerId: 5 firstOffset: 103 lastOffset: 105 lastStableOffset: 106" in output
    assert (
        "producerId: 1 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty "
        "lastTimestamp: 1700000000000 firstSequence: 2147483647 lastSequence: 1 lastOffset: 102 offsetDelta: 2"
        in output
    )
    assert (
        "producerId: 5 producerEpoch: 3 coordinatorEpoch: 4 currentTxnFirstOffset: OptionalLong[106] "
        "lastTimestamp: 1700000000000 firstSequence: 2 lastSequence: 3 lastOffset: 107 offsetDelta: 1" in output
    )
    assert "producerId: 6 producerEpoch: 0 coordinatorEpoch: 1 currentTxnFirstOffset: OptionalLong.empty" in output


def test_a_transaction_marker_has_kafkas_bytes(partition: Path) -> None:
    file = partition / "batches"
    subprocess.run([*java_command("Batches", "4.3"), str(file)], check=True, timeout=120)
    theirs = list(batches(file.read_bytes()))[-2]
    ours = make_marker(
        producer_id=7, producer_epoch=1, coordinator_epoch=42, base_offset=theirs.base_offset, leader_epoch=3
    )
    assert ours.view == theirs.view
