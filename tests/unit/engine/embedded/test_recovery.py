from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levada.engine.embedded.recovery import Recovery, RecoveryState, decode_checkpoint, encode_checkpoint
from levada.engine.port import At
from levada.errors import StorageFailed

A, B, C = At("a", 0), At("a", 1), At("b-1", 0)

entries = st.dictionaries(
    st.builds(At, st.text("ab.-_9", min_size=1, max_size=9), st.integers(0, 99_999)), st.integers(0, 2**63 - 1)
)


@given(entries)
def test_a_checkpoint_reads_back_as_it_was_written(points: dict[At, int]) -> None:
    assert decode_checkpoint(encode_checkpoint(points), "file") == points


def test_a_checkpoint_is_in_kafkas_form() -> None:
    assert encode_checkpoint({C: 7, A: 15}) == b"0\n2\na 0 15\nb-1 0 7\n"


@pytest.mark.parametrize(
    "data", [b"", b"0\n", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"\xff\n0\n"]
)
def test_a_broken_checkpoint_is_named(data: bytes) -> None:
    with pytest.raises(StorageFailed, match="/data/points is not a checkpoint"):
        decode_checkpoint(data, "/data/points")


def test_after_a_clean_stop_every_tail_is_trusted() -> None:
    state = RecoveryState({A: 5}, {}, [A, B], clean=True, same_boot=False)
    assert state.of(A) == Recovery(5, clean=True, same_boot=True)
    assert state.of(B) == Recovery(None, clean=True, same_boot=True)


def test_after_a_crash_no_tail_is_trusted_until_it_was_opened() -> None:
    state = RecoveryState({A: 5}, {}, [A, B], clean=False, same_boot=True)
    assert state.of(A) == Recovery(5, clean=False, same_boot=True)
    state.opened(A, 9)
    assert state.of(A) == Recovery(9, clean=True, same_boot=True)
    assert state.of(B) == Recovery(None, clean=False, same_boot=True)


def test_a_partition_that_slept_through_a_clean_run_is_still_not_trusted() -> None:
    crashed = RecoveryState({}, {}, [A, B], clean=False, same_boot=True)
    crashed.opened(A, 1)
    after = RecoveryState(crashed.points, crashed.unrecovered, [A, B], clean=True, same_boot=True)
    assert after.of(A).clean
    assert after.of(B) == Recovery(None, clean=False, same_boot=True)


def test_a_power_failure_is_remembered_until_the_partition_was_opened() -> None:
    lost_power = RecoveryState({}, {}, [A, B], clean=False, same_boot=False)
    lost_power.opened(A, 1)
    killed = RecoveryState(lost_power.points, lost_power.unrecovered, [A, B], clean=False, same_boot=True)
    assert killed.of(A).same_boot
    assert not killed.of(B).same_boot


def test_a_partition_that_is_gone_is_forgotten() -> None:
    state = RecoveryState({A: 5}, {}, [A], clean=False, same_boot=True)
    state.forget(A)
    assert (state.points, state.unrecovered) == ({}, {})
    assert RecoveryState({}, {B: 1}, [A], clean=True, same_boot=True).unrecovered == {}
