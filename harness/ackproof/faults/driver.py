"""Driver of a case's faults on a real cluster, each fault on a thread of its own.

A fault fails if it has no effect or no target, if its trigger never fires, if it does not last, or if its healing is
not confirmed. The timeline then gets the event `fault-failed`, and the run lacks evidence: its verdict is INCONCLUSIVE,
or FAIL if an anomaly is proven all the same. For a fault without effect that a storm drew, the event is `fault-missed`,
and the storm decides whether that matters. The run continues, and every fault is healed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from ackproof.base.errors import AckproofError, Interrupted
from ackproof.base.wait import wait_until
from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import Role
from ackproof.experiment.triggers import ChainTrigger, TimeTrigger
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import Aim, Injection, make_injection
from ackproof.faults.life import (
    AIMED_AT_NOTHING,
    UNABLE,
    Life,
    LoadPhase,
    Look,
    Moment,
    Stage,
    Step,
    awaits_a_count,
    due,
    held_for_partner,
    pending,
    storm_goes_on,
)
from ackproof.faults.storm import Storm
from ackproof.rundir.timeline import DRAWN_FROM, Note, Timeline, fault_name

LOOK_EVERY_S: Final = 0.005
"""Seconds between two evaluations of a trigger. An acknowledgement must reach the trigger within 50 ms."""
SOON_S: Final = 1.0
"""A fault gets a thread this many seconds before the earliest time at which it can begin."""
T = TypeVar("T")


class FaultDriver:
    """Driver of all faults of one run, each on a thread of its own. `resolve(role, fault)` returns the ids of the nodes
    that hold a role now. `look(condition)` returns the number that a trigger compares; None: unknown. `context`: passed
    to every injection."""

    def __init__(
        self,
        case: Case,
        context: FaultContext,
        look: Look,
        timeline: Timeline,
        resolve: Callable[[Role, FaultSpec], Sequence[int]],
    ) -> None:
        self._case = case
        self._context = context
        self._look = look
        self._timeline = timeline
        self._resolve = resolve
        self._lives = {fault.number: Life(fault) for fault in case.faults}
        """State of each fault, by number. The fault's own thread updates it; `forget` removes it."""
        self._load = LoadPhase.RUNS
        self._threads: list[threading.Thread] = []
        self._later: list[int] = []
        """Numbers of faults that have no thread yet. The next to begin is last."""
        self._later_lock = threading.Lock()
        self._clock = threading.Thread(target=self._tick, name="faults", daemon=True)
        self._start_ns = 0
        self._unwritten: OSError | None = None
        self._left: list[tuple[int, Injection[Any]]] = []
        """Number and injection of each fault whose healing failed or was not confirmed."""

    def start(self) -> None:
        """Start to evaluate triggers. The times of `at:` triggers count from now."""
        self._start_ns = self._timeline.clock.now()
        self._later = sorted(self._lives, key=self._not_before, reverse=True)
        self._begin(self._due)
        self._clock.start()

    def _not_before(self, number: int) -> float:
        """Return the earliest time, in seconds after `start`, at which the fault can begin; 0 for a `when:` trigger."""
        trigger = self._lives[number].fault.trigger
        if isinstance(trigger, ChainTrigger):
            return self._not_before(trigger.fault) + trigger.by
        return trigger.at if isinstance(trigger, TimeTrigger) else 0.0

    def _due(self, number: int) -> bool:
        passed = (self._timeline.clock.now() - self._start_ns) / 1e9
        return self._load is LoadPhase.OVER or self._not_before(number) <= passed + SOON_S

    def _begin(self, due: Callable[[int], bool]) -> None:
        with self._later_lock:
            while self._later and due(self._later[-1]):
                number = self._later.pop()
                name = f"fault-{number}"
                thread = threading.Thread(target=self._live, args=(number,), name=name, daemon=True)
                self._threads = [started for started in self._threads if started.is_alive()] + [thread]
                thread.start()

    def _tick(self) -> None:
        """Start the thread of each fault shortly before its time; return once every fault has its thread. A run of
        hours has thousands of faults, few of them at once, and each waiting thread takes processor time.

        A storm is a fault that stands for random faults, drawn before the run; it ends when all of them have ended. So
        if the run is stopped, start only the remaining faults of storms that have begun.
        """

        def all_live() -> bool:
            self._begin(self._due)
            return not self._later or self._context.stop.is_set()

        self._await(all_live, "the last fault", interval_s=SOON_S / 10)
        if self._later:  # stopped: a storm that has begun ends when all its faults have
            self._await(self._no_trigger_is_open, "every trigger to see the stop")
            with self._later_lock:
                self._later = [number for number in self._later if self._is_of_a_begun_storm(number)]
            self._begin(lambda _: True)

    def _no_trigger_is_open(self) -> bool:
        """Return True if no fault that has a thread waits for its trigger any more. Until then a waiting storm may
        still begin, even if the run is being stopped. Faults without a thread (`_later`) do not count."""
        later = set(self._later)
        lives = list(self._lives.items())
        return all(life.stage is not Stage.WAITING for number, life in lives if number not in later)

    def _is_of_a_begun_storm(self, number: int) -> bool:
        life = self._lives[number]
        return life.is_drawn and self._lives[number // DRAWN_FROM].stage is not Stage.WAITING

    def forget(self, numbers: Collection[int]) -> None:
        """Drop those faults with these numbers that have not begun. The caller must know that the load ends before they
        can begin: it is not checked. `numbers` must include each fault that comes `after` one of these. Raises KeyError
        for a number that no fault has, or that was dropped before."""
        with self._later_lock:
            self._later = [number for number in self._later if number not in numbers]
            for number in sorted(numbers, reverse=True):  # a fault `after` another goes first
                if self._lives[number].stage is Stage.WAITING:
                    del self._lives[number]

    def stages(self) -> dict[int, Stage]:
        return {number: life.stage for number, life in self._lives.items()}

    def has_begun(self, number: int) -> bool:
        """Return True if the fault took effect, or ended without effect. A fault that failed before it took effect
        counts only once it is undone. Raises KeyError for a number that no fault of the case has, and for a fault that
        `forget` dropped."""
        return self._lives[number].bit or self._lives[number].over

    @property
    def pending(self) -> bool:
        return pending(self._lives)

    @property
    def awaits_a_count(self) -> bool:
        return awaits_a_count(self._lives)

    def no_more_states(self) -> None:
        """Give up `when:` triggers without `at_latest`, because the planned duration of the load is over.
        Faults that wait for one then fail, as do those that come `after` them."""
        self._load = LoadPhase.ENDS

    def heal_all(self) -> None:
        """Heal every fault, and wait until each has ended. Then undo what faults whose healing failed left in the
        cluster's metadata. Raises OSError if the timeline could not be written."""
        self._load = LoadPhase.OVER
        if self._clock.is_alive():
            self._clock.join()
        for thread in self._threads:
            thread.join()
        while self._left:
            self._put_back(*self._left.pop())
        if self._unwritten is not None:
            raise self._unwritten

    def failures(self) -> list[str]:
        return [life.failure for life in self._lives.values() if life.stage is Stage.FAILED]

    def _go(self, step: Step) -> None:
        """Write the events of a step to the timeline, and only then store the fault's next stage. So its events are
        there once the stage is seen. If the timeline cannot be written, keep the error for `heal_all`."""
        try:
            for event in step.events:
                self._timeline.add(event, fault=step.life.number)
        except OSError as error:
            # The disk is full: the thread still ends its fault, and `heal_all` raises this error.
            self._unwritten = self._unwritten or error
        self._lives[step.life.number] = step.life

    @property
    def _moment(self) -> Moment:
        return Moment(self._timeline.clock.now(), self._start_ns, self._load)

    def _live(self, number: int) -> None:
        injection = None
        try:
            trigger = self._await_trigger(number)
        except Exception as error:  # noqa: BLE001 — a thread's crash must become a fact of the run, not vanish
            if number in self._lives:
                self._go(self._lives[number].fail(_words(error)))
            return
        try:
            if isinstance(storm := self._lives[number].fault, Storm):
                self._storm(storm, trigger)
                return
            injection = self._make(number, trigger)
            did = injection.inject()
            witness = injection.confirm()
            now_ns = self._timeline.clock.now()
            step = self._lives[number].confirm(now_ns, did, witness, injection.killed, injection.clients)
            self._go(step)
            self._await(partial(self._to_heal, number, injection), f"the end of fault {number}")
        except Exception as error:  # noqa: BLE001 — a thread's crash must become a fact of the run, not vanish
            self._go(self._lives[number].fail(_words(error), to_undo=injection is not None))
        if injection is not None:
            self._heal(number, injection)

    def _to_heal(self, number: int, injection: Injection[Any]) -> bool:
        injection.check()
        if self._context.stop.is_set():
            return True
        life, moment = self._lives[number], self._moment
        return life.to_heal(moment) and not held_for_partner(life, self._lives, moment)

    def _await(self, done: Callable[[], T | None], what: str, interval_s: float = LOOK_EVERY_S) -> T:
        # The end of the load is announced; one more hour is beyond any run.
        bound_s = self._case.experiment.workload.duration + 3600.0
        return wait_until(done, what=what, timeout_s=bound_s, interval_s=interval_s)

    def _await_trigger(self, number: int) -> str:
        def fired() -> str | None:
            if self._context.stop.is_set():
                raise Interrupted("stopped")
            if (life := self._lives.get(number)) is None:
                raise Interrupted("the load ends before it begins")
            return due(life, self._lives, self._moment, self._look)

        return self._await(fired, f"fault {number}")

    def _make(self, number: int, trigger: str) -> Injection[Any]:
        life = self._lives[number]
        node = self._context.cluster.node
        aim = Aim(
            {
                role: tuple(node(number) for number in self._resolve(role, life.fault))
                for role in life.fault.targets
            }
        )
        self._go(life.ask(self._timeline.clock.now(), trigger, [node.id for node in aim.nodes]))
        if (why := self._case.unable.get(number)) is not None:
            raise AckproofError(f"{UNABLE}: {why}")
        if life.fault.targets and not aim.nodes:
            raise AckproofError(AIMED_AT_NOTHING)
        return make_injection(life.fault, aim, self._context)

    def _heal(self, number: int, injection: Injection[Any]) -> None:
        try:
            begun_ns = self._timeline.clock.now()
            self._go(self._lives[number].heal(injection.heal(), begun_ns))
            if self._context.stop.is_set():
                raise Interrupted("the run was stopped, so healing was not awaited")
            self._go(self._lives[number].recover(injection.confirm_healed()))
        except Exception as error:  # noqa: BLE001 — as above
            self._go(self._lives[number].fail_healing(f"healing: {_words(error)}"))
            self._left.append((number, injection))
        finally:
            # Other faults on its nodes wait for its release, even if it could not heal.
            self._context.holds.drop(number)

    def _put_back(self, number: int, injection: Injection[Any]) -> None:
        """Undo what a fault whose healing failed left in the cluster's metadata, and note it on the timeline. All other
        faults are over by then. An error of the undoing is noted, not raised."""
        try:
            said = injection.put_back()
        except Exception as error:  # noqa: BLE001 — as above
            said = f"what it set could not be put back: {_words(error)}"
        if said:
            self._timeline.add(Note(note=f"fault {fault_name(number)}: {said}"))

    def _storm(self, storm: Storm, trigger: str) -> None:
        """Mark a storm as begun, and return when it is over: each of the random faults that it stands for has ended.
        They were drawn before the run, and begin at their times after the storm. `trigger`: the storm's trigger in
        words."""
        drawn = self._case.drawn[storm.number]
        now = self._timeline.clock.now()
        self._go(self._lives[storm.number].ask(now, trigger, [], left_out=drawn.left_out))

        def over() -> bool:
            own = [self._lives[fault.number] for fault in drawn.faults]
            self._go(storm_goes_on(self._lives[storm.number], storm, own, self._timeline.clock.now()))
            return self._lives[storm.number].over

        self._await(over, f"the end of storm {storm.number}")


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, AckproofError) else f"{type(error).__name__}: {error}"
