"""The readers of `format("levada")`, asked by the test in Spark's place: what they plan, read, commit and refuse."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from levada.errors import Unreachable
from levada.spark.batch import BatchReader
from levada.spark.fetch import Range
from levada.spark.history import Held, NoHistory
from levada.spark.losses import DELETED, GONE, REPLACED, DataLost, Lost, lost_in
from levada.spark.options.reading import WrongOption
from levada.spark.options.source import SourceOptions
from levada.spark.slices import Slice
from levada.spark.stream import StreamReader
from levada.spark.stream_offset import StreamError
from levada.spark.subscription import Found, found
from levada.testing import broker as levada_broker
from levada.wire.answers import TopicPartition
from levada.wire.blocking import BlockingClient
from support.ports import free_port
from support.spark_topics import NOW_MS, make_topic, numbered, put


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with levada_broker() as levada:
        yield levada.bootstrap


def batch(bootstrap: str, topic: str, **options: str) -> list[tuple[int, int, bytes]]:
    """(partition, offset, value) of a batch read."""
    reader = BatchReader(options_of(bootstrap, topic, **options).for_batch())
    return rows(reader, reader.partitions())


def options_of(bootstrap: str, topic: str, **options: str) -> SourceOptions:
    given = {"bootstrap": bootstrap, "subscribe": topic, "columns": "partition,offset,value"}
    return SourceOptions.of({**given, **{name.replace("__", "."): value for name, value in options.items()}})


def rows(reader: Any, parts: Sequence[Any]) -> list[tuple[int, int, bytes]]:
    """Read by executors: they get the reader and their part pickled."""
    executor = pickle.loads(pickle.dumps(reader))
    return [
        tuple(row.values())
        for part in pickle.loads(pickle.dumps(parts))
        for found in executor.read(part)
        for row in found.to_pylist()
    ]


class Query:
    """Spark's side of a stream: the checkpoint, and a reader that is made anew with each start."""

    def __init__(self, bootstrap: str, topic: str, **options: str) -> None:
        self._options = options_of(bootstrap, topic, **options).for_stream()
        self.at: dict[str, Any] | None = None
        #: What was logged and not completed.
        self.logged: dict[str, Any] | None = None
        self.restart()

    def restart(self) -> None:
        self.reader = StreamReader(self._options)

    def plan(self, limit: ReadLimit | None = None) -> dict[str, Any] | None:
        """Log the next batch; None where there is none."""
        start = self._start()
        end = self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit())
        self.logged = None if end == start else json.loads(json.dumps(end))
        return self.logged

    def run(self) -> list[tuple[int, int, bytes]]:
        """Run what is logged."""
        assert self.logged is not None
        found = rows(self.reader, self.reader.partitions(self._start(), self.logged))
        self.at, self.logged = self.logged, None
        return found

    def batch(self, limit: ReadLimit | None = None) -> list[bytes] | None:
        """The values of the next batch; None where there is none."""
        return None if self.plan(limit) is None else [row[2] for row in self.run()]

    def _start(self) -> dict[str, Any]:
        return self.at if self.at is not None else self.reader.initialOffset()


# Batches


def test_a_batch_is_everything_there_is(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 2)
    put(bootstrap, topic, numbered(3))
    put(bootstrap, topic, numbered(2), partition=1)
    assert batch(bootstrap, topic) == [(0, 0, b"0"), (0, 1, b"1"), (0, 2, b"2"), (1, 0, b"0"), (1, 1, b"1")]


def test_an_empty_topic_is_no_rows(bootstrap: str) -> None:
    assert batch(bootstrap, make_topic(bootstrap, 2)) == []


def test_offsets_for_each_partition(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 2)
    for partition in range(2):
        put(bootstrap, topic, numbered(10), partition=partition)
    starting, ending = {topic: {"0": 4, "1": -2}}, {topic: {"0": -1, "1": 2}}
    found = batch(bootstrap, topic, startingOffsets=json.dumps(starting), endingOffsets=json.dumps(ending))
    assert [row[:2] for row in found] == [*((0, offset) for offset in range(4, 10)), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOffsets": '{"TOPIC": {"0": 1}}'}, "startingOffsets: 'nothing for TOPIC-1'"),
        (
            {"startingOffsets": '{"TOPIC": {"0": 1, "1": 0, "2": 0}}'},
            "startingOffsets: 'TOPIC-2' is not allowed; TOPIC-0, TOPIC-1 are",
        ),
        (
            {"endingOffsets": '{"TOPIC": {"0": 11, "1": 0}}'},
            "endingOffsets: 'TOPIC-0: 11' is not allowed; 0 to 10 are there",
        ),
        (
            {"startingOffsets": '{"TOPIC": {"0": 5, "1": 0}}', "endingOffsets": '{"TOPIC": {"0": 4, "1": 0}}'},
            "startingOffsets: 'TOPIC-0: 5' is not allowed; at most its end is, which is 4",
        ),
        ({"startingTimestamp": "9999999999999"}, "startingTimestamp: 'TOPIC-0: 9999999999999' is not allowed"),
        ({"startingOffsetsByTimestamp": '{"TOPIC": {"0": 1}}'}, "startingOffsetsByTimestamp: 'nothing for TOPIC-1'"),
        ({"subscribe": "TOPIC,TOPICx"}, "subscribe: 'TOPICx' is not allowed; topics of the broker at"),
        (
            {"assign": '{"TOPIC": [2]}'},
            "assign: 'TOPIC-2' is not allowed; a partition is needed that is there: TOPIC has 2",
        ),
        ({"assign": '{"TOPICx": [0]}'}, "there is no topic TOPICx"),
        ({"subscribePattern": "nothing.*"}, "subscribePattern: 'nothing.*' is not allowed; it matches none"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(bootstrap: str, options: dict[str, str], told: str) -> None:
    topic = make_topic(bootstrap, 2)
    put(bootstrap, topic, numbered(10))
    given = {"bootstrap": bootstrap, "subscribe": topic}
    if "assign" in options or "subscribePattern" in options:
        del given["subscribe"]
    given |= {name: value.replace("TOPIC", topic) for name, value in options.items()}
    with pytest.raises(WrongOption) as error:
        BatchReader(SourceOptions.of(given).for_batch()).partitions()
    assert told.replace("TOPIC", topic) in str(error.value)


def test_the_nearest_topic_is_named(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    with pytest.raises(WrongOption, match=f"did you mean {topic}?"):
        batch(bootstrap, f"{topic[:-1]}x{topic[-1]}")


def test_a_broker_that_is_not_there_is_told_at_once() -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    with pytest.raises(Unreachable, match=nowhere):
        batch(nowhere, "orders")
    with pytest.raises(Unreachable, match=nowhere):
        Query(nowhere, "orders").plan()


def test_times(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 2)
    put(bootstrap, topic, numbered(10), step_ms=100)
    put(bootstrap, topic, numbered(10), partition=1, step_ms=100)
    between = {"startingTimestamp": str(NOW_MS + 250), "endingTimestamp": str(NOW_MS + 500)}
    assert [row[1] for row in batch(bootstrap, topic, **between)] == [3, 4, 3, 4]
    by_partition = json.dumps({topic: {"0": NOW_MS + 800, "1": NOW_MS + 900}})
    assert [row[:2] for row in batch(bootstrap, topic, startingOffsetsByTimestamp=by_partition)] == [
        (0, 8),
        (0, 9),
        (1, 9),
    ]
    late = {"startingTimestamp": str(NOW_MS + 1_000), "startingOffsetsByTimestampStrategy": "latest"}
    assert batch(bootstrap, topic, **late) == []
    assert len(batch(bootstrap, topic, endingTimestamp=str(NOW_MS + 10_000))) == 20


def test_a_batch_from_and_up_to_where_a_group_is(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 2)
    for partition in range(2):
        put(bootstrap, topic, numbered(5), partition=partition)
    with BlockingClient(bootstrap) as client:
        client.offset_commit(f"{topic}-g", {(topic, 0): 3})
    group = {"groupId": f"{topic}-g"}
    onward = batch(bootstrap, topic, startingOffsets="group", **group)
    assert [row[:2] for row in onward] == [(0, 3), (0, 4), *((1, offset) for offset in range(5))]
    done = batch(bootstrap, topic, endingOffsets="group", **group)
    assert [row[:2] for row in done] == [(0, 0), (0, 1), (0, 2)]


def test_a_group_past_the_end_is_refused(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    put(bootstrap, topic, numbered(5))
    with BlockingClient(bootstrap) as client:
        client.offset_commit(f"{topic}-g", {(topic, 0): 12})
    told = f"startingOffsets: 'group {topic}-g at {topic}-0: 12' is not allowed; 0 to 5 are there"
    options = {"startingOffsets": "group", "groupId": f"{topic}-g"}
    with pytest.raises(WrongOption, match=told):
        batch(bootstrap, topic, **options)
    with pytest.raises(WrongOption, match=told):
        Query(bootstrap, topic, **options).plan()


def test_patterns_and_assigned_partitions(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 2)
    for partition in range(2):
        put(bootstrap, topic, numbered(2), partition=partition)
    where = {"bootstrap": bootstrap, "columns": "partition,offset,value"}
    for wanted, expected in (
        ({"subscribePattern": f"{topic[:-1]}{topic[-1]}$"}, [0, 0, 1, 1]),
        ({"assign": json.dumps({topic: [1]})}, [1, 1]),
    ):
        reader = BatchReader(SourceOptions.of({**where, **wanted}))
        assert [row[0] for row in rows(reader, reader.partitions())] == expected


def test_more_tasks_than_partitions(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    put(bootstrap, topic, numbered(100))
    reader = BatchReader(options_of(bootstrap, topic, minPartitions="7"))
    parts = reader.partitions()
    assert len(parts) == 7
    assert [row[1] for row in rows(reader, parts)] == list(range(100))
    assert len(BatchReader(options_of(bootstrap, topic, maxRecordsPerPartition="30")).partitions()) == 4


def test_a_batch_of_what_was_deleted(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    put(bootstrap, topic, numbered(10))
    delete_before(bootstrap, topic, 4)
    asked = {"startingOffsets": json.dumps({topic: {"0": 1}})}
    with pytest.raises(DataLost, match=f"offsets 1 to 3 of {topic}-0"):
        batch(bootstrap, topic, **asked)
    assert [row[1] for row in batch(bootstrap, topic, failOnDataLoss="false", **asked)] == list(range(4, 10))
    assert [row[1] for row in batch(bootstrap, topic)] == list(range(4, 10)), "earliest is what is there"


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    with BlockingClient(bootstrap) as client:
        client.delete_records({(topic, 0): offset})


# Streams


def test_a_stream_reads_what_comes(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    put(bootstrap, topic, numbered(3))
    query = Query(bootstrap, topic, startingOffsets="earliest")
    assert query.batch() == numbered(3)
    assert query.batch() is None
    put(bootstrap, topic, numbered(2, 3))
    assert query.batch() == numbered(2, 3)


def test_40_t1_the_beginning_is_what_was_resolved_first(bootstrap: str) -> None:
    """Scenario 40: batch 0 fails after "latest" was resolved, the topic grows, the query restarts."""
    topic = make_topic(bootstrap)
    put(bootstrap, topic, numbered(100))
    query = Query(bootstrap, topic)
    assert query.plan() is not None, "there is nothing to read, but the beginning is written down"
    put(bootstrap, topic, numbered(800, 100))
    query.restart()  # Spark has the end of batch 0, and asks for the beginning again
    assert query.run() == []
    assert query.batch() == numbered(800, 100)


def test_43_new_partitions_are_read_from_their_first_record(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 4)
    query = Query(bootstrap, topic)
    query.batch()
    with BlockingClient(bootstrap) as client:
        client.create_partitions(topic, 6)
    for partition in (4, 5):
        put(bootstrap, topic, numbered(2), partition=partition)
    assert query.plan() is not None
    assert [row[:2] for row in query.run()] == [(4, 0), (4, 1), (5, 0), (5, 1)]


def test_new_topics_of_a_pattern(bootstrap: str) -> None:
    stem = make_topic(bootstrap)
    given = {"bootstrap": bootstrap, "subscribePattern": f"{stem}.*", "columns": "partition,offset,value"}
    query = Query(bootstrap, stem)
    query._options = SourceOptions.of(given)
    query.restart()
    query.batch()
    with BlockingClient(bootstrap) as client:
        client.create_topic(f"{stem}-more", 1)
    put(bootstrap, f"{stem}-more", numbered(3))
    assert query.batch() == numbered(3)


def test_a_limit_is_shared_and_everything_comes(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 2)
    put(bootstrap, topic, numbered(30))
    put(bootstrap, topic, numbered(10), partition=1)
    query = Query(bootstrap, topic, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    sizes = []
    while (found := query.batch()) is not None:
        sizes.append(len(found))
    assert sizes == [20, 20]
    put(bootstrap, topic, numbered(30))
    assert len(query.batch(ReadAllAvailable()) or []) == 30, "Spark may ask for all there is"


def test_too_little_is_waited_for_but_not_for_ever(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "10"}
    patient, hasty = (Query(bootstrap, topic, **options, maxTriggerDelay=delay) for delay in ("1h", "0ms"))
    for query in (patient, hasty):
        assert query.batch() == [], "the first batch waits for nothing"
    put(bootstrap, topic, numbered(9))
    assert patient.batch() is None
    assert hasty.batch() == numbered(9)
    put(bootstrap, topic, numbered(1, 9))
    assert patient.batch() == numbered(10)


def test_available_now_ends_where_it_began_to_look(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    put(bootstrap, topic, numbered(25))
    query = Query(bootstrap, topic, startingOffsets="earliest", maxOffsetsPerTrigger="10", minOffsetsPerTrigger="10")
    query.reader.prepareForTriggerAvailableNow()
    put(bootstrap, topic, numbered(25, 25))
    with BlockingClient(bootstrap) as client:
        client.create_partitions(topic, 2)
    put(bootstrap, topic, numbered(5), partition=1)
    found: list[bytes] = []
    while (more := query.batch()) is not None:
        found += more
    assert found == numbered(25), "the last five are less than the least, and nothing more will come"


def test_t2_the_group_is_where_the_stream_is(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    query = Query(bootstrap, topic, startingOffsets="earliest", groupId=f"{topic}-g")
    put(bootstrap, topic, numbered(7))
    query.batch()
    assert query.batch() is None, "there is nothing more, and the group is told"
    assert committed(bootstrap, topic, f"{topic}-g") == 7
    put(bootstrap, topic, numbered(3))
    assert query.plan() is not None
    assert committed(bootstrap, topic, f"{topic}-g") == 7, "the batch is not done"
    query.run()
    query.batch()
    assert committed(bootstrap, topic, f"{topic}-g") == 10
    onward = Query(bootstrap, topic, startingOffsets="group", groupId=f"{topic}-g")
    put(bootstrap, topic, numbered(2, 10))
    assert onward.batch() == numbered(2, 10)


def committed(bootstrap: str, topic: str, group: str) -> int | None:
    with BlockingClient(bootstrap) as client:
        found = client.offset_fetch(group, [(topic, 0)])
    return found[topic, 0].offset if found else None  # type: ignore[index]


def test_a_group_that_cannot_be_committed_to_does_not_stop_the_stream(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(bootstrap)
    put(bootstrap, topic, numbered(2))
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-g", "auto.offset.reset": "earliest"})
    member.subscribe([topic])
    assert member.poll(20) is not None, "somebody is in the group"
    query = Query(bootstrap, topic, startingOffsets="earliest", groupId=f"{topic}-g")
    assert query.batch() == numbered(2)
    put(bootstrap, topic, numbered(2, 2))
    assert query.batch() == numbered(2, 2)
    member.close()
    assert "were not committed" in caplog.text


def test_the_progress_says_how_far_there_is_to_go(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    put(bootstrap, topic, numbered(25))
    query = Query(bootstrap, topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert query.reader.reportLatestOffset() is None
    end = query.plan()
    assert end is not None
    assert end["to"] == {topic: {"0": 10}}
    assert query.reader.reportLatestOffset()["to"] == {topic: {"0": 25}}  # type: ignore[index]


# What is lost


def test_45_what_retention_took_fails_or_is_reported(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """Scenario 45, at the time of planning."""
    topic = make_topic(bootstrap)
    options = {"startingOffsets": "earliest"}
    strict, loose = Query(bootstrap, topic, **options), Query(bootstrap, topic, **options, failOnDataLoss="false")
    put(bootstrap, topic, numbered(5))
    for query in (strict, loose):
        query.batch()
    put(bootstrap, topic, numbered(10, 5))
    delete_before(bootstrap, topic, 9)
    with pytest.raises(DataLost, match=f"offsets 5 to 8 of {topic}-0: they were deleted"):
        strict.plan()
    assert loose.plan() is not None
    assert lost_in(json.dumps(loose.logged)) == [Lost(topic, 0, 5, 9, DELETED)]
    assert [row[1] for row in loose.run()] == list(range(9, 15))
    assert f"offsets 5 to 8 of {topic}-0" in caplog.text
    assert loose.batch() is None, "told once"


def test_45_what_is_deleted_between_planning_and_reading(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    topic = make_topic(bootstrap)
    options = {"startingOffsets": "earliest", "minPartitions": "2"}
    put(bootstrap, topic, numbered(10))
    strict, loose = Query(bootstrap, topic, **options), Query(bootstrap, topic, **options, failOnDataLoss="false")
    for query in (strict, loose):
        query.plan()
    delete_before(bootstrap, topic, 7)
    with pytest.raises(DataLost, match=f"offsets 0 to 4 of {topic}-0"):
        strict.run()
    assert [row[1] for row in loose.run()] == [7, 8, 9]
    assert f"offsets 0 to 4 of {topic}-0" in caplog.text
    assert loose.plan() is not None, "a batch that says what the one before did not find"
    assert lost_in(loose.logged) == [Lost(topic, 0, 0, 5, DELETED), Lost(topic, 0, 5, 7, DELETED)]
    assert loose.run() == []
    assert loose.batch() is None
    with BlockingClient(bootstrap) as client:
        assert not [one for one in client.list_groups() if "lost" in one.group_id], "nothing stays behind"


def test_a_deleted_topic(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    put(bootstrap, topic, numbered(5))
    options = {"startingOffsets": "earliest"}
    strict, loose = Query(bootstrap, topic, **options), Query(bootstrap, topic, **options, failOnDataLoss="false")
    planned = Query(bootstrap, topic, **options)
    for query in (strict, loose):
        query.batch()
    planned.plan()
    with BlockingClient(bootstrap) as client:
        client.delete_topic(topic)
    planned.restart()
    with pytest.raises(DataLost, match=f"offsets 0 to 4 of {topic}-0: the topic or the partition was deleted"):
        planned.run()
    with pytest.raises(
        DataLost, match=f"everything of {topic}-0 from offset 5 on: the topic or the partition was deleted"
    ):
        strict.plan()
    assert lost_in(loose.plan()) == [Lost(topic, 0, 5, None, GONE)]
    assert loose.run() == []
    with BlockingClient(bootstrap) as client:
        client.create_topic(topic, 1)
    put(bootstrap, topic, numbered(2))
    assert loose.batch() == numbered(2), "it is a new one"


def test_a_topic_that_is_not_seen_for_a_moment_goes_on_where_it_was(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(bootstrap)
    put(bootstrap, topic, numbered(5))
    query = Query(bootstrap, topic, startingOffsets="earliest", failOnDataLoss="false")
    assert query.batch() == numbered(5)
    with monkeypatch.context() as patched:
        patched.setattr("levada.spark.stream.found", lambda *_: Found((), {}))
        assert lost_in(query.plan()) == [Lost(topic, 0, 5, None, GONE)]
        assert query.run() == []
        assert query.batch() is None, "told once"
    put(bootstrap, topic, numbered(2, 5))
    query.restart()
    assert query.batch() == numbered(2, 5)
    assert query.at is not None and "gone" not in query.at


def test_a_batch_that_is_run_again_waits_for_a_topic_that_is_not_seen_for_a_moment(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(bootstrap)
    put(bootstrap, topic, numbered(5))
    query = Query(bootstrap, topic, startingOffsets="earliest", failOnDataLoss="false")
    query.plan()
    query.restart()
    answers = iter([Found((), {}), Found((), {})])
    monkeypatch.setattr("levada.spark.stream.found", lambda *asked: next(answers, None) or found(*asked))
    assert [row[1] for row in query.run()] == list(range(5))


def test_a_topic_made_again_is_another_one_however_long_it_is(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    put(bootstrap, topic, numbered(5))
    options = {"startingOffsets": "earliest"}
    strict, loose = Query(bootstrap, topic, **options), Query(bootstrap, topic, **options, failOnDataLoss="false")
    planned = Query(bootstrap, topic, **options)
    for query in (strict, loose):
        query.batch()
    planned.plan()
    with BlockingClient(bootstrap) as client:
        client.delete_topic(topic)
        client.create_topic(topic, 1)
    put(bootstrap, topic, numbered(50, 100))
    with pytest.raises(DataLost, match="deleted and created again"):
        strict.plan()
    assert lost_in(loose.plan()) == [Lost(topic, 0, 5, None, REPLACED)]
    assert len(loose.run()) == 50
    planned.restart()
    with pytest.raises(DataLost, match=f"offsets 0 to 4 of {topic}-0: the topic was deleted and created again"):
        planned.run()


def test_a_checkpoint_of_something_else_is_refused(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    query = Query(bootstrap, topic)
    query.at = {topic: {"0": 5}}
    with pytest.raises(StreamError, match="no offset of format levada"):
        query.plan()


# History


class Shelf(NoHistory):
    """Offsets 0 to 5 are kept."""

    def held(self, at: TopicPartition, up_to: int = 0) -> Held | None:
        return Held(0, 6)

    def read(self, wanted: Range, columns: Sequence[str]) -> Any:
        import pyarrow as pa

        from levada.spark.columns import schema_of

        kept = range(wanted.start, wanted.end)
        held = {"partition": [0] * len(kept), "offset": list(kept), "value": [b"kept"] * len(kept)}
        yield pa.RecordBatch.from_pydict({name: held[name] for name in columns}, schema=schema_of(columns))


def test_a_history_is_read_where_the_log_has_nothing_and_a_hole_is_lost(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    put(bootstrap, topic, numbered(10))
    delete_before(bootstrap, topic, 8)
    for fail, expected in (("false", [2, 3, 4, 5, 8, 9]), ("true", None)):
        reader = BatchReader(options_of(bootstrap, topic, failOnDataLoss=fail))
        part = Slice(Range(topic, 0, 2, 10), Shelf())
        if expected is None:
            with pytest.raises(DataLost, match=f"offsets 6 to 7 of {topic}-0"):
                rows(reader, [part])
        else:
            found = rows(reader, [part])
            assert [row[1] for row in found] == expected
            assert [row[2] for row in found[:4]] == [b"kept"] * 4


# Bad records


def test_44_what_cannot_be_read_is_told_kept_or_put_aside(bootstrap: str) -> None:
    """Scenario 44, in small: every way out of a bad record."""
    topic = make_topic(bootstrap)
    put(bootstrap, topic, [b'{"id": 1}', b"not json", b'{\n"id":\n3}', None])
    typed = {"valueFormat": "json", "valueSchema": "id BIGINT"}
    with pytest.raises(Exception, match=rf"{topic}.*offset 1\b|offset 1 .*{topic}"):
        batch(bootstrap, topic, **typed)
    reader = BatchReader(options_of(bootstrap, topic, onError="column", **typed))
    (found,) = [one for part in reader.partitions() for one in reader.read(part)]
    assert found.column("value").to_pylist() == [{"id": 1}, None, {"id": 3}, None]
    errors = found.column("_error").to_pylist()
    assert [error is not None for error in errors] == [False, True, False, False]
    good = batch(bootstrap, topic, onError="deadLetter", groupId="g", **typed)
    assert [row[1] for row in good] == [0, 2, 3]
    letters = BatchReader(
        SourceOptions.of({"bootstrap": bootstrap, "subscribe": f"dlq.{topic}", "includeHeaders": "true"})
    )
    (letter,) = [row for part in letters.partitions() for one in letters.read(part) for row in one.to_pylist()]
    assert (letter["key"], letter["value"]) == (b"1", b"not json")
    told = {header["key"]: header["value"].decode() for header in letter["headers"]}
    reasons = json.loads(told.pop("levada.dlq.errors"))
    assert len(reasons) == 1 and "JSON" in reasons[0]
    assert told == {
        "levada.dlq.topic": topic,
        "levada.dlq.partition": "0",
        "levada.dlq.offset": "1",
        "levada.dlq.group": "g",
        "levada.dlq.attempts": "1",
    }
