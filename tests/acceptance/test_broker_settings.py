"""Broker-wide settings changed while the broker runs. Runs as it is against Apache Kafka: `LEVADA_TEST_BROKER=kafka`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource

from levada.wire.apis import ApiKey
from support.brokers import Broker, levada_only, make_broker
from support.driver import Client, Driver, Refused, Sent
from support.transaction_calls import Wire
from support.wait import wait_until

SETTLE_S = 60.0
BROKER, TOPIC = 4, 2
SET, DELETE, APPEND, SUBTRACT = range(4)
NONE, INVALID_CONFIG, INVALID_REQUEST = 0, 40, 42
OF_TOPIC, OF_BROKER, OF_ALL, AT_START, DEFAULT = 1, 2, 3, 4, 5


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Of these tests' own, because what they change holds for all topics."""
    with make_broker(tmp_path_factory.mktemp("broker"), {"log.retention.ms": "7200000"}) as running:
        yield running


class Settings(Wire):
    """The calls of this file."""

    def alter(self, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False) -> tuple[int, str]:
        configs = [{"name": one, "config_operation": operation, "value": value} for one, operation, value in changes]
        resource = {"resource_type": BROKER, "resource_name": name, "configs": configs}
        fields = {"resources": [resource], "validate_only": validate_only}
        (answer,) = self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields).responses
        return answer.error_code, answer.error_message or ""

    def setting(self, kind: int, name: str, key: str) -> Any:
        """The one setting, or None where it is not listed."""
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
        answer = self.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource], "include_synonyms": True})
        (result,) = answer.results
        assert result.error_code == NONE, result.error_message
        return next(iter(result.configs), None)

    def chain(self, kind: int, name: str, key: str) -> list[tuple[str, str, int]]:
        entry = self.setting(kind, name, key)
        if entry is None:
            return []
        # Kafka also names coarser spellings (log.retention.hours), whose value is another text for the same.
        return [(row.name, row.value, row.source) for row in entry.synonyms if not row.name.endswith("hours")]

    def settled(self, kind: int, name: str, key: str, value: str) -> None:
        """A real Kafka answers before its brokers have heard of it."""
        wait_until(lambda: getattr(self.setting(kind, name, key), "value", None) == value, SETTLE_S, f"{key}={value}")


@pytest.fixture
def settings(broker: Broker) -> Iterator[Settings]:
    with Settings(broker.bootstrap) as connection:
        yield connection
        for name in ("1", ""):
            for key in ("log.retention.ms", "message.max.bytes", "log.cleanup.policy", "log.segment.bytes"):
                connection.alter(name, (key, DELETE, None))
        wait_until(
            lambda: connection.setting(BROKER, "1", "log.retention.ms").value == "7200000",
            SETTLE_S,
            "back to the start",
        )


def test_the_broker_comes_before_all_brokers_before_the_start(settings: Settings, topic: str) -> None:
    settings.create(topic, 1)
    key = "log.retention.ms"
    assert settings.chain(BROKER, "1", key)[:1] == [(key, "7200000", AT_START)]
    assert settings.alter("", (key, SET, "60000"))[0] == NONE
    settings.settled(BROKER, "1", key, "60000")
    assert settings.alter("1", (key, SET, "50000"))[0] == NONE
    settings.settled(BROKER, "1", key, "50000")
    dynamic = [(key, "50000", OF_BROKER), (key, "60000", OF_ALL), (key, "7200000", AT_START)]
    assert settings.chain(BROKER, "1", key)[:3] == dynamic
    assert settings.chain(TOPIC, topic, "retention.ms")[:3] == dynamic
    assert settings.setting(BROKER, "1", key).config_source == OF_BROKER
    assert settings.setting(TOPIC, topic, "retention.ms").config_source == OF_BROKER
    assert settings.setting(BROKER, "1", key).read_only is False
    assert settings.chain(BROKER, "", key) == [(key, "60000", OF_ALL)], (
        "all brokers' has nothing but what was set for all"
    )
    assert settings.alter("1", (key, DELETE, None))[0] == NONE
    settings.settled(BROKER, "1", key, "60000")
    assert settings.alter("", (key, DELETE, None))[0] == NONE
    settings.settled(BROKER, "1", key, "7200000")
    assert settings.setting(BROKER, "", key) is None


def test_a_topic_with_a_setting_of_its_own_does_not_follow(settings: Settings, admin: Client, topic: str) -> None:
    own, follows = f"{topic}-own", f"{topic}-follows"
    admin.create(own, 1, {"max.message.bytes": "100000"})
    admin.create(follows, 1)
    assert settings.alter("", ("message.max.bytes", SET, "300"))[0] == NONE
    settings.settled(TOPIC, follows, "max.message.bytes", "300")
    assert settings.setting(TOPIC, own, "max.message.bytes").value == "100000"
    chain = settings.chain(TOPIC, own, "max.message.bytes")
    assert chain[:2] == [("max.message.bytes", "100000", OF_TOPIC), ("message.max.bytes", "300", OF_ALL)]
    admin.produce(own, [Sent(b"x" * 1000)])
    with pytest.raises(Refused, match=r"MSG_SIZE_TOO_LARGE|MESSAGE_TOO_LARGE"):
        admin.produce(follows, [Sent(b"x" * 1000)])
    assert settings.alter("", ("message.max.bytes", DELETE, None))[0] == NONE
    settings.settled(TOPIC, follows, "max.message.bytes", "1048588")
    admin.produce(follows, [Sent(b"x" * 1000)])


def test_lists_are_added_to_and_taken_from(settings: Settings) -> None:
    key = "log.cleanup.policy"
    assert settings.alter("1", (key, APPEND, "compact"))[0] == NONE
    settings.settled(BROKER, "1", key, "delete,compact")
    assert settings.alter("1", (key, SUBTRACT, "delete"))[0] == NONE
    settings.settled(BROKER, "1", key, "compact")


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("1", [("log.retention.ms", SET, "soon")], INVALID_REQUEST),
        ("", [("log.cleanup.policy", SET, "burn")], INVALID_REQUEST),
        ("1", [("log.segment.bytes", SET, "2000000"), ("log.retention.ms", SET, "x")], INVALID_REQUEST),
        ("1", [("node.id", SET, "7")], INVALID_REQUEST),
        ("", [("log.dirs", SET, "/x")], INVALID_REQUEST),
        ("1", [("log.retention.hours", SET, "1")], INVALID_REQUEST),
        ("2", [("log.retention.ms", SET, "1")], INVALID_REQUEST),
        ("one", [("log.retention.ms", SET, "1")], INVALID_REQUEST),
        ("1", [("log.retention.ms", SET, "1"), ("log.retention.ms", SET, "2")], INVALID_REQUEST),
        ("1", [("log.retention.ms", SET, None)], INVALID_REQUEST),
        ("1", [("log.retention.ms", APPEND, "1")], INVALID_CONFIG),
        ("1", [("log.retention.ms", 9, "1")], INVALID_REQUEST),
    ],
)
def test_what_cannot_be_set_is_refused_and_changes_nothing(
    settings: Settings, name: str, changes: list[tuple[str, int, str | None]], expected: int
) -> None:
    for validate_only in (True, False):
        code, message = settings.alter(name, *changes, validate_only=validate_only)
        assert (code, bool(message)) == (expected, True)
    assert settings.setting(BROKER, "1", "log.retention.ms").value == "7200000"
    assert settings.setting(BROKER, "1", "log.segment.bytes").value == "1073741824"


def test_deleting_what_is_not_set_is_fine(settings: Settings) -> None:
    for name in ("1", ""):
        for key in ("log.retention.ms", "leader.replication.throttled.rate", "node.id"):
            assert settings.alter(name, (key, DELETE, None)) == (NONE, "")


@levada_only
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("log.retention.ms", "soon", "log.retention.ms='soon': must be a whole number"),
        ("node.id", "7", "cannot update these configs dynamically: node.id"),
        ("log.retention.hours", "1", "log.retention.ms is set"),
        ("nonsense", "1", "unknown broker setting 'nonsense'"),
        ("num.partition", "1", "did you mean num.partitions?"),
    ],
)
def test_a_refusal_says_why(settings: Settings, key: str, value: str, said: str) -> None:
    assert said in settings.alter("1", (key, SET, value))[1]


def test_what_is_only_validated_is_not_done(settings: Settings) -> None:
    assert settings.alter("1", ("log.retention.ms", SET, "1234"), validate_only=True)[0] == NONE
    assert settings.setting(BROKER, "1", "log.retention.ms").value == "7200000"


def test_a_change_is_there_after_kill_9(tmp_path: Path) -> None:
    with make_broker(tmp_path / "broker") as running:
        with Settings(running.bootstrap) as settings:
            assert settings.alter("1", ("log.retention.ms", SET, "4321"))[0] == NONE
            assert settings.alter("", ("log.segment.bytes", SET, "2000000"))[0] == NONE
            settings.settled(BROKER, "1", "log.segment.bytes", "2000000")
        running.kill()
        running.start()
        with Settings(running.bootstrap) as settings:
            settings.settled(BROKER, "1", "log.retention.ms", "4321")
            assert settings.setting(BROKER, "1", "log.retention.ms").config_source == OF_BROKER
            assert settings.setting(BROKER, "1", "log.segment.bytes").config_source == OF_ALL


@levada_only
def test_what_kafka_reads_only_at_start_changes_too(settings: Settings, admin: Client, topic: str) -> None:
    assert settings.alter("1", ("num.partitions", SET, "3"))[0] == NONE
    admin.produce(topic, [Sent(b"makes the topic")])
    assert admin.topics()[topic] == 3
    assert settings.alter("1", ("num.partitions", DELETE, None), ("auto.create.topics.enable", SET, "false"))[0] == NONE
    with pytest.raises(Refused):
        admin.produce(f"{topic}-not-made", [Sent(b"x")])
    assert settings.alter("1", ("auto.create.topics.enable", DELETE, None))[0] == NONE


def test_admin_client_changes_and_shows_them(settings: Settings, broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def alter(value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry("log.retention.ms", value, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(SETTLE_S)

    def described() -> ConfigEntry:
        resource = ConfigResource(ConfigResource.Type.BROKER, "1")
        return admin.describe_configs([resource])[resource].result(SETTLE_S)["log.retention.ms"]

    alter("86400000", AlterConfigOpType.SET)
    wait_until(lambda: described().value == "86400000", SETTLE_S, "changed")
    entry = described()
    assert entry.source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
    assert not entry.is_read_only and not entry.is_default
    with pytest.raises(KafkaException):
        alter("soon", AlterConfigOpType.SET)
    alter(None, AlterConfigOpType.DELETE)
    wait_until(lambda: described().value == "7200000", SETTLE_S, "back to the start")


def test_config_command_changes_and_shows_them(
    settings: Settings, broker: Broker, drivers: Callable[[str], Driver]
) -> None:
    def configs(*arguments: str, status: int = 0) -> str:
        words = ("--bootstrap-server", broker.bootstrap, "--entity-type", "brokers", *arguments)
        ran = drivers("java-4.3").call("tool", main="kafka.admin.ConfigCommand", arguments=words, stdin="")
        assert bool(ran["status"]) == bool(status), ran
        return str(ran["out"]) + str(ran["errors"])

    one, everyone = ("--entity-name", "1"), ("--entity-default",)
    configs(*everyone, "--alter", "--add-config", "log.retention.ms=60000")
    configs(*one, "--alter", "--add-config", "log.retention.ms=50000,log.cleanup.policy=[compact,delete]")
    shown = partial(configs, *one, "--describe")
    wait_until(lambda: "log.retention.ms=50000" in shown(), SETTLE_S, "changed")
    chain = "DYNAMIC_BROKER_CONFIG:log.retention.ms=50000, DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=60000"
    assert f"{chain}, STATIC_BROKER_CONFIG:log.retention.ms=7200000" in shown()
    assert "log.cleanup.policy=compact,delete" in shown()
    assert "log.retention.ms=60000" in configs(*everyone, "--describe")
    assert "log.dirs" in configs(*one, "--alter", "--add-config", "log.dirs=/x", status=1)
    configs(*one, "--alter", "--delete-config", "log.retention.ms,log.cleanup.policy")
    configs(*everyone, "--alter", "--delete-config", "log.retention.ms")
    wait_until(lambda: "log.retention.ms" not in shown(), SETTLE_S, "back to the start")
