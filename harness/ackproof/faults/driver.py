"""Carries a case's faults through their lives, one thread each: trigger, inject, confirm, hold, heal, confirm.

A fault that does not bite, is aimed at nothing, or whose trigger never fires is written down as `fault-failed`; the
run goes on, what is broken is healed, and the judge says INCONCLUSIVE.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol

from ackproof.base.errors import AckproofError, Interrupted, WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec, trigger_text
from ackproof.experiment.roles import Role
from ackproof.experiment.triggers import After, At, Condition, Quantity, Trigger, When, surely_fires
from ackproof.faults.injection import Aim, FaultContext, Injection, injection_of
from ackproof.faults.storm.specification import Storm
from ackproof.rundir.timeline import DRAWN_FROM, EventKind, Timeline, fault_name

LOOK_EVERY_S: Final = 0.005
"""How often a trigger looks: well within the 50 ms in which an ack must reach it."""


class Gauges(Protocol):
    """The live quantities that triggers look at. None: not known at this moment."""

    def acked(self, topic: str | None, partition: int | None) -> int:
        """Records acknowledged so far."""

    def read(self, topic: str | None, partition: int | None) -> int:
        """Records handed to live readers so far."""

    def isr_size(self, topic: str, partition: int) -> int | None:
        """Size of the in-sync replica set."""

    def lag(self, topic: str, partition: int) -> int | None:
        """The leader's log end offset − high watermark."""


class Stage(Enum):
    """Where a fault is in its life."""

    WAITING = auto()
    BITING = auto()
    ENDED = auto()
    FAILED = auto()
    MISSED = auto()
    """A fault that a storm drew did not bite, which is the storm's to judge."""


_OVER: Final = frozenset({Stage.ENDED, Stage.FAILED, Stage.MISSED})


@dataclass
class _Life:
    fault: FaultSpec
    injection: Injection[Any] | None = None
    stage: Stage = Stage.WAITING
    begun_at_ns: int | None = None
    confirmed_at_ns: int | None = None
    ended_at_ns: int | None = None
    reason: str = ""
    unhealed: bool = False

    @property
    def missed(self) -> bool:
        """Whether a storm drew it and it has not bitten."""
        return self.fault.number >= DRAWN_FROM and self.confirmed_at_ns is None and not self.unhealed


class FaultDriver:
    """All faults of one run. `resolve` gives the nodes that hold a role now; `start` begins the clock of `at:`."""

    def __init__(
        self,
        case: Case,
        field: FaultContext,
        gauges: Gauges,
        timeline: Timeline,
        resolve: Callable[[Role, FaultSpec], Sequence[int]],
    ) -> None:
        self._case = case
        self._field = field
        self._gauges = gauges
        self._timeline = timeline
        self._resolve = resolve
        self._lives = [_Life(fault) for fault in case.faults]
        self._by_number = {life.fault.number: life for life in self._lives}
        self._heal_now = threading.Event()
        self._no_more = threading.Event()
        self._threads: list[threading.Thread] = []
        self._start_ns = 0

    def start(self) -> None:
        """The workload runs: begin to look at triggers."""
        self._start_ns = self._timeline.clock.now()
        for life in self._lives:
            thread = threading.Thread(
                target=self._live, args=(life,), name=f"fault-{life.fault.number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stages(self) -> dict[int, Stage]:
        """The stage of each fault by its number."""
        return {life.fault.number: life.stage for life in self._lives}

    @property
    def pending(self) -> bool:
        """Whether a trigger will surely fire yet, or a fault with a time to its healing is still in force."""
        return any(
            self._will_fire(life)
            if life.stage is Stage.WAITING
            else life.stage is Stage.BITING and (life.fault.HOLD_KEY is None or life.fault.hold is not None)
            for life in self._lives
        )

    def _will_fire(self, life: _Life) -> bool:
        return surely_fires(life.fault.trigger, self._fate)

    def _fate(self, number: int) -> bool | Trigger:
        first = self._by_number[number]
        return first.fault.trigger if first.stage is Stage.WAITING else first.stage is not Stage.FAILED

    def no_more_states(self) -> None:
        """The time of the load is over: a state that has not come by now never will."""
        self._no_more.set()

    def heal_all(self) -> None:
        """Heal what is still broken, and wait until each fault's life has ended."""
        self._no_more.set()
        self._heal_now.set()
        for thread in self._threads:
            thread.join()

    def failures(self) -> list[str]:
        """What did not bite or did not heal, in words."""
        return [
            f"fault {fault_name(life.fault.number)} ({life.fault}): {life.reason}"
            for life in self._lives
            if life.stage is Stage.FAILED
        ]

    def _live(self, life: _Life) -> None:
        try:
            trigger = self._await_trigger(life)
            if isinstance(life.fault, Storm):
                self._storm(life, life.fault, trigger)
                return
            self._inject(life, trigger)
            self._hold(life)
        except AckproofError as error:
            self._fail(life, str(error))
        except Exception as error:  # noqa: BLE001 — a thread's crash must become a fact of the run, not vanish
            self._fail(life, f"{type(error).__name__}: {error}")
        self._heal(life)

    def _fail(self, life: _Life, reason: str, *, healing: bool = False) -> None:
        life.unhealed |= healing
        if not life.reason:
            life.reason = reason
        kind = EventKind.FAULT_MISSED if life.missed else EventKind.FAULT_FAILED
        self._timeline.add(kind, fault=life.fault.number, reason=reason)

    # -- trigger ------------------------------------------------------------------------------------------------

    def _await_trigger(self, life: _Life) -> str:
        trigger = life.fault.trigger
        look, what = self._look_of(life, trigger)

        def fired() -> str | None:
            if self._field.stop.is_set():
                raise Interrupted("stopped")
            if self._heal_now.is_set() and life.fault.number >= DRAWN_FROM:
                raise AckproofError("the load was over before its time came")
            seen = look()
            if seen is None and self._no_more.is_set() and not self._will_fire(life):
                raise WaitTimeout(f"its trigger never fired: {what}")
            return seen

        # The bound is the end of the load, announced by `no_more_states`; an hour is beyond any run.
        return wait_until(fired, what=what, timeout_s=3600.0, interval_s=LOOK_EVERY_S)

    def _look_of(self, life: _Life, trigger: At | When | After) -> tuple[Callable[[], str | None], str]:
        if isinstance(trigger, At):
            at = trigger.at
            return (lambda: str(trigger) if self._since(self._start_ns) >= at else None), str(trigger)
        if isinstance(trigger, When):
            return (lambda: self._state_came(trigger)), str(trigger)
        first = self._by_number[trigger.fault]
        drawn = life.fault.number >= DRAWN_FROM
        text = trigger_text(life.fault)

        def since() -> int | None:
            return first.begun_at_ns if drawn else first.confirmed_at_ns

        return (lambda: text if self._after(first, since(), trigger) else None), text

    def _state_came(self, trigger: When) -> str | None:
        number = self._number(trigger.condition)
        if number is not None and trigger.condition.holds(number):
            return f"{trigger.condition}: {trigger.condition.quantity} is {number}"
        if trigger.at_latest is not None and self._since(self._start_ns) >= trigger.at_latest:
            return f"{trigger.condition} had not come: {trigger}"
        return None

    def _number(self, condition: Condition) -> int | None:
        topic, partition = condition.topic, condition.partition
        if condition.quantity is Quantity.ACKED:
            return self._gauges.acked(topic, partition)
        if condition.quantity is Quantity.READ:
            return self._gauges.read(topic, partition)
        if topic is None or partition is None:
            raise AckproofError(f"{condition}: {condition.quantity} is that of a partition")
        gauge = self._gauges.isr_size if condition.quantity is Quantity.ISR else self._gauges.lag
        return gauge(topic, partition)

    def _after(self, first: _Life, since: int | None, trigger: After) -> bool:
        if first.stage is Stage.FAILED:
            raise AckproofError(f"fault {trigger.fault}, after which it was to come, failed")
        return since is not None and self._since(since) >= trigger.by

    def _since(self, start_ns: int) -> float:
        return (self._timeline.clock.now() - start_ns) / 1e9

    # -- the fault itself ---------------------------------------------------------------------------------------

    def _inject(self, life: _Life, trigger: str) -> None:
        fault = life.fault
        aim = Aim(
            {
                role: tuple(self._field.cluster.node(node) for node in self._resolve(role, fault))
                for role in fault.targets
            }
        )
        self._timeline.add(
            EventKind.FAULT_ASKED,
            fault=fault.number,
            kind=fault.kind,
            role=str(fault).removeprefix(fault.kind).strip(),
            nodes=[node.id for node in aim.nodes],
            trigger=trigger,
        )
        if fault.targets and not aim.nodes:
            raise AckproofError("aimed at nothing: nobody holds the role")
        life.injection = injection_of(fault, aim, self._field)
        life.stage = Stage.BITING
        did = life.injection.inject()
        witness = life.injection.confirm()
        life.confirmed_at_ns = self._timeline.clock.now()
        self._timeline.add(EventKind.FAULT_CONFIRMED, fault=fault.number, did=did, witness=witness)

    def _hold(self, life: _Life) -> None:
        fault = life.fault
        if fault.HOLD_KEY is None:
            return
        seconds = fault.hold
        confirmed = life.confirmed_at_ns or 0
        wait_until(
            lambda: (
                self._heal_now.is_set()
                or self._field.stop.is_set()
                or (seconds is not None and self._since(confirmed) >= seconds)
            ),
            what=f"the end of fault {fault.number}",
            timeout_s=3600.0,
            interval_s=LOOK_EVERY_S,
        )

    def _heal(self, life: _Life) -> None:
        if life.injection is None:
            life.stage = Stage.MISSED if life.missed else Stage.FAILED
            return
        try:
            did = life.injection.heal()
            self._timeline.add(EventKind.FAULT_HEALED, fault=life.fault.number, did=did)
            if self._field.stop.is_set():
                raise Interrupted("the run was stopped, so healing was not awaited")
            witness = life.injection.confirm_healed()
            self._timeline.add(EventKind.FAULT_RECOVERED, fault=life.fault.number, witness=witness)
        except AckproofError as error:
            self._fail(life, f"healing: {error}", healing=True)
        except Exception as error:  # noqa: BLE001 — as above
            self._fail(life, f"healing: {type(error).__name__}: {error}", healing=True)
        life.ended_at_ns = self._timeline.clock.now()
        if life.missed:
            life.stage = Stage.MISSED
        else:
            life.stage = Stage.FAILED if life.reason else Stage.ENDED

    # -- a storm ------------------------------------------------------------------------------------------------

    def _storm(self, life: _Life, storm: Storm, trigger: str) -> None:
        """Begin it, which lets the faults that it drew begin; it bites when enough of them have."""
        drawn = self._case.drawn[storm.number]
        own = [self._by_number[fault.number] for fault in drawn.faults]
        self._timeline.add(
            EventKind.FAULT_ASKED,
            fault=storm.number,
            kind=storm.kind,
            role=str(storm).removeprefix(storm.kind).strip(),
            nodes=[],
            trigger=trigger,
            left_out=list(drawn.left_out),
        )
        life.begun_at_ns = self._timeline.clock.now()
        life.stage = Stage.BITING

        def bit() -> int:
            return sum(one.confirmed_at_ns is not None for one in own)

        def over() -> bool:
            return all(one.stage in _OVER for one in own)

        what = f"the end of storm {storm.number}"
        wait_until(lambda: over() or bit() >= storm.least, what=what, timeout_s=3600.0)
        if bit() >= storm.least:
            life.confirmed_at_ns = self._timeline.clock.now()
            self._timeline.add(
                EventKind.FAULT_CONFIRMED,
                fault=storm.number,
                did=f"drew {storm.count} faults",
                witness=f"{storm.least} of them were confirmed, each by its own witness",
            )
        wait_until(over, what=what, timeout_s=3600.0)
        self._timeline.add(EventKind.FAULT_HEALED, fault=storm.number, did="each fault healed in its turn")
        missed = "; ".join(
            f"{fault_name(one.fault.number)} ({one.fault}: {one.reason})"
            for one in own
            if one.stage is Stage.MISSED
        )
        told = f"{bit()} of {storm.count} drawn faults bit" + (f"; missed: {missed}" if missed else "")
        unhealed = [fault_name(one.fault.number) for one in own if one.stage is Stage.FAILED]
        if bit() < storm.least:
            self._fail(life, f"at least {storm.least} were to bite: {told}")
        elif unhealed:
            self._fail(life, f"fault {', '.join(unhealed)} did not heal, or did not hold; {told}")
        else:
            self._timeline.add(EventKind.FAULT_RECOVERED, fault=storm.number, witness=told)
        life.ended_at_ns = self._timeline.clock.now()
        life.stage = Stage.FAILED if life.reason else Stage.ENDED
