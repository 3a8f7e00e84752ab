"""Who may write which batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levada.spark.options.reading import WrongOption
from levada.spark.sink.claims import RUNS_MAX, Asking, BatchSeen, SinkFenced, Verdict, claimed, verdict, written


def make_asking(batch: int = 5, *, epoch: int = 0, query: str | None = "q", run: str | None = "r2") -> Asking:
    return Asking("revenue", epoch, batch, query, run)


def make_seen(
    batch: int = 4, *, epoch: int = 0, query: str | None = "q", runs: tuple[str, ...] = ("r1", "r2")
) -> BatchSeen:
    return BatchSeen(epoch, batch, query, runs)


def test_the_next_batch_of_the_owner_is_written():
    assert verdict(make_seen(), make_asking()) is Verdict.WRITE


def test_a_batch_that_is_visible_is_done():
    assert verdict(make_seen(), make_asking(4)) is Verdict.DONE
    assert verdict(make_seen(), make_asking(0)) is Verdict.DONE


def test_a_sink_is_claimed_by_its_first_run_and_by_every_new_one():
    assert verdict(None, make_asking(0)) is Verdict.CLAIM
    assert verdict(make_seen(runs=("r1",)), make_asking()) is Verdict.CLAIM


def test_a_run_that_another_took_over_from_is_fenced_and_told_by_whom():
    with pytest.raises(SinkFenced, match="run r2 has taken over from this run, r1"):
        verdict(make_seen(), make_asking(run="r1"))


def test_a_fenced_run_is_told_so_even_for_a_batch_that_is_visible():
    with pytest.raises(SinkFenced):
        verdict(make_seen(), make_asking(4, run="r1"))


def test_another_query_under_the_same_id_is_refused_and_told_how_to_begin_anew():
    with pytest.raises(WrongOption, match=r"batches of query q, up to 4, and this is query p.*sinkEpoch=1"):
        verdict(make_seen(), make_asking(0, query="p"))


def test_a_new_epoch_counts_from_the_beginning_and_ends_the_old_one():
    asking = make_asking(0, epoch=1, query="p", run="r3")
    assert verdict(make_seen(), asking) is Verdict.CLAIM
    seen = written(claimed(make_seen(), asking), asking)
    assert seen == BatchSeen(1, 0, "p", ("r1", "r2", "r3"))
    assert verdict(seen, asking) is Verdict.DONE
    with pytest.raises(SinkFenced, match="is in epoch 1; this write has sinkEpoch=0"):
        verdict(seen, make_asking())


def test_writes_outside_of_a_query_are_counted_alone():
    asking = make_asking(17, query=None, run=None)
    assert verdict(None, asking) is Verdict.CLAIM
    seen = written(claimed(None, asking), asking)
    assert seen == BatchSeen(0, 17, None, ())
    assert verdict(seen, asking) is Verdict.DONE
    assert verdict(seen, asking._replace(batch=18)) is Verdict.WRITE


def test_runs_are_remembered_in_bounds():
    seen = None
    for number in range(2 * RUNS_MAX):
        seen = claimed(seen, make_asking(run=f"r{number}"))
    assert seen is not None
    assert len(seen.runs) == RUNS_MAX
    assert seen.runs[-1] == f"r{2 * RUNS_MAX - 1}"


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_whatever_runs_do_each_batch_is_written_once_and_in_order(steps):
    """Runs of one query, each of which goes on from the batch that it believes to be next and may be replaced at any moment."""
    seen, visible = None, []
    for run, replays in steps:
        last = visible[-1] if visible else -1
        asking = make_asking(last if replays and last >= 0 else last + 1, run=f"r{run}")
        try:
            found = verdict(seen, asking)
        except SinkFenced:
            assert seen is not None and seen.runs[-1] != asking.run
            continue
        if found is not Verdict.DONE:
            seen = written(claimed(seen, asking), asking)
            visible.append(asking.batch)
    assert visible == list(range(len(visible)))


@given(st.builds(BatchSeen, st.integers(0), st.integers(-1), st.none() | st.text(), st.lists(st.text()).map(tuple)))
def test_a_record_is_read_back(seen):
    assert BatchSeen.decoded(seen.encoded()) == seen
