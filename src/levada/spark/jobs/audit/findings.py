"""Figures → what is right, what to look at, what is wrong, and what could not be told. No Spark, no broker."""

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

#: `skipped`: the check could not be made; nothing is said of what it looks for.
Severity = Literal["ok", "look", "wrong", "skipped"]

#: A partition with more than this many times its share is worth a look, and so is a key with this share of a topic's records …
SKEW: Final = 2.0
HOT_KEY: Final = 0.2
#: … in a topic of at least so many.
_FEW: Final = 1000
_TELL: Final = "--by says what else they are told by: payload, key, header:NAME, or a path into JSON such as $.order.id"


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
        _checksum(figures),
    ]


def verdict(found: list[Finding]) -> Severity:
    """The worst of them; `skipped` where none could be made."""
    severities = {one.severity for one in found}
    order: tuple[Severity, ...] = ("wrong", "look", "ok")
    return next((one for one in order if one in severities), "skipped")


def _gaps(figures: Figures) -> Iterator[Finding]:
    if all(one.start == one.end for one in figures.partitions):
        yield Finding("gaps", "skipped", "there are no offsets to look at")
        return
    ends = sum(one.end for one in figures.partitions)
    retained = sum(one.deleted for one in figures.partitions)
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
        has = "offset has" if archived == 1 else "offsets have"
        yield Finding("gaps", "skipped", f"{archived:,} {has} no record in the archive, which does not say why")


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
        return _without(figures, "duplicates", f"no record has a {found.by} that it could be told by", _TELL)
    unknown = figures.records - found.told
    others = f"; {unknown:,} without one were not compared" if unknown > 0 else ""
    if not found.repeats:
        return Finding("duplicates", "ok", f"none of {found.told:,} records repeats the {found.by} of another{others}")
    first = found.examples[0] if found.examples else None
    where = f"; {first.records:,} times the one at {first.first[0]}:{first.first[1]}" if first else ""
    text = f"{found.repeats:,} of {found.told:,} records repeat the {found.by} of an earlier one{where}{others}"
    advice = f"levada job dedup {figures.topic} makes a topic without them"
    if found.within_window:
        return Finding(
            "duplicates", "wrong", f"{text}; {found.within_window:,} within the window of the topic's dedup", advice
        )
    return Finding("duplicates", "look", text, advice)


def _without(figures: Figures, check: str, why: str, advice: str = "") -> Finding:
    """A check that could not be made, since nothing there has what it goes by."""
    return (
        Finding(check, "skipped", why, advice) if figures.records else Finding(check, "skipped", "there are no records")
    )


def _key_order(figures: Figures) -> Finding:
    keys = figures.keys
    if not keys.distinct:
        return _without(figures, "key order", "no record has a key")
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
    if not keys.distinct:
        return _without(figures, "routing", "no record has a key")
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
        return Finding("balance", "skipped", "there are no records")
    if total < _FEW:
        return Finding("balance", "skipped", f"too few records to tell: {total:,}, and it takes {_FEW:,}")
    largest = max(range(len(held)), key=held.__getitem__)
    times = held[largest] * len(held) / total
    hottest = figures.keys.largest[0] if figures.keys.largest else None
    if hottest is not None and hottest.records > HOT_KEY * total:
        share = hottest.records / total
        return Finding("balance", "look", f"one key, {_name(hottest)}, has {share:.0%} of all records")
    if len(held) == 1:
        return Finding("balance", "skipped", "there is one partition, and no key has a large share of it")
    if times > SKEW:
        return Finding(
            "balance", "look", f"partition {figures.partitions[largest].partition} has {times:.1f}× its share"
        )
    return Finding("balance", "ok", f"the largest partition has {times:.2f}× its share of {total:,} records")


def _checksum(figures: Figures) -> Finding:
    """A batch that is not as it was written ends the audit; what is archived is kept in rows, not in batches."""
    in_log = [one for one in figures.partitions if max(one.log_start, one.start) < one.end]
    if not in_log:
        return Finding("checksum", "skipped", "there are no batches in the log")
    others = " (what is archived has none)" if any(one.archived for one in figures.partitions) else ""
    return Finding("checksum", "ok", f"every batch in the log has the checksum it was written with{others}")


def _name(key: Key) -> str:
    """As a person may read it."""
    text = key.key.decode(errors="backslashreplace")
    shown = "".join(char if char.isprintable() else "·" for char in text)
    return repr(shown if len(shown) <= 40 else shown[:39] + "…")


def _offsets(count: int) -> str:
    return f"{count:,} {'offset is' if count == 1 else 'offsets are'}"
