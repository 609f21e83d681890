"""State machine of a fault, from its trigger to its recovery: (state, occurrence, time) → (next state, events).

::

    waiting ─▶ asked ─▶ confirmed ─▶ healed ─▶ recovered
       └─────────┴──────────┴───────────┴─▶ failed; missed, if a storm drew it and it had no effect

Nothing here waits, looks or writes. Three drivers carry faults through their states: threads on a real cluster
(`faults.driver`), virtual time (the simulator's `schedule`), and a test's own calls (`testing.cluster`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, TypeAlias

from ackproof.base.errors import AckproofError
from ackproof.experiment.fault import FaultSpec, trigger_text
from ackproof.experiment.triggers import (
    ChainTrigger,
    Condition,
    StateTrigger,
    TimeTrigger,
    Trigger,
    surely_fires,
)
from ackproof.faults.storm import Storm
from ackproof.rundir.timeline import (
    DRAWN_FROM,
    EventDetail,
    FaultAsked,
    FaultConfirmed,
    FaultFailed,
    FaultHealed,
    FaultMissed,
    FaultRecovered,
    fault_name,
)

FIRST_ACKS_BOUND_S: Final = 30.0
"""Maximum seconds for which the clock of `at:` waits for a first acknowledgement on every partition. On an overloaded
machine an idempotent producer got its producer id after 18 s."""
AFTER_HEALING_S: Final = 0.5
"""Seconds of load after the last healing, so that acknowledgements of the healed cluster are observed."""
AFTER_HEALING_BOUND_S: Final = 30.0
"""Maximum seconds of load after the last healing, if nothing is acknowledged."""
PARTNER_S: Final = 15.0
"""Maximum seconds for which the first fault of a pair waits for the second to take effect."""
AIMED_AT_NOTHING: Final = "aimed at nothing: no node holds the role"
UNABLE: Final = "not possible on this machine"
Look: TypeAlias = Callable[[Condition], float | None]
"""Function that returns the present value of a condition's gauge; None if it is unknown at this moment."""


class Stage(Enum):
    """Stages of a fault, in their order; the last three are final."""

    WAITING = auto()
    ASKED = auto()
    CONFIRMED = auto()
    HEALED = auto()
    """The fault was undone, and no witness has confirmed that yet."""
    RECOVERED = auto()
    FAILED = auto()
    MISSED = auto()
    """A fault that a storm drew did not take effect. The storm decides whether that matters."""


OVER: Final = frozenset({Stage.RECOVERED, Stage.FAILED, Stage.MISSED})


class LoadPhase(Enum):
    """Phase of the run's load, on which triggers and healing depend."""

    RUNS = auto()
    ENDS = auto()
    """The planned duration is over. Faults with a `when:` trigger without `at_latest`, and those `after` them, are
    given up. All others are still awaited, because their time is sure to come."""
    OVER = auto()
    """The load has ended. Every fault is healed, and storms begin no further fault."""


@dataclass(frozen=True)
class Moment:
    """A point in time of a run: `now_ns`, in ns since the run's start. `began_ns`: the time, also in ns since the run's
    start, from which `at:` triggers count."""

    now_ns: int
    began_ns: int
    load: LoadPhase


@dataclass(frozen=True)
class Life:
    """State of one fault, from waiting for its trigger to its end. `asked_ns`: time at which its trigger fired;
    `confirmed_ns`: time at which a witness saw its effect. Both are in ns since the run's start; None: not yet.

    A fault that failed during injection keeps its stage, with a `reason`, until it is undone. `unhealed`: True if it
    could not be undone, or if no witness confirmed that it was undone.
    """

    fault: FaultSpec
    stage: Stage = Stage.WAITING
    asked_ns: int | None = None
    confirmed_ns: int | None = None
    reason: str = ""
    """Why the fault failed or missed; '' if it did neither."""
    unhealed: bool = False

    @property
    def number(self) -> int:
        return self.fault.number

    @property
    def is_drawn(self) -> bool:
        """Return True if a storm drew the fault."""
        return self.fault.is_drawn

    @property
    def bit(self) -> bool:
        return self.confirmed_ns is not None

    @property
    def over(self) -> bool:
        return self.stage in OVER

    @property
    def failure(self) -> str:
        return f"fault {fault_name(self.number)} ({self.fault}): {self.reason}"

    # -- what happens to it -------------------------------------------------------------------------------------

    def ask(
        self,
        now_ns: int,
        trigger: str,
        nodes: Sequence[int],
        *,
        role: str | None = None,
        left_out: Sequence[str] | None = None,
    ) -> Step:
        """Return the step for a fault whose trigger has fired. `trigger`: the trigger in words. `nodes`: nodes that the
        fault hits. `role`: its target in words (default: as the fault describes itself). `left_out`: kinds that a storm
        does not draw."""
        said = FaultAsked(
            kind=self.fault.kind,
            done=self.fault.DONE,
            role=self.fault.target_text if role is None else role,
            nodes=tuple(nodes),
            trigger=trigger,
        )
        if left_out is not None:
            said = said.model_copy(update={"left_out": tuple(left_out)})
        return Step(replace(self, stage=Stage.ASKED, asked_ns=now_ns), (said,))

    def confirm(
        self,
        now_ns: int,
        did: str,
        witness: str,
        killed: Mapping[str, int] | None = None,
        clients: Sequence[str] | None = None,
    ) -> Step:
        """Return the step for a fault that an independent witness saw take effect.

        `did`: what was done, in words. `witness`: what was seen, in words. `killed`: id of each killed client → its
        process id. `clients`: ids of the clients that were hit.
        """
        said = FaultConfirmed(did=did, witness=witness)
        if clients is not None:
            said = said.model_copy(update={"clients": tuple(clients)})
        if killed is not None:
            said = said.model_copy(update={"killed": dict(killed)})
        return Step(replace(self, stage=Stage.CONFIRMED, confirmed_ns=now_ns), (said,))

    def heal(self, did: str, begun_ns: int = 0) -> Step:
        """Return the step for a fault that was undone. `did`: what was done, in words. `begun_ns`: start of the
        undoing, in ns since the run's start; 0: now."""
        return Step(replace(self, stage=Stage.HEALED), (FaultHealed(did=did, begun_ns=begun_ns),))

    def recover(self, witness: str) -> Step:
        """Return the step for a fault that a witness saw undone (`witness`: in words). It ends as recovered or, if it
        had failed before, as failed (a drawn fault without effect: as missed)."""
        life = self._end_failed() if self.reason else replace(self, stage=Stage.RECOVERED)
        return Step(life, (FaultRecovered(witness=witness),))

    def fail(self, reason: str, *, to_undo: bool = False) -> Step:
        """Return the step for a fault that did not begin, had no effect, or did not last. `to_undo`: its
        effect must still be undone, so it keeps its stage."""
        said = (FaultMissed if self._missed else FaultFailed)(reason=reason)
        life = replace(self, reason=self.reason or reason)
        return Step(life if to_undo else life._end_failed(), (said,))

    def fail_healing(self, reason: str) -> Step:
        """Return the step for a fault that could not be undone, or whose undoing was not confirmed."""
        return replace(self, unhealed=True).fail(reason)

    def _end_failed(self) -> Life:
        """Return the life with its last stage: missed for a drawn fault without effect that left nothing to heal, else
        failed."""
        return replace(self, stage=Stage.MISSED if self._missed else Stage.FAILED)

    @property
    def _missed(self) -> bool:
        return self.is_drawn and not self.bit and not self.unhealed

    # -- what is to be done -------------------------------------------------------------------------------------

    def to_heal(self, moment: Moment) -> bool:
        """Return True if the fault must be healed now: it was held for its time or ends by itself, or the load is
        over."""
        if self.fault.HOLD_KEY is None or moment.load is LoadPhase.OVER:
            return True
        held = moment.now_ns - (self.confirmed_ns or 0)
        return self.fault.hold is not None and held >= self.fault.hold * 1e9


@dataclass(frozen=True)
class Step:
    """Next state of a fault, and the events to add to the timeline."""

    life: Life
    events: tuple[EventDetail, ...] = ()


Lives: TypeAlias = Mapping[int, Life]
"""State of all faults of a run, by number."""


def due(life: Life, lives: Lives, moment: Moment, look: Look) -> str | None:
    """Return the trigger in words if a waiting fault (`life`) must begin now, else None. `lives`: states of all faults
    by number.

    `look(condition)` returns the number that a condition compares; None: unknown. Raises `AckproofError` if the fault
    can never begin any more.
    """
    if moment.load is LoadPhase.OVER and life.is_drawn:
        raise AckproofError("the load was over before its time came")
    fired = _fired(life, lives, moment, look)
    if fired is None and moment.load is not LoadPhase.RUNS and not _will_fire(life, lives):
        raise AckproofError(f"its trigger never fired: {_never(life.fault, look)}")
    return fired


def _pairs_before(life: Life, lives: Lives) -> list[Life]:
    storm = lives[life.number // DRAWN_FROM].fault
    if not isinstance(storm, Storm) or storm.pairs is None:
        return []
    first = life.number - (life.number % DRAWN_FROM - 1) % 2
    return [lives[number] for number in range(storm.number * DRAWN_FROM + 1, first)]


def held_for_partner(life: Life, lives: Lives, moment: Moment) -> bool:
    """Return True while the first fault of a pair (`life`) must stay in force for its partner. Pairs of faults are
    drawn by a storm with `pairs: all`: the partner begins while the first fault is in force.

    The first fault stays until both were in force for the partner's `hold` seconds. If the partner has no effect, the
    first fault stays for `PARTNER_S` seconds. These count from its own confirmation, and again from zero when the
    partner's trigger fires. Once the partner or the load is over, the result is False.
    """
    second = lives.get(life.number + 1)
    if second is None or second.over or moment.load is LoadPhase.OVER or not life.is_drawn:
        return False
    trigger = second.fault.trigger
    if not isinstance(trigger, ChainTrigger) or trigger.fault != life.number:
        return False
    if second.confirmed_ns is not None:
        return _since(moment, second.confirmed_ns) < (second.fault.hold or 0.0)
    return _since(moment, second.asked_ns or life.confirmed_ns or 0) < PARTNER_S


def _never(fault: FaultSpec, look: Look) -> str:
    text, trigger = trigger_text(fault), fault.trigger
    if not isinstance(trigger, StateTrigger):
        return text
    number = look(trigger.condition)
    now = "its value was unknown" if number is None else f"it was {number:,g} when the load ended"
    return f"{text}; {now}: a longer duration, another number or at_latest lets it begin"


def _fired(life: Life, lives: Lives, moment: Moment, look: Look) -> str | None:
    trigger = life.fault.trigger
    text = trigger_text(life.fault)
    if isinstance(trigger, StateTrigger):
        return state_came(trigger, look(trigger.condition), moment)
    if isinstance(trigger, TimeTrigger):
        return text if _since(moment, moment.began_ns) >= trigger.at else None
    first = lives[trigger.fault]
    if first.stage is Stage.FAILED:
        raise AckproofError(f"fault {trigger.fault}, after which it was to come, failed")
    if life.is_drawn and first.is_drawn and first.stage is Stage.MISSED:
        raise AckproofError(f"fault {fault_name(first.number)}, its partner in the pair, did not take effect")
    since = first.confirmed_ns
    if life.is_drawn and (not first.is_drawn or first.fault.HOLD_KEY is None):
        since = first.asked_ns
        if any(not other.over for other in _pairs_before(life, lives)):
            return None
    return text if since is not None and _since(moment, since) >= trigger.by else None


def state_came(trigger: StateTrigger, number: float | None, moment: Moment) -> str | None:
    """Return the trigger's condition in words if `number` meets it, or if its `at_latest` has passed; else None.
    `number`: present value of the quantity; None: unknown. `at_latest` counts from `moment.began_ns`."""
    if number is not None and trigger.condition.holds(number):
        return f"{trigger.condition}: {trigger.condition.gauge} is {number}"
    if trigger.at_latest is not None and _since(moment, moment.began_ns) >= trigger.at_latest:
        return f"{trigger.condition} had not come: {trigger}"
    return None


def _will_fire(life: Life, lives: Lives) -> bool:
    """Return True if the trigger of a waiting fault certainly fires, given the states of all faults (`lives`)."""

    def fate(number: int) -> bool | Trigger:
        first = lives[number]
        return first.fault.trigger if first.stage is Stage.WAITING else first.stage is not Stage.FAILED

    return surely_fires(life.fault.trigger, fate)


def pending(lives: Lives) -> bool:
    """Return True if the load must go on for a fault. That is so if its trigger will certainly fire. It is also so if
    the fault has begun, ends by itself and is not over.

    A fault without a duration ends only after the load. While such a fault is in force, healed faults do not count: the
    confirmation of their healing may have to wait until that fault ends.
    """
    lasting = any(life.bit and not life.over and not _ends_by_itself(life.fault) for life in lives.values())
    return any(
        _will_fire(life, lives)
        if life.stage is Stage.WAITING
        else not life.over and _ends_by_itself(life.fault) and not (lasting and life.stage is Stage.HEALED)
        for life in lives.values()
    )


def _ends_by_itself(fault: FaultSpec) -> bool:
    return fault.HOLD_KEY is None or fault.hold is not None


def awaits_a_count(lives: Lives) -> bool:
    """Return True if a fault waits for a number of records that only more load can reach (`StateTrigger.awaited`)."""
    return any(
        life.stage is Stage.WAITING
        and isinstance(life.fault.trigger, StateTrigger)
        and life.fault.trigger.awaited
        for life in lives.values()
    )


def chained_faults(lives: Lives, first: Life) -> list[Life]:
    """Return the faults whose trigger `after:` refers to `first`, and which the present stage of `first` starts.

    Faults that a storm drew begin once the trigger of that storm (`first`) has fired: they are returned if `first` is
    in stage ASKED. Other faults begin once `first` is confirmed. They are returned in any other stage of `first`, so
    call this function only after a step that asked or confirmed `first`.
    """
    return [
        life
        for life in lives.values()
        if isinstance(life.fault.trigger, ChainTrigger)
        and life.fault.trigger.fault == first.number
        and life.is_drawn is (first.stage is Stage.ASKED)
    ]


def storm_goes_on(life: Life, storm: Storm, own: Sequence[Life], now_ns: int) -> Step:
    """Return the next step of a storm, given its own state (`life`). `own`: the states of the faults that it drew. The
    storm takes effect when `storm.least` of these faults did, and ends with the last of them. It fails if fewer took
    effect, or if one of them failed."""
    steps: list[Step] = []
    bit = sum(life.bit for life in own)
    if not life.bit and bit >= storm.least:
        witness = f"{storm.least} of them were confirmed, each by its own witness"
        steps.append(life.confirm(now_ns, f"drew {len(own)} faults", witness))
    if all(one.over for one in own):
        steps.append((steps[-1].life if steps else life).heal("each fault healed in its turn"))
        steps.append(_end_of_storm(steps[-1].life, storm, own, bit))
    return Step(steps[-1].life if steps else life, tuple(said for step in steps for said in step.events))


def _end_of_storm(life: Life, storm: Storm, own: Sequence[Life], bit: int) -> Step:
    missed = "; ".join(
        f"{fault_name(one.number)} ({one.fault}: {one.reason})" for one in own if one.stage is Stage.MISSED
    )
    count = f"{bit} of {len(own)} drawn faults bit" + (f"; missed: {missed}" if missed else "")
    unhealed = ", ".join(fault_name(one.number) for one in own if one.stage is Stage.FAILED)
    if bit < storm.least:
        return life.fail(f"at least {storm.least} were to bite: {count}")
    if unhealed:
        return life.fail(f"fault {unhealed} did not heal, or did not hold; {count}")
    return life.recover(count)


def _since(moment: Moment, start_ns: int) -> float:
    return (moment.now_ns - start_ns) / 1e9
