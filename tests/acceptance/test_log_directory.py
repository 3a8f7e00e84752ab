"""Kafka's DumpLogSegments reads a partition's whole directory, and finds no index that does not fit its segment."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from levada.log.disk import Disk
from levada.log.log import Log
from support.batches import make_batch, make_marker
from support.jars import jars
from support.java import SMALL_JVM
from support.logs import NOW_MS, append, open_log, tiny

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def dump(*options: str, files: list[Path]) -> str:
    command = ["java", *SMALL_JVM, "-cp", jars("kafka/libs"), "org.apache.kafka.tools.DumpLogSegments"]
    names = ",".join(str(file) for file in files)
    done = subprocess.run([*command, *options, "--files", names], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Several segments, closed properly: every codec, a producer, committed and aborted transactions."""
    log = open_log(Disk(), tiny(segment_bytes=2000), path=str(tmp_path / "topic-0"), clean=True)
    sequence = 0
    for number in range(60):
        count = 1 + number % 3
        batch = make_batch(
            count,
            timestamp_ms=NOW_MS + 10 * number,
            producer_id=1,
            sequence=sequence,
            transactional=True,
            codec=CODECS[number % 5],
        )
        append(log, batch)
        sequence += count
        if number % 7 == 6:
            append(log, make_marker(producer_id=1, commit=number % 2 == 0, timestamp_ms=NOW_MS + 10 * number))
    log.close()
    assert len(log.segments) > 3
    return log


def test_kafka_reads_every_file_of_a_log(log: Log) -> None:
    numbered = sorted(Path(log.path).glob("0*"))
    assert {file.suffix for file in numbered} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    text = dump("--deep-iteration", "--print-data-log", files=numbered)
    assert [int(offset) for offset in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)] == list(
        range(log.end_offset)
    )
    assert "isvalid: false" not in text
    assert len(re.findall(r"^version: 0 producerId: 1 firstOffset", text, re.MULTILINE)) == 4
    assert re.search(rf"^producerId: 1 .*lastOffset: {log.end_offset - 1}", text, re.MULTILINE)


def test_kafka_finds_every_index_entry_right(log: Log) -> None:
    indexes = [*Path(log.path).glob("*.index"), *Path(log.path).glob("*.timeindex")]
    sane = dump("--index-sanity-check", files=indexes)
    assert sane.count("passed sanity check") == len(indexes) == 2 * len(log.segments)
    verified = dump("--verify-index-only", files=indexes)
    assert "mismatch" not in verified.lower() and "out of order" not in verified.lower()
