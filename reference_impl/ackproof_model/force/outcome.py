"""What a forced run came to: the story happened, or it diverged at a step, with the state of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ackproof.base.errors import BadInput
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.documents import AuditFile, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.timeline import ScriptStep, read_timeline
from ackproof_model.force.story import Story
from ackproof_model.force.translate import Forced


class Word(StrEnum):
    """What is said of it."""

    HAPPENED = "HAPPENED"
    DIVERGED = "DIVERGED"
    NOT_FORCEABLE = "NOT FORCEABLE"
    INCONCLUSIVE = "INCONCLUSIVE"


BESIDE = "beside it "
"""How a step's `wrong` begins where something happened that was no part of the story."""


@dataclass(frozen=True)
class Outcome:
    """`number`: the step of the story at which it diverged; 0 none. `model` and `kafka`: the state of both there."""

    word: Word
    why: str
    number: int = 0
    model: str = ""
    kafka: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.word}{f' at step {self.number}' if self.number else ''}: {self.why}"


def outcome_of(story: Story, forced: Sequence[Forced], run: CaseDir) -> Outcome:
    """What a run directory says. Raises `BadInput` for files that cannot be read."""
    events, _ = read_timeline(run.timeline)
    steps = [event.what for event in events if isinstance(event.what, ScriptStep)]
    seconds = max((event.t_ns for event in events), default=0) / 1e9
    for place, step in enumerate(steps):
        if not step.wrong:
            continue
        number = forced[place].number
        if not number:
            return Outcome(Word.INCONCLUSIVE, f"before the story began: {step.wrong}", seconds=seconds)
        word = Word.INCONCLUSIVE if step.wrong.startswith(BESIDE) else Word.DIVERGED
        happening = story.way[number - 1].happening
        why = f"{happening.actor}: {happening.text}: {step.wrong}"
        return Outcome(word, why, number, step.waited_for, str(step.seen), seconds)
    if len(steps) < len(forced):
        return Outcome(Word.INCONCLUSIVE, _reasons(run), seconds=seconds)
    if story.kind not in list(Anomaly):
        return Outcome(
            Word.HAPPENED, f"{story.kind}: {story.text}; each step was seen on the brokers", seconds=seconds
        )
    count = AuditFile.load(run.audit_json).counts.get(story.kind, 0)
    if count:
        return Outcome(
            Word.HAPPENED, f"{count} {story.kind}, each step was seen on the brokers", seconds=seconds
        )
    if VerdictFile.load(run.verdict_json).verdict is Verdict.INCONCLUSIVE:
        return Outcome(Word.INCONCLUSIVE, _reasons(run), seconds=seconds)
    why = f"each step was seen, and nothing is {story.kind}"
    return Outcome(
        Word.DIVERGED, why, len(story.way), story.text, str(steps[-1].seen if steps else ""), seconds
    )


def _reasons(run: CaseDir) -> str:
    try:
        return "; ".join(VerdictFile.load(run.verdict_json).reasons) or "the script did not come to its end"
    except BadInput as error:
        return str(error)
