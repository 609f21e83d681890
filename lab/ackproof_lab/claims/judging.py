"""Answer statements about Kafka from the runs of an experiment. Its file says which observations would confirm or
refute each statement.

CONFIRMED: every expected observation was made, and the file names no counterexample. REFUTED: no expected observation
was made, and every counterexample that the file names was observed. QUALIFIED: all observations of both kinds were
made, under the condition that the file states. The absence of a counterexample confirms nothing. MEASURED: the claim
asks for an amount, and its other observations, if any, were all made. Each effect is given with its interval, and "no
effect at this scale" if the interval includes that there is no effect. INCONCLUSIVE: an observation is unknown, or none
of these conditions holds.

If an earlier, inconclusive attempt showed that an expected observation is not made, this counts in the next one too. On
a starved machine a measured time is an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import cast

from ackproof.experiment.experiment import ClaimSpec
from ackproof.judge.facts import Facts
from ackproof.judge.repeats import discount_starved, with_run_topic
from ackproof.plan.cases import case_from_json
from ackproof.quantities.answer import answered
from ackproof.quantities.vocabulary import parse_ask
from ackproof.repeats.demand import Contrast, Demand
from ackproof.rundir.batch import BatchCase, BatchFile, OverRepeats
from ackproof.rundir.bounds import Unit
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.lab import ClaimJudged, ClaimShowing, ClaimSide, ClaimVerdict, OpenAttempt
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.outcome import Verdict

SIDES: tuple[ClaimSide, ...] = ("holds", "fails", "measured")


def judge_claims(
    claims: Mapping[str, ClaimSpec],
    directory: BatchDir,
    root: Path,
    seconds: float,
    before: Mapping[str, ClaimJudged] = MappingProxyType({}),
) -> Iterator[ClaimJudged]:
    """Yield the verdict on each claim of an experiment, from its concluded batch.

    `claims`, `before`: by name of the claim; `before` has earlier INCONCLUSIVE answers, whose failed checks of the side
    `holds` count too. `root`: a folder above the batch; paths in the result are relative to it. `seconds`:
    duration of the batch. Raises `BadInput` without a readable `batch.json`, for a broken `case.json`, and for any
    broken file of a run that passed.
    """
    batch = BatchFile.load(directory.batch_json)
    shown: dict[str, list[ClaimShowing]] = {name: [] for name in claims}
    for case in batch.cases:
        for name, one in _of_case(claims, case, directory, root):
            shown[name].append(one)
    for over in batch.claimed:
        if over.claim in claims:
            shown[over.claim].append(_over_repeats(over))
    for name, claim in claims.items():
        last = before.get(name)
        shown[name] += _against(claim, last)
        verdict, why = conclude_claim(claim, shown[name])
        attempts = last.before if last else ()
        if last:
            attempts += (OpenAttempt(why=last.why, experiment=last.experiment, seconds=last.seconds),)
        yield ClaimJudged(
            claim=name,
            says=claim.says,
            sources=claim.sources,
            verdict=verdict,
            why=why,
            experiment=str(directory.path.relative_to(root)),
            seconds=round(seconds, 1),
            shown=tuple(shown[name]),
            before=attempts,
        )


def _against(claim: ClaimSpec, last: ClaimJudged | None) -> list[ClaimShowing]:
    """Return the failed checks of the side `holds` from an earlier attempt, if the claim still has their bounds. A
    repeated run does not undo them."""
    asked = {
        (quantity, str(bound))
        for showing in claim.holds
        for quantity, bound in (*showing.bounds.items(), *showing.over_repeats.items())
    }
    return [
        one
        for one in (last.shown if last else ())
        if one.side == "holds" and one.holds is False and (one.quantity, one.bound) in asked
    ]


def conclude_claim(claim: ClaimSpec, shown: Sequence[ClaimShowing]) -> tuple[ClaimVerdict, str]:
    """Return the verdict on a claim, and its explanation as a sentence; '' if there is nothing to add.

    `shown`: result of each check of an observation that the claim names, in a run or over repeats. One undecided
    check (`holds` None) makes the verdict INCONCLUSIVE; the module's docstring has the other rules.
    """
    for one in shown:
        if one.holds is None:
            return ClaimVerdict.INCONCLUSIVE, f"{one.case}: {_measure_text(one)}{one.why}"
    holds, fails, measured = ({one.holds for one in shown if one.side == side} for side in SIDES)
    if claim.measured:
        others = [
            side for side, seen in ((claim.holds, holds), (claim.fails, fails)) if side and seen != {True}
        ]
        if others or not measured:
            return ClaimVerdict.INCONCLUSIVE, _not_seen(shown) or "no run looked"
        effects = "; ".join(_effect(one.over) for one in shown if one.over and one.side == "measured")
        return ClaimVerdict.MEASURED, f"{claim.condition} {effects}.".lstrip()
    if claim.holds and claim.fails and holds == fails == {True}:
        return ClaimVerdict.QUALIFIED, claim.condition
    if fails == {True} and (holds == {False} or not claim.holds):
        return ClaimVerdict.REFUTED, claim.condition
    if not claim.fails and holds == {True}:
        return ClaimVerdict.CONFIRMED, claim.condition
    if not claim.fails and holds == {False}:
        return ClaimVerdict.REFUTED, _not_seen(shown)
    return ClaimVerdict.INCONCLUSIVE, _not_seen(shown) or "no run looked"


def _effect(over: OverRepeats) -> str:
    """Return the result of a measurement over repeats, such as the effect of one setting against another, as text with
    its confidence interval. If the interval includes "no effect", the text says so.
    """
    demand = Demand.parse(over.demand, Unit(over.unit))
    none = {Contrast.OVER: 1.0, Contrast.MINUS: 0.0}.get(demand.how) if demand.how else None
    low, high = -math.inf if over.low is None else over.low, math.inf if over.high is None else over.high
    nothing = none is not None and low <= none <= high
    cells = f" {demand.how} ".join(over.cells) if over.cells != ("case",) else ""
    of = " ".join(
        word for word in (demand.statistic.name, cells and f"of {cells}", str(demand.window)) if word
    )
    return f"{over.quantity}, {of}: {'no effect at this scale, ' if nothing else ''}{over.outcome_text}"


def _over_repeats(over: OverRepeats) -> ClaimShowing:
    return ClaimShowing(
        case=" and ".join(over.cells),
        run="",
        side=cast(ClaimSide, over.side),
        quantity=over.quantity,
        bound=over.demand,
        seen=f"{over.seen} ({over.interval})" if over.interval else over.seen,
        holds=None if over.verdict in (None, Verdict.INCONCLUSIVE) else over.verdict is Verdict.PASS,
        why=over.why,
        over=over,
    )


def _not_seen(shown: Sequence[ClaimShowing]) -> str:
    """Return the first bound that did not hold, or is unknown, with what was seen, as text; '' if all hold."""
    return next(
        (f"not seen with {one.case}: {_measure_text(one)}{one.seen}" for one in shown if not one.holds), ""
    )


def _measure_text(one: ClaimShowing) -> str:
    return f"{one.quantity} {one.bound}: " if one.quantity else ""


def _of_case(
    claims: Mapping[str, ClaimSpec], case: BatchCase, directory: BatchDir, root: Path
) -> Iterator[tuple[str, ClaimShowing]]:
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
            yield name, ClaimShowing(case=case.case, run=where, side="holds", holds=None, why=why)
        return
    asked = [
        (name, side, quantity, bound)
        for name in claims
        for side in SIDES
        for showing in spoken[name].sides()[side]
        for quantity, bound in showing.bounds.items()
    ]
    if not asked:
        return
    facts = Facts.read(run)
    for name, side, quantity, bound in asked:
        ask = with_run_topic(parse_ask(quantity), run)
        answer = answered(facts, ask, bound, partial(discount_starved, case, ask.quantity))
        yield (
            name,
            ClaimShowing(
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
