"""Records from messages and back: what is absent stays apart from what is empty."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levada.broker.publishing import NewRecord
from levada.fronts.rpc.records import new_record, stored_records
from levada.records.read import Record
from levada.v1 import stream_pb2 as pb

some_bytes = st.none() | st.binary(max_size=20)
headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=4)


@given(
    value=some_bytes,
    key=some_bytes,
    pairs=headers,
    timestamp_ms=st.none() | st.integers(-5, 2**62),
    partition=st.none() | st.integers(-5, 100),
    message_id=st.none() | st.text(max_size=9),
)
def test_a_new_record_is_what_the_message_says(
    value: bytes | None,
    key: bytes | None,
    pairs: list[tuple[str, bytes | None]],
    timestamp_ms: int | None,
    partition: int | None,
    message_id: str | None,
) -> None:
    message = pb.Record(
        value=value,
        key=key,
        headers=[pb.Header(key=name, value=data) for name, data in pairs],
        timestamp_ms=timestamp_ms,
        partition=partition,
        message_id=message_id,
    )
    made = new_record(pb.Record.FromString(message.SerializeToString()))
    expected = NewRecord(value, key, pairs or (), timestamp_ms, partition, message_id)
    assert made == expected


@given(st.lists(st.builds(Record, st.integers(0, 2**62), st.integers(-1, 2**62), some_bytes, some_bytes, headers)))
def test_stored_records_say_what_was_read(records: list[Record]) -> None:
    def field(message: pb.StoredRecord | pb.Header, name: str) -> bytes | None:
        return getattr(message, name) if message.HasField(name) else None

    answer = pb.ReadResponse(records=stored_records(records))
    back = [
        Record(
            each.offset,
            each.timestamp_ms,
            field(each, "key"),
            field(each, "value"),
            [(header.key, field(header, "value")) for header in each.headers],
        )
        for each in pb.ReadResponse.FromString(answer.SerializeToString()).records
    ]
    assert back == records
