"""What a log keeps when it is stopped at any moment: everything acknowledged, in order, and nothing that was not written."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levada.config import HOUR_MS
from levada.errors import StorageError, StorageFailed, StorageFull
from levada.log.aborted import AbortedIndex, AbortedTransaction, aborted
from levada.log.log import Log
from levada.log.producers import Producers
from levada.records.batch import Batch
from support.batches import make_batch, make_marker
from support.logs import NOW_MS, append, contents, fill, open_log, sync
from support.simulated_disk import PowerCut, SimulatedDisk

#: What happens to the log, one letter each: append, a transaction's Batch, its commit or abort (X), sync, roll, trim to the
#: synced offset, expire segments, close and open again.
steps = st.lists(st.sampled_from("aaaabbbxXsssrtec"), min_size=3, max_size=30)


class History:
    """What was written, and how much of it acknowledged."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.ends: list[int] = []
        self.acknowledged = 0
        #: Records were to be deleted up to here, and were.
        self.trimming = self.trimmed = 0
        self.sequences = {7: 0, 8: 0}

    def next(self, producer_id: int) -> Batch:
        sequence = self.sequences[producer_id]
        self.sequences[producer_id] += 2
        return make_batch(
            2, value=b"%d" % sequence, producer_id=producer_id, sequence=sequence, transactional=producer_id == 8
        )

    def write(self, log: Log, batch: Batch) -> None:
        batch.stamp(log.end_offset, 0)
        self.written.append(bytes(batch.view))
        self.ends.append(batch.next_offset)
        append(log, batch)


def live(disk: SimulatedDisk, history: History, todo: Sequence[str]) -> None:
    """Go through the steps until the power goes."""
    log = open_log(disk, clean=True)
    for step in todo:
        if step == "a":
            history.write(log, history.next(7))
        elif step == "b":
            history.write(log, history.next(8))
        elif step in "xX":
            history.write(log, make_marker(producer_id=8, commit=step == "x"))
        elif step == "s":
            sync(log)
            history.acknowledged = log.synced_offset
        elif step == "r" and log.segments[-1].size:
            log.roll(NOW_MS)
        elif step == "t":
            history.trimming = log.synced_offset
            log.trim(log.synced_offset)
            history.trimmed = log.start_offset
        elif step == "e":
            log.retain(NOW_MS, floor=log.synced_offset)
            log.purge(NOW_MS + HOUR_MS)
        elif step == "c":
            log.close()
            history.acknowledged = log.end_offset
            log = open_log(disk, clean=True)


def check(log: Log, history: History) -> None:
    found = contents(log)
    assert log.damage is None
    assert log.end_offset >= history.acknowledged
    assert history.trimmed <= log.start_offset <= history.trimming
    # What is there is the first part of what was written: nothing lost between, nothing reordered, nothing made up.
    survived = [data for data, end in zip(history.written, history.ends, strict=True) if end <= log.end_offset]
    assert found == [data for data in survived if Batch(memoryview(data)).last_offset >= log.start_offset]
    producers, transactions = remembered(survived)
    assert log.producers.snapshot() == producers.snapshot()
    at = log.start_offset, log.end_offset
    assert log.aborted(*at) == aborted([transactions], *at)


def remembered(batches: Sequence[bytes]) -> tuple[Producers, AbortedIndex]:
    """What the batches tell when they are read one by one."""
    producers, transactions = Producers(), AbortedIndex()
    for data in batches:
        completed = producers.applied(Batch(memoryview(data)), NOW_MS)
        if completed is not None and not completed.commit:
            transactions.append(AbortedTransaction.of(completed))
    return producers, transactions


@settings(max_examples=100, deadline=None)
@given(steps, st.integers(1, 200), st.randoms(use_true_random=False), st.booleans())
def test_every_acknowledged_batch_survives_a_power_cut_at_any_moment(
    todo: list[str], crash_at: int, chance: random.Random, checkpointed: bool
) -> None:
    disk, history = SimulatedDisk(), History()
    disk.crash_at = crash_at
    with contextlib.suppress(PowerCut):
        live(disk, history, todo)
    disk.crash(chance)
    log = open_log(disk, recovery_point=history.acknowledged if checkpointed else 0, same_boot=False)
    check(log, history)
    # And it goes on.
    kept = contents(log)
    append(log)
    point = sync(log)
    disk.crash(chance)
    assert contents(open_log(disk, recovery_point=point, same_boot=False))[:-1] == kept


@settings(max_examples=50, deadline=None)
@given(steps, st.randoms(use_true_random=False), st.booleans())
def test_a_closed_log_needs_no_recovery_after_a_power_cut(
    todo: list[str], chance: random.Random, with_producers: bool
) -> None:
    disk, history = SimulatedDisk(), History()
    if not with_producers:
        history.next = lambda _: make_batch(2)  # type: ignore[method-assign]
        todo = [step for step in todo if step not in "xX"]
    live(disk, history, [*todo, "c"])
    disk.crash(chance)
    log = open_log(disk, clean=True, same_boot=False)
    check(log, history)
    assert log.end_offset == history.acknowledged


@settings(max_examples=100, deadline=None)
@given(steps, st.integers(1, 200), st.randoms(use_true_random=False), st.booleans())
def test_a_power_cut_while_recovering_from_one_loses_nothing_either(
    todo: list[str], crash_at: int, chance: random.Random, checkpointed: bool
) -> None:
    disk, history = SimulatedDisk(), History()
    disk.crash_at = crash_at
    with contextlib.suppress(PowerCut):
        live(disk, history, todo)
    point = history.acknowledged if checkpointed else 0
    for _ in range(3):
        disk.crash(chance)
        disk.crash_at = disk.steps + chance.randint(1, 10)
        with contextlib.suppress(PowerCut):
            open_log(disk, recovery_point=point, same_boot=False)
    disk.crash(chance)
    check(open_log(disk, recovery_point=point, same_boot=False), history)


@settings(max_examples=100, deadline=None)
@given(steps, st.integers(1, 200), st.randoms(use_true_random=False), st.booleans())
def test_a_killed_process_loses_at_most_the_write_it_was_in(
    todo: list[str], crash_at: int, chance: random.Random, checkpointed: bool
) -> None:
    disk, history = SimulatedDisk(), History()
    disk.crash_at, disk.tear = crash_at, chance
    with contextlib.suppress(PowerCut):
        live(disk, history, todo)
    disk.kill()
    log = open_log(disk, recovery_point=history.acknowledged if checkpointed else None, same_boot=True)
    check(log, history)
    assert log.end_offset >= (history.ends[-2] if len(history.ends) > 1 else 0)


@settings(max_examples=100, deadline=None)
@given(steps, st.integers(0, 6000))
def test_a_log_goes_on_after_the_disk_was_full_at_any_write(todo: list[str], room: int) -> None:
    disk, history = SimulatedDisk(), History()
    log = open_log(disk, clean=True)
    disk.room = room
    for step in todo:
        with contextlib.suppress(StorageFull):
            if step in "ab":
                batch = history.next(7)
                before = log.end_offset
                try:
                    append(log, batch)
                except StorageFull:
                    history.sequences[7] -= 2
                    assert log.end_offset == before
                    raise
                history.written.append(bytes(batch.view))
                history.ends.append(batch.next_offset)
            elif step == "s":
                sync(log)
            elif step == "r" and log.segments[-1].size:
                log.roll(NOW_MS)
            elif step == "t":
                log.trim(log.synced_offset)
            elif step == "e":
                log.retain(NOW_MS, floor=log.synced_offset)
                log.purge(NOW_MS + HOUR_MS)
            elif step == "c":
                disk.room = None
                log.close()
                log = open_log(disk, clean=True)
                disk.room = room
        assert contents(log) == [
            data for data, end in zip(history.written, history.ends, strict=True) if end > log.start_offset
        ]
    disk.room = None
    history.write(log, history.next(7))
    sync(log)
    history.acknowledged = log.end_offset
    history.trimming = history.trimmed = log.start_offset
    check(log, history)
    check(open_log(disk, recovery_point=log.end_offset), history)


def test_a_full_disk_is_told_from_a_failed_one() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 2)
    disk.fail("write", errno.ENOSPC)
    with pytest.raises(StorageFull):
        append(log)
    disk.fault = None
    fill(log, 1)
    disk.fail("write", errno.EIO, times=1)
    with pytest.raises(StorageFailed):
        append(log)
    with pytest.raises(StorageFailed, match="takes no more writes"):
        append(log)
    assert len(contents(log)) == 3
    with pytest.raises(StorageFailed):
        log.close()
    assert len(contents(open_log(disk, recovery_point=0))) == 3


def test_a_disk_that_fills_while_a_segment_is_rolled_leaves_the_log_as_it_was() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 3)
    disk.fail("create", errno.ENOSPC)
    with pytest.raises(StorageFull):
        fill(log, 5)
    before = contents(log)
    disk.fault = None
    fill(log, 5)
    sync(log)
    assert contents(log)[: len(before)] == before and len(log.segments) > 1


def test_indexes_that_find_no_room_are_written_later() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 8)
    disk.fail("replace", errno.ENOSPC)
    assert sync(log) == log.end_offset == log.synced_offset
    assert log.rolled and not [path for path in disk.paths() if path.endswith("index")]
    disk.fault = None
    sync(log)
    assert not log.rolled and [path for path in disk.paths() if path.endswith(".index")]


def test_nothing_is_durable_after_a_failed_sync() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 2)
    disk.fail("sync", errno.EIO, times=1)
    with pytest.raises(StorageFailed):
        log.sync()
    with pytest.raises(StorageError):
        append(log)
    assert log.synced_offset == 0
    log.mark_synced(log.end_offset)
    assert log.synced_offset == 0


def test_a_segment_that_was_closed_is_synced_before_what_follows_it_counts() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    sync(log)
    fill(log, 8)
    assert log.rolled
    disk.fail("sync", errno.EIO, times=1, path_ends="/00000000000000000000.log")
    with pytest.raises(StorageFailed):
        log.sync()
    assert log.synced_offset == 0
