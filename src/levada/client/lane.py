"""One producer's way into one partition: what waits, what is on its way, and the sequences that keep both in order.

The broker takes a producer's batches in the order of their sequences and answers a repeat of one of the last five with where
the first copy lies. So at most five are on their way at once. After a cut they are sent again as they were; after a refusal
all that followed it comes back too (OutOfOrderSequence), and everything is sent again from there, in order. A producer that a
partition does not know may begin anywhere, so until a first batch was stored only one is on its way.

A sequence that may be in the log is given to no other batch: the broker would answer it with where the first one lies.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import Final

from levada.client.draft import Landed
from levada.client.parcel import NOT_STAMPED, Parcel
from levada.errors import (
    ConnectionLost,
    LevadaError,
    OutOfOrderSequence,
    Overloaded,
    ProducerError,
    RecordError,
    RequestError,
    TopicError,
)
from levada.records.batch import NO_PRODUCER, NO_SEQUENCE

#: As many batches as the broker remembers of a producer.
IN_FLIGHT_MAX: Final = 5
#: Refusals that come before a batch is written, or once its topic is gone. After any other it may be in the log.
BEFORE_THE_WRITE: Final = (Overloaded, ProducerError, RecordError, RequestError, TopicError)
#: Those that are told of no batch that is in the log already: a repeat of one is answered with where it lies.
_NOT_STORED: Final = (ProducerError, RecordError, RequestError, TopicError)

Identity = tuple[int, int]
#: Of a producer that sends without sequences.
NOBODY: Final[Identity] = (NO_PRODUCER, -1)


class Lane:
    """Plain state: whoever owns it does the sending, and brings the clock."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.identity: Identity | None = None
        #: Nothing is sent before this time: the broker asked for a pause.
        self.not_before = 0.0
        self._waiting: deque[Parcel] = deque()
        self._flying: list[Parcel] = []
        self._order: dict[Parcel, int] = {}
        self._added = 0
        self._next_sequence = 0
        self._run = 0
        self._known = False
        #: The sequences cannot be gone on with: what has one of its own is sent first, the rest as a new producer.
        self._renew = False
        #: Something before was refused: what is on its way will come back, and nothing more is sent until it has.
        self._halted = False

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._flying

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def needs_identity(self) -> bool:
        return bool(self._waiting) and not self._flying and (self.identity is None or self._is_held_for_renewal)

    @property
    def _is_held_for_renewal(self) -> bool:
        return self._renew and self._waiting[0].stamped != self._run

    @property
    def is_new(self) -> bool:
        """True until it had an identity."""
        return self._run == 0

    @property
    def next_in_line(self) -> Parcel:
        return self._waiting[0]

    @property
    def uncertain(self) -> Parcel | None:
        """The first in line that the broker may have stored already."""
        return next((each for each in self._waiting if each.uncertain), None)

    def add(self, parcel: Parcel) -> None:
        self._order[parcel] = self._added
        self._added += 1
        self._waiting.append(parcel)

    def begin(self, identity: Identity) -> None:
        """Write as this producer from now on; sequences begin anew."""
        self.identity = identity
        self._renew = False
        self._run += 1
        self._next_sequence = 0
        self._known = identity == NOBODY

    def next(self, now: float) -> Parcel | None:
        """The parcel that may be sent now, if one may."""
        if not self._waiting or self.identity is None or now < self.not_before or self._is_held_for_renewal:
            return None
        if self._flying and (self._halted or len(self._flying) >= (IN_FLIGHT_MAX if self._known else 1)):
            return None
        return self._waiting[0]

    def send(self) -> Parcel:
        """Take what `next` named: stamped, with its bytes made, and on its way."""
        assert self.identity is not None
        self._halted = False
        parcel = self._waiting.popleft()
        if self.identity == NOBODY:
            if parcel.stamped == NOT_STAMPED:
                parcel.stamp(NOBODY, NO_SEQUENCE, self._run)
        elif parcel.stamped != self._run:
            parcel.stamp(self.identity, self._next_sequence, self._run)
            self._next_sequence = parcel.next_sequence
        self._flying.append(parcel)
        return parcel

    # What the broker answers

    def awaits(self, parcel: Parcel) -> bool:
        """False where it failed together with another while it was on its way: its answer changes nothing any more."""
        return parcel in self._order

    def landed(self, parcel: Parcel, outcome: Landed) -> bool:
        """It is stored. True when all of its draft is settled."""
        self._flying.remove(parcel)
        del self._order[parcel]
        self._known = True
        if parcel.stamped != self._run and self.identity != NOBODY:
            # It was not to be taken after what was refused before it: the partition is not the one it was.
            self._renew = True
        return parcel.landed(outcome)

    def again(self, parcel: Parcel, not_before: float = 0.0) -> None:
        """Refused for now: it goes back to its place in the line, and nothing overtakes it."""
        self._flying.remove(parcel)
        order = self._order
        waiting = list(self._waiting)
        insort(waiting, parcel, key=lambda each: order[each])
        self._waiting = deque(waiting)
        self.not_before = max(self.not_before, not_before)
        self._halted = True
        if self._renew and not parcel.may_be_stored:
            parcel.stamped = NOT_STAMPED

    def refused(self, parcel: Parcel, error: LevadaError, *, together: bool) -> None:
        """Keep in mind what a refusal leaves open, before it is sent again or fails.

        Of what was refused `together` one was meant, and the others may be stored.
        """
        if together:
            parcel.alone = True
        if not isinstance(error, BEFORE_THE_WRITE):
            parcel.uncertain = True

    def follows_a_refusal(self, error: LevadaError) -> bool:
        """True where a parcel was refused only because one before it was: it can be sent again."""
        return isinstance(error, OutOfOrderSequence) and self._halted

    def verdict(self, parcel: Parcel, error: LevadaError) -> LevadaError:
        """What the user is told of a parcel that fails with this.

        One that may be stored keeps its sequence, and is out of order when one before it was given up. It is not in the log now; but
        a copy of it may still be on an old connection's way there, so it is sent no more.
        """
        if not (parcel.uncertain and isinstance(error, OutOfOrderSequence)):
            return error
        told = ConnectionLost(
            f"topic {self.topic}, partition {self.partition}: what became of the first try is not known, and a batch before this one "
            "failed: the record may be stored or not"
        )
        told.__cause__ = error
        return told

    def failed(self, parcel: Parcel, error: LevadaError) -> list[Parcel]:
        """Refused for good, or given up. Returns all that fail with it: those the broker may have stored already.

        Their sequences cannot be given to others, so if there are any, or if the broker has lost track of the sequences, the
        lane needs a new identity.
        """
        lost = [parcel]
        if parcel.uncertain or (parcel.alone and not isinstance(error, _NOT_STORED)):
            lost += [each for each in (*self._flying, *self._waiting) if each.may_be_stored and each is not parcel]
        if self.identity != NOBODY and parcel.stamped == self._run:
            self._give_sequences_anew(parcel, error)
        for each in lost:
            (self._flying if each in self._flying else self._waiting).remove(each)
            del self._order[each]
        return lost

    def _give_sequences_anew(self, failed: Parcel, error: LevadaError) -> None:
        """What follows a parcel that failed gets its sequences; those before it keep theirs, since they may be stored."""
        followers = [each for each in (*self._flying, *self._waiting) if self._order[each] > self._order[failed]]
        self._halted = True
        self._next_sequence = failed.sequence
        doubtful = failed.may_be_stored
        if doubtful or isinstance(error, OutOfOrderSequence) or any(each.may_be_stored for each in followers):
            self._renew = True
        for each in followers:
            # If what failed was stored after all, what is on its way behind it is taken: its answer will tell.
            if not (doubtful and each in self._flying):
                each.stamped = NOT_STAMPED

    def cut(self) -> None:
        """The connection is gone: what was on its way may be stored or not. It is sent again as it was."""
        if self.identity != NOBODY and any(parcel.stamped != self._run for parcel in self._flying):
            # They would get other sequences now, while the broker may still have them before it with the old ones.
            self._renew = True
        for parcel in self._flying:
            parcel.uncertain = parcel.stamped == self._run
        self._waiting = deque(sorted((*self._flying, *self._waiting), key=lambda each: self._order[each]))
        self._flying.clear()
        self._halted = False

    def expired(self, now: float) -> Parcel | None:
        """The first in line, if its time is up."""
        if self._waiting and not self._flying and self._waiting[0].deadline <= now:
            return self._waiting[0]
        return None
