"""Figures → what is right, what to look at, and what is wrong. No Spark, no broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from levada.spark.jobs.audit.figures import (
    ABORTED,
    BETWEEN,
    EMPTIED,
    MARKERS,
    UNARCHIVED,
    WITHIN,
    Figures,
    Hole,
    Key,
)

Severity = Literal["ok", "look", "wrong"]

#: A partition with more than this many times its share is worth a look, and so is a key with this share of a topic's records …
SKEW: Final = 2.0
HOT_KEY: Final = 0.2
#: … in a topic of at least so many.
_FEW: Final = 1000


class Finding(NamedTuple):
    """What one check says."""

    check: str
    severity: Severity
    text: str
    #: What to do about it.
    advice: str = ""


def findings(figures: Figures) -> list[Finding]:
    """All checks, in the order in which they are told."""
    return [
        *_gaps(figures),
        _duplicates(figures),
        _key_order(figures),
        _routing(figures),
        _balance(figures),
        Finding("checksum", "ok", "every batch has the checksum it was written with"),
    ]


def verdict(found: list[Finding]) -> Severity:
    """The worst of them."""
    severities = {one.severity for one in found}
    return "wrong" if "wrong" in severities else "look" if "look" in severities else "ok"


def _gaps(figures: Figures) -> Iterator[Finding]:
    ends = sum(one.end for one in figures.partitions)
    retained = sum(one.start for one in figures.partitions)
    if retained:
        yield Finding("gaps", "ok", f"{retained:,} of {ends:,} offsets were deleted from the beginning: retention")
    for kind, why in ((MARKERS, "ends of transactions"), (ABORTED, "records of aborted transactions")):
        if count := figures.missing(kind):
            yield Finding("gaps", "ok", f"{_offsets(count)} {why}")
    inside = figures.missing(WITHIN) + figures.missing(EMPTIED)
    yield from _removed(figures, inside, figures.missing(BETWEEN))
    if unarchived := figures.missing(UNARCHIVED):
        yield _unexplained(
            figures,
            unarchived,
            (UNARCHIVED,),
            "in neither the archive nor the log",
            "they were deleted before they were archived: somebody asked for that, or the topic was without levada.archive "
            "for a while",
        )
    if archived := sum(one.missing_in_archive for one in figures.partitions):
        yield Finding("gaps", "ok", f"{archived:,} offsets have no record in the archive, which does not say why")


def _removed(figures: Figures, inside: int, between: int) -> Iterator[Finding]:
    """Compaction removes records and whole batches; dedup records, and leaves the batches."""
    by = [name for name, is_on in (("compaction", figures.compacts), ("dedup", figures.dedup != "off")) if is_on]
    if inside and by:
        yield Finding("gaps", "ok", f"{_offsets(inside)} taken out of their batches: {' or '.join(by)}")
    elif inside:
        yield _unexplained(
            figures,
            inside,
            (WITHIN, EMPTIED),
            "taken out of batches, and the topic has neither compaction nor dedup",
            "it was compacted or had dedup before its settings were changed, or records are lost",
        )
    if between and figures.compacts:
        yield Finding("gaps", "ok", f"{_offsets(between)} in no batch: compaction")
    elif between:
        yield _unexplained(
            figures,
            between,
            (BETWEEN,),
            "in no batch, and the topic is not compacted",
            "it was compacted before its settings were changed, or records are lost",
        )
    if not inside and not between:
        yield Finding("gaps", "ok", "no offset is missing that should be there")


def _unexplained(figures: Figures, count: int, kinds: tuple[str, ...], what: str, advice: str) -> Finding:
    first = next((hole for hole in figures.holes if hole.kind in kinds), None)
    where = f"; the first: {_where(first)}" if first else ""
    return Finding("gaps", "wrong", f"{_offsets(count)} {what}{where}", advice)


def _where(hole: Hole) -> str:
    last = hole.end - 1
    offsets = f"offset {hole.start}" if last == hole.start else f"offsets {hole.start} to {last}"
    return f"{offsets} of partition {hole.partition}"


def _duplicates(figures: Figures) -> Finding:
    found = figures.duplicates
    if not found.told:
        return Finding("duplicates", "ok", f"no record can be told by {found.by}")
    if not found.repeats:
        return Finding("duplicates", "ok", f"none of {found.told:,} records repeats the {found.by} of another")
    first = found.examples[0] if found.examples else None
    where = f"; {first.records:,} times the one at {first.first[0]}:{first.first[1]}" if first else ""
    text = f"{found.repeats:,} of {found.told:,} records repeat the {found.by} of an earlier one{where}"
    advice = f"levada job dedup {figures.topic} makes a topic without them"
    if found.within_window:
        return Finding(
            "duplicates", "wrong", f"{text}; {found.within_window:,} within the window of the topic's dedup", advice
        )
    return Finding("duplicates", "look", text, advice)


def _key_order(figures: Figures) -> Finding:
    keys = figures.keys
    if not keys.split:
        return Finding("key order", "ok", f"each of {keys.distinct:,} keys lies in one partition")
    example = f"; {_name(keys.split_examples[0])} in several" if keys.split_examples else ""
    return Finding(
        "key order",
        "wrong",
        f"{keys.split:,} of {keys.distinct:,} keys, {keys.split_records:,} records, lie in more than one partition{example}",
        f"levada job repartition {figures.topic} --partitions {len(figures.partitions)} brings each together, in order",
    )


def _routing(figures: Figures) -> Finding:
    keys = figures.keys
    if not keys.misplaced:
        return Finding("routing", "ok", f"every key is where {figures.router} puts it")
    example = ""
    if keys.misplaced_examples:
        key = keys.misplaced_examples[0]
        example = f"; {_name(key)} is in {key.lowest} and belongs in {key.home}"
    return Finding(
        "routing",
        "wrong",
        f"{keys.misplaced_records:,} records of {keys.misplaced:,} keys are not where {figures.router} puts them{example}",
        "a producer chose partitions by a rule of its own, or the topic was expanded after they were written",
    )


def _balance(figures: Figures) -> Finding:
    held = [one.records for one in figures.partitions]
    total = sum(held)
    if not total:
        return Finding("balance", "ok", "there are no records")
    largest = max(range(len(held)), key=held.__getitem__)
    times = held[largest] * len(held) / total
    hottest = figures.keys.largest[0] if figures.keys.largest else None
    if total >= _FEW and hottest is not None and hottest.records > HOT_KEY * total and hottest.records > 1:
        share = hottest.records / total
        return Finding("balance", "look", f"one key, {_name(hottest)}, has {share:.0%} of all records")
    if total >= _FEW and times > SKEW:
        return Finding(
            "balance", "look", f"partition {figures.partitions[largest].partition} has {times:.1f}× its share"
        )
    return Finding("balance", "ok", f"the largest partition has {times:.2f}× its share of {total:,} records")


def _name(key: Key) -> str:
    """As a person may read it."""
    text = key.key.decode(errors="backslashreplace")
    shown = "".join(char if char.isprintable() else "·" for char in text)
    return repr(shown if len(shown) <= 40 else shown[:39] + "…")


def _offsets(count: int) -> str:
    return f"{count:,} {'offset is' if count == 1 else 'offsets are'}"
