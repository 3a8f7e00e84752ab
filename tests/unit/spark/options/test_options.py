"""Options of a read: what is taken, what is refused, and what is said then."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from levada.spark.options.cluster import Cluster
from levada.spark.options.positions import At, Offsets, Times
from levada.spark.options.reading import Given, UnknownOption, WrongOption
from levada.spark.options.source import SourceOptions
from levada.spark.options.topics import Assign, Subscribe, SubscribePattern
from levada.wire.answers import TopicPartition

WHERE = {"bootstrap": "127.0.0.1:9092", "subscribe": "orders"}


def read(**options: str) -> SourceOptions:
    return SourceOptions.of({**WHERE, **{name.replace("__", "."): value for name, value in options.items()}})


def refused(options: dict[str, str], *, without: str = "") -> WrongOption:
    with pytest.raises(WrongOption) as error:
        SourceOptions.of({name: value for name, value in {**WHERE, **options}.items() if name != without})
    return error.value


def test_nothing_but_where_and_what() -> None:
    options = read()
    assert options.cluster.bootstrap == "127.0.0.1:9092"
    assert options.topics == Subscribe(("orders",))
    assert options.formatter.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert (options.fail_on_data_loss, options.read_committed, options.group) == (True, True, None)
    assert (options.starting, options.ending) == (None, None)


def test_sparks_names_in_any_case() -> None:
    options = SourceOptions.of(
        {
            "KAFKA.bootstrap.SERVERS": "a:1,b:2",
            "Subscribe": "orders, users",
            "STARTINGOFFSETS": "Earliest",
            "maxoffsetspertrigger": "10",
            "FailOnDataLoss": "FALSE",
            "kafka.Isolation.Level": "read_uncommitted",
            "kafka.group.id": "g",
            "includeheaders": "true",
        }
    )
    assert options.topics == Subscribe(("orders", "users"))
    assert options.starting == At("startingOffsets", "earliest")
    assert (options.offsets_max, options.fail_on_data_loss, options.read_committed) == (10, False, False)
    assert options.group == "g"
    assert options.formatter.columns[-1] == "headers"


def test_options_can_be_pickled() -> None:
    options = read(valueFormat="json", valueSchema="id BIGINT", startingOffsets='{"orders": {"0": -2}}')
    copy = pickle.loads(pickle.dumps(options))
    assert copy.starting == options.starting
    assert copy.formatter.ddl == options.formatter.ddl


@pytest.mark.parametrize(
    ("options", "option", "told"),
    [
        ({"startingOffset": "earliest"}, "startingoffset", "did you mean startingOffsets?"),
        ({"kafka.bootstrap.server": "a:1"}, "kafka.bootstrap.server", "did you mean kafka.bootstrap.servers?"),
        ({"startingOffsets": "soon"}, "startingOffsets", "'soon' is not allowed; earliest, latest, group, or JSON"),
        ({"startingOffsets": '{"orders": {"0": 1}'}, "startingOffsets", "JSON like"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "startingOffsets", "orders-0: -3"),
        ({"startingOffsets": '{"orders": {"first": 3}}'}, "startingOffsets", "number of a partition"),
        ({"startingOffsets": '{"orders": 3}'}, "startingOffsets", "partitions of orders"),
        ({"startingOffsets": "group"}, "groupId", "startingOffsets=group needs it"),
        ({"endingOffsetsByTimestamp": "[]"}, "endingOffsetsByTimestamp", "JSON like"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp", "a whole number from 0 on is"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger", "a whole number from 1 on is"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "minOffsetsPerTrigger", "which is 3"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay", "e.g. 15m"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss", "true or false is"),
        ({"columns": "key,ofset"}, "columns", "did you mean offset?"),
        ({"columns": "key,key"}, "columns", "each once"),
        ({"valueFormat": "xml"}, "valueFormat", "raw, string, json, avro or confluent-avro is"),
        ({"valueFormat": "json"}, "valueSchema", "it is missing; json needs a schema"),
        ({"valueFormat": "json", "valueSchema": "id BIGNIT"}, "valueSchema", "there is no type BIGNIT"),
        ({"keySchema": "id BIGINT"}, "keySchema", "raw has none"),
        ({"onError": "ignore"}, "onError", "fail, column or deadLetter is"),
        ({"kafka.isolation.level": "read"}, "kafka.isolation.level", "read_committed or read_uncommitted is"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.security.protocol", "PLAINTEXT or SSL is"),
        ({"kafka.sasl.jaas.config": "secret"}, "kafka.sasl.jaas.config", "'…' is not allowed; SASL is not spoken"),
        ({"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset", "there is no such option"),
        ({"bootstrap": "host:port"}, "bootstrap", "host:port, or several with commas, is"),
        ({"kafka.bootstrap.servers": "b:1"}, "bootstrap and kafka.bootstrap.servers", "they mean the same"),
        ({"subscribePattern": "o.*"}, "subscribe, subscribePattern or assign", "one of the three is needed"),
        ({"path": "/somewhere"}, "path", "there is no such option"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_right(options: dict[str, str], option: str, told: str) -> None:
    error = refused(options)
    assert error.option == option
    assert told in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("missing", ["bootstrap", "subscribe"])
def test_what_is_missing_is_named(missing: str) -> None:
    error = refused({}, without=missing)
    assert missing in error.option
    assert error.value is None


def test_create_table_loses_the_options_and_the_error_says_what_keeps_them() -> None:
    with pytest.raises(WrongOption, match="CREATE TEMPORARY VIEW"):
        SourceOptions.of({})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOffsets": "latest"}, "a batch begins at earliest"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "orders-0: -1"),
        ({"endingOffsets": "earliest"}, "a batch ends at latest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "orders-0: -2"),
    ],
)
def test_what_a_batch_cannot_have(options: dict[str, str], told: str) -> None:
    with pytest.raises(WrongOption, match=told):
        read(**options).for_batch()
    if "endingOffsets" not in options:
        read(**options).for_stream()


def test_a_stream_has_no_end() -> None:
    for options in ({"endingOffsets": "latest"}, {"endingTimestamp": "5"}):
        read(**options).for_batch()
        with pytest.raises(WrongOption, match="availableNow"):
            read(**options).for_stream()


def test_a_time_comes_before_times_and_these_before_offsets() -> None:
    times = '{"orders": {"0": 7}}'
    all_three = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": times, "startingTimestamp": "5"}
    assert read(**all_three).starting == Times("startingTimestamp", 5, or_latest=False)
    del all_three["startingTimestamp"]
    by_partition = read(**all_three, startingOffsetsByTimestampStrategy="latest").starting
    assert by_partition == Times("startingOffsetsByTimestamp", {TopicPartition("orders", 0): 7}, or_latest=True)
    assert read(endingOffsets='{"orders": {"0": 7}}').ending == Offsets(
        "endingOffsets", {TopicPartition("orders", 0): 7}
    )


def test_topics() -> None:
    where = {"bootstrap": "a:1"}
    assert SourceOptions.of({**where, "subscribePattern": "o.*"}).topics == SubscribePattern("o.*")
    assert SubscribePattern("o.*").matches("orders")
    assert not SubscribePattern("rder").matches("orders"), "the whole name"
    assigned = SourceOptions.of({**where, "assign": '{"orders": [2, 0]}'}).topics
    assert assigned == Assign((TopicPartition("orders", 2), TopicPartition("orders", 0)))
    for wrong in ("{}", '{"orders": []}', '{"orders": 0}', '{"orders": [-1]}', '{"orders": ["0"]}', "orders"):
        with pytest.raises(WrongOption, match=r"assign.*\{\"orders\": \[0, 1\]\}"):
            SourceOptions.of({**where, "assign": wrong})
    with pytest.raises(WrongOption, match=r"subscribePattern.*regular expression"):
        SourceOptions.of({**where, "subscribePattern": "o("})


def test_columns_and_formats_make_the_schema() -> None:
    options = read(columns="offset, value", valueFormat="JSON", valueSchema="id BIGINT", onError="column")
    assert options.formatter.ddl == "`offset` bigint, `value` struct<`id`:bigint>, `_error` string"
    assert read(columns="key", includeHeaders="true").formatter.columns == ("key", "headers")


def test_how_java_works_is_taken_and_nothing_comes_of_it() -> None:
    plain = read()
    other = read(
        kafkaConsumer__pollTimeoutMs="5", fetchOffset__numRetries="3", groupIdPrefix="x", kafka__max__poll__records="7"
    )
    assert plain.cluster == other.cluster


def test_what_the_client_can_do() -> None:
    options = read(
        kafka__request__timeout__ms="5",
        kafka__default__api__timeout__ms="6",
        kafka__client__id="me",
        kafka__fetch__max__bytes="100",
    )
    assert options.cluster.settings == {
        "bootstrap": "127.0.0.1:9092",
        "client_id": "me",
        "request_timeout_ms": 5,
        "timeout_ms": 6,
    }
    assert options.fetch_bytes_max == 100


@pytest.mark.parametrize(
    ("value", "ms"), [("7", 7), ("7ms", 7), ("2 s", 2_000), ("15m", 900_000), ("1 hour", 3_600_000), ("1d", 86_400_000)]
)
def test_times(value: str, ms: int) -> None:
    assert read(maxTriggerDelay=value).delay_ms_max == ms


def tls(**more: str) -> Cluster:
    options = {"bootstrap": "a:1", "kafka.security.protocol": "SSL", **more}
    return Cluster.of(Given(options))


def test_tls_can_be_pickled_and_files_are_looked_at_before_anything_runs(tmp_path: Any) -> None:
    cluster = pickle.loads(pickle.dumps(tls()))
    assert cluster.settings["ssl"].check_hostname
    anybody = tls(**{"kafka.ssl.endpoint.identification.algorithm": ""})
    assert not anybody.settings["ssl"].check_hostname
    (tmp_path / "trust.pem").write_text("not a certificate")
    with pytest.raises(WrongOption, match="PEM files that can be read are"):
        tls(**{"kafka.ssl.truststore.location": str(tmp_path / "trust.pem")})
    with pytest.raises(WrongOption, match="PEM files that can be read are"):
        tls(**{"kafka.ssl.keystore.location": str(tmp_path / "nowhere.pem")})
    with pytest.raises(WrongOption, match=r"kafka\.ssl\.truststore\.type: 'JKS' is not allowed; PEM is"):
        tls(**{"kafka.ssl.truststore.type": "JKS"})


def test_an_unknown_option_with_nothing_like_it_is_told_all_there_are() -> None:
    with pytest.raises(UnknownOption, match=r"xyzzy: there is no such option; .*assign, bootstrap, columns"):
        SourceOptions.of({**WHERE, "xyzzy": "1"})
