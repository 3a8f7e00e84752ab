"""`levada.toml`, the environment and flags → one BrokerConfig. Flags win over environment over file.

One name everywhere: `kafka.port` in the file is `LEVADA_KAFKA__PORT` in the environment and `--kafka-port` on the command
line. Broker settings in Kafka's names stand under `[broker]`, defaults for topics under `[topic]`:

    data = "/var/lib/levada"
    [kafka]
    port = 9092
    [grpc]
    port = 9094
    [http]
    enabled = false
    [spark]
    enabled = true
    pipelines = "/srv/pipelines"
    [broker]
    num.partitions = 4
    [topic]
    retention.ms = 3600000
    levada.durability = "interval:50"
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from levada.config import TOPIC_SETTINGS, BrokerConfig, broker_names, split_settings
from levada.errors import InvalidConfig, nearest

FILE = "levada.toml"
#: LEVADA_* that other parts read.
_OTHERS = ("server", "bootstrap", "master", "home", "cache", "crash_rounds", "crash_seed", "kill_rounds", "test_broker")
#: As the file has them, beside [broker] and [topic].
_NAMES: Final = (
    "data",
    "host",
    "kafka.port",
    "kafka.advertised",
    "grpc.port",
    "grpc.enabled",
    "http.port",
    "http.enabled",
    "spark.enabled",
    "spark.pipelines",
    "spark.master",
    "spark.home",
)

_log = structlog.get_logger("levada.settings")


class KafkaSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    port: int = 9092
    advertised: str = ""


class FrontSettings(BaseModel):
    """A front that a broker can do without."""

    model_config = ConfigDict(extra="forbid")

    port: int
    enabled: bool = True

    @property
    def open_port(self) -> int | None:
        return self.port if self.enabled else None


class GrpcSettings(FrontSettings):
    port: int = 9094


class HttpSettings(FrontSettings):
    port: int = 9095


class SparkSettings(BaseModel):
    """The runner of pipelines beside the broker."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool = False
    pipelines: Path | None = None
    master: str = "local[*]"
    home: Path | None = None


def _in_kafka_names(found: dict[str, Any]) -> dict[str, Any]:
    """The source's [broker] and [topic] tables, flattened: before the sources are laid over one another, so that they meet."""
    for table, known in (("broker", broker_names()), ("topic", TOPIC_SETTINGS)):
        if isinstance(found.get(table), Mapping):
            found[table] = _kafka_names(found[table], known)
    return found


class _Environment(EnvSettingsSource):
    def __call__(self) -> dict[str, Any]:
        return _in_kafka_names(super().__call__())


class _File(TomlConfigSettingsSource):
    def __call__(self) -> dict[str, Any]:
        return _in_kafka_names(super().__call__())


class Settings(BaseSettings):
    """What may stand in the file and in the environment."""

    model_config = SettingsConfigDict(env_prefix="LEVADA_", env_nested_delimiter="__", extra="forbid", toml_file=FILE)

    data: Path = Path("levada-data")
    host: str = "127.0.0.1"
    kafka: KafkaSettings = KafkaSettings()
    grpc: GrpcSettings = GrpcSettings()
    http: HttpSettings = HttpSettings()
    spark: SparkSettings = SparkSettings()
    broker: dict[str, str] = {}
    topic: dict[str, str] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, _Environment(settings_cls), _File(settings_cls)


def load(file: Path | None, flags: Mapping[str, Any]) -> BrokerConfig:
    """What a broker is told. See `load_all`."""
    return load_all(file, flags)[0]


def load_all(file: Path | None, flags: Mapping[str, Any]) -> tuple[BrokerConfig, SparkSettings]:
    """Read the file (given, or ./levada.toml where it exists) and the environment, lay the flags over them, check all."""
    if file is not None and not file.is_file():
        raise InvalidConfig(f"no such configuration file: {file}")

    class FromFile(Settings):
        model_config = SettingsConfigDict(toml_file=file or FILE)

    try:
        settings = FromFile(**_nested(flags))
    except ValidationError as error:
        raise InvalidConfig("; ".join(_sentence(problem) for problem in error.errors())) from None
    except ValueError as error:  # a file that is not TOML
        raise InvalidConfig(f"{file or FILE}: {error}") from None
    _warn_of_strangers()
    broker, topic = split_settings(settings.broker)
    config = BrokerConfig(
        data=settings.data,
        host=settings.host,
        kafka_port=settings.kafka.port,
        kafka_advertised=settings.kafka.advertised,
        grpc_port=settings.grpc.open_port,
        http_port=settings.http.open_port,
        settings=broker,
        topic={**topic, **settings.topic},
    )
    return config, settings.spark


def _warn_of_strangers() -> None:
    """A misspelt variable would else be passed over in silence. Not refused: who else reads LEVADA_… we cannot know."""
    known = [f"LEVADA_{name.upper()}" for name in (*Settings.model_fields, *_OTHERS)]
    for name in os.environ:
        if name.startswith("LEVADA_") and name.partition("__")[0] not in known:
            _log.warning(f"unknown environment variable {name}, passed over{nearest(name, _variables())}")


def _variables() -> list[str]:
    """Every variable that `levada` reads."""
    settings = [name.upper().replace(".", "__") for name in _NAMES]
    broker = [f"BROKER__{_shouted(name)}" for name in broker_names()]
    topic = [f"TOPIC__{_shouted(name)}" for name in TOPIC_SETTINGS]
    return [f"LEVADA_{name}" for name in ("SERVER", "BOOTSTRAP", "MASTER", "HOME", *settings, *broker, *topic)]


def _shouted(name: str) -> str:
    """As the environment spells a setting."""
    return name.replace(".", "_").upper()


def _nested(flags: Mapping[str, Any]) -> dict[str, Any]:
    """{"kafka.port": 1, "broker": {…}} → {"kafka": {"port": 1}, "broker": {…}}; what was not given (None) stays out."""
    nested: dict[str, Any] = {}
    for name, value in flags.items():
        if value is None or value == {}:
            continue
        *path, last = name.split(".")
        table = nested
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return nested


def _kafka_names(given: Mapping[str, Any], known: Iterable[str]) -> dict[str, str]:
    """Flatten what TOML nested at the dots, and turn the environment's RETENTION_MS back into retention.ms."""
    by_shout = {name.replace(".", "_"): name for name in known}
    flat: dict[str, str] = {}
    for name, value in _flatten(given):
        text = str(value).lower() if isinstance(value, bool) else str(value)
        flat[by_shout.get(name.lower(), name)] = text
    return flat


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield f"{prefix}{name}", ",".join(map(str, value))
        else:
            yield f"{prefix}{name}", value


def _sentence(problem: Any) -> str:
    name = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        return f"unknown setting {name!r}; known are {', '.join(_NAMES)}, [broker] and [topic]"
    return f"{name}={problem['input']!r}: {problem['msg'].lower()}"
