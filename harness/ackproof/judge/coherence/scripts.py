"""A script's steps, as the timeline tells them: all there, in order, none otherwise than it was to be."""

from __future__ import annotations

from collections.abc import Iterator

from ackproof.faults.script.spec import Script
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts
from ackproof.rundir.timeline import EventKind, ScriptStep, fault_name


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions of a script that was seen to its end with what is told of its steps."""
    for fault in facts.case.faults:
        if isinstance(fault, Script):
            yield from map(contradicts, _of_a_script(facts, fault))


def _of_a_script(facts: Facts, fault: Script) -> Iterator[str]:
    own = [event for event in facts.events if event.fault == fault.number]
    steps = [event.what for event in own if isinstance(event.what, ScriptStep)]
    name = f"fault {fault_name(fault.number)}"
    if [step.number for step in steps] != list(range(1, len(steps) + 1)):
        yield f"{name} has the steps {', '.join(str(step.number) for step in steps)}, which are not one after the other"
        return
    for step, spec in zip(steps, fault.steps, strict=False):
        if step.step != str(spec):
            yield f"{name} has the step {step.number} '{step.step}' in the timeline, and '{spec}' in the case"
    if not any(event.kind is EventKind.FAULT_CONFIRMED for event in own):
        return
    if len(steps) != len(fault.steps):
        yield f"{name} was confirmed, and {len(steps)} of its {len(fault.steps)} steps are told"
    for step in steps:
        then = fault.steps[step.number - 1].then
        otherwise = step.wrong or "; ".join([] if step.seen is None else then.unmet(step.seen))
        if otherwise:
            yield f"{name} was confirmed, and at step {step.number} it was otherwise: {otherwise}"
