"""`levada topic`: create, list, describe, alter, delete."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from levada.cli.output import print_json, print_table
from levada.cli.pairs import pairs
from levada.cli.session import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, find_topic, session
from levada.errors import InvalidRequest
from levada.wire.answers import EARLIEST, LATEST, ConfigEntry, TopicInfo
from levada.wire.blocking import BlockingClient
from levada.wire.calls.admin import BROKER

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True, add_completion=False)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]
Config = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting. Repeatable.")
]

FROM_TOPIC = 1
_SOURCES = {FROM_TOPIC: "topic", 5: "default"}


@app.command()
def create(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="How many.", show_default="the broker's num.partitions")
    ] = None,
    config: Config = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create a topic.

    Keys are routed by fnv1a64, Levada's own. Where Kafka clients write keyed records to the same topic, say
    --config levada.router=murmur2: it is what Java's client, kafka-python and aiokafka use.

    Examples:

      levada topic create orders --partitions 4

      levada topic create sessions -c cleanup.policy=compact -c levada.durability=interval:50
    """
    settings = pairs(config, "--config")
    with session(bootstrap) as client:
        if "levada.router" not in settings and _is_levada(client):
            settings["levada.router"] = "fnv1a64"
        topic_id = client.create_topic(name, -1 if partitions is None else partitions, configs=settings)
        made = len(client.topics([name])[name].partitions)
    if as_json:
        print_json({"name": name, "id": str(topic_id), "partitions": made, "settings": settings})
    else:
        router = settings.get("levada.router")
        print(f"created {name} with {_count(made, 'partition')}" + (f", keys by {router}" if router else ""))


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Also the broker's own topics.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List topics, and how many offsets they hold: records, and what compaction and transactions left of them.

    Examples:

      levada topic list

      levada topic list --internal --json
    """
    with session(bootstrap) as client:
        topics = [topic for topic in client.topics().values() if internal or not topic.is_internal]
        topics.sort()
        bounds = _bounds(client, topics)
    rows = [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "offsets": sum(
                end - start for start, end in (bounds[topic.name, one.partition] for one in topic.partitions)
            ),
            "internal": topic.is_internal,
        }
        for topic in topics
    ]
    if as_json:
        print_json(rows)
    else:
        shown = [(row["name"], row["partitions"], row["offsets"]) for row in rows]
        print_table(("topic", "partitions", "offsets"), shown, empty="no topics; `levada topic create NAME` makes one")


@app.command()
def describe(
    name: Name,
    everything: Annotated[bool, typer.Option("--all", help="Every setting, also those at their default.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show a topic's partitions and settings.

    Examples:

      levada topic describe orders

      levada topic describe orders --all --json
    """
    with session(bootstrap) as client:
        topic = find_topic(client, name)
        bounds = _bounds(client, [topic])
        entries = client.describe_configs(name)
    settings = [entry for entry in entries.values() if everything or entry.source == FROM_TOPIC]
    if as_json:
        print_json(_described(topic, bounds, settings))
        return
    print(f"{name}: {_count(len(topic.partitions), 'partition')}, id {topic.topic_id}")
    rows = [
        (one.partition, one.leader, one.leader_epoch, *bounds[name, one.partition], _held(bounds[name, one.partition]))
        for one in topic.partitions
    ]
    print_table(("partition", "leader", "epoch", "start", "end", "held"), rows, empty="")
    print()
    shown = [(entry.name, entry.value, _SOURCES.get(entry.source, "broker")) for entry in settings]
    print_table(("setting", "value", "set by"), shown, empty="every setting is at its default; --all shows them")


@app.command()
def alter(
    name: Name,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", help="New total; only more than now.")] = None,
    config: Config = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Back to the default. Repeatable.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Add partitions, change settings.

    Examples:

      levada topic alter orders --partitions 8

      levada topic alter orders -c retention.ms=86400000 --unset segment.bytes
    """
    changes: dict[str, str | None] = {**pairs(config, "--config"), **dict.fromkeys(unset or ())}
    if partitions is None and not changes:
        raise InvalidRequest("nothing to change: give --partitions, --config or --unset")
    with session(bootstrap) as client:
        find_topic(client, name)
        if changes:
            client.alter_configs(name, changes)
        if partitions is not None:
            client.create_partitions(name, partitions)
    if as_json:
        print_json({"name": name, "partitions": partitions, "settings": changes})
        return
    if changes:
        print(
            f"{name}: "
            + ", ".join(f"{key} {'unset' if value is None else '= ' + value}" for key, value in changes.items())
        )
    if partitions is not None:
        print(f"{name}: now {_count(partitions, 'partition')}")


@app.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete a topic and everything in it.

    Example:

      levada topic delete orders --yes
    """
    with session(bootstrap) as client:
        topic = find_topic(client, name)
        if not yes and not sys.stdin.isatty():
            raise InvalidRequest(f"nobody is there to ask whether to delete {name}: say --yes")
        if not yes:
            held = sum(_held(bounds) for bounds in _bounds(client, [topic]).values())
            typer.confirm(f"Delete {name} with {_count(held, 'offset')}?", abort=True)
        client.delete_topic(name)
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        print(f"deleted {name}")


def _is_levada(client: BlockingClient) -> bool:
    """Apache Kafka refuses settings it does not know; a Levada broker has this one."""
    node = client.describe_cluster().controller_id
    return "levada.durability" in client.describe_configs(str(node), kind=BROKER, keys=["levada.durability"])


def _bounds(client: BlockingClient, topics: list[TopicInfo]) -> dict[tuple[str, int], tuple[int, int]]:
    ats = [(topic.name, one.partition) for topic in topics for one in topic.partitions]
    if not ats:
        return {}
    starts = client.list_offsets(dict.fromkeys(ats, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(ats, LATEST))
    return {at: (starts[at].offset, ends[at].offset) for at in starts}


def _held(bounds: tuple[int, int]) -> int:
    return bounds[1] - bounds[0]


def _described(
    topic: TopicInfo, bounds: dict[tuple[str, int], tuple[int, int]], settings: list[ConfigEntry]
) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": str(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": one.partition,
                "leader": one.leader,
                "leader_epoch": one.leader_epoch,
                "replicas": list(one.replicas),
                "isr": list(one.isr),
                "start": bounds[topic.name, one.partition][0],
                "end": bounds[topic.name, one.partition][1],
            }
            for one in topic.partitions
        ],
        "settings": {entry.name: entry.value for entry in settings},
    }


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
