"""Starts and heals a case's faults in virtual time, as `ackproof.faults.driver` does on a real cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from ackproof.base.errors import AckproofError
from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec, trigger_text
from ackproof.experiment.roles import Members, Role
from ackproof.experiment.triggers import COUNTS, ChainTrigger, Condition, StateTrigger, TimeTrigger
from ackproof.faults.life import (
    AIMED_AT_NOTHING,
    Life,
    LoadPhase,
    Moment,
    Stage,
    Step,
    chained_faults,
    due,
    state_came,
    storm_goes_on,
)
from ackproof.faults.storm import Storm
from ackproof.quantities.states import LIVE
from ackproof.rundir.timeline import EventDetail
from ackproof_simulator.clock import MS, seconds
from ackproof_simulator.faults.virtual import NotYet, Virtual, virtual_of
from ackproof_simulator.world import World

LOOK_NS = 10 * MS
CONFIRM_NS = 12 * MS
"""Nanoseconds from a fault to the first check of its effect, and between two checks. On a real node a check reads
/proc, which takes about as long."""
NOTICE_NS = 10 * MS
"""Nanoseconds from a fault's confirmation until a chained fault has resolved its targets and struck."""

Say: TypeAlias = Callable[[EventDetail, int | None], None]
"""Records an event of the timeline at the present virtual time; the second argument is the number of its fault, or
None."""


class Schedule:
    """Starts and heals the faults of one simulated run by their triggers. `say(detail, fault)` is called with timeline
    events and the fault's number; None: no events are needed."""

    def __init__(self, case: Case, world: World, say: Say | None) -> None:
        self._case, self._world, self._clock = case, world, world.clock
        self._say: Say = say or (lambda what, fault: None)
        self.lives = {fault.number: Life(fault) for fault in case.faults}
        self._done: dict[int, Virtual[Any]] = {}
        self._healing: set[int] = set()
        self._bounds: dict[int, int] = {}
        self._began = 0
        self._load = LoadPhase.RUNS

    def start(self) -> None:
        """Start to evaluate triggers. The times of `at:` triggers count from now."""
        self._began = self._clock.now
        for life in self.lives.values():
            trigger = life.fault.trigger
            if isinstance(trigger, TimeTrigger):
                self._clock.call_at(self._began + seconds(trigger.at), self._fire, life.number, str(trigger))
            elif isinstance(trigger, StateTrigger):
                self._look(life.number, trigger)

    @property
    def over(self) -> bool:
        return all(life.over for life in self.lives.values())

    def no_more_states(self) -> None:
        """Note that the planned load is over, and fail the waiting faults whose trigger is not sure to fire: a state
        trigger (`when:`) without `at_latest`, or `after:` a fault with such a trigger."""
        self._load = LoadPhase.ENDS
        self._drop_the_hopeless()

    def heal_all(self) -> None:
        """Fail the waiting faults whose trigger can never fire any more. Then begin to heal all confirmed faults, and
        from now on each fault once it is confirmed. `over` is True when all have ended."""
        self._load = LoadPhase.OVER
        self._drop_the_hopeless()
        for number, life in self.lives.items():
            if life.stage is Stage.CONFIRMED and number in self._done:
                self._heal(number)

    @property
    def _moment(self) -> Moment:
        return Moment(self._clock.now, self._began, self._load)

    def _go(self, step: Step) -> Life:
        self.lives[step.life.number] = step.life
        for event in step.events:
            self._say(event, step.life.number)
        return step.life

    def _fail(self, number: int, reason: str) -> None:
        if self.lives[number].over:
            return
        if number in self._done:
            self._done[number].abandon()
        self._go(self.lives[number].fail(reason))
        self._drop_the_hopeless()

    def _drop_the_hopeless(self) -> None:
        """Fail each waiting fault that can never begin any more (`life.due` raises), with the reason."""
        for life in list(self.lives.values()):
            if life.stage is Stage.WAITING:
                try:
                    due(life, self.lives, self._moment, self._number)
                except AckproofError as error:
                    self._fail(life.number, str(error))

    # -- triggers -----------------------------------------------------------------------------------------------

    def _look(self, number: int, trigger: StateTrigger) -> None:
        if self.lives[number].stage is not Stage.WAITING:
            return
        gauge = self._number(trigger.condition)
        text = state_came(trigger, gauge, self._moment)
        if text is None:
            self._clock.call_after(LOOK_NS, self._look, number, trigger)
        elif gauge is None or not trigger.condition.holds(gauge):
            self._fire(number, text)
        else:
            timing = self._world.timing
            lag = timing.counters if trigger.condition.gauge in COUNTS else timing.sampling
            self._clock.call_after(int(self._world.random.random() * lag), self._fire, number, text)

    def _number(self, condition: Condition) -> float | None:
        world, topic, number = self._world, condition.topic, condition.partition
        if condition.gauge == "acked":
            if topic is None or number is None:
                return world.acked
            return world.acked_at.get(world.index(topic, number), 0)
        if condition.gauge == "read":
            place = None if topic is None or number is None else world.index(topic, number)
            return sum(
                handed.batch.length
                for reader in world.readers
                for handed in reader.handed
                if place is None or handed.place == place
            )
        if topic is None or number is None:
            return None
        return LIVE[condition.gauge](world.look(world.partition(topic, number)))

    def _let_follow(self, first: Life) -> None:
        """Schedule the faults with a trigger `after:` fault `first`. Call it directly after `first` was confirmed, or,
        for the faults that a storm drew, after the storm (`first`) was started."""
        for life in chained_faults(self.lives, first):
            if isinstance(trigger := life.fault.trigger, ChainTrigger):
                later = seconds(trigger.by) + NOTICE_NS
                self._clock.call_after(later, self._fire, life.number, trigger_text(life.fault))

    # -- the fault itself ---------------------------------------------------------------------------------------

    def _fire(self, number: int, trigger: str) -> None:
        life = self.lives[number]
        if life.stage is not Stage.WAITING:
            return
        fault = life.fault
        aim = {role: self._resolve(role, fault) for role in fault.targets}
        nodes = sorted({node for found in aim.values() for node in found})
        if isinstance(fault, Storm):
            left_out = self._case.drawn[number].left_out
            self._let_follow(self._go(life.ask(self._clock.now, trigger, nodes, left_out=left_out)))
            self._watch_storm(fault)
            return
        self._go(life.ask(self._clock.now, trigger, nodes))
        if fault.targets and not nodes:
            self._fail(number, AIMED_AT_NOTHING)
            return
        virtual = self._done[number] = virtual_of(fault, aim, self._world)
        self._bounds[number] = self._clock.now + seconds(virtual.WITHIN_S)
        self._attempt(
            number,
            virtual.inject,
            partial(self._clock.call_after, CONFIRM_NS, self._confirm, number, virtual),
        )

    def _attempt(
        self, number: int, act: Callable[[], str], then: Callable[[str], object], failed: str = ""
    ) -> None:
        """Call `act` for the fault with this number; then call `then` with the result of `act`.

        While `act` raises `NotYet`, call it again every 10 ms, until the fault's time limit is over. A later `NotYet`
        and any other `AckproofError` fail the fault, with `failed` before the error's text."""
        try:
            did = act()
        except AckproofError as error:
            if isinstance(error, NotYet) and self._clock.now <= self._bounds[number]:
                self._clock.call_after(LOOK_NS, self._attempt, number, act, then, failed)
            else:
                self._fail(number, f"{failed}{error}")
            return
        then(did)

    def _resolve(self, role: Role, fault: FaultSpec) -> tuple[int, ...]:
        racks = self._case.experiment.cluster.members.racks
        return role.find_nodes(lambda one: self._holders(one, fault), racks)

    def _holders(self, role: Role, fault: FaultSpec) -> tuple[int, ...]:
        control = self._world.control
        members = Members(control.brokers, control.controllers, control.acting)
        if role.topic is not None and role.partition is not None:
            now = self._world.partition(role.topic, role.partition).image.partition
            members = replace(members, leader=now.leader, replicas=now.replicas, isr=now.isr)
        return role.resolve(members, self._case.order(fault))

    def _confirm(self, number: int, virtual: Virtual[Any], did: str) -> None:
        if not virtual.is_in_effect():
            if self._clock.now > self._bounds[number]:
                self._fail(number, "it had no effect")
            else:
                self._clock.call_after(CONFIRM_NS, self._confirm, number, virtual, did)
            return
        life = self._go(self.lives[number].confirm(self._clock.now, did, virtual.witness))
        self._let_follow(life)
        if life.to_heal(self._moment):
            self._heal(number)
        elif life.fault.hold is not None:
            self._clock.call_after(seconds(life.fault.hold), self._heal, number)

    def _heal(self, number: int) -> None:
        if self.lives[number].stage is Stage.CONFIRMED and number not in self._healing:
            self._healing.add(number)
            self._bounds[number] = self._clock.now + seconds(self._done[number].WITHIN_S)
            virtual = self._done[number]
            self._attempt(number, virtual.heal, partial(self._healed, number, virtual), "healing: ")

    def _healed(self, number: int, virtual: Virtual[Any], did: str) -> None:
        self._go(self.lives[number].heal(did))
        self._recover(number, virtual)

    def _recover(self, number: int, virtual: Virtual[Any]) -> None:
        if virtual.healed():
            self._go(self.lives[number].recover(virtual.witness))
        elif self._clock.now > self._bounds[number]:
            self._fail(number, "healing: it did not recover in time")
        else:
            self._clock.call_after(LOOK_NS, self._recover, number, virtual)

    def _watch_storm(self, storm: Storm) -> None:
        own = [self.lives[fault.number] for fault in self._case.drawn[storm.number].faults]
        if not self._go(storm_goes_on(self.lives[storm.number], storm, own, self._clock.now)).over:
            self._clock.call_after(5 * LOOK_NS, self._watch_storm, storm)
        elif self.lives[storm.number].stage is Stage.FAILED:
            self._drop_the_hopeless()
