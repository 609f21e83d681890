"""One run directory → one verdict (DESIGN §1), from facts on disk alone: it can be repeated on an old run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import pyarrow.compute as pc
import pyarrow.dataset as ds

from ackproof.experiment.case import Case
from ackproof.experiment.expectations import ExpectSpec
from ackproof.experiment.promises import Promises
from ackproof.judge.copies import WHY as SENT_AGAIN
from ackproof.judge.copies import sent_again
from ackproof.judge.evidence import lacking
from ackproof.judge.explanation import explanation
from ackproof.judge.forbidden import Ruling, Stand, acked_inversions_only, proves_itself
from ackproof.judge.outlook import outlook_on, ruling
from ackproof.judge.witness import testimony
from ackproof.plan.cases import case_from_json
from ackproof.plan.on_model import MODEL
from ackproof.reference.predict.cases import promises_for
from ackproof.rundir.anomalies import Inversion
from ackproof.rundir.documents import AuditFile, CaseFile, ClassJudgement, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.prediction import Chance, PredictionFile

OF_THE_MODEL = (
    "Kafka itself: this run was the reference implementation in virtual time, so it judges the model"
)


@dataclass(frozen=True)
class _Breach:
    """A class that must not be there, and is."""

    anomaly: str
    reason: str


def judge_case(run: CaseDir) -> VerdictFile:
    """Judge one audited run, write `verdict.json`, and return it.

    Raises `BadInput` when `case.json` or `audit.json` is missing or cannot be read.
    """
    file = CaseFile.load(run.case_json)
    case = case_from_json(file.resolved)
    audit = AuditFile.load(run.audit_json)
    logs = testimony(run, case)
    told = explanation(run, case, audit)
    lacks = [*lacking(run, case, audit), *logs.doubts, *told.doubts]
    expects = case.experiment.expect
    prediction = outlook_on(case, run, {anomaly for anomaly, count in audit.counts.items() if count})
    again = sent_again(run) if audit.counts.get("duplicate") and _idempotent(case) else 0
    classes = list(_classes(run, case, audit, prediction, again))
    breaches = [
        _Breach(c.anomaly, f"{c.anomaly}: {c.count}, and {c.why}") for c in classes if c.forbidden and c.count
    ]
    breaches += [_Breach("", reason) for reason in told.breaks]
    # A copy that no broker can know for one breaks no promise: an expectation is not met then, and not by Kafka.
    breaches += _broken_upper_bounds(expects, _less(audit.counts, again))
    unknown = [
        f"{c.anomaly}: {c.count}, and {c.why}"
        for c in classes
        if c.count and c.forbidden is None and c.predicted == Chance.UNKNOWN
    ]
    unmet = _unmet_lower_bounds(expects, audit.counts, prediction)
    if again:
        unmet += [
            f"{breach.reason}: {again} were {SENT_AGAIN}"
            for breach in _broken_upper_bounds(expects, audit.counts)
        ]

    proven = [*(b.reason for b in breaches if proves_itself(b.anomaly)), *logs.breaks]
    if proven:
        verdict, reasons = Verdict.FAIL, [*proven, *lacks]
    elif lacks:
        verdict, reasons = Verdict.INCONCLUSIVE, lacks
    elif breaches:
        verdict, reasons = Verdict.FAIL, [b.reason for b in breaches]
    elif unknown or unmet:
        verdict, reasons = Verdict.INCONCLUSIVE, [*unknown, *unmet]
    else:
        verdict, reasons = Verdict.PASS, []
    result = VerdictFile(
        verdict=verdict,
        reasons=tuple(dict.fromkeys(reasons)),
        classes=tuple(classes),
        not_judged=(
            *((OF_THE_MODEL,) if file.backend == MODEL else ()),
            *(f"predictions: {reason}" for reason in prediction.not_predicted),
            *told.not_judged,
            *((logs.unseen,) if logs.unseen else ()),
        ),
        witnesses=(*logs.agree, *told.agree),
    )
    result.save(run.verdict_json)
    return result


def _classes(
    run: CaseDir, case: Case, audit: AuditFile, prediction: PredictionFile, again: int
) -> Iterator[ClassJudgement]:
    topics = {topic: promises_for(case, topic) for topic in case.experiment.topics}
    for anomaly, count in audit.counts.items():
        rulings = {
            topic: ruling(prediction, anomaly, topic, promises, case.experiment.expect)
            for topic, promises in topics.items()
        }
        forbidden = {topic: topics[topic] for topic, r in rulings.items() if r.stand is Stand.FORBIDDEN}
        if not forbidden or count == 0:
            said = _said(run, anomaly, count, rulings, topics)
            seen = "" if count or said.chance is not Chance.POSSIBLE else "possible, not seen: "
            yield ClassJudgement(
                anomaly=anomaly,
                count=count,
                forbidden=said.stand.value,
                why=seen + said.why.removeprefix("predicted possible: " if seen else ""),
                predicted=said.chance or "",
            )
            continue
        against = _count_against(run, anomaly, count, forbidden, permitting=topics.keys() - forbidden.keys())
        first = rulings[next(iter(forbidden))]
        why = first.why
        if anomaly == "duplicate" and (excused := min(again, against)):
            against -= excused
            why += f"; {excused} were {SENT_AGAIN}"
        yield ClassJudgement(
            anomaly=anomaly,
            count=count,
            forbidden=against > 0,
            why=why if against == count else f"{why} ({against} of {count} stand against that)",
            predicted=first.chance or "",
        )


def _said(
    run: CaseDir,
    anomaly: str,
    count: int,
    rulings: Mapping[str, Ruling],
    topics: Mapping[str, Promises],
) -> Ruling:
    """The strictest ruling of those topics that count: what is unknown on one is open only if it was seen there."""
    unknown = {topic: topics[topic] for topic, one in rulings.items() if one.chance is Chance.UNKNOWN}
    elsewhere = topics.keys() - unknown.keys()
    if count and unknown and _count_against(run, anomaly, count, unknown, permitting=elsewhere) == 0:
        return _strictest([one for one in rulings.values() if one.chance is not Chance.UNKNOWN])
    return _strictest(list(rulings.values()))


def _idempotent(case: Case) -> bool:
    return case.experiment.workload.producers.idempotence


def _less(counts: Mapping[str, int], again: int) -> Mapping[str, int]:
    """The counts without the copies that a client sent again in a new producer epoch."""
    return {**counts, "duplicate": counts["duplicate"] - again} if again else counts


def _strictest(rulings: Sequence[Ruling]) -> Ruling:
    order = (Stand.FORBIDDEN, Stand.NOT_JUDGED, Stand.ALLOWED)
    return min(rulings, key=lambda ruling: order.index(ruling.stand))


def _count_against(
    run: CaseDir, anomaly: str, count: int, forbidden: Mapping[str, Promises], *, permitting: Set[str]
) -> int:
    """How many of the findings of a class do not stand on topics that permit it: a topic nobody knows forbids it."""
    acked_only = any(acked_inversions_only(anomaly, promises) for promises in forbidden.values())
    if not permitting and not acked_only:
        return count
    findings = ds.dataset(run.findings, format="parquet")
    wanted = pc.field("class") == anomaly
    if permitting:
        wanted &= ~pc.field("topic").isin(sorted(permitting))
    if acked_only:
        wanted &= pc.field("detail") == Inversion.BOTH_ACKED.value
    return int(findings.count_rows(filter=wanted))


def _broken_upper_bounds(expects: Sequence[ExpectSpec], counts: Mapping[str, int]) -> list[_Breach]:
    return [
        _Breach(anomaly, f"expected {anomaly} {bound}, counted {counts[anomaly]}")
        for expect in expects
        for anomaly, bound in expect.bounds.items()
        if anomaly in counts and bound.highest is not None and counts[anomaly] > bound.highest
    ]


def _unmet_lower_bounds(
    expects: Sequence[ExpectSpec], counts: Mapping[str, int], prediction: PredictionFile
) -> list[str]:
    return [
        f"not demonstrated: expected {anomaly} {bound}, counted {counts[anomaly]}"
        + (
            ", which the faults that were observed make impossible"
            if _impossible(prediction, anomaly)
            else ""
        )
        for expect in expects
        for anomaly, bound in expect.bounds.items()
        if anomaly in counts and counts[anomaly] < bound.lowest
    ]


def _impossible(prediction: PredictionFile, anomaly: str) -> bool:
    found = prediction.of(anomaly)
    return found is not None and found.explored and found.chance is Chance.IMPOSSIBLE
