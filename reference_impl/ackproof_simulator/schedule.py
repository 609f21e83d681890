"""The lives of a case's faults in virtual time: trigger, inject, confirm, hold, heal, confirm (as `faults.driver`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

from pydantic import JsonValue

from ackproof.base.errors import AckproofError
from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec, trigger_text
from ackproof.experiment.roles import Members, Role
from ackproof.experiment.triggers import After, At, Condition, Quantity, Trigger, When, surely_fires
from ackproof.faults.storm.specification import Storm
from ackproof.rundir.timeline import DRAWN_FROM, EventKind
from ackproof_reference.broker import Leader
from ackproof_simulator.clock import MS
from ackproof_simulator.faults import VIRTUAL, NotYet, Virtual
from ackproof_simulator.timing import seconds
from ackproof_simulator.world import World

LOOK_NS = 10 * MS
CONFIRM_NS = 12 * MS
"""From a fault to its confirmation: a look at /proc."""
NOTICE_NS = 10 * MS
"""From the confirmation of a fault until one that waits for it has looked, found whom it is aimed at, and struck."""

Say: TypeAlias = Callable[[EventKind, int, dict[str, JsonValue]], None]


class Stage(Enum):
    """Where a fault is in its life."""

    WAITING = auto()
    BITING = auto()
    HEALING = auto()
    ENDED = auto()
    FAILED = auto()
    MISSED = auto()


_OVER: Final = frozenset({Stage.ENDED, Stage.FAILED, Stage.MISSED})


@dataclass(eq=False)
class Life:
    """One fault's."""

    fault: FaultSpec
    virtual: Virtual | None = None
    stage: Stage = Stage.WAITING
    begun: int | None = None
    confirmed: int | None = None
    recovered: int | None = None
    reason: str = ""
    bound: int = 0


class Schedule:
    """All faults of one simulated run. `say` writes the timeline, if there is one."""

    def __init__(self, case: Case, world: World, say: Say | None) -> None:
        self._case, self._world, self._clock = case, world, world.clock
        self._say: Say = say or (lambda kind, fault, detail: None)
        self.lives = [Life(fault) for fault in case.faults]
        self._by_number = {life.fault.number: life for life in self.lives}
        self._began = 0
        self.no_more = False
        self._heal_now = False

    def start(self) -> None:
        """The clock of `at:` begins."""
        self._began = self._clock.now
        for life in self.lives:
            trigger = life.fault.trigger
            if isinstance(trigger, At):
                self._clock.at(self._began + seconds(trigger.at), self._fire, life, str(trigger))
            elif isinstance(trigger, When):
                self._look(life, trigger)

    @property
    def pending(self) -> bool:
        """Whether a trigger will surely fire yet, or a fault with a time to its healing is still in force."""
        return any(
            self._will_fire(life)
            if life.stage is Stage.WAITING
            else life.stage is Stage.HEALING
            or (life.stage is Stage.BITING and (life.fault.HOLD_KEY is None or life.fault.hold is not None))
            for life in self.lives
        )

    @property
    def over(self) -> bool:
        """Whether every life has ended."""
        return all(life.stage in _OVER for life in self.lives)

    def _will_fire(self, life: Life) -> bool:
        return surely_fires(life.fault.trigger, self._fate)

    def _fate(self, number: int) -> bool | Trigger:
        first = self._by_number[number]
        return first.fault.trigger if first.stage is Stage.WAITING else first.stage is not Stage.FAILED

    def heal_all(self) -> None:
        """The load is over: what is broken is mended, what has not come never will."""
        self.no_more = self._heal_now = True
        for life in self.lives:
            if life.stage is Stage.WAITING:
                self._fail(life, f"its trigger never fired: {life.fault.trigger}")
            elif (
                life.stage is Stage.BITING
                and not isinstance(life.fault, Storm)
                and life.confirmed is not None
            ):
                self._heal(life)

    def _fail(self, life: Life, reason: str) -> None:
        if life.stage in _OVER:
            return
        life.reason = life.reason or reason
        if life.virtual is not None:
            life.virtual.abandon()
        missed = life.fault.number >= DRAWN_FROM and life.confirmed is None
        self._say(
            EventKind.FAULT_MISSED if missed else EventKind.FAULT_FAILED,
            life.fault.number,
            {"reason": reason},
        )
        life.stage = Stage.MISSED if missed else Stage.FAILED
        for other in self.lives:
            trigger = other.fault.trigger
            if isinstance(trigger, After) and trigger.fault == life.fault.number and not missed:
                self._fail(other, f"fault {trigger.fault}, after which it was to come, failed")

    # -- triggers -----------------------------------------------------------------------------------------------

    def _look(self, life: Life, trigger: When) -> None:
        if life.stage is not Stage.WAITING or (self.no_more and trigger.at_latest is None):
            return
        number = self._number(trigger.condition)
        if number is not None and trigger.condition.holds(number):
            text = f"{trigger.condition}: {trigger.condition.quantity} is {number}"
            lag = self._world.timing.counters
            if trigger.condition.quantity in (Quantity.ISR, Quantity.LAG):
                lag = self._world.timing.sampling
            self._clock.after(int(self._world.random.random() * lag), self._fire, life, text)
        elif trigger.at_latest is not None and self._clock.now - self._began >= seconds(trigger.at_latest):
            self._fire(life, f"{trigger.condition} had not come: {trigger}")
        else:
            self._clock.after(LOOK_NS, self._look, life, trigger)

    def _number(self, condition: Condition) -> int | None:
        world, topic, number = self._world, condition.topic, condition.partition
        if condition.quantity is Quantity.ACKED:
            if topic is None or number is None:
                return world.acked
            return world.acked_at.get(world.index(topic, number), 0)
        if condition.quantity is Quantity.READ:
            place = None if topic is None or number is None else world.index(topic, number)
            return sum(
                handed.batch.length
                for reader in world.readers
                for handed in reader.handed
                if place is None or handed.place == place
            )
        if topic is None or number is None:
            return None
        partition = world.partition(topic, number)
        if condition.quantity is Quantity.ISR:
            return len(partition.image.partition.isr)
        leader = partition.image.partition.leader
        if leader < 0 or not isinstance(partition.brokers[leader].process.role, Leader):
            return None
        log = partition.log(leader)
        return log.end - log.high_watermark

    def _after(self, first: Life, *, drawn: bool) -> None:
        """Faults that wait for this one."""
        for life in self.lives:
            trigger = life.fault.trigger
            if (
                isinstance(trigger, After)
                and trigger.fault == first.fault.number
                and (life.fault.number >= DRAWN_FROM) is drawn
            ):
                self._clock.after(seconds(trigger.by) + NOTICE_NS, self._fire, life, trigger_text(life.fault))

    # -- the fault itself ---------------------------------------------------------------------------------------

    def _fire(self, life: Life, trigger: str) -> None:
        if life.stage is not Stage.WAITING:
            return
        fault = life.fault
        if self._heal_now and fault.number >= DRAWN_FROM:
            self._fail(life, "the load was over before its time came")
            return
        aim = {role: self._resolve(role, fault) for role in fault.targets}
        nodes = sorted({node for found in aim.values() for node in found})
        self._say(
            EventKind.FAULT_ASKED,
            fault.number,
            {
                "kind": fault.kind,
                "role": str(fault).removeprefix(fault.kind).strip(),
                "nodes": list(nodes),
                "trigger": trigger,
            },
        )
        life.begun = self._clock.now
        if isinstance(fault, Storm):
            life.stage = Stage.BITING
            self._after(life, drawn=True)
            self._watch_storm(life, fault)
            return
        if fault.targets and not nodes:
            self._fail(life, "aimed at nothing: nobody holds the role")
            return
        life.virtual = VIRTUAL[type(fault)](fault, aim, self._world)
        life.stage = Stage.BITING
        life.bound = self._clock.now + seconds(life.virtual.WITHIN_S)
        self._inject(life, life.virtual)

    def _inject(self, life: Life, virtual: Virtual) -> None:
        try:
            did = virtual.inject()
        except AckproofError as error:
            if isinstance(error, NotYet) and self._clock.now <= life.bound:
                self._clock.after(LOOK_NS, self._inject, life, virtual)
            else:
                self._fail(life, str(error))
            return
        self._clock.after(CONFIRM_NS, self._confirm, life, did)

    def _resolve(self, role: Role, fault: FaultSpec) -> tuple[int, ...]:
        control = self._world.control
        members = Members(control.brokers, control.controllers, control.acting)
        if role.topic is not None and role.partition is not None:
            partition = self._world.partition(role.topic, role.partition).image.partition
            members = Members(
                control.brokers,
                control.controllers,
                control.acting,
                partition.leader,
                partition.replicas,
                partition.isr,
            )
        return role.resolve(members, self._case.order(fault))

    def _confirm(self, life: Life, did: str) -> None:
        assert life.virtual is not None
        if not life.virtual.bites():
            if self._clock.now > life.bound:
                self._fail(life, "it had no effect")
            else:
                self._clock.after(CONFIRM_NS, self._confirm, life, did)
            return
        life.confirmed = self._clock.now
        self._say(EventKind.FAULT_CONFIRMED, life.fault.number, {"did": did, "witness": life.virtual.witness})
        self._after(life, drawn=False)
        if life.fault.HOLD_KEY is None or self._heal_now:
            self._heal(life)
        elif life.fault.hold is not None:
            self._clock.after(seconds(life.fault.hold), self._heal, life)

    def _heal(self, life: Life) -> None:
        if life.stage is not Stage.BITING or life.virtual is None:
            return
        life.stage = Stage.HEALING
        life.bound = self._clock.now + seconds(life.virtual.WITHIN_S)
        self._undo(life, life.virtual)

    def _undo(self, life: Life, virtual: Virtual) -> None:
        try:
            did = virtual.heal()
        except AckproofError as error:
            if isinstance(error, NotYet) and self._clock.now <= life.bound:
                self._clock.after(LOOK_NS, self._undo, life, virtual)
            else:
                self._fail(life, f"healing: {error}")
            return
        self._say(EventKind.FAULT_HEALED, life.fault.number, {"did": did})
        self._recover(life)

    def _recover(self, life: Life) -> None:
        assert life.virtual is not None
        if life.virtual.healed():
            life.recovered = self._clock.now
            life.stage = Stage.ENDED
            self._say(EventKind.FAULT_RECOVERED, life.fault.number, {"witness": life.virtual.witness})
        elif self._clock.now > life.bound:
            self._fail(life, "healing: it did not recover in time")
        else:
            self._clock.after(LOOK_NS, self._recover, life)

    def _watch_storm(self, life: Life, storm: Storm) -> None:
        drawn = [self._by_number[fault.number] for fault in self._case.drawn[storm.number].faults]
        bit = sum(one.confirmed is not None for one in drawn)
        if bit >= storm.least and life.confirmed is None:
            life.confirmed = self._clock.now
            told = f"{storm.least} of them were confirmed"
            self._say(
                EventKind.FAULT_CONFIRMED,
                storm.number,
                {"did": f"drew {storm.count} faults", "witness": told},
            )
        if not all(one.stage in _OVER for one in drawn):
            self._clock.after(5 * LOOK_NS, self._watch_storm, life, storm)
            return
        told = f"{bit} of {storm.count} drawn faults bit"
        self._say(EventKind.FAULT_HEALED, storm.number, {"did": "each fault healed in its turn"})
        if bit < storm.least:
            self._fail(life, f"at least {storm.least} were to bite: {told}")
        elif any(one.stage is Stage.FAILED for one in drawn):
            self._fail(life, f"a fault that it drew did not heal; {told}")
        else:
            life.recovered = self._clock.now
            life.stage = Stage.ENDED
            self._say(EventKind.FAULT_RECOVERED, storm.number, {"witness": told})
