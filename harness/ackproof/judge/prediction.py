"""Predictions with every class of the audit in them: the exploration says what replication permits, the settings the
rest. Asked before a run, of the faults that are planned, and behind it, of those that it showed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from ackproof.experiment.case import Case
from ackproof.experiment.expectations import ExpectSpec
from ackproof.judge.forbidden import Stand, rule
from ackproof.plan.cases import case_from_json
from ackproof.reference.predict.answers import FURTHER_STATES, USUAL_STATES, Watch
from ackproof.reference.predict.cases import promises_for
from ackproof.reference.predict.prediction import predict_case, predict_run
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.documents import AuditFile, CaseFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.prediction import Chance, PredictedClass, PredictionFile

_CHANCES = {
    Stand.FORBIDDEN: Chance.IMPOSSIBLE,
    Stand.ALLOWED: Chance.POSSIBLE,
    Stand.NOT_JUDGED: Chance.UNKNOWN,
}


def predict_planned(
    case: Case, *, max_states: int = USUAL_STATES, watch: Watch | None = None
) -> PredictionFile:
    """The prediction for a case and its planned faults."""
    return _with_rules(case, predict_case(case, max_states=max_states, watch=watch))


def predict_observed(
    case: Case,
    run: CaseDir,
    seen: Collection[str] = (),
    *,
    explore: Callable[[Case, CaseDir, int], PredictionFile] = predict_run,
) -> PredictionFile:
    """The prediction for a run and its observed faults.

    `seen`: classes that the run shows. One of these is not left unknown before ten times as many states were looked at.
    `explore` answers for the classes that replication decides, within so many states.
    """
    file = explore(case, run, USUAL_STATES)
    if any(one.explored and one.chance is Chance.UNKNOWN and one.anomaly in seen for one in file.classes):
        file = explore(case, run, FURTHER_STATES)
    return _with_rules(case, file)


def predict(run: CaseDir) -> PredictionFile:
    """Predict what may happen to an audited run, by the faults that it showed, and write `prediction.json`.

    Raises `BadInput` for files that are missing or broken.
    """
    case = case_from_json(CaseFile.load(run.case_json).resolved)
    counts = AuditFile.load(run.audit_json).counts
    file = predict_observed(case, run, {anomaly for anomaly, count in counts.items() if count})
    file.save(run.prediction_json)
    return file


def impossible_demands(prediction: PredictionFile, expects: tuple[ExpectSpec, ...]) -> Iterator[str]:
    """Expectations that demand to see what is predicted impossible: bad input, a sentence each."""
    for expect in expects:
        for anomaly, bound in expect.bounds.items():
            found = prediction.of(anomaly)
            if bound.lowest > 0 and found is not None and found.chance is Chance.IMPOSSIBLE:
                yield f"'{expect}' demands what is predicted impossible: {anomaly}: {found.why}"


def _with_rules(case: Case, prediction: PredictionFile) -> PredictionFile:
    """The classes of the audit that the exploration does not reach, by the rules of the settings."""
    predicted = {(one.anomaly, topic) for one in prediction.classes for topic in one.topics or ("",)}
    added: dict[PredictedClass, list[str]] = {}
    topics = case.experiment.topic_names()
    for anomaly in Anomaly:
        for topic in topics:
            if predicted & {(anomaly, ""), (anomaly, topic)}:
                continue
            said = rule(anomaly, promises_for(case, topic))
            one = PredictedClass(anomaly=anomaly, chance=_CHANCES[said.stand], why=said.why, explored=False)
            added.setdefault(one, []).append(topic)
    whole = (
        one if len(names) == len(topics) else one.model_copy(update={"topics": tuple(names)})
        for one, names in added.items()
    )
    return prediction.model_copy(update={"classes": (*prediction.classes, *whole)})
