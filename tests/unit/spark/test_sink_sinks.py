"""The last batch of a sink, out of a log as brokers show it. No broker."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from levada.errors import TimedOut
from levada.records.batch import Batch
from levada.spark.sink import sinks as module
from levada.spark.sink.claims import BatchSeen
from levada.spark.sink.own_topics import SINKS
from levada.spark.sink.sinks import Sinks, record_of
from levada.wire.answers import EARLIEST


def seen(batch: int) -> BatchSeen:
    return BatchSeen(0, batch, None, ())


class Log:
    """One partition. Fetches show it up to the high watermark, each time one of those given, the last for ever."""

    def __init__(self, *records: bytes | None, high_watermarks: tuple[int, ...] = ()) -> None:
        #: By offset; None where compaction has left nothing.
        self.records = records
        self.high_watermarks = list(high_watermarks) or [len(records)]
        self.fetches = 0
        self.cluster = SimpleNamespace(topics={SINKS.name: SimpleNamespace(partitions=[0])})

    def list_offsets(self, timestamps):
        return {
            at: SimpleNamespace(offset=0 if when == EARLIEST else len(self.records)) for at, when in timestamps.items()
        }

    def fetch(self, positions, **_limits):
        self.fetches += 1
        ((at, position),) = positions.items()
        end = self.high_watermarks.pop(0) if len(self.high_watermarks) > 1 else self.high_watermarks[0]
        found = next((one for one in self.records[position:end] if one is not None), b"")
        return {at: SimpleNamespace(records=memoryview(found), high_watermark=end)}


def log(*batches: int | None, **about) -> Log:
    return Log(*(None if one is None else _stamped(offset, one) for offset, one in enumerate(batches)), **about)


def _stamped(offset: int, number: int) -> bytes:
    batch = Batch(record_of("p/a", seen(number), lambda: 0))
    batch.stamp_append_time(0)  # which gives it a checksum
    batch.stamp(offset, 0)
    return bytes(batch.view)


def test_a_sink_that_has_never_written():
    assert Sinks(log()).last_committed("p/a") is None


def test_it_is_read_to_its_end_and_not_again():
    client = log(0, 1, 2)
    sinks = Sinks(client)
    assert sinks.last_committed("p/a") == seen(2)
    fetches = client.fetches
    assert sinks.last_committed("p/a") == seen(2)
    assert client.fetches == fetches


def test_a_leader_that_does_not_know_yet_how_far_it_may_be_read_is_waited_for():
    """After a change of leaders: what it shows would be an older batch, and the one after it would be written twice."""
    assert Sinks(log(0, 1, 2, high_watermarks=(1, 1, 1, 3))).last_committed("p/a") == seen(2)
    assert Sinks(log(0, 1, 2, high_watermarks=(0, 3))).last_committed("p/a") == seen(2)


def test_a_leader_that_never_knows_is_an_error(monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
    with pytest.raises(
        TimedOut, match=r"__levada\.sinks-0 ends at offset 3 and can be read up to 1,.*'p/a' is not known"
    ):
        Sinks(log(0, 1, 2, high_watermarks=(1,))).last_committed("p/a")


def test_a_log_whose_last_records_compaction_took_has_an_end_too():
    client = log(0, None, None)
    sinks = Sinks(client)
    assert sinks.last_committed("p/a") == sinks.last_committed("p/a") == seen(0)
    assert client.fetches == 2
