"""The runner: looks at the shelves and at the wishes, has done what the plan says, and writes down how everything is.

It holds nothing that is not elsewhere: wishes are in the topic, how far a pipeline came is in its checkpoint and its sinks. So
when it is killed, the next one goes on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from levada.errors import LevadaError
from levada.spark.runner.board import Board, now_ms
from levada.spark.runner.keeper import Ended, Event, Failed, Keeper, Loaded, Lost, NotLoaded, SparkLost, Started
from levada.spark.runner.news import Teller, is_news, is_same
from levada.spark.runner.plan import Plan
from levada.spark.runner.records import ACTUAL, ATTENDED, Actual, RunnerSeen, State, encoded
from levada.spark.runner.runnable import Described
from levada.spark.runner.seat import Replaced, Seat
from levada.spark.runner.shelf import Lookout, Shelf
from levada.spark.runner.status import Status

if TYPE_CHECKING:
    from levada.wire.blocking import BlockingClient

#: A runner shows that it is there, and how far its pipelines came, so often.
SIGN_EVERY_S: Final = 3.0
_TURN_S: Final = 0.25


class Runner:
    """One runner. `client` is for it alone; `keeper` starts Spark, which takes a while."""

    def __init__(
        self,
        client: BlockingClient,
        me: RunnerSeen,
        lookouts: Sequence[Lookout],
        keeper: Callable[[], Keeper],
        teller: Teller,
    ) -> None:
        self._board = Board(client)
        self._seat = Seat(client, self._board, me)
        self._me = me
        self._lookouts = lookouts
        self._open_keeper = keeper
        self._teller = teller
        self._plan = Plan()
        self._actual: dict[str, Actual] = {}
        self._written: dict[str, Actual] = {}
        self._signed = 0.0
        self._silent: str | None = None
        self._blind: set[str] = set()
        #: What the wall clock says at monotonic 0.
        self._epoch_ms = now_ms() - time.monotonic() * 1000

    def run(self, until: threading.Event) -> None:
        """Keep everything as wanted until told. RunnerIsUp, Replaced, SparkLost; all that ran has been stopped then."""
        self._board.create()
        self._seat.take(self._teller.said)
        try:
            self._keep(until)
        except Replaced:
            raise
        except BaseException:
            self._leave()
            raise
        self._leave()

    def _keep(self, until: threading.Event) -> None:
        ledger = self._board.read()
        known = {name: one.file for name, one in ledger.actual.items() if one.state is not State.GONE}
        self._plan, self._written = Plan(known), dict(ledger.actual)
        for lookout in self._lookouts:
            lookout.start()
        keeper: Keeper | None = None
        try:
            keeper = self._wait_for_keeper(until)
            while keeper is not None and not until.is_set():
                self._turn(keeper)
                self._hear(keeper)
        finally:
            for lookout in self._lookouts:
                lookout.stop()
            if keeper is not None:
                keeper.close()

    def _wait_for_keeper(self, until: threading.Event) -> Keeper | None:
        """Spark, while signs of life go on; None when told to end before it was there."""
        self._teller.said(f"starting Spark on {self._me.master}")
        with ThreadPoolExecutor(1) as one:
            opening: Future[Keeper] = one.submit(self._open_keeper)
            while not opening.done() and not until.wait(_TURN_S):
                self._write(())
            keeper = opening.result()
        if until.is_set():
            keeper.close()
            return None
        return keeper

    def _turn(self, keeper: Keeper) -> None:
        """One look at everything."""
        now = time.monotonic()
        wanted = self._read()
        seen, shelves = self._seen()
        for action in self._plan.tick(now, seen, wanted):
            keeper.do(action, shelves)
        labels = {unit: shelf.label(unit) for unit, shelf in shelves.items()}
        statuses = {one.name: one for one in self._plan.statuses(now, wanted, labels)}
        self._tell({name: self._describe(one, keeper) for name, one in statuses.items()})
        self._write(self._due(now))

    def _seen(self) -> tuple[dict[str, str], dict[str, Shelf]]:
        """All units with their versions, and where each is; where a shelf cannot be looked at, what it held before.

        Each lookout is asked once a turn: what it sees may be another thing the next moment.
        """
        blind = {str(lookout.error) for lookout in self._lookouts if lookout.error is not None}
        for said in blind - self._blind:
            self._teller.said(f"pipelines cannot be looked for, those there were go on: {said}")
        self._blind = blind
        looks = [(lookout.shelf, lookout.seen) for lookout in self._lookouts]
        versions = {unit: version for _, seen in looks for unit, version in seen.items()}
        return versions, {unit: shelf for shelf, seen in looks for unit in seen}

    def _read(self) -> Mapping[str, Any]:
        """Wishes; the last ones that were heard, while the broker does not answer."""
        try:
            return self._board.read().wanted
        except LevadaError as error:
            self._note_silence(error)
            return self._board.ledger.wanted

    def _describe(self, status: Status, keeper: Keeper) -> Actual:
        trouble, about = status.trouble, keeper.described(status.name) or Described()
        progress = keeper.progress(status.name)
        return Actual(
            state=status.state,
            since_ms=self._wall_ms(status.since),
            runner=self._me.id,
            file=status.unit,
            version=status.version,
            epoch=max(status.epoch, about.epoch),
            asked=status.asked,
            cause=trouble.cause if trouble else "",
            detail=trouble.detail if trouble else "",
            failures=trouble.times if trouble else 0,
            next_try_ms=None if status.next_at is None else self._wall_ms(status.next_at),
            note=status.note,
            sources=about.sources,
            sinks=about.sinks,
            trigger=about.trigger,
            checkpoint=about.checkpoint,
            about=about.about,
            progress=progress.as_json() if progress else {},
        )

    def _wall_ms(self, moment: float) -> int:
        return round(self._epoch_ms + moment * 1000)

    def _tell(self, actual: dict[str, Actual]) -> None:
        for name in sorted(self._actual.keys() | actual.keys()):
            before, after = self._actual.get(name), actual.get(name)
            if is_news(before, after):
                self._teller.changed(name, before, after)
        self._actual = actual
        self._teller.turned(actual)

    def _due(self, now: float) -> list[tuple[bytes, bytes | None]]:
        """What is to be written: each other state at once, mere progress with the next sign of life."""
        with_progress = now - self._signed >= SIGN_EVERY_S
        due: list[tuple[bytes, bytes | None]] = []
        for name, after in self._actual.items():
            before = self._written.get(name)
            if before is None or not is_same(before, after, with_progress=with_progress):
                due.append((_key(name), encoded(replace(after, updated_ms=now_ms()))))
        if self._plan.is_settled:
            due += [(_key(name), None) for name in self._written.keys() - self._actual.keys()]
        return due

    def _write(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        now = time.monotonic()
        if not records and now - self._signed < SIGN_EVERY_S:
            return
        try:
            self._seat.write(records)
        except Replaced:
            raise
        except LevadaError as error:
            self._note_silence(error)
            return
        self._signed = now
        for key, value in records:
            name = key.decode().removeprefix(ACTUAL)
            if value is None:
                del self._written[name]
            else:
                self._written[name] = self._actual[name]
        if self._silent is not None:
            self._silent = None
            self._teller.said("the broker answers again")

    def _note_silence(self, error: LevadaError) -> None:
        if self._silent is None:
            self._silent = str(error)
            self._teller.said(f"the broker does not answer, states cannot be told: {error}")

    def _hear(self, keeper: Keeper) -> None:
        """Take in what happened, or wait for something to happen."""
        try:
            event = keeper.events.get(timeout=_TURN_S)
            while True:
                self._take(event)
                event = keeper.events.get_nowait()
        except queue.Empty:
            return

    def _take(self, event: Event) -> None:
        now, plan = time.monotonic(), self._plan
        match event:
            case Loaded(unit, version, names):
                plan.loaded(unit, version, names)
            case NotLoaded(unit, version, why, detail):
                plan.not_loaded(unit, version, now, why, detail)
            case Started(name):
                plan.started(name, now)
            case Failed(name, why, detail):
                plan.failed(name, now, why, detail)
            case Ended(name):
                plan.ended(name, self._board.ledger.wanted)
            case Lost(why):
                raise SparkLost(f"{why}; every pipeline goes on where it was when the runner is started again")

    def _leave(self) -> None:
        """Say that nothing runs any more, and goodbye."""
        now = now_ms()
        waiting = {
            name: replace(one, state=State.WAITING, since_ms=now, updated_ms=now)
            for name, one in self._actual.items()
            if one.state in ATTENDED
        }
        try:
            self._seat.write([(_key(name), encoded(one)) for name, one in waiting.items()], leaving=True)
        except LevadaError as error:
            self._note_silence(error)


def _key(name: str) -> bytes:
    return f"{ACTUAL}{name}".encode()
