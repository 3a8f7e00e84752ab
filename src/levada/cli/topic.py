"""`levada topic`: create, list, describe, expand, alter, delete."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from levada.cli.output import print_json, print_table
from levada.cli.pairs import pairs
from levada.cli.session import DEFAULT_SERVER, AsJson, Server, WrongUsage, count, session, topic_named

if TYPE_CHECKING:
    from levada.client.views import Setting, Topic

app = typer.Typer(
    help="Create, list, describe, expand, alter and delete topics.", no_args_is_help=True, add_completion=False
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]
#: The setting that decides where keys go.
_ROUTER: Final = "levada.router"
Config = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting. Repeatable.")
]


@app.command()
def create(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="How many.", show_default="the broker's num.partitions")
    ] = None,
    config: Config = None,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", help="Copies in the cluster's plan, at most one per node.")
    ] = 1,
    server: Server = DEFAULT_SERVER,
    as_json: AsJson = False,
) -> None:
    """Create a topic. One that is there already is expanded if it has fewer partitions, and else left as it is, its settings too.

    Keys are routed by fnv1a64, Levada's own. Where Kafka clients write keyed records to the same topic, say
    --config levada.router=murmur2: it is what Java's client, kafka-python and aiokafka use.

    Examples:

      levada topic create orders --partitions 4

      levada topic create sessions -c cleanup.policy=compact -c levada.durability=interval:50
    """
    settings = pairs(config, "--config")
    with session(server) as client:
        topic = client.manager.create_topic(name, partitions, settings=settings, replication_factor=replication_factor)
        is_new = topic.outcome == "created" or not settings
        kept = {} if is_new else differing(settings, client.manager.topic(name).details)
    if as_json:
        print_json(
            {
                "name": topic.name,
                "id": str(topic.id),
                "partitions": topic.partitions,
                "settings": dict(topic.settings),
                "outcome": topic.outcome,
                "not_changed": {key: {"is": value, "wanted": settings[key]} for key, value in kept.items()},
            }
        )
    elif topic.outcome == "created":
        print(f"created {name} with {count(topic.partitions, 'partition')}, keys by {topic.router}")
    elif topic.outcome == "expanded":
        print(f"{name} was there already: expanded to {count(topic.partitions, 'partition')}")
    else:
        print(f"{name} was there already, with {count(topic.partitions, 'partition')}: nothing changed")
    if kept:
        print(not_changed(name, settings, kept), file=sys.stderr)


def differing(wanted: Mapping[str, str], details: Iterable[Setting]) -> dict[str, str]:
    """What the topic has instead, of the settings that it has otherwise, whether set on it or by default."""
    held = {one.name: one.value for one in details}
    return {name: held.get(name, "") for name, value in wanted.items() if held.get(name) != value}


def not_changed(name: str, wanted: Mapping[str, str], kept: Mapping[str, str]) -> str:
    """The settings that creating a topic again leaves as they are, and what changes them."""
    said = ", ".join(f"{key} is {value or 'empty'}, not {wanted[key] or 'empty'}" for key, value in kept.items())
    options = " ".join(shlex.join(["--config", f"{key}={wanted[key]}"]) for key in kept)
    return f"levada: settings of a topic that is there are not changed: {said}; `levada topic alter {name} {options}` does that"


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Also the broker's own topics.")] = False,
    server: Server = DEFAULT_SERVER,
    as_json: AsJson = False,
) -> None:
    """List topics.

    Examples:

      levada topic list

      levada topic list --internal --json
    """
    with session(server) as client:
        topics = client.manager.topics(internal=internal)
    if as_json:
        print_json([_listed(topic) for topic in topics])
        return
    rows = [(topic.name, topic.partitions, topic.router, topic.keyless, topic.dedup) for topic in topics]
    print_table(
        ("topic", "partitions", "keys by", "keyless", "dedup"),
        rows,
        empty="no topics yet; `levada topic create NAME` makes one",
    )


def _listed(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": str(topic.id),
        "partitions": topic.partitions,
        "internal": topic.internal,
        "router": topic.router,
        "keyless": topic.keyless,
        "dedup": topic.dedup,
        "settings": dict(topic.settings),
    }


@app.command()
def describe(
    name: Name,
    everything: Annotated[bool, typer.Option("--all", help="Every setting, also those at their default.")] = False,
    server: Server = DEFAULT_SERVER,
    as_json: AsJson = False,
) -> None:
    """Show a topic's partitions, where they would lie in the cluster, their last offsets, and the topic's settings.

    Examples:

      levada topic describe orders

      levada topic describe orders --all --json
    """
    with session(server) as client, topic_named(client, name):
        topic = client.manager.topic(name)
    settings = [one for one in topic.details if everything or one.set]
    if as_json:
        partitions = [
            {
                "partition": one.index,
                "leader": one.leader,
                "replicas": list(one.replicas),
                "start": one.start,
                "end": one.end,
                "last_offset": one.end - 1 if one.end > one.start else None,
            }
            for one in topic.places
        ]
        print_json({**_listed(topic), "partitions": partitions, "settings": {one.name: one.value for one in settings}})
        return
    print(
        f"{name}: {count(topic.partitions, 'partition')}, id {topic.id}\n"
        f"keys by {topic.router}, without key {topic.keyless}, dedup {topic.dedup}\n"
    )
    rows = [
        (
            one.index,
            one.leader,
            ",".join(one.replicas),
            one.start,
            one.end - 1 if one.end > one.start else None,
            one.end - one.start,
        )
        for one in topic.places
    ]
    print_table(("partition", "leader", "replicas", "start", "last offset", "held"), rows, empty="")
    print()
    shown = [(one.name, one.value, "topic" if one.set else "default") for one in settings]
    print_table(("setting", "value", "set by"), shown, empty="every setting is at its default; --all shows them")


@app.command()
def expand(
    name: Name,
    partitions: Annotated[int, typer.Argument(metavar="PARTITIONS", help="New total; only more than now.", min=1)],
    server: Server = DEFAULT_SERVER,
    as_json: AsJson = False,
) -> None:
    """Add partitions. Those that are there stay as they are; running consumers get the new ones by themselves.

    Keys may go to other partitions from then on.

    Example:

      levada topic expand orders 8
    """
    with session(server) as client, topic_named(client, name):
        topic = client.manager.expand_topic(name, partitions)
    if as_json:
        print_json({"name": name, "partitions": topic.partitions})
    else:
        print(f"{name}: {count(topic.partitions, 'partition')}")


@app.command()
def alter(
    name: Name,
    config: Config = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Back to the default. Repeatable.")
    ] = None,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", help="As `expand` does.", min=1)] = None,
    server: Server = DEFAULT_SERVER,
    as_json: AsJson = False,
) -> None:
    """Change settings: all of those named, or none.

    With another levada.router, or more partitions, keys may go to other partitions from then on; what is stored stays where it is.

    Examples:

      levada topic alter orders -c retention.ms=86400000 --unset segment.bytes

      levada topic alter orders -c levada.dedup=id
    """
    changes, back = pairs(config, "--config"), list(unset or ())
    if partitions is None and not changes and not back:
        raise WrongUsage("nothing to change: give --config, --unset or --partitions")
    both = sorted(set(changes) & set(back))
    if both:
        raise WrongUsage(f"{both[0]} is to be set and unset")
    with session(server) as client, topic_named(client, name):
        before = client.manager.topic(name) if _ROUTER in (*changes, *back) else None
        if changes or back:
            topic = client.manager.alter_topic(name, set=changes, unset=back)
        if before is not None:
            _warn_of_moving_keys(before, topic)
        if partitions is not None:
            topic = client.manager.expand_topic(name, partitions)
    if as_json:
        print_json({"name": name, "partitions": topic.partitions, "settings": dict(topic.settings)})
        return
    done = [f"{key} = {value}" for key, value in changes.items()] + [f"{key} back to its default" for key in back]
    if partitions is not None:
        done.append(count(topic.partitions, "partition"))
    print(f"{name}: {', '.join(done)}")


def _warn_of_moving_keys(before: Topic, after: Topic) -> None:
    held = sum(one.end - one.start for one in before.places)
    if before.router != after.router and after.partitions > 1 and held:
        print(
            f"levada: keys of {after.name} went by {before.router} and go by {after.router} now: new records of a key may go to "
            f"another partition than the {count(held, 'record')} there, and are not in order with them",
            file=sys.stderr,
        )


@app.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    server: Server = DEFAULT_SERVER,
    as_json: AsJson = False,
) -> None:
    """Delete a topic and everything in it.

    Example:

      levada topic delete orders --yes
    """
    with session(server) as client, topic_named(client, name):
        if not yes:
            places = client.manager.topic(name).places
            if not sys.stdin.isatty():
                raise WrongUsage(f"nobody is there to ask whether to delete {name}: say --yes")
            held = sum(one.end - one.start for one in places)
            typer.confirm(f"Delete {name} with {count(held, 'record')}?", abort=True, err=True)
        client.manager.delete_topic(name)
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        print(f"deleted {name}")
