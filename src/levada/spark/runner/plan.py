"""What to do next so that every pipeline is as wanted. Versions seen, wishes and what came of actions in; actions and states out.

A *unit* is what pipelines are declared in, a file mostly; its version is a hash of its content. Promises:

- A pipeline runs at most once: it is started only when nothing of it runs or is still ending.
- What is started is the version that loaded last, with the sinks' epoch that is wanted now. A newer version, or epoch, is taken
  up by stopping what runs and starting again.
- A version that does not load changes nothing: what runs goes on, and its status says so.
- A failure is tried again after `backoff.delay_s`; a changed unit or a wish to start, at once. One pipeline's failures are
  nobody else's.
- A unit that is gone, or no longer declares a pipeline, stops it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from levada.spark.runner.actions import Action, Load, Start, Stop
from levada.spark.runner.backoff import HEALTHY_S, delay_s
from levada.spark.runner.records import State, Wanted
from levada.spark.runner.status import Status, Trouble, worse

#: As wanted where nobody has said anything.
AS_DECLARED: Final = Wanted()


class _Phase(Enum):
    IDLE = 0
    STARTING = 1
    RUNNING = 2
    STOPPING = 3


_BUSY: Final = {_Phase.STARTING: State.STARTING, _Phase.RUNNING: State.RUNNING, _Phase.STOPPING: State.STOPPING}


@dataclass(slots=True)
class _Unit:
    """Something that declares pipelines."""

    seen: str
    #: The version whose declarations hold; empty before the first that loaded.
    loaded: str = ""
    #: The version that is being loaded; empty when none is.
    loading: str = ""
    names: Sequence[str] = ()
    trouble: Trouble | None = None


@dataclass(slots=True)
class _Pipeline:
    """One pipeline. `run` is (unit, version, epoch) of what was started last; `done` what ended by itself, having nothing more to do."""

    name: str
    unit: str = ""
    version: str = ""
    declared: bool = False
    others: Sequence[str] = ()
    phase: _Phase = _Phase.IDLE
    run: tuple[str, str, int] = ("", "", -1)
    done: tuple[str, str, int, int] | None = None
    began: float = 0.0
    asked: int | None = None
    trouble: Trouble | None = None
    #: What was told last, and since when that is so.
    told: tuple[State, float] | None = None


class Plan:
    """The units and pipelines there are. Not for several threads."""

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        """`known` is which unit declared a pipeline when it was last seen: a unit that no longer loads is then told by their names."""
        self._known = dict(known or {})
        self._units: dict[str, _Unit] = {}
        self._pipelines: dict[str, _Pipeline] = {}

    def tick(self, now: float, seen: Mapping[str, str], wanted: Mapping[str, Wanted]) -> list[Action]:
        """What to do, with these units (→ version) there and these wishes. Each action is asked for once; tell what came of it."""
        self._see(seen)
        self._hear(now, wanted)
        actions: list[Action] = list(self._loads(now))
        for kept in self._pipelines.values():
            if kept.phase is _Phase.RUNNING and kept.trouble and now - kept.began >= HEALTHY_S:
                kept.trouble = None
            wish = wanted.get(kept.name, AS_DECLARED)
            wants = kept.declared and kept.version != "" and wish.run
            if kept.phase is _Phase.RUNNING and not (wants and kept.run == (kept.unit, kept.version, wish.epoch)):
                kept.phase = _Phase.STOPPING
                actions.append(Stop(kept.name))
            elif kept.phase is _Phase.IDLE and wants and self._is_due(kept, wish, now):
                kept.phase, kept.run, kept.began = _Phase.STARTING, (kept.unit, kept.version, wish.epoch), now
                actions.append(Start(kept.name, kept.unit, kept.version, wish.epoch))
            elif kept.phase is _Phase.IDLE and not wish.run:
                kept.trouble = None
        return actions

    def _is_due(self, kept: _Pipeline, wish: Wanted, now: float) -> bool:
        if kept.done == (kept.unit, kept.version, wish.epoch, wish.asked):
            return False
        return kept.trouble is None or now >= kept.trouble.next_at

    def _see(self, seen: Mapping[str, str]) -> None:
        for name in self._units.keys() - seen.keys():
            del self._units[name]
        for name, version in seen.items():
            unit = self._units.get(name)
            if unit is None:
                self._units[name] = _Unit(version, names=[one for one, of in self._known.items() if of == name])
            elif unit.seen != version:
                unit.seen, unit.trouble = version, None
        self._assign()

    def _assign(self) -> None:
        """Which unit a pipeline is of: the one it was of, while that declares it, else the first that does."""
        declaring: dict[str, list[str]] = {}
        for name in sorted(self._units):
            for pipeline in self._units[name].names:
                declaring.setdefault(pipeline, []).append(name)
        for kept in self._pipelines.values():
            kept.declared = kept.name in declaring
        for name, units in declaring.items():
            kept = self._pipelines.setdefault(name, _Pipeline(name))
            kept.declared = True
            kept.unit = kept.unit if kept.unit in units else units[0]
            kept.others = [one for one in units if one != kept.unit]
            version = self._units[kept.unit].loaded
            if version != kept.version:
                kept.version, kept.trouble = version, None

    def _hear(self, now: float, wanted: Mapping[str, Wanted]) -> None:
        """Whoever asks for a start does not want to wait for the next try."""
        for kept in self._pipelines.values():
            asked = wanted.get(kept.name, AS_DECLARED).asked
            if kept.asked is not None and kept.asked != asked:
                if kept.phase is _Phase.IDLE:
                    kept.trouble = None
                unit = self._units.get(kept.unit)
                if unit is not None and unit.trouble is not None:
                    unit.trouble = unit.trouble._replace(next_at=now)
            kept.asked = asked

    def _loads(self, now: float) -> Iterator[Load]:
        for name, unit in self._units.items():
            if unit.loading or unit.seen == unit.loaded or (unit.trouble and now < unit.trouble.next_at):
                continue
            unit.loading = unit.seen
            yield Load(name, unit.seen)

    @property
    def is_settled(self) -> bool:
        """Whether of every unit it is known what it declares, or that it does not load."""
        return all(unit.loaded or unit.trouble for unit in self._units.values())

    def loaded(self, unit: str, version: str, names: Sequence[str]) -> None:
        """The unit declares these pipelines."""
        if (found := self._loading(unit, version)) is None:
            return
        found.loaded, found.names, found.trouble = version, tuple(names), None
        self._assign()

    def not_loaded(self, unit: str, version: str, now: float, cause: str, detail: str = "") -> None:
        """The unit cannot be read. What it declared before still holds."""
        found = self._loading(unit, version)
        if found is not None and found.seen == version:
            found.trouble = worse(found.trouble, now, cause, detail)

    def _loading(self, unit: str, version: str) -> _Unit | None:
        """The unit whose loading has ended; None where this is the late answer of one that was gone meanwhile."""
        found = self._units.get(unit)
        if found is None or found.loading != version:
            return None
        found.loading = ""
        return found

    def started(self, name: str, now: float) -> None:
        """It runs."""
        kept = self._pipelines[name]
        kept.phase, kept.began = _Phase.RUNNING, now

    def failed(self, name: str, now: float, cause: str, detail: str = "") -> None:
        """It did not start, or it ended with an error. An error on the way to being stopped is none."""
        kept = self._pipelines[name]
        if kept.phase is not _Phase.STOPPING:
            recovered = kept.phase is _Phase.RUNNING and now - kept.began >= HEALTHY_S
            kept.trouble = worse(None if recovered else kept.trouble, now, cause, detail)
        kept.phase = _Phase.IDLE

    def ended(self, name: str, wanted: Mapping[str, Wanted]) -> None:
        """It ended without an error: stopped, or done with all there was to do."""
        kept = self._pipelines[name]
        if kept.phase is not _Phase.STOPPING:
            kept.done = (*kept.run, wanted.get(name, AS_DECLARED).asked)
            kept.trouble = None
        kept.phase = _Phase.IDLE

    def statuses(
        self, now: float, wanted: Mapping[str, Wanted], label: Mapping[str, str] | None = None
    ) -> list[Status]:
        """How every pipeline is, by name; and every unit that never loaded and of which no pipeline is known, under its label."""
        found = {
            kept.name: self._status(kept, now, wanted.get(kept.name, AS_DECLARED)) for kept in self._pipelines.values()
        }
        for name, unit in self._units.items():
            if unit.trouble is not None and not unit.names:
                called = (label or {}).get(name, name)
                since = unit.trouble.next_at - delay_s(unit.trouble.times)
                wish = wanted.get(called, AS_DECLARED)
                silent = Status(
                    called, State.FAILED, since, name, unit.seen, wish.epoch, unit.trouble, asked=wish.asked
                )
                if called not in found or found[called].state is State.GONE:
                    found[called] = silent
        return [found[name] for name in sorted(found)]

    def _status(self, kept: _Pipeline, now: float, wish: Wanted) -> Status:
        unit = self._units.get(kept.unit)
        trouble, state = kept.trouble, self._state(kept, wish)
        if state is State.FAILED and trouble is None and unit is not None:
            trouble = unit.trouble
        if kept.told is None or kept.told[0] is not state:
            kept.told = (state, now)
        busy = kept.phase is not _Phase.IDLE
        of, version, epoch = kept.run if busy else (kept.unit, kept.version, wish.epoch)
        note = self._note(kept, unit)
        return Status(kept.name, state, kept.told[1], of, version, epoch, trouble, note, kept.asked or 0)

    def _state(self, kept: _Pipeline, wish: Wanted) -> State:
        if kept.phase is not _Phase.IDLE:
            return _BUSY[kept.phase]
        if not kept.declared:
            return State.GONE
        if not wish.run:
            return State.STOPPED
        if kept.trouble is not None:
            return State.FAILED
        if not kept.version:
            return State.FAILED if self._units[kept.unit].trouble else State.STARTING
        if kept.done == (kept.unit, kept.version, wish.epoch, wish.asked):
            return State.FINISHED
        return State.STARTING

    def _note(self, kept: _Pipeline, unit: _Unit | None) -> str:
        notes = []
        if unit is not None and unit.trouble is not None and unit.loaded:
            notes.append(
                f"its file was changed and does not load, so the version before it holds: {unit.trouble.cause}"
            )
        if kept.others:
            notes.append(f"also declared in {', '.join(kept.others)}, which is passed over")
        return "; ".join(notes)
