"""What the runner decides to do, with no Spark, no broker and no clock."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from levada.spark.runner.actions import Action, Load, Start, Stop
from levada.spark.runner.backoff import HEALTHY_S, LONGEST_S, delay_s
from levada.spark.runner.plan import Plan
from levada.spark.runner.records import State, Wanted
from levada.spark.runner.status import Status


class World:
    """A plan with units, wishes and a clock, whose actions succeed at once unless a test says otherwise."""

    def __init__(self, known: dict[str, str] | None = None) -> None:
        self.plan = Plan(known)
        self.now = 0.0
        self.seen: dict[str, str] = {}
        self.wanted: dict[str, Wanted] = {}
        #: (unit, version) → what it declares; a string is the error that loading raises.
        self.content: dict[tuple[str, str], list[str] | str] = {}
        self.starts: list[Start] = []

    def write(self, unit: str, version: str, content: list[str] | str) -> None:
        self.seen[unit] = version
        self.content[unit, version] = content

    def want(self, name: str, **changes: object) -> None:
        held = self.wanted.get(name, Wanted())
        self.wanted[name] = Wanted(
            **{"run": held.run, "epoch": held.epoch, "asked": held.asked, **changes}  # type: ignore[arg-type]
        )

    def tick(self) -> list[Action]:
        """One look. What is loaded, started or stopped is so at once."""
        actions = self.plan.tick(self.now, self.seen, self.wanted)
        for action in actions:
            match action:
                case Load(unit, version):
                    found = self.content[unit, version]
                    if isinstance(found, str):
                        self.plan.not_loaded(unit, version, self.now, found)
                    else:
                        self.plan.loaded(unit, version, found)
                case Start(name):
                    self.starts.append(action)
                    self.plan.started(name, self.now)
                case Stop(name):
                    self.plan.ended(name, self.wanted)
        return actions

    def settle(self) -> None:
        while self.tick():
            pass

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        self.settle()

    def status(self, name: str) -> Status:
        return {one.name: one for one in self.plan.statuses(self.now, self.wanted)}[name]

    def state(self, name: str) -> State:
        return self.status(name).state


def test_what_is_declared_runs() -> None:
    world = World()
    world.write("a.py", "1", ["x", "y"])
    world.settle()
    assert [(one.name, one.version, one.epoch) for one in world.starts] == [("x", "1", 0), ("y", "1", 0)]
    assert world.state("x") is world.state("y") is State.RUNNING


def test_a_status_says_which_start_it_takes_account_of() -> None:
    world = World()
    world.write("a.py", "1", ["x"])
    world.write("b.py", "1", "does not load")
    world.settle()
    world.plan.failed("x", world.now, "boom")
    world.want("x", asked=3)
    world.want("b.py", asked=2)
    assert (world.state("x"), world.status("x").asked) == (State.FAILED, 0)
    world.plan.tick(world.now, world.seen, world.wanted)
    assert (world.state("x"), world.status("x").asked) == (State.STARTING, 3)
    assert (world.state("b.py"), world.status("b.py").asked) == (State.FAILED, 2)


def test_a_failure_is_tried_again_later_and_later_and_others_do_not_notice() -> None:
    world = World()
    world.write("a.py", "1", ["x"])
    world.write("b.py", "1", ["y"])
    world.settle()
    waited = []
    for _ in range(9):
        world.plan.failed("x", world.now, "ZeroDivisionError: division by zero", "…")
        world.settle()
        assert world.state("x") is State.FAILED and world.state("y") is State.RUNNING
        status = world.status("x")
        assert status.trouble is not None and status.trouble.cause == "ZeroDivisionError: division by zero"
        assert status.next_at is not None
        waited.append(status.next_at - world.now)
        world.pass_(waited[-1] - 0.25)
        assert world.state("x") is State.FAILED
        world.pass_(0.25)
        assert world.state("x") is State.RUNNING
    assert waited == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert [one.name for one in world.starts].count("y") == 1


def test_whoever_has_run_for_a_while_begins_with_short_waits_again() -> None:
    world = World()
    world.write("a.py", "1", ["x"])
    world.settle()
    for _ in range(4):
        world.plan.failed("x", world.now, "boom")
        world.pass_(LONGEST_S)
    assert world.status("x").trouble is not None, "that it failed before is told while it may fail again"
    world.pass_(HEALTHY_S)
    assert world.status("x").trouble is None
    world.plan.failed("x", world.now, "boom")
    assert world.status("x").next_at == world.now + 1


def test_a_start_that_fails_counts_as_a_failure() -> None:
    world = World()
    world.write("a.py", "1", ["x"])
    world.tick()
    assert [type(one) for one in world.plan.tick(world.now, world.seen, {})] == [Start]
    assert world.state("x") is State.STARTING
    world.plan.failed("x", world.now, "AnalysisException: no such column")
    assert world.state("x") is State.FAILED
    assert world.plan.tick(world.now + 0.999, world.seen, {}) == []
    assert [type(one) for one in world.plan.tick(world.now + 1, world.seen, {})] == [Start]


def test_stopped_stays_stopped_until_started() -> None:
    world = World()
    world.write("a.py", "1", ["x"])
    world.settle()
    world.want("x", run=False)
    world.settle()
    assert world.state("x") is State.STOPPED
    world.write("a.py", "2", ["x"])
    world.pass_(1000)
    assert world.state("x") is State.STOPPED and len(world.starts) == 1
    again = World()
    again.wanted = world.wanted
    again.write("a.py", "2", ["x"])
    again.settle()
    assert again.state("x") is State.STOPPED and again.starts == []
    again.want("x", run=True, asked=1)
    again.settle()
    assert again.state("x") is State.RUNNING


def test_a_wish_to_start_does_not_wait_for_the_next_try() -> None:
    world = World()
    world.write("a.py", "1", ["x"])
    world.settle()
    for _ in range(6):
        world.plan.failed("x", world.now, "boom")
        world.pass_(LONGEST_S)
    world.plan.failed("x", world.now, "boom")
    assert world.state("x") is State.FAILED
    world.want("x", asked=1)
    world.settle()
    assert world.state("x") is State.RUNNING


def test_a_changed_file_is_taken_up_and_clears_the_wait() -> None:
    world = World()
    world.write("a.py", "1", ["x", "y"])
    world.settle()
    world.plan.failed("y", world.now, "boom")
    world.write("a.py", "2", ["x", "y"])
    world.settle()
    assert sorted((one.name, one.version) for one in world.starts[2:]) == [("x", "2"), ("y", "2")]
    assert world.status("y").trouble is None


def test_a_file_that_no_longer_loads_leaves_running_what_runs_and_says_so() -> None:
    world = World()
    world.write("a.py", "1", ["x"])
    world.settle()
    world.write("a.py", "2", "SyntaxError: invalid syntax (a.py, line 3)")
    world.settle()
    status = world.status("x")
    assert status.state is State.RUNNING and status.version == "1"
    assert "does not load" in status.note and "line 3" in status.note
    # Should it fail meanwhile, it goes on as it was.
    world.plan.failed("x", world.now, "boom")
    world.pass_(1)
    assert world.state("x") is State.RUNNING and world.starts[-1].version == "1"
    world.write("a.py", "3", ["x"])
    world.settle()
    assert world.status("x").version == "3" and world.status("x").note == ""


def test_a_file_that_never_loaded_is_failed_under_its_own_name_and_tried_again() -> None:
    world = World()
    world.write("a.py", "1", "ModuleNotFoundError: No module named 'polars'")
    world.settle()
    assert world.state("a.py") is State.FAILED
    assert world.status("a.py").next_at == 1
    [named] = world.plan.statuses(world.now, {}, {"a.py": "a"})
    assert named.name == "a"
    world.content["a.py", "1"] = ["x"]
    world.pass_(1)
    assert [one.name for one in world.plan.statuses(world.now, {})] == ["x"]
    assert world.state("x") is State.RUNNING


def test_a_file_that_does_not_load_after_a_restart_is_told_by_the_pipelines_it_had() -> None:
    world = World(known={"x": "a.py", "y": "a.py", "z": "b.py"})
    world.write("a.py", "2", "NameError: name 'orders' is not defined")
    world.settle()
    assert [one.name for one in world.plan.statuses(world.now, {})] == ["x", "y"]
    assert world.state("x") is State.FAILED
    status = world.status("y")
    assert status.trouble is not None and status.trouble.cause == "NameError: name 'orders' is not defined"


def test_a_removed_file_stops_its_pipelines() -> None:
    world = World()
    world.write("a.py", "1", ["x"])
    world.write("b.py", "1", ["y"])
    world.settle()
    del world.seen["a.py"]
    assert world.tick() == [Stop("x")]
    assert world.state("x") is State.GONE and world.state("y") is State.RUNNING
    world.write("a.py", "1", ["x"])
    world.settle()
    assert world.state("x") is State.RUNNING


def test_a_pipeline_that_the_file_no_longer_declares_is_stopped() -> None:
    world = World()
    world.write("a.py", "1", ["x", "y"])
    world.settle()
    world.write("a.py", "2", ["y"])
    world.settle()
    assert world.state("x") is State.GONE and world.state("y") is State.RUNNING


def test_a_name_declared_twice_runs_once_as_the_first_has_it() -> None:
    world = World()
    world.write("b.py", "1", ["x"])
    world.settle()
    world.write("a.py", "1", ["x"])
    world.settle()
    assert len(world.starts) == 1 and world.starts[0].unit == "b.py"
    assert world.status("x").note == "also declared in a.py, which is passed over"
    del world.seen["b.py"]
    world.settle()
    assert world.starts[-1].unit == "a.py" and world.status("x").note == ""


def test_a_reset_starts_it_again_with_the_next_epoch() -> None:
    world = World()
    world.write("a.py", "1", ["x"])
    world.settle()
    world.want("x", epoch=1)
    assert world.tick() == [Stop("x")]
    assert world.tick() == [Start("x", "a.py", "1", 1)]
    assert world.tick() == []


def test_what_ends_by_itself_is_finished_until_it_is_asked_for_again() -> None:
    world = World()
    world.write("a.py", "1", ["x"])
    world.settle()
    world.plan.ended("x", world.wanted)
    world.pass_(1000)
    assert world.state("x") is State.FINISHED and len(world.starts) == 1
    world.want("x", asked=1)
    world.settle()
    assert len(world.starts) == 2


def test_nothing_is_started_before_what_ran_has_ended() -> None:
    world = World()
    world.write("a.py", "1", ["x"])
    world.settle()
    world.write("a.py", "2", ["x"])
    world.plan.tick(world.now, world.seen, world.wanted)
    world.plan.loaded("a.py", "2", ["x"])
    assert world.plan.tick(world.now, world.seen, world.wanted) == [Stop("x")]
    assert world.state("x") is State.STOPPING
    world.now += 1000
    assert world.plan.tick(world.now, world.seen, world.wanted) == []
    # However it ends, that was wanted.
    world.plan.failed("x", world.now, "interrupted")
    assert world.plan.tick(world.now, world.seen, world.wanted) == [Start("x", "a.py", "2", 0)]


def test_since_is_when_the_state_began() -> None:
    world = World()
    world.write("a.py", "1", ["x"])
    world.settle()
    assert world.status("x").since == 0
    world.pass_(5)
    assert world.status("x").since == 0
    world.plan.failed("x", world.now, "boom")
    assert world.status("x").since == 5


UNITS = ("a.py", "b.py")
NAMES = ("x", "y", "z")


class Kept(RuleBasedStateMachine):
    """Anything may happen in any order; actions take as long as they like. The plan is held to its promises."""

    @initialize()
    def begin(self) -> None:
        self.plan = Plan()
        self.now = 0.0
        self.version = 0
        self.seen: dict[str, str] = {}
        self.content: dict[tuple[str, str], list[str] | None] = {}
        #: Those under way, and what of them still counts: the answer for a unit that was gone meanwhile does not.
        self.loads: list[Load] = []
        self.loading: dict[str, str] = {}
        self.wanted: dict[str, Wanted] = {}
        #: What runs, by name: how far it is.
        self.phase: dict[str, str] = {}
        self.run: dict[str, Start] = {}
        self.failures: dict[str, int] = {}
        self.failed_at: dict[str, float] = {}
        self.loaded: dict[str, tuple[str, list[str]]] = {}

    @rule(unit=st.sampled_from(UNITS), names=st.none() | st.lists(st.sampled_from(NAMES), unique=True))
    def change(self, unit: str, names: list[str] | None) -> None:
        self.version += 1
        self.seen[unit] = str(self.version)
        self.content[unit, str(self.version)] = names
        self.failed_at.clear()

    @rule(unit=st.sampled_from(UNITS))
    def remove(self, unit: str) -> None:
        self.seen.pop(unit, None)
        self.failed_at.clear()

    @rule(name=st.sampled_from(NAMES), run=st.booleans(), reset=st.booleans())
    def wish(self, name: str, run: bool, reset: bool) -> None:
        held = self.wanted.get(name, Wanted())
        self.wanted[name] = Wanted(run=run, epoch=held.epoch + reset, asked=held.asked + run)
        self.failed_at.pop(name, None)

    @rule(seconds=st.floats(0.1, 100))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def look(self) -> None:
        for unit in UNITS:
            if unit not in self.seen:
                self.loaded.pop(unit, None)
                self.loading.pop(unit, None)
        for action in self.plan.tick(self.now, self.seen, self.wanted):
            self.take(action)

    def take(self, action: Action) -> None:
        match action:
            case Load(unit, version):
                assert self.seen[unit] == version
                assert unit not in self.loading, "it is being loaded"
                self.loads.append(action)
                self.loading[unit] = version
            case Start(name, unit, version, epoch):
                assert name not in self.phase, "it runs, or is still ending"
                wish = self.wanted.get(name, Wanted())
                assert wish.run and epoch == wish.epoch
                assert self.loaded[unit][0] == version and name in self.loaded[unit][1]
                if name in self.failed_at:
                    assert self.now >= self.failed_at[name] + 1, "too soon"
                self.phase[name], self.run[name] = "starting", action
            case Stop(name):
                assert self.phase[name] == "running"
                self.phase[name] = "stopping"

    @precondition(lambda self: self.loads)
    @rule(data=st.data())
    def load_ends(self, data: st.DataObject) -> None:
        self.end_load(data.draw(st.sampled_from(self.loads)))

    def end_load(self, load: Load) -> None:
        self.loads.remove(load)
        names = self.content[load.unit, load.version]
        counts = self.loading.get(load.unit) == load.version
        if counts:
            del self.loading[load.unit]
        if names is None:
            self.plan.not_loaded(load.unit, load.version, self.now, "SyntaxError")
        else:
            self.plan.loaded(load.unit, load.version, names)
            if counts:
                self.loaded[load.unit] = (load.version, names)

    @precondition(lambda self: self.phase)
    @rule(data=st.data(), how=st.sampled_from(("well", "failed", "by itself")))
    def something_happens(self, data: st.DataObject, how: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.phase)))
        phase = self.phase[name]
        if phase == "starting" and how == "well":
            self.plan.started(name, self.now)
            self.phase[name] = "running"
        elif how == "failed":
            self.plan.failed(name, self.now, "boom")
            del self.phase[name]
            if phase != "stopping":
                self.failed_at[name] = self.now
        elif phase != "running" or how == "by itself":
            self.plan.ended(name, self.wanted)
            del self.phase[name]

    @invariant()
    def states_say_what_is(self) -> None:
        if not hasattr(self, "plan"):
            return
        states = {one.name: one for one in self.plan.statuses(self.now, self.wanted)}
        for name, phase in self.phase.items():
            assert states[name].state == phase
        for name, one in states.items():
            if name not in self.phase:
                assert one.state not in (State.RUNNING, State.STOPPING)

    def teardown(self) -> None:
        """Left alone, with everything going well, everything that is declared and wanted runs, and nothing else does."""
        if not hasattr(self, "plan"):
            return
        for unit in self.seen:
            self.content[unit, self.seen[unit]] = self.content[unit, self.seen[unit]] or []
        for name in NAMES:
            held = self.wanted.get(name, Wanted())
            self.wanted[name] = Wanted(run=held.run, epoch=held.epoch, asked=held.asked + 1)
        for _ in range(12):
            self.now += LONGEST_S
            self.look()
            for load in list(self.loads):
                self.end_load(load)
            for name, phase in list(self.phase.items()):
                if phase == "starting":
                    self.plan.started(name, self.now)
                    self.phase[name] = "running"
                elif phase == "stopping":
                    self.plan.ended(name, self.wanted)
                    del self.phase[name]
        assert self.loads == []
        declared = {name for _, names in self.loaded.values() for name in names}
        assert set(self.phase) == {name for name in declared if self.wanted[name].run}
        for name, start in self.run.items():
            if name in self.phase:
                assert start.version == self.seen[start.unit] and start.epoch == self.wanted[name].epoch


TestKept = Kept.TestCase
TestKept.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_waits_double_up_to_a_minute() -> None:
    assert [delay_s(n) for n in (0, 1, 2, 3, 7, 8, 5000)] == [0, 1, 2, 4, 60, 60, 60]
