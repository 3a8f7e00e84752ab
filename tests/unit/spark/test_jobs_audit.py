"""Why offsets have no record, what an audit makes of its figures, and the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.records.batch import Batch
from levada.records.build import assemble
from levada.records.read import Record
from levada.spark.columns import decode
from levada.spark.fetch import Fetched
from levada.spark.history import Held, NoHistory
from levada.spark.jobs.audit.audit import some, timeline, unarchived
from levada.spark.jobs.audit.figures import (
    ABORTED,
    BETWEEN,
    EMPTIED,
    KINDS,
    MARKERS,
    UNARCHIVED,
    WITHIN,
    Copies,
    Duplicates,
    Figures,
    Hole,
    Key,
    Keys,
    Partition,
    Slot,
)
from levada.spark.jobs.audit.findings import Finding, Severity, findings, verdict
from levada.spark.jobs.audit.holes import Found, holes
from levada.spark.jobs.audit.page import page
from levada.spark.jobs.audit.plots import bars, columns, moment, short
from levada.spark.jobs.audit.tally import COLUMNS, Tally, Times
from levada.wire.answers import TopicPartition
from support.batches import make_batch, make_marker, make_record, record_lists


def empty_batch(base_offset: int, count: int) -> Batch:
    """What dedup and compaction leave of a batch with nothing in it."""
    data = assemble(
        [],
        attributes=0,
        base_offset=base_offset,
        base_timestamp=-1,
        max_timestamp=-1,
        last_offset_delta=count - 1,
        producer=(-1, -1, -1),
        leader_epoch=0,
    )
    return Batch(memoryview(data))


def found_in(batches: Sequence[Batch], start: int, end: int, aborted: Sequence[tuple[int, int]] = ()) -> Found:
    data = b"".join(bytes(batch.view) for batch in batches)
    piece = Fetched(memoryview(data), aborted, start, end, 3)
    visible = [batch.column(0).to_numpy() for batch in decode(piece, ("offset",), topic="orders")]
    return holes(piece, np.concatenate(visible) if visible else np.empty(0, np.int64))


def test_every_kind_of_hole_is_told_apart() -> None:
    batches = [
        make_batch(3, base_offset=0),
        make_batch(records=[make_record(3), make_record(5), make_record(9)], base_offset=3),  # 4, 6, 7, 8 taken out
        make_batch(2, base_offset=10, producer_id=7, transactional=True),
        make_marker(commit=True, producer_id=7, base_offset=12),
        make_batch(4, base_offset=13, producer_id=7, transactional=True),
        make_marker(commit=False, producer_id=7, base_offset=17),
        empty_batch(18, 2),
        make_batch(1, base_offset=25),  # 20 to 24 are in no batch
    ]
    found = found_in(batches, 0, 28, aborted=[(7, 13)])
    assert found.counts == {WITHIN: 4, MARKERS: 2, ABORTED: 4, EMPTIED: 2, BETWEEN: 5 + 2}
    assert found.examples == [
        Hole(MARKERS, 3, 12, 13),
        Hole(MARKERS, 3, 17, 18),
        Hole(EMPTIED, 3, 18, 20),
        Hole(ABORTED, 3, 13, 17),
        Hole(WITHIN, 3, 4, 5),
        Hole(BETWEEN, 3, 20, 25),
        Hole(BETWEEN, 3, 26, 28),
    ]


def test_only_the_offsets_of_the_piece_count() -> None:
    batches = [make_batch(records=[make_record(0), make_record(9)], base_offset=0), make_batch(3, base_offset=12)]
    found = found_in(batches, 4, 13)
    assert {kind: count for kind, count in found.counts.items() if count} == {WITHIN: 5, BETWEEN: 2}


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.booleans()), max_size=8), st.integers(0, 3))
def test_what_is_missing_and_what_is_seen_are_all_there_is(parts: list[tuple[int, int, bool]], rest: int) -> None:
    batches, at = [], 0
    for gap, count, is_marker in parts:
        at += gap
        batches.append(make_marker(base_offset=at, producer_id=1) if is_marker else make_batch(count, base_offset=at))
        at += 1 if is_marker else count
    found = found_in(batches, 0, at + rest)
    seen = sum(count for _, count, is_marker in parts if not is_marker)
    assert sum(found.counts.values()) + seen == at + rest
    assert found.counts[MARKERS] == sum(is_marker for _, _, is_marker in parts)


def make_figures(**changes: object) -> Figures:
    partitions = [
        Partition(0, 0, 0, 1000, 1000, 0, 50_000, 10, 5, 1_700_000_000_000, 1_700_000_600_000, 0xABC, (1000, *[0] * 9)),
        Partition(
            1,
            100,
            100,
            1100,
            1000,
            0,
            50_000,
            0,
            0,
            1_700_000_000_000,
            1_700_000_600_000,
            0xDEF,
            (0, 1000, *[0] * 8),
            deleted=100,
        ),
    ]
    figures = Figures(
        topic="orders",
        bootstrap="127.0.0.1:9092",
        at_ms=1_700_000_000_000,
        router="murmur2",
        keyless="round_robin",
        cleanup="delete",
        dedup="off",
        partitions=[one._replace(holes=dict.fromkeys(KINDS, 0)) for one in partitions],
        holes=[],
        keys=Keys(50, largest=[Key(b"user-1", 60, 0, 0, 0)]),
        duplicates=Duplicates("header message_id", 2000),
        timeline=[Slot(1_700_000_000_000, 1500), Slot(1_700_000_060_000, 500)],
        seconds=2.0,
    )
    return replace(figures, **changes)  # type: ignore[arg-type]


def test_offsets_before_the_beginning_of_an_audit_were_not_deleted() -> None:
    first, second = make_figures().partitions
    later = make_figures(partitions=[first._replace(start=500), second._replace(start=700, deleted=100)])
    texts = [one.text for one in findings(later) if one.check == "gaps"]
    assert "100 of 2,100 offsets were deleted from the beginning: retention" in texts
    assert not any(
        "deleted from the beginning" in one.text
        for one in findings(make_figures(partitions=[first._replace(start=500)]))
    )


def with_missing(figures: Figures, **counts: int) -> Figures:
    """In partition 1, from offset 5 on."""
    first, second = figures.partitions
    return replace(
        figures,
        partitions=[first, second._replace(holes=dict.fromkeys(KINDS, 0) | counts)],
        holes=[Hole(kind, 1, 5, 5 + count) for kind, count in counts.items()],
    )


def severities(figures: Figures, check: str) -> set[str]:
    return {one.severity for one in findings(figures) if one.check == check}


def test_a_topic_as_it_should_be() -> None:
    found = findings(make_figures())
    assert verdict(found) == "ok"
    assert any("100 of 2,100 offsets were deleted" in one.text for one in found), "retention is told, and right"


@pytest.mark.parametrize(
    ("kind", "changes", "severity"),
    [
        (MARKERS, {}, "ok"),
        (ABORTED, {}, "ok"),
        (WITHIN, {}, "wrong"),
        (WITHIN, {"cleanup": "compact"}, "ok"),
        (WITHIN, {"dedup": "id"}, "ok"),
        (EMPTIED, {}, "wrong"),
        (EMPTIED, {"dedup": "payload"}, "ok"),
        (BETWEEN, {}, "wrong"),
        (BETWEEN, {"dedup": "id"}, "wrong"),
        (BETWEEN, {"cleanup": "compact,delete"}, "ok"),
    ],
)
def test_a_gap_is_wrong_where_nothing_explains_it(kind: str, changes: dict[str, str], severity: str) -> None:
    figures = with_missing(make_figures(**changes), **{kind: 4})
    assert (severities(figures, "gaps") == {"ok"}) is (severity == "ok")
    assert severity in severities(figures, "gaps")
    if severity == "wrong":
        assert any("offsets 5 to 8 of partition 1" in one.text for one in findings(figures))


class Shelf(NoHistory):
    def held(self, at: TopicPartition, up_to: int = 0) -> Held | None:
        return Held(0, 1005, ((5, 1000),))


def test_what_is_in_neither_the_archive_nor_the_log_is_wrong() -> None:
    holes = unarchived("orders", Shelf(), {0: 0, 1: 1010}, {0: 1010, 1: 1010}, {0: 1200, 1: 1200})
    assert holes == [Hole(UNARCHIVED, 0, 5, 1000), Hole(UNARCHIVED, 0, 1005, 1010)]
    first, second = make_figures().partitions
    counts = dict.fromkeys(KINDS, 0) | {UNARCHIVED: 1000}
    some_gone = first._replace(log_start=1010, end=1200, archived=9, holes=counts)
    told = [one for one in findings(make_figures(partitions=[some_gone, second], holes=holes)) if one.check == "gaps"]
    assert [(one.severity, one.text) for one in told[2:]] == [
        ("wrong", "1,000 offsets are in neither the archive nor the log; the first: offsets 5 to 999 of partition 0"),
        ("skipped", "1 offset has no record in the archive, which does not say why"),
    ]
    assert "levada.archive" in told[2].advice


def test_repeats_are_wrong_where_the_topics_dedup_should_have_seen_them() -> None:
    some = Duplicates("header message_id", 2000, 3, 4, 0, [Copies(3, (0, 5), (1, 9))])
    figures = make_figures(duplicates=some)
    assert severities(figures, "duplicates") == {"look"}
    assert severities(replace(figures, duplicates=some._replace(within_window=1)), "duplicates") == {"wrong"}
    assert "3 times the one at 0:5" in next(one.text for one in findings(figures) if one.check == "duplicates")


def test_keys_that_are_split_or_misplaced_are_wrong() -> None:
    key = Key(b"user-1", 60, 0, 1, 1)
    split = make_figures(keys=Keys(50, 2, 70, 0, 0, [key], [key]))
    assert severities(split, "key order") == {"wrong"}
    assert severities(split, "routing") == {"ok"}
    away = make_figures(keys=Keys(50, 0, 0, 1, 60, [key], (), [key._replace(highest=0)]))
    assert severities(away, "routing") == {"wrong"}
    assert "'user-1' is in 0 and belongs in 1" in next(one.text for one in findings(away) if one.check == "routing")


def test_a_hot_key_and_a_large_partition_are_worth_a_look() -> None:
    hot = make_figures(keys=Keys(50, largest=[Key(b"all", 900, 0, 0, 0)]))
    assert severities(hot, "balance") == {"look"}
    empty = [Partition(p, 0, 0, 0, holes=dict.fromkeys(KINDS, 0)) for p in (2, 3, 4)]
    uneven = make_figures(partitions=[*make_figures().partitions, *empty])
    assert severities(uneven, "balance") == {"look"}


def finding(figures: Figures, check: str) -> Finding:
    """The only one of this check."""
    (found,) = [one for one in findings(figures) if one.check == check]
    return found


def made_of(*partitions: Partition) -> list[Partition]:
    return [one._replace(holes=dict.fromkeys(KINDS, 0)) for one in partitions]


def test_where_no_record_has_the_identity_repeats_could_not_be_looked_for() -> None:
    found = finding(make_figures(duplicates=Duplicates("header message_id")), "duplicates")
    assert found[:3] == ("duplicates", "skipped", "no record has a header message_id that it could be told by")
    assert found.advice.startswith("--by says what else")


def test_records_without_the_identity_are_counted() -> None:
    some = Duplicates("header message_id", 1990, 1990)
    found = finding(make_figures(duplicates=some), "duplicates")
    assert found.severity == "ok"
    assert found.text.endswith("; 10 without one were not compared")
    found = finding(make_figures(duplicates=some._replace(repeats=4)), "duplicates")
    assert found.severity == "look"
    assert found.text.endswith("; 10 without one were not compared")
    all_told = Duplicates("header message_id", 2000, 2000)
    assert "not compared" not in finding(make_figures(duplicates=all_told), "duplicates").text


@pytest.mark.parametrize("check", ["key order", "routing"])
def test_without_keys_there_is_no_order_of_keys_and_no_routing(check: str) -> None:
    assert finding(make_figures(keys=Keys()), check) == (check, "skipped", "no record has a key", "")


def test_of_few_records_no_balance_is_told() -> None:
    first, second = make_figures().partitions
    few = [first._replace(records=999), second._replace(records=0)]
    assert finding(make_figures(partitions=few), "balance")[1:3] == (
        "skipped",
        "too few records to tell: 999, and it takes 1,000",
    )
    enough = [first._replace(records=500), second._replace(records=500)]
    assert finding(make_figures(partitions=enough), "balance").severity == "ok"


def test_one_partition_is_out_of_balance_only_by_a_key() -> None:
    first = make_figures().partitions[:1]
    assert finding(make_figures(partitions=first), "balance")[1:3] == (
        "skipped",
        "there is one partition, and no key has a large share of it",
    )
    hot = Keys(50, largest=[Key(b"all", 201, 0, 0, 0)])
    assert finding(make_figures(partitions=first, keys=hot), "balance").severity == "look"


def test_what_lies_in_the_archive_alone_has_no_checksum() -> None:
    archived, both = made_of(Partition(0, 0, 1000, 1000, 1000, 1000), Partition(1, 0, 600, 1000, 1000, 600))
    found = finding(make_figures(partitions=[archived]), "checksum")
    assert found[1:3] == ("skipped", "there are no batches in the log")
    found = finding(make_figures(partitions=[archived, both]), "checksum")
    assert (found.severity, found.text.endswith("(what is archived has none)")) == ("ok", True)
    assert "archived" not in finding(make_figures(), "checksum").text


def test_of_a_topic_without_records_nothing_is_told() -> None:
    nothing = make_figures(partitions=made_of(Partition(0, 7, 7, 7)), keys=Keys(), duplicates=Duplicates("payload"))
    assert [(one.check, one.severity, one.text) for one in findings(nothing)] == [
        ("gaps", "skipped", "there are no offsets to look at"),
        ("duplicates", "skipped", "there are no records"),
        ("key order", "skipped", "there are no records"),
        ("routing", "skipped", "there are no records"),
        ("balance", "skipped", "there are no records"),
        ("checksum", "skipped", "there are no batches in the log"),
    ]
    assert verdict(findings(nothing)) == "skipped"


@pytest.mark.parametrize(
    ("severities", "worst"),
    [
        (("skipped", "ok", "look", "wrong"), "wrong"),
        (("wrong", "look", "ok", "skipped"), "wrong"),
        (("skipped", "ok", "look"), "look"),
        (("ok", "skipped"), "ok"),
        (("skipped", "skipped"), "skipped"),
        ((), "skipped"),
    ],
)
def test_the_worst_is_the_verdict(severities: tuple[Severity, ...], worst: Severity) -> None:
    assert verdict([Finding("gaps", one, "") for one in severities]) == worst


class _Checked(HTMLParser):
    """Every tag that is opened is closed, and nothing is taken from elsewhere."""

    VOID = ("meta", "rect", "line", "br", "!doctype")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {name for name, _ in attrs} & {"src", "href"}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_needs_nothing_else_and_shows_everything() -> None:
    evil = b"<script>alert(1)</script>\x1b[31m"
    figures = with_missing(make_figures(keys=Keys(50, largest=[Key(evil, 60, 0, 0, 0)])), markers=3, between=7)
    found = [*findings(figures), Finding("gaps", "wrong", "<b>", "do & do not")]
    html = page(figures, found)
    assert "<script" not in html and "http" not in html and "@import" not in html
    parser = _Checked()
    parser.feed(html)
    assert parser.open == []
    for told in (
        "orders",
        "not as it should be",
        "0000000000000abc",
        "2,000",
        "transaction markers",
        "in no batch",
        "do & do not",
    ):
        assert told in parser.text
    assert "prefers-color-scheme: dark" in html


def test_a_page_of_an_empty_topic() -> None:
    figures = make_figures(
        partitions=[Partition(0, 0, 0, 0, holes=dict.fromkeys(KINDS, 0))],
        keys=Keys(),
        duplicates=Duplicates("payload"),
        timeline=(),
    )
    assert "nothing could be checked" in page(figures, findings(figures))


def test_plots_stay_within_their_frame() -> None:
    drawn = columns([(0, 10), (60_000, 1), (6_000_000, 5)], 60_000)
    for x, width in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawn):
        assert float(x) >= 0 and float(x) + float(width) <= 1090
    assert bars([]) == columns([], 1) == ""


def test_numbers_for_a_person() -> None:
    assert [short(one) for one in (0, 12, 1500, 2_000_000)] == ["0", "12", "1.5 k", "2 M"]
    assert moment(0) == "1970-01-01 00:00:00"
    assert moment(None) == "–"
    assert moment(2**62) == str(2**62)


def record_batch(records: Sequence[Record]) -> pa.RecordBatch:
    """As the decoder gives it."""
    batch = make_batch(records=[one._replace(offset=at) for at, one in enumerate(records)])
    piece = Fetched(memoryview(bytes(batch.view)), None, 0, len(records), 0)
    (found,) = decode(piece, COLUMNS, topic="orders")
    return found


@settings(deadline=None)
@given(record_lists())
def test_what_is_counted(records: list[Record]) -> None:
    tally = Tally()
    for half in (records[: len(records) // 2], records[len(records) // 2 :]):
        if half:
            tally.add(record_batch(half))
    assert tally.records == len(records) == sum(tally.sizes) == sum(tally.times.counts.values())
    assert tally.bytes == sum(len(one.key or b"") + len(one.value or b"") for one in records)
    assert tally.keyless == sum(not one.key for one in records)
    assert tally.tombstones == sum(one.value is None for one in records)
    assert tally.first_ms == min(one.timestamp_ms for one in records)
    assert tally.last_ms == max(one.timestamp_ms for one in records)


CHANGES: dict[str, Callable[[Record], Record]] = {
    "key": lambda one: one._replace(key=b"other"),
    "no key": lambda one: one._replace(key=None),
    "empty key": lambda one: one._replace(key=b""),
    "no value": lambda one: one._replace(value=None),
    "empty value": lambda one: one._replace(value=b""),
    "a longer value": lambda one: one._replace(value=(one.value or b"") + b"\0"),
    "key and value, cut elsewhere": lambda one: one._replace(key=b"keyv", value=b"alue"),
    "time": lambda one: one._replace(timestamp_ms=one.timestamp_ms + 1),
    "a header": lambda one: one._replace(headers=(("name", b"value"),)),
    "a header without a value": lambda one: one._replace(headers=(("name", None),)),
    "another header": lambda one: one._replace(headers=(("name", b""),)),
    "two headers": lambda one: one._replace(headers=(("name", b"value"), ("name", b"value"))),
}


def test_every_part_of_a_record_is_in_the_checksum() -> None:
    def checksum(*records: Record) -> int:
        tally = Tally()
        tally.add(record_batch(records))
        return tally.checksum

    one = make_record(key=b"key", value=b"value")
    found = {name: checksum(change(one)) for name, change in CHANGES.items()} | {"none": checksum(one)}
    assert len(set(found.values())) == len(found)
    other = CHANGES["key"](one)
    assert checksum(one, other) != checksum(other, one), "where they lie counts"


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 2**41), min_size=1, max_size=20), min_size=1, max_size=4))
def test_slots_of_time_lose_nothing_however_they_are_put_together(parts: list[list[int]]) -> None:
    whole = Times()
    for part in parts:
        times = Times()
        for time_ms in part:
            times.add({time_ms // times.slot_ms * times.slot_ms: 1}, times.slot_ms)
        whole.add(times.counts, times.slot_ms)
    slot_ms, slots = timeline(whole.counts, whole.slot_ms)
    assert sum(slot.records for slot in slots) == sum(map(len, parts))
    assert len(slots) <= 121
    assert all(slot.start_ms % slot_ms == 0 for slot in slots)


def test_slots_grow_when_there_are_too_many() -> None:
    times = Times()
    times.add({second * 1000: 1 for second in range(6000)}, 1000)
    assert times.slot_ms == 60_000
    assert times.counts == dict.fromkeys(range(0, 6_000_000, 60_000), 60)


def test_the_first_few_holes_of_each_kind_are_told() -> None:
    found = [Hole(MARKERS, 0, at, at + 1) for at in range(20, 0, -1)] + [Hole(BETWEEN, 1, 3, 9)]
    assert some(found) == [Hole(MARKERS, 0, at, at + 1) for at in range(1, 6)] + [Hole(BETWEEN, 1, 3, 9)]
