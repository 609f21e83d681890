"""Expectations of the experiment: finds broken upper bounds, lower bounds that were not met, and unknown numbers.

An expectation never makes a forbidden class allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from ackproof.experiment.case import Case
from ackproof.experiment.timing import timing_name
from ackproof.judge.checks.classes import proves_itself
from ackproof.judge.facts import Facts
from ackproof.judge.liveness import machine_is_starved
from ackproof.judge.opinion import Opinion, breaks, stays_open
from ackproof.judge.starved import widen_if_starved
from ackproof.quantities.answer import answered
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Answer, Ask
from ackproof.quantities.vocabulary import is_count
from ackproof.rundir.anomalies import GROUP_CLASSES, LIVENESS, Anomaly
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.bounds import Bound, Unit
from ackproof.rundir.documents import ExpectationJudged
from ackproof.rundir.guarantees import Excuse


def check_expectations(facts: Facts) -> Iterator[Opinion]:
    """Yield an opinion on each expectation that does not hold, or whose number is unknown. Yield one, too, on each that
    holds only without the margin that a starved machine requires.

    `breaks` (a promise is broken) means that an upper bound was exceeded, or that a state was wrong. `open` (undecided)
    means that the run only failed to reach a lower bound, or that the number is unknown. Exceeded bounds of counts come
    first.

    An exceeded bound on a liveness class or on a time is `open` if a starved machine may be the cause. An exceeded
    bound on duplicates is `open` if only copies that a client sent again in a new producer epoch exceed it.
    """
    counts = facts.audit.counts
    again = facts.excused.get(Anomaly.DUPLICATE, {}).get(Excuse.PRODUCER_EPOCH, 0)
    # No broker can recognize a copy in a new producer epoch, so such a copy breaks no promise of Kafka.
    kafkas = {**counts, Anomaly.DUPLICATE: counts[Anomaly.DUPLICATE] - again} if again else counts
    broken = list(_broken_upper_bounds(facts, kafkas))
    for anomaly, text in broken:
        if anomaly in LIVENESS and (why := machine_is_starved(facts, anomaly)):
            yield stays_open(f"{text}: {why}")
            continue
        yield breaks(text, proven=proves_itself(anomaly))
    expected = {name for expect in facts.case.experiment.expect for name in expect.counts}
    for anomaly in sorted((expected & set(LIVENESS)) - counts.keys()):
        yield stays_open(f"expected something of {anomaly}, and nobody watched this run recover")
    for anomaly in sorted((expected & set(GROUP_CLASSES)) - counts.keys()):
        yield stays_open(f"expected something of {anomaly}, and the audit counted it for no group")
    for anomaly, bound in _bounds(facts, counts):
        if counts[anomaly] < bound.lowest:
            text = f"not demonstrated: expected {anomaly} {bound}, counted {counts[anomaly]}"
            found = facts.prediction.find_class(anomaly)
            if found is not None and found.explored and found.chance is Chance.IMPOSSIBLE:
                text += ", which the faults that were observed make impossible"
            yield stays_open(text)
    if again and Anomaly.DUPLICATE not in (anomaly for anomaly, _ in broken):
        for anomaly, text in _broken_upper_bounds(facts, counts):
            if anomaly == Anomaly.DUPLICATE:
                yield stays_open(f"{text}: {again} {Excuse.PRODUCER_EPOCH}")
    measures = [one for one in facts.answers if not is_count(str(one[0]))]
    still = facts.calm if any(ask.quantity.takes_time for ask, _, _ in measures) else None
    starved = still.starved if still is not None else ()
    for ask, bound, answer in measures:
        yield from _of_a_measure(facts, ask, bound, answer, starved if ask.quantity.takes_time else ())


def _of_a_measure(
    facts: Facts, ask: Ask, bound: Bound, answer: Answer, starved: Sequence[str]
) -> Iterator[Opinion]:
    """Yield a `breaks` opinion (a promise is broken) if a measured quantity breaks its bound, `open` (undecided) if it
    is not shown to hold.

    `starved`: reasons why the machine, and not Kafka, may have caused the number; with them, a bound must hold with a
    margin.
    """
    timing = _timing(facts.case, ask)
    text = f"expected {ask} {bound}, measured {answer.seen}" + (f" with timing {timing}" if timing else "")
    if answer.holds is None:
        yield stays_open(f"{text}: it cannot be told: {answer.why}")
    elif answer.holds is False and not answer.broken:
        yield stays_open(f"not demonstrated: {text}")
    elif starved and not (
        answer.holds and answered(facts, ask, bound, partial(widen_if_starved, ask.quantity)).holds
    ):
        yield stays_open(f"{text}, on a starved machine: {'; '.join(starved)}")
    elif answer.holds is False:
        yield breaks(text)


def judged(
    evidence: Evidence, case: Case, answers: Sequence[tuple[Ask, Bound, Answer]]
) -> Iterator[ExpectationJudged]:
    """Yield the result of each expectation, for `verdict.json` and `--json`, in the order of `answers`.

    `answers`: (question, bound, answer of the run), as `facts.answers` returns them.
    """
    counts = evidence.audit.counts if evidence.audit else {}
    for ask, bound, answer in answers:
        name = str(ask)
        if is_count(name):
            seen = counts.get(name)
            holds = None if seen is None else bound.holds(seen)
            yield ExpectationJudged(
                quantity=name,
                bound=str(bound),
                seen="unknown" if seen is None else str(seen),
                holds=holds,
                low=seen,
                high=seen,
            )
        else:
            low, high = (answer.value.low, answer.value.high) if answer.value else (-math.inf, math.inf)
            yield ExpectationJudged(
                quantity=name,
                bound=str(bound),
                seen=answer.seen,
                holds=answer.holds,
                why=answer.why,
                timing=_timing(case, ask),
                low=low if math.isfinite(low) else None,
                high=high if math.isfinite(high) else None,
            )


def _timing(case: Case, ask: Ask) -> str:
    """Return the name of the set of time-outs under which a time was measured; '' for a quantity that is no
    time.
    """
    return timing_name(case.experiment) if ask.quantity.unit is Unit.SECONDS else ""


def _bounds(facts: Facts, counts: Mapping[str, int]) -> Iterator[tuple[str, Bound]]:
    for expect in facts.case.experiment.expect:
        for anomaly, bound in expect.counts.items():
            if anomaly in counts:
                yield anomaly, bound


def _broken_upper_bounds(facts: Facts, counts: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for anomaly, bound in _bounds(facts, counts):
        if bound.highest is not None and counts[anomaly] > bound.highest:
            yield anomaly, f"expected {anomaly} {bound}, counted {counts[anomaly]}"
