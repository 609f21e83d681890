"""Sentences about Kafka, answered by the runs of an experiment: its file says what would show them, on which side.

Both sides seen: QUALIFIED, by the condition that the file states. One side alone, all of it seen: CONFIRMED or REFUTED;
what should hold and was seen not to hold refutes a claim, too. A counterexample that was merely not seen confirms
nothing. Whatever is not known of a single run makes the answer INCONCLUSIVE.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ackproof.experiment.experiment import ClaimSpec
from ackproof.judge.facts import Facts
from ackproof.plan.cases import case_from_json
from ackproof.quantities.answer import answered
from ackproof.quantities.vocabulary import parse_ask
from ackproof.rundir.claims import ClaimJudged, ClaimVerdict, Shown, Side
from ackproof.rundir.documents import BatchCase, BatchFile, CaseFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.outcome import Verdict

SIDES: tuple[Side, ...] = ("holds", "fails")


def judge_claims(
    claims: Mapping[str, ClaimSpec], directory: BatchDir, root: Path, seconds: float
) -> Iterator[ClaimJudged]:
    """What a concluded batch answers to the claims of its experiment. `seconds`: how long it ran; `root`: the folder to
    which paths are relative. Raises `BadInput` without a readable `batch.json`."""
    batch = BatchFile.load(directory.batch_json)
    shown: dict[str, list[Shown]] = {name: [] for name in claims}
    for case in batch.cases:
        for name, one in _of_case(claims, case, directory, root):
            shown[name].append(one)
    for name, claim in claims.items():
        verdict, why = concluded(claim, shown[name])
        yield ClaimJudged(
            claim=name,
            says=claim.says,
            sources=claim.sources,
            verdict=verdict,
            why=why,
            experiment=str(directory.path.relative_to(root)),
            seconds=round(seconds, 1),
            shown=tuple(shown[name]),
        )


def concluded(claim: ClaimSpec, shown: Sequence[Shown]) -> tuple[ClaimVerdict, str]:
    """The verdict, and the sentence that belongs to it."""
    for one in shown:
        if one.holds is None:
            return ClaimVerdict.INCONCLUSIVE, f"{one.case}: {_told(one)}{one.why}"
    holds, fails = ({one.holds for one in shown if one.side == side} for side in SIDES)
    if claim.holds and claim.fails and holds == fails == {True}:
        return ClaimVerdict.QUALIFIED, claim.condition
    if fails == {True} and (holds == {False} or not claim.holds):
        return ClaimVerdict.REFUTED, claim.condition
    if not claim.fails and holds == {True}:
        return ClaimVerdict.CONFIRMED, claim.condition
    if not claim.fails and holds == {False}:
        return ClaimVerdict.REFUTED, _not_seen(shown)
    return ClaimVerdict.INCONCLUSIVE, _not_seen(shown) or "no run looked"


def _not_seen(shown: Sequence[Shown]) -> str:
    """What was to be seen and was not, the first of it."""
    return next((f"not seen with {one.case}: {_told(one)}{one.seen}" for one in shown if not one.holds), "")


def _told(one: Shown) -> str:
    return f"{one.quantity} {one.bound}: " if one.quantity else ""


def _of_case(
    claims: Mapping[str, ClaimSpec], case: BatchCase, directory: BatchDir, root: Path
) -> Iterator[tuple[str, Shown]]:
    run = CaseDir(directory.path / case.run)
    where = str(run.path.relative_to(root)) if run.path.exists() else ""
    if not run.case_json.exists():
        spoken = dict(claims)
    else:
        spoken = case_from_json(CaseFile.load(run.case_json).resolved).experiment.claims
    if case.verdict is not Verdict.PASS:
        first = (*case.reasons, case.error, "it did not run")
        why = f"its run is {case.verdict or 'not judged'}: {next(text for text in first if text)}"
        for name in claims.keys() & {name for name, claim in spoken.items() if any(claim.sides().values())}:
            yield name, Shown(case=case.case, run=where, side="holds", holds=None, why=why)
        return
    facts = Facts.of(run)
    for name in claims:
        for side in SIDES:
            for showing in spoken[name].sides()[side]:
                for quantity, bound in showing.bounds.items():
                    answer = answered(facts, parse_ask(quantity), bound)
                    yield (
                        name,
                        Shown(
                            case=case.case,
                            run=where,
                            side=side,
                            quantity=quantity,
                            bound=str(bound),
                            seen=answer.seen,
                            holds=answer.holds,
                            why=answer.why,
                        ),
                    )
