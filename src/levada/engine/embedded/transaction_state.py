"""A transactional id's state, and every change of it, as plain values. No clock, no disk, no loop.

    Empty ───────┐                  commit  PrepareCommit ──► CompleteCommit
                 ▼               ┌────────►
    Complete* ─► Ongoing ────────┤
                 │               └────────► PrepareAbort ───► CompleteAbort
                 └► PrepareEpochFence ────►     ▲
                    (timed out, or a new        │ with TV2 a client may abort what it never began:
                     producer came)             └ Empty, Complete*

A new producer turns Empty and Complete* into Empty with a higher epoch; an idle id becomes Dead and is forgotten.

Two forms of the protocol, by what the client speaks. TV1: partitions are added before they are written to, and the epoch
stays. TV2 (KIP-890): partitions are added by writing to them, and every end raises the epoch, so that an epoch names one
transaction. When the epochs of a producer id run out, the next transaction has a new producer id and epoch 0.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final

from levada.config import INT32_MAX
from levada.engine.port import At
from levada.errors import (
    ConcurrentTransactions,
    InvalidProducerMapping,
    InvalidTransactionState,
    ProducerFenced,
)

#: What the `transaction.version` feature says we speak.
TRANSACTION_VERSION: Final = 2
TV1: Final = 0
TV2: Final = 2

NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1
EPOCH_MAX: Final = 2**15 - 1


class State(enum.IntEnum):
    """The numbers are those of the record in `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    #: Never stored: the id is being forgotten.
    DEAD = 6
    #: Never stored: an open transaction is being taken from its producer, and aborted in the same step.
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name clients are shown: `PrepareCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


BY_TITLE: Final[Mapping[str, State]] = {state.title: state for state in State}

_RESTING: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
#: The outcome is decided, and the markers that tell it to the partitions are being written.
PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})

#: From where each state may be entered.
BEFORE: Final[Mapping[State, frozenset[State]]] = {
    State.EMPTY: _RESTING,
    State.ONGOING: _RESTING | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    State.PREPARE_ABORT: _RESTING | {State.ONGOING, State.PREPARE_EPOCH_FENCE},
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
    State.DEAD: _RESTING,
    State.PREPARE_EPOCH_FENCE: frozenset({State.ONGOING}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id as of now: its producer, and its transaction where one is open or ending."""

    transactional_id: str
    producer_id: int
    #: The producer id before the last change; another one only right after the epochs ran out.
    previous_producer_id: int = NO_PRODUCER
    #: What the producer goes on with once the prepared end is complete, where its epochs have run out.
    next_producer_id: int = NO_PRODUCER
    epoch: int = NO_EPOCH
    #: The epoch before the last raise, if its holder made it or lost its transaction to the clock: as in Kafka, both may
    #: go on from there. Not stored.
    last_epoch: int = NO_EPOCH
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[At] = frozenset()
    start_ms: int = -1
    update_ms: int
    #: TV1 or TV2: what the client that made the last change speaks.
    client_version: int = TV1

    @property
    def is_open(self) -> bool:
        return self.state is State.ONGOING or self.state in PREPARED

    @property
    def deadline_ms(self) -> int | None:
        """When an open transaction is to be aborted. The longest timeout stands for "never" (two-phase commit)."""
        if self.state is not State.ONGOING or self.timeout_ms == INT32_MAX:
            return None
        return self.start_ms + self.timeout_ms

    def is_idle(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether nothing has been heard of the id for so long that it is to be forgotten."""
        return self.state in _RESTING and self.update_ms <= now_ms - expiration_ms

    def successor(self) -> tuple[int, int]:
        """Producer id and epoch the producer goes on with when the prepared end is complete."""
        if self.client_version >= TV2 and self.next_producer_id != NO_PRODUCER:
            return self.next_producer_id, 0
        return self.producer_id, self.epoch


class Ending(enum.Enum):
    """What to do about a client's EndTxn."""

    PREPARE = enum.auto()
    #: It is a repeat of one that was carried out: answer as then.
    REPEATED = enum.auto()


def is_exhausted(epoch: int) -> bool:
    """One epoch is always kept back, so that a producer can be fenced."""
    return epoch >= EPOCH_MAX - 1


# -- what a caller may do --------------------------------------------------------------------------------------------


def check_producer(txn: Transaction, producer_id: int, epoch: int) -> None:
    """ConcurrentTransactions, InvalidProducerMapping, ProducerFenced."""
    if txn.state in PREPARED:
        raise ConcurrentTransactions(f"{txn.transactional_id!r}: the last transaction is still being finished")
    if txn.producer_id != producer_id:
        raise InvalidProducerMapping(f"{txn.transactional_id!r} belongs to another producer id than {producer_id}")
    if txn.epoch != epoch:
        raise _fenced(txn, epoch)


def check_ending(txn: Transaction, producer_id: int, epoch: int, *, commit: bool, client_version: int) -> Ending:
    """Whether this end is to be carried out, or was. ConcurrentTransactions, InvalidProducerMapping, ProducerFenced,
    InvalidTransactionState.

    With TV2, a call with the epoch before the current one is a repeat, and one with the current epoch is about the
    next transaction, which may be aborted even if nothing of it was seen here.
    """
    if client_version < TV2:
        return _check_ending_tv1(txn, producer_id, epoch, commit)
    if txn.state in PREPARED:
        raise ConcurrentTransactions(f"{txn.transactional_id!r}: the transaction is still being finished")
    rotated = txn.previous_producer_id == producer_id and epoch == EPOCH_MAX - 1 and txn.epoch == 0
    if txn.producer_id != producer_id and not rotated:
        raise InvalidProducerMapping(f"{txn.transactional_id!r} belongs to another producer id than {producer_id}")
    ended = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
    is_repeat = rotated or (txn.producer_id == producer_id and txn.epoch == epoch + 1)
    if is_repeat and txn.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        if txn.state is ended:
            return Ending.REPEATED
        raise _wrong_state(txn, commit)
    if epoch != txn.epoch:
        raise _fenced(txn, epoch)
    if txn.state is State.ONGOING or not commit:
        return Ending.PREPARE
    raise _wrong_state(txn, commit)


def _check_ending_tv1(txn: Transaction, producer_id: int, epoch: int, commit: bool) -> Ending:
    check_producer(txn, producer_id, epoch)
    if txn.state is State.ONGOING:
        return Ending.PREPARE
    if txn.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT):
        return Ending.REPEATED
    raise _wrong_state(txn, commit)


def check_initializing(txn: Transaction, expected: tuple[int, int] | None) -> None:
    """Whether a producer that says it was (producer id, epoch) until now may go on with the next epoch. ProducerFenced.

    One that says nothing always may: that is how an older one is fenced. An open transaction is only taken from the
    producer that has it: Kafka would abort it for a fenced one as well before it refuses.
    """
    if expected is None or txn.epoch == NO_EPOCH:
        return
    producer_id, epoch = expected
    if txn.producer_id != producer_id and not (txn.previous_producer_id == producer_id and is_exhausted(epoch)):
        raise _fenced(txn, epoch)
    if txn.state is State.ONGOING and expected != (txn.producer_id, txn.epoch):
        raise _fenced(txn, epoch)


# -- changes ---------------------------------------------------------------------------------------------------------


def initialize(
    txn: Transaction,
    *,
    timeout_ms: int,
    expected: tuple[int, int] | None,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> Transaction:
    """A producer takes over, or goes on after an error: the next epoch. ProducerFenced when `expected` is neither the
    current epoch nor, for a repeated call, the one before it.
    """
    changes: dict[str, Any] = {
        "timeout_ms": timeout_ms,
        "partitions": frozenset(),
        "start_ms": -1,
        "update_ms": now_ms,
    }
    is_current = expected is None or expected[1] == txn.epoch
    if is_exhausted(txn.epoch) and is_current:
        last_epoch = NO_EPOCH if expected is None else txn.epoch
        return _move(txn, State.EMPTY, producer_id=new_producer_id(), epoch=0, last_epoch=last_epoch, **changes)
    if is_current or txn.epoch == NO_EPOCH:
        last_epoch = NO_EPOCH if expected is None else txn.epoch
        return _move(txn, State.EMPTY, epoch=txn.epoch + 1, last_epoch=last_epoch, **changes)
    if expected is not None and expected[1] == txn.last_epoch:
        return _move(txn, State.EMPTY, **changes)
    raise _fenced(txn, -1 if expected is None else expected[1])


def add(txn: Transaction, ats: AbstractSet[At], *, now_ms: int, client_version: int) -> Transaction:
    """Partitions join the transaction; the first ones begin it."""
    return _move(
        txn,
        State.ONGOING,
        partitions=txn.partitions | ats,
        start_ms=txn.start_ms if txn.state is State.ONGOING else now_ms,
        update_ms=now_ms,
        client_version=client_version,
    )


def prepare(
    txn: Transaction, *, commit: bool, client_version: int, now_ms: int, new_producer_id: Callable[[], int]
) -> Transaction:
    """Decide the outcome. With TV2 the epoch is raised, which fences whoever still writes with the old one."""
    changes: dict[str, Any] = {
        "start_ms": txn.start_ms if txn.state is State.ONGOING else now_ms,
        "update_ms": now_ms,
        "client_version": client_version,
        "next_producer_id": NO_PRODUCER,
    }
    if client_version >= TV2:
        changes["last_epoch"] = txn.epoch
        changes["epoch"] = min(txn.epoch + 1, EPOCH_MAX)
        if is_exhausted(txn.epoch):
            changes["next_producer_id"] = new_producer_id()
    return _move(txn, State.PREPARE_COMMIT if commit else State.PREPARE_ABORT, **changes)


def complete(txn: Transaction, now_ms: int) -> Transaction:
    """All partitions have their marker."""
    producer_id, epoch = txn.successor()
    return _move(
        txn,
        State.COMPLETE_COMMIT if txn.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT,
        producer_id=producer_id,
        epoch=epoch,
        next_producer_id=NO_PRODUCER,
        partitions=frozenset(),
        update_ms=now_ms,
    )


def _move(txn: Transaction, state: State, **changes: Any) -> Transaction:
    if txn.state not in BEFORE[state]:
        raise AssertionError(f"{txn.transactional_id!r}: {txn.state.title} does not become {state.title}")
    return replace(txn, state=state, previous_producer_id=txn.producer_id, **changes)


def _fenced(txn: Transaction, epoch: int) -> ProducerFenced:
    return ProducerFenced(f"{txn.transactional_id!r} has a newer producer than epoch {epoch}: epoch {txn.epoch}")


def _wrong_state(txn: Transaction, commit: bool) -> InvalidTransactionState:
    asked = "commit" if commit else "abort"
    return InvalidTransactionState(f"{txn.transactional_id!r}: there is nothing to {asked} in state {txn.state.title}")
