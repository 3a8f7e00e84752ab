"""What jobs print when they are done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from levada.cli.session import count

if TYPE_CHECKING:
    from levada.spark.jobs.audit.figures import Figures
    from levada.spark.jobs.audit.findings import Finding
    from levada.spark.jobs.dedup import Deduplicated
    from levada.spark.jobs.repartition import Ready, Repartitioned
    from levada.spark.jobs.replay import Replayed
    from levada.spark.jobs.snapshot import Snapshotted
    from levada.spark.losses import Lost

_MARKS = {"ok": "[green]✓[/green]", "look": "[yellow]![/yellow]", "wrong": "[red]✗[/red]", "skipped": "[dim]–[/dim]"}
_VERDICTS = {
    "ok": "[bold green]as it should be[/bold green]",
    "look": "[bold yellow]worth a look[/bold yellow]",
    "wrong": "[bold red]not as it should be[/bold red]",
    "skipped": "[bold]nothing could be checked[/bold]",
}


def in_batches(records: int, batches: int, seconds: float) -> str:
    """ "12,000 records in 2 batches, 3.1 s (3,871/s)"."""
    rate = f" ({records / seconds:,.0f}/s)" if seconds and records else ""
    return (
        f"{count(records, 'record')} in {count(batches, 'batch').replace('batchs', 'batches')}, {seconds:,.1f} s{rate}"
    )


def replayed(source: str, target: str, done: Replayed, seconds: float) -> None:
    made = f", which is new, with the settings of {source}" if done.made else ""
    if done.batches:
        print(f"{source} → {target}{made}: {in_batches(done.records, done.batches, seconds)}")
    else:
        print(f"{source} → {target}{made}: nothing that was not there already; --again writes it once more")
    _lost(done.lost)


def _lost(lost: Sequence[Lost]) -> None:
    """Which they are was said when they were passed over."""
    if lost:
        offsets = sum((one.end or one.start) - one.start for one in lost)
        print(f"{count(offsets, 'offset')} lost: deleted before they were copied")


def repartitioned(ready: Ready, done: Repartitioned, seconds: float) -> None:
    source, target = ready.source, done.target
    if done.batches:
        print(
            f"{source.name}, {count(source.partitions, 'partition')} → {target}, {count(ready.target.partitions, 'partition')}: "
            f"{in_batches(done.records, done.batches, seconds)}"
        )
    else:
        print(f"{target} has all of {source.name} already: nothing was copied")
    if done.fingerprint is not None:
        print(
            f"verified: {count(done.fingerprint.records, 'record')} there and here, each key in its order, "
            f"checksum {done.fingerprint.content:016x}"
        )
    repeats: dict[str, int] = {}
    for one in done.groups:
        repeats[one.group] = repeats.get(one.group, 0) + one.repeats
    for group, again in repeats.items():
        print(_group(group, again, done))
    _next(ready, done)


def _group(group: str, again: int, done: Repartitioned) -> str:
    sees = f"skips nothing and sees {count(again, 'record')} again" if again else "skips nothing, repeats nothing"
    if group in done.left:
        return f"group {group}: has members, so it was not moved; stop them, and run this again"
    if group in done.moved:
        return f"group {group}: placed in {done.target}, {sees}"
    return f"group {group}: stands in {done.target} already"


def _next(ready: Ready, done: Repartitioned) -> None:
    source, target = ready.source.name, done.target
    if done.finished:
        print(
            f"{target} is finished, with the settings of {source}: start producers and consumers there, and delete {source} when "
            "nobody misses it"
        )
    elif ready.finish and done.coming:
        print(
            f"not finished: {count(done.coming, 'record')} came to {source} meanwhile; stop its producers, and run this again"
        )
    elif ready.finish:
        print(f"not finished: {', '.join(done.left)} could not be moved; stop their members, and run this again")
    else:
        came = f"{count(done.coming, 'record')} came to {source} meanwhile. " if done.coming else ""
        print(
            f"{came}To move over: stop the producers and consumers of {source}, run this again with --finish, and start them on "
            f"{target}. Until then nothing is deleted from {target} or compacted"
        )


def deduplicated(source: str, done: Deduplicated, seconds: float) -> None:
    if not done.batches:
        print(f"{done.target} has all of {source} already: nothing was copied")
        return
    print(f"{source} → {done.target}: {in_batches(done.written, done.batches, seconds)}")
    print(f"{count(done.repeats, 'repeat')} left out of {count(done.read, 'record')}, told by {done.by}")
    if unknown := done.read - done.told:
        print(f"{count(unknown, 'record')} without one, all kept")
    _lost(done.lost)


def snapshotted(source: str, done: Snapshotted, seconds: float) -> None:
    at = ", ".join(f"{partition}: {offset:,}" for partition, offset in sorted(done.at.items()))
    form = "topic" if done.form == "topic" else f"{done.form} in"
    keys = count(done.keys, "key")
    print(f"{source} at {{{at}}} → {form} {done.where}: {keys}, {seconds:,.1f} s")


def audited(figures: Figures, found: list[Finding], verdict: str, report: str | None) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    rate = figures.records / figures.seconds if figures.seconds else 0
    partitions = count(len(figures.partitions), "partition")
    console.print(
        f"[bold]{figures.topic}[/bold]  {count(figures.records, 'record')} in {partitions}, "
        f"{figures.seconds:,.1f} s ({rate:,.0f}/s): {_VERDICTS[verdict]}",
        highlight=False,
    )
    grid = Table.grid(padding=(0, 2))
    for one in found:
        made = "not checked: " if one.severity == "skipped" else ""
        text = made + escape(one.text) + (f"\n[dim]{escape(one.advice)}[/dim]" if one.advice else "")
        grid.add_row(_MARKS[one.severity], f"[dim]{one.check}[/dim]", text)
    console.print(grid, highlight=False)
    if report is not None:
        console.print(f"[dim]report[/dim]  {report}", highlight=False, soft_wrap=True)


def as_json(figures: Figures, found: list[Finding], verdict: str, report: str | None) -> dict[str, Any]:
    keys, duplicates = figures.keys, figures.duplicates
    return {
        "topic": figures.topic,
        "verdict": verdict,
        "records": figures.records,
        "bytes": figures.bytes,
        "seconds": round(figures.seconds, 3),
        "findings": [one._asdict() for one in found],
        "partitions": [
            {
                "partition": one.partition,
                "start": one.start,
                "end": one.end,
                "records": one.records,
                "bytes": one.bytes,
                "keyless": one.keyless,
                "tombstones": one.tombstones,
                "missing": dict(one.holes),
                "checksum": one.checksum_hex,
            }
            for one in figures.partitions
        ],
        "keys": {
            "distinct": keys.distinct,
            "split": keys.split,
            "misplaced": keys.misplaced,
            "misplaced_records": keys.misplaced_records,
        },
        "duplicates": {
            "by": duplicates.by,
            "told": duplicates.told,
            "repeats": duplicates.repeats if duplicates.told else None,
        },
        "report": report,
    }


def plain(done: Any, **more: Any) -> Mapping[str, Any]:
    """A named tuple for machines."""
    fields = {name: value for name, value in done._asdict().items() if value is not None}
    return {**fields, **more}
