"""levada.toml, the environment and flags meet under one name."""

from __future__ import annotations

from pathlib import Path

import pytest

from levada.cli.settings import load
from levada.errors import InvalidConfig

FILE = """
data = "from-file"
[kafka]
port = 1001
[broker]
num.partitions = 4
auto.create.topics.enable = false
[topic]
retention.ms = 5
"levada.durability" = "os"
cleanup.policy = ["delete", "compact"]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_defaults_without_file_environment_or_flags(here: Path) -> None:
    config = load(None, {})
    assert (config.host, config.kafka_port, config.data) == ("127.0.0.1", 9092, Path("levada-data"))


def test_the_other_fronts_have_ports_and_can_be_turned_off(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (load(None, {}).grpc_port, load(None, {}).http_port) == (9094, 9095)
    (here / "levada.toml").write_text("[grpc]\nport = 1\n[http]\nenabled = false\n")
    assert (load(None, {}).grpc_port, load(None, {}).http_port) == (1, None)
    monkeypatch.setenv("LEVADA_GRPC__PORT", "2")
    monkeypatch.setenv("LEVADA_HTTP__ENABLED", "true")
    assert (load(None, {}).grpc_port, load(None, {}).http_port) == (2, 9095)
    config = load(None, {"grpc.enabled": False, "http.port": 0})
    assert (config.grpc_port, config.http_port) == (None, 0)
    with pytest.raises(InvalidConfig, match=r"grpc\.port=70000"):
        load(None, {"grpc.port": 70000})
    with pytest.raises(InvalidConfig, match=r"grpc\.prot.*grpc\.port"):
        (here / "levada.toml").write_text("[grpc]\nprot = 1\n")
        load(None, {})


def test_a_levada_toml_in_the_working_directory_is_read(here: Path) -> None:
    (here / "levada.toml").write_text(FILE)
    config = load(None, {})
    assert config.kafka_port == 1001
    assert config.settings == {"num.partitions": "4", "auto.create.topics.enable": "false"}
    assert config.topic == {"retention.ms": "5", "levada.durability": "os", "cleanup.policy": "delete,compact"}


def test_flags_win_over_environment_over_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "levada.toml").write_text(FILE)
    monkeypatch.setenv("LEVADA_KAFKA__PORT", "1002")
    monkeypatch.setenv("LEVADA_BROKER__NUM_PARTITIONS", "5")
    monkeypatch.setenv("LEVADA_TOPIC__RETENTION_MS", "6")
    assert load(None, {}).kafka_port == 1002
    assert load(None, {}).settings["num.partitions"] == "5"
    assert load(None, {}).topic["retention.ms"] == "6"
    flags = {"kafka.port": 1003, "broker": {"num.partitions": "6"}, "topic": {"retention.ms": "7"}}
    config = load(None, flags)
    assert (config.kafka_port, config.settings["num.partitions"], config.topic["retention.ms"]) == (1003, "6", "7")


def test_kafkas_broker_wide_names_of_topic_defaults_are_understood(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "levada.toml").write_text("[broker]\nmessage.max.bytes = 2000\nlog.retention.hours = 2\n")
    monkeypatch.setenv("LEVADA_BROKER__LOG_SEGMENT_BYTES", "5000")
    assert load(None, {}).topic == {"max.message.bytes": "2000", "retention.ms": "7200000", "segment.bytes": "5000"}
    assert load(None, {"topic": {"retention.ms": "1"}}).topic["retention.ms"] == "1"


def test_a_variable_nobody_reads_is_mentioned(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    meant = {"LEVADA_KAFKA_PORT": "LEVADA_KAFKA__PORT", "LEVADA_DTA": "LEVADA_DATA"}
    for name in meant:
        monkeypatch.setenv(name, "1")
    load(None, {})
    said = capsys.readouterr()
    for name, near in meant.items():
        assert f"{name}, passed over; did you mean {near}?" in said.out + said.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"kafka.port": "many"}, "kafka.port='many'"),
        ({"kafka.port": 70000}, "from 0 to 65535"),
        ({"topic": {"retention.ms": "soon"}}, "retention.ms='soon': must be a whole number"),
        ({"topic": {"retention.msec": "1"}}, "unknown topic setting 'retention.msec'"),
        ({"broker": {"num.partition": "1"}}, "unknown setting 'num.partition'; did you mean num.partitions"),
        ({"topic": {"levada.durability": "interval:0"}}, "fsync, os or interval:<ms>"),
        ({"kafka.advertised": "nowhere"}, "must be host:port"),
    ],
)
def test_a_bad_value_is_refused_by_name_with_what_is_allowed(here: Path, flags: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said.replace("(", r"\(")):
        load(None, flags)


def test_an_unknown_name_in_the_file_is_refused(here: Path) -> None:
    (here / "levada.toml").write_text("[kafka]\nprot = 1\n")
    with pytest.raises(InvalidConfig, match=r"unknown setting 'kafka\.prot'"):
        load(None, {})


def test_a_file_that_is_named_must_exist_and_be_toml(here: Path) -> None:
    with pytest.raises(InvalidConfig, match="no such configuration file"):
        load(here / "other.toml", {})
    (here / "broken.toml").write_text("port = = 1")
    with pytest.raises(InvalidConfig, match=r"broken\.toml"):
        load(here / "broken.toml", {})
