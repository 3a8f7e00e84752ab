"""`levada up`: start a broker, say where it listens, run until told to stop."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from levada import __version__
from levada.cli.pairs import pairs
from levada.cli.session import WrongUsage
from levada.config import BrokerConfig, split_settings, topic_config

if TYPE_CHECKING:
    from levada.server import Server

app = typer.Typer(add_completion=False)


@app.command()
def up(
    data: Annotated[
        Path | None, typer.Option(help="Directory that holds everything durable.", show_default="levada-data")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    kafka_port: Annotated[
        int | None, typer.Option(help="Port for Kafka clients; 0 picks a free one.", show_default="9092")
    ] = None,
    kafka_advertised: Annotated[
        str | None, typer.Option(help="host:port that clients are told to use, where it differs from what is bound.")
    ] = None,
    grpc_port: Annotated[
        int | None, typer.Option(help="Port for native clients; 0 picks a free one.", show_default="9094")
    ] = None,
    grpc: Annotated[
        bool | None, typer.Option("--grpc/--no-grpc", help="Serve native clients.", show_default="grpc")
    ] = None,
    http_port: Annotated[
        int | None, typer.Option(help="Port for metrics and health; 0 picks a free one.", show_default="9095")
    ] = None,
    http: Annotated[
        bool | None, typer.Option("--http/--no-http", help="Serve metrics and health.", show_default="http")
    ] = None,
    spark: Annotated[
        bool | None,
        typer.Option(
            "--spark/--no-spark", help="Keep pipelines running, in a process beside.", show_default="no-spark"
        ),
    ] = None,
    pipelines: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="With --spark: the pipelines' files.", show_default="./pipelines if there is one"
        ),
    ] = None,
    spark_master: Annotated[
        str | None, typer.Option(help="With --spark: local[N], or spark://HOST:PORT.", show_default="local[*]")
    ] = None,
    spark_home: Annotated[
        Path | None,
        typer.Option(help="With --spark: keeps checkpoints and lake tables.", show_default="pipelines/ in the data"),
    ] = None,
    durability: Annotated[
        str | None,
        typer.Option(help="What an acknowledgement promises: fsync, interval:<ms> or os.", show_default="fsync"),
    ] = None,
    num_partitions: Annotated[
        int | None, typer.Option(help="Partitions of a topic created without a number.", show_default="1")
    ] = None,
    auto_create: Annotated[
        bool | None,
        typer.Option(
            "--auto-create/--no-auto-create",
            help="Create a topic when a client asks for it.",
            show_default="auto-create",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any broker setting, or a topic default, in Kafka's names. Repeatable."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Configuration file.", show_default="./levada.toml if there is one")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say ready, and log, as JSON lines.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Start a broker.

    Examples:

      levada up

      levada up --data /var/lib/levada --kafka-port 0 --grpc-port 0 --no-http --json

      levada up --durability interval:50 --set num.partitions=4 --set retention.ms=3600000

      levada up --spark --pipelines pipelines
    """
    began = time.perf_counter()
    from levada.cli.beside import runner_beside
    from levada.cli.logs import configure
    from levada.cli.settings import load_all

    configure(level=log_level, as_json=as_json)
    broker, topic = split_settings(pairs(setting, "--set"))
    if num_partitions is not None:
        broker["num.partitions"] = str(num_partitions)
    if auto_create is not None:
        broker["auto.create.topics.enable"] = str(auto_create).lower()
    if durability is not None:
        topic["levada.durability"] = durability
    flags: dict[str, Any] = {
        "data": data,
        "host": host,
        "kafka.port": kafka_port,
        "kafka.advertised": kafka_advertised,
        "grpc.port": grpc_port,
        "grpc.enabled": grpc,
        "http.port": http_port,
        "http.enabled": http,
        "spark.enabled": spark,
        "spark.pipelines": pipelines,
        "spark.master": spark_master,
        "spark.home": spark_home,
        "broker": broker,
        "topic": topic,
    }
    settings, spark_settings = load_all(config, flags)
    if pipelines is not None and not spark_settings.enabled:
        raise WrongUsage(f"--pipelines {pipelines}: nobody would run them without --spark")
    beside = runner_beside(spark_settings, settings, as_json=as_json)

    from levada.server import run

    run(settings, lambda server: _say_ready(server, settings, began, as_json=as_json), beside)


def _say_ready(server: Server, settings: BrokerConfig, began: float, *, as_json: bool) -> None:
    addresses = {name: f"{host}:{port}" for name, (host, port) in server.addresses.items()}
    took_ms = round((time.perf_counter() - began) * 1000)
    durability = str(topic_config(settings.topic).durability)
    if as_json:
        ready = {
            "event": "ready",
            "version": __version__,
            **addresses,
            "data": str(settings.data.absolute()),
            "durability": durability,
            "pid": os.getpid(),
            "ms": took_ms,
        }
        print(json.dumps(ready), flush=True)
    else:
        listens = ", ".join(f"{name} on {address}" for name, address in addresses.items())
        print(
            f"levada {__version__} ready: {listens}; data in {settings.data} ({durability}); {took_ms} ms", flush=True
        )
        if sys.stdout.isatty():
            print("Ctrl-C stops it.", flush=True)
