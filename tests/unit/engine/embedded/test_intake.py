from __future__ import annotations

import pytest

from levada.config import DAY_MS, HOUR_MS, MiB, topic_config
from levada.engine.embedded.intake import Intake
from levada.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    RecordError,
    RecordTooLarge,
    UnsupportedCompression,
)
from levada.records.batch import Batch, checksum
from levada.records.build import build
from levada.records.read import read
from support.batches import make_batch, make_marker, make_record

NOW_MS = 1_700_000_000_000


def intake(**settings: str) -> Intake:
    return Intake(topic_config({name.replace("_", "."): value for name, value in settings.items()}))


def test_a_batch_that_keeps_the_rules_is_stored_as_it_came() -> None:
    batch = make_batch(timestamp_ms=NOW_MS)
    before = bytes(batch.view)
    assert intake().admit(batch, NOW_MS) is batch
    assert bytes(batch.view) == before


def test_a_batch_beyond_the_limit_is_refused_naming_size_and_limit() -> None:
    batch = make_batch(value=b"x" * 100)
    with pytest.raises(RecordTooLarge, match=rf"has {batch.size} bytes, the topic's max\.message\.bytes is 200"):
        intake(max_message_bytes="200").admit(batch, NOW_MS)
    assert intake(max_message_bytes=str(batch.size)).admit(batch, NOW_MS) is batch


def test_the_size_is_looked_at_before_the_checksum() -> None:
    batch = make_batch()
    batch.view[-1] ^= 1
    with pytest.raises(RecordTooLarge):
        intake(max_message_bytes="10").admit(Batch(batch.view), NOW_MS)


@pytest.mark.parametrize("place", [16, 17, 21, 43, 61, -1])
def test_a_flipped_bit_is_found(place: int) -> None:
    batch = make_batch()
    batch.view[place] ^= 1
    with pytest.raises((CorruptBatch, InvalidRecord)):
        intake().admit(Batch(batch.view), NOW_MS)


def test_control_batches_are_the_brokers_own() -> None:
    with pytest.raises(InvalidRecord, match="written by the broker alone"):
        intake().admit(make_marker(), NOW_MS)


def test_an_unknown_codec_is_refused() -> None:
    batch = make_batch()
    batch.view[22] |= 5
    checksum(batch.view)
    with pytest.raises(UnsupportedCompression):
        intake().admit(Batch(batch.view), NOW_MS)


def claiming(batch: Batch, count: int) -> Batch:
    """The batch with another number of records in its header."""
    batch.view[23:27] = (count - 1).to_bytes(4, "big")
    batch.view[57:61] = count.to_bytes(4, "big")
    checksum(batch.view)
    return Batch(batch.view)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("count", [5000, 2**31 - 1])
def test_a_batch_that_claims_more_records_than_it_holds_is_refused(codec: str, count: int) -> None:
    with pytest.raises(InvalidRecord, match="records"):
        intake().admit(claiming(make_batch(codec=codec), count), NOW_MS)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_doubtful_batch_is_taken_when_its_records_are_there(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levada.records.batch.PLAUSIBLE_RECORDS_PER_BYTE", 0)
    batch = make_batch(count=100, codec=codec, timestamp_ms=NOW_MS)
    assert batch.is_doubtful
    assert intake().admit(batch, NOW_MS) is batch
    for count in (99, 101):
        with pytest.raises(InvalidRecord, match="records"):
            intake().admit(claiming(make_batch(count=100, codec=codec), count), NOW_MS)


def test_a_header_that_contradicts_itself_is_refused() -> None:
    batch = make_batch(count=3)
    batch.view[60] = 4
    checksum(batch.view)
    with pytest.raises(InvalidRecord, match="says it has 4 records"):
        intake().admit(Batch(batch.view), NOW_MS)


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_a_compacted_topic_wants_keys(codec: str) -> None:
    compacted = intake(cleanup_policy="compact")
    compacted.admit(make_batch(codec=codec, timestamp_ms=NOW_MS), NOW_MS)
    records = [make_record(0, timestamp_ms=NOW_MS), make_record(1, timestamp_ms=NOW_MS, key=None)]
    with pytest.raises(InvalidRecord, match="record 1 has no key"):
        compacted.admit(make_batch(records=records, codec=codec), NOW_MS)
    with pytest.raises(InvalidRecord, match="record 1 has no key"):
        intake(cleanup_policy="compact,delete").admit(make_batch(records=records), NOW_MS)
    intake().admit(make_batch(records=records), NOW_MS)


def test_a_timestamp_too_far_ahead_is_refused_naming_the_limit() -> None:
    intake().admit(make_batch(count=1, timestamp_ms=NOW_MS + HOUR_MS), NOW_MS)
    with pytest.raises(InvalidTimestamp, match=rf"message\.timestamp\.after\.max\.ms is {HOUR_MS}"):
        intake().admit(make_batch(count=1, timestamp_ms=NOW_MS + HOUR_MS + 1), NOW_MS)


def test_a_timestamp_too_far_back_is_refused_where_there_is_a_limit() -> None:
    old = [make_record(0, timestamp_ms=NOW_MS), make_record(1, timestamp_ms=NOW_MS - DAY_MS - 1)]
    intake().admit(make_batch(records=old), NOW_MS)
    with pytest.raises(InvalidTimestamp, match="record 1 has timestamp"):
        intake(message_timestamp_before_max_ms=str(DAY_MS)).admit(make_batch(records=old), NOW_MS)
    untimed = make_batch(records=[make_record(timestamp_ms=-1)])
    intake(message_timestamp_before_max_ms=str(DAY_MS)).admit(untimed, NOW_MS)


def test_the_brokers_clock_is_stamped_where_the_topic_asks_for_it() -> None:
    batch = intake(message_timestamp_type="LogAppendTime").admit(make_batch(timestamp_ms=5), NOW_MS)
    batch.check_crc()
    assert [record.timestamp_ms for record in read(batch)] == [NOW_MS] * 3


def test_a_client_cannot_claim_the_brokers_clock() -> None:
    batch = make_batch(timestamp_ms=NOW_MS)
    batch.stamp_append_time(NOW_MS)
    with pytest.raises(InvalidTimestamp, match="only the broker sets"):
        intake().admit(batch, NOW_MS)


@pytest.mark.parametrize(
    ("topic", "stored"), [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)]
)
@pytest.mark.parametrize("sent", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_codec_is_what_is_stored(topic: str, stored: int, sent: str) -> None:
    batch = make_batch(count=20, codec=sent, timestamp_ms=NOW_MS)
    expected = list(read(batch))
    admitted = intake(compression_type=topic).admit(batch, NOW_MS)
    admitted.check()
    assert admitted.codec == stored
    assert list(read(admitted)) == expected


def test_a_batch_that_unpacks_beyond_the_limit_is_refused() -> None:
    batch = make_batch(count=10, value=b"x" * 10_000, codec="zstd", timestamp_ms=NOW_MS)
    with pytest.raises(RecordError, match=r"max\.message\.bytes is 5000"):
        intake(compression_type="uncompressed", max_message_bytes="5000").admit(batch, NOW_MS)


def test_a_refused_batch_is_left_as_it_was() -> None:
    batch = make_batch(records=[make_record(key=None)])
    before = bytes(batch.view)
    with pytest.raises(InvalidRecord):
        intake(cleanup_policy="compact", message_timestamp_type="LogAppendTime").admit(batch, NOW_MS)
    assert bytes(batch.view) == before


@pytest.fixture(scope="module")
def bomb() -> bytearray:
    """What unpacks to 40 MiB, 250 times its size."""
    return build([make_record(key=b"k", value=bytes(40 * MiB))], codec="lz4")


@pytest.mark.parametrize(
    "settings",
    [{"cleanup_policy": "compact"}, {"compression_type": "zstd"}, {"message_timestamp_before_max_ms": str(DAY_MS)}],
    ids=str,
)
def test_a_batch_that_unpacks_to_much_more_than_a_batch_may_be_is_refused(
    bomb: bytearray, settings: dict[str, str]
) -> None:
    with pytest.raises(InvalidRecord, match="unpacks beyond 33554"):
        intake(**settings).admit(Batch(memoryview(bomb)), NOW_MS)
    # Nobody has to open it.
    assert intake().admit(Batch(memoryview(bomb)), NOW_MS).size == len(bomb)


def test_next_to_nothing_does_not_unpack_to_much() -> None:
    batch = make_batch(1, value=bytes(10 * MiB), codec="zstd")
    with pytest.raises(InvalidRecord, match=f"unpacks beyond {4 * MiB}"):
        intake(cleanup_policy="compact").admit(batch, NOW_MS)


def test_a_batch_may_unpack_to_more_where_batches_may_be_large(bomb: bytearray) -> None:
    large = intake(cleanup_policy="compact", max_message_bytes=str(10 * MiB))
    assert large.admit(Batch(memoryview(bomb)), NOW_MS).size == len(bomb)
