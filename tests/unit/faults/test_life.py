"""State machine of a fault (`Life`), without a cluster: for each occurrence and time, the next stage and its events."""

from __future__ import annotations

import pytest

from ackproof.base.errors import AckproofError
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import Role
from ackproof.experiment.triggers import ChainTrigger, Condition, StateTrigger, TimeTrigger, Trigger
from ackproof.faults.life import (
    Life,
    Lives,
    LoadPhase,
    Moment,
    Stage,
    Step,
    chained_faults,
    due,
    held_for_partner,
    pending,
    storm_goes_on,
)
from ackproof.faults.processes import Pause, Restart
from ackproof.faults.storm import MenuEntry, Storm
from ackproof.rundir.timeline import EventKind

S = 1_000_000_000
BROKER = Role.parse("broker(1)")
AT_ONE = TimeTrigger(1.0)


def pause(number: int = 1, trigger: Trigger = AT_ONE, hold: float | None = 2.0) -> Life:
    return Life(Pause(number=number, trigger=trigger, target=BROKER, hold=hold))


def lives(*all_: Life) -> Lives:
    return {life.number: life for life in all_}


def moment(seconds: float, load: LoadPhase = LoadPhase.RUNS) -> Moment:
    return Moment(int(seconds * S), 0, load)


def kinds(step: Step) -> list[EventKind]:
    return [event.KIND for event in step.events]


def ask(life: Life) -> Life:
    return life.ask(S, "", [1]).life


def bitten(life: Life) -> Life:
    return ask(life).confirm(2 * S, "", "").life


def unknown(_: Condition) -> float | None:
    return None


def test_a_whole_life() -> None:
    step = pause().ask(S, "at once", [1])
    assert step.life.stage is Stage.ASKED
    assert step.events[0].model_dump(mode="json", exclude_unset=True) == {
        "kind": "pause",
        "done": "paused",
        "role": "broker(1)",
        "nodes": [1],
        "trigger": "at once",
    }
    step = step.life.confirm(2 * S, "SIGSTOP", "/proc")
    assert (step.life.stage, step.life.confirmed_ns) == (Stage.CONFIRMED, 2 * S)
    step = step.life.heal("SIGCONT")
    assert step.life.stage is Stage.HEALED
    step = step.life.recover("it answers")
    assert (step.life.stage, kinds(step)) == (Stage.RECOVERED, [EventKind.FAULT_RECOVERED])


def test_what_failed_is_undone_and_stays_failed() -> None:
    step = ask(pause()).fail("it ran on", to_undo=True)
    assert (step.life.stage, kinds(step)) == (Stage.ASKED, [EventKind.FAULT_FAILED])
    step = step.life.heal("SIGCONT").life.recover("it runs")
    assert (step.life.stage, step.life.reason) == (Stage.FAILED, "it ran on")


def test_what_a_storm_drew_is_missed_unless_it_bit_or_did_not_heal() -> None:
    drawn = pause(1001, ChainTrigger(1))
    assert kinds(ask(drawn).fail("nobody")) == [EventKind.FAULT_MISSED]
    assert ask(drawn).fail("nobody").life.stage is Stage.MISSED
    half_done = ask(drawn).fail("it ran on", to_undo=True).life
    assert half_done.heal("").life.recover("").life.stage is Stage.MISSED
    assert half_done.fail_healing("it stands still").life.stage is Stage.FAILED
    assert bitten(drawn).fail("it did not hold").life.stage is Stage.FAILED


def test_the_holding_time_counts_from_the_confirmation() -> None:
    held = bitten(pause())
    assert not held.to_heal(moment(3.9))
    assert held.to_heal(moment(4))
    assert held.to_heal(moment(2, LoadPhase.OVER))
    assert not bitten(pause(hold=None)).to_heal(moment(1000, LoadPhase.ENDS))
    bounce = Life(Restart(number=1, trigger=TimeTrigger(0.0), target=BROKER))
    assert bitten(bounce).to_heal(moment(2))


STATE = StateTrigger(Condition.parse("acked >= 10"))


@pytest.mark.parametrize(
    ("trigger", "seen", "moment", "words"),
    [
        (TimeTrigger(1.0), None, moment(0.9), None),
        (TimeTrigger(1.0), None, moment(1), "1s after the start of the workload"),
        (STATE, None, moment(9), None),
        (STATE, 9, moment(9), None),
        (STATE, 10, moment(0), "acked >= 10: acked is 10"),
        (StateTrigger(STATE.condition, 5.0), 9, moment(4.9), None),
        (
            StateTrigger(STATE.condition, 5.0),
            9,
            moment(5),
            "acked >= 10 had not come: when acked >= 10, at 5s at the latest",
        ),
        (TimeTrigger(1.0), None, moment(0.9, LoadPhase.ENDS), None),
    ],
)
def test_when_a_fault_begins(trigger: Trigger, seen: int | None, moment: Moment, words: str | None) -> None:
    life = pause(trigger=trigger)
    assert due(life, lives(life), moment, lambda _: seen) == words


def test_a_fault_after_another_counts_from_its_confirmation_a_drawn_one_from_the_storms_beginning() -> None:
    second = pause(2, ChainTrigger(1, 1.0))
    assert due(second, lives(ask(pause()), second), moment(9), unknown) is None
    assert due(second, lives(bitten(pause()), second), moment(2.9), unknown) is None
    assert due(second, lives(bitten(pause()), second), moment(3), unknown) == "1s after fault 1 is confirmed"
    drawn = pause(1001, ChainTrigger(1, 1.0))
    assert due(drawn, lives(ask(pause()), drawn), moment(2), unknown) == "1s into storm 1"
    assert chained_faults(lives(pause(), second, drawn), ask(pause())) == [drawn]
    assert chained_faults(lives(pause(), second, drawn), bitten(pause())) == [second]


def test_what_never_begins() -> None:
    never = pause(trigger=STATE)
    assert due(never, lives(never), moment(9), unknown) is None
    with pytest.raises(AckproofError, match="its trigger never fired: when acked >= 10"):
        due(never, lives(never), moment(9, LoadPhase.ENDS), unknown)
    second = pause(2, ChainTrigger(1))
    with pytest.raises(AckproofError, match="fault 1, after which it was to come, failed"):
        due(second, lives(pause().fail("").life, second), moment(9), unknown)
    with pytest.raises(AckproofError, match="its trigger never fired: 0s after fault 1 is confirmed"):
        due(second, lives(never, second), moment(9, LoadPhase.ENDS), unknown)
    drawn = pause(1001, ChainTrigger(1))
    with pytest.raises(AckproofError, match="the load was over before its time came"):
        due(drawn, lives(ask(pause()), drawn), moment(9, LoadPhase.OVER), unknown)


def test_what_the_load_waits_for() -> None:
    assert pending(lives(pause()))
    assert pending(lives(bitten(pause())))
    assert pending(lives(bitten(pause()).heal("").life))
    assert not pending(lives(bitten(pause(hold=None))))
    # It may wait to be looked at until the other ends, which is with the load.
    assert not pending(lives(bitten(pause()).heal("").life, bitten(pause(2, hold=None))))
    assert pending(lives(bitten(pause()), bitten(pause(2, hold=None))))
    assert not pending(lives(pause(trigger=STATE)))
    assert not pending(lives(pause(trigger=STATE), pause(2, ChainTrigger(1))))
    assert pending(lives(pause(trigger=StateTrigger(STATE.condition, 5.0)), pause(2, ChainTrigger(1))))
    assert not pending(lives(pause().fail("").life, pause(2, ChainTrigger(1))))


STORM = Storm(number=1, trigger=TimeTrigger(0.0), menu={"pause": MenuEntry(weight=1)}, count=3)


def ended(life: Life) -> Life:
    return bitten(life).heal("").life.recover("").life


def missed(life: Life) -> Life:
    return ask(life).fail("nobody").life


OWN: list[FaultSpec] = [pause(1000 + number, ChainTrigger(1)).fault for number in (1, 2, 3)]
ONE, TWO, THREE = (Life(fault) for fault in OWN)


@pytest.mark.parametrize(
    ("own", "stage", "told"),
    [
        ([bitten(ONE), TWO, THREE], Stage.ASKED, []),
        ([bitten(ONE), bitten(TWO), THREE], Stage.CONFIRMED, ["confirmed"]),
        ([ended(ONE), ended(TWO), missed(THREE)], Stage.RECOVERED, ["confirmed", "healed", "recovered"]),
        ([ended(ONE), missed(TWO), missed(THREE)], Stage.FAILED, ["healed", "failed"]),
        (
            [ended(ONE), ended(TWO), bitten(THREE).fail_healing("").life],
            Stage.FAILED,
            ["confirmed", "healed", "failed"],
        ),
    ],
)
def test_a_storm_bites_with_enough_of_its_faults_and_ends_with_the_last(
    own: list[Life], stage: Stage, told: list[str]
) -> None:
    step = storm_goes_on(ask(Life(STORM)), STORM, own, 9 * S)
    assert step.life.stage is stage
    assert [kind.value.removeprefix("fault-") for kind in kinds(step)] == told


def test_a_storm_says_what_it_missed() -> None:
    step = storm_goes_on(ask(Life(STORM)), STORM, [ended(ONE), missed(TWO), missed(THREE)], 9 * S)
    assert step.events[-1].model_dump(mode="json") == {
        "reason": "at least 2 were to bite: 1 of 3 drawn faults bit; "
        "missed: 1.2 (pause broker(1): nobody); 1.3 (pause broker(1): nobody)"
    }


def pair(first: Life, second: Life, third: Life | None = None) -> Lives:
    storm = Life(Storm(number=1, trigger=AT_ONE, pairs="all")).ask(S, "", []).life
    return lives(storm, first, second, *(() if third is None else (third,)))


FIRST, SECOND = pause(1001, ChainTrigger(1)), pause(1002, ChainTrigger(1001, 0.3))


def test_the_second_of_a_pair_begins_once_the_first_is_in_force() -> None:
    assert due(FIRST, pair(FIRST, SECOND), moment(1), unknown)
    assert due(SECOND, pair(ask(FIRST), SECOND), moment(9), unknown) is None
    assert due(SECOND, pair(bitten(FIRST), SECOND), moment(2.2), unknown) is None
    assert due(SECOND, pair(bitten(FIRST), SECOND), moment(2.3), unknown)
    restart = Life(Restart(number=1001, trigger=ChainTrigger(1), target=BROKER))
    assert due(SECOND, pair(ask(restart), SECOND), moment(1.3), unknown), (
        "it is in force when it is asked for"
    )
    missed = ask(FIRST).fail("aimed at nothing").life
    with pytest.raises(AckproofError, match=r"fault 1\.1, its partner in the pair, did not take effect"):
        due(SECOND, pair(missed, SECOND), moment(2), unknown)


def test_the_next_pair_begins_when_both_are_over() -> None:
    third = pause(1003, ChainTrigger(1))
    over = bitten(FIRST).heal("").life.recover("").life
    assert due(third, pair(over, bitten(SECOND), third), moment(9), unknown) is None
    assert due(third, pair(over, bitten(SECOND).heal("").life.recover("").life, third), moment(9), unknown)
    assert due(third, pair(over, ask(SECOND).fail("nothing").life, third), moment(9), unknown), "missed"


def test_the_first_of_a_pair_stays_until_both_were_in_force() -> None:
    first = bitten(FIRST)
    assert held_for_partner(first, pair(first, SECOND), moment(16.9))
    assert not held_for_partner(first, pair(first, SECOND), moment(17)), "the second never begins"
    late = SECOND.ask(5 * S, "", [1]).life
    assert held_for_partner(first, pair(first, late), moment(19.9))
    assert not held_for_partner(first, pair(first, late), moment(20)), "the second does not bite"
    both = late.confirm(6 * S, "", "").life
    assert held_for_partner(first, pair(first, both), moment(7.9))
    assert not held_for_partner(first, pair(first, both), moment(8)), (
        "both lasted as long as the second is held"
    )
    assert not held_for_partner(first, pair(first, ask(SECOND).fail("nothing").life), moment(2.5))
    assert not held_for_partner(first, pair(first, SECOND), moment(3, LoadPhase.OVER))
    assert not held_for_partner(both, pair(first, both), moment(7)), "the second waits for nobody"
    assert not held_for_partner(
        bitten(pause(1)), lives(bitten(pause(1)), pause(2, ChainTrigger(1, 1.0))), moment(3)
    )
    restart = Life(Restart(number=1002, trigger=ChainTrigger(1001, 0.3), target=BROKER))
    assert held_for_partner(first, pair(first, restart), moment(9))
    assert held_for_partner(first, pair(first, restart.ask(9 * S, "", [1]).life), moment(9.5)), (
        "all through the restart"
    )
    assert not held_for_partner(first, pair(first, bitten(restart)), moment(2.5))
