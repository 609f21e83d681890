"""What is predicted of a case, as rulings: the model says what replication permits, the settings say the rest.

Forbidden is what is predicted impossible. Unknown is forbidden where the settings promise to keep it (the exploration
found no way to lose it, and nobody was told that it may go), and elsewhere it keeps a verdict from being said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ackproof.experiment.case import Case
from ackproof.experiment.expectations import ExpectSpec
from ackproof.experiment.promises import Promises
from ackproof.judge.forbidden import Ruling, Stand, is_loss, rule
from ackproof.reference.predict.answers import FURTHER_STATES, USUAL_STATES, Watch
from ackproof.reference.predict.cases import promises_for
from ackproof.reference.predict.prediction import predict_case, predict_run
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.prediction import Chance, PredictedClass, PredictionFile

_CHANCES = {
    Stand.FORBIDDEN: Chance.IMPOSSIBLE,
    Stand.ALLOWED: Chance.POSSIBLE,
    Stand.NOT_JUDGED: Chance.UNKNOWN,
}


def outlook_of(case: Case, *, max_states: int = USUAL_STATES, watch: Watch | None = None) -> PredictionFile:
    """The prediction for a case and its planned faults, every class of the audit in it."""
    return _with_rules(case, predict_case(case, max_states=max_states, watch=watch))


def outlook_on(case: Case, run: CaseDir, seen: Collection[str] = ()) -> PredictionFile:
    """The prediction for a run and its observed faults, every class in it; written as `prediction.json`.

    `seen`: classes that the run shows. One of these is not left unknown before ten times as many states were looked at.
    """
    file = predict_run(case, run)
    if any(one.explored and one.chance is Chance.UNKNOWN and one.anomaly in seen for one in file.classes):
        file = predict_run(case, run, max_states=FURTHER_STATES)
    file = _with_rules(case, file)
    file.save(run.prediction_json)
    return file


def ruling(
    prediction: PredictionFile,
    anomaly: str,
    topic: str,
    promises: Promises,
    expects: Sequence[ExpectSpec],
) -> Ruling:
    """What is said of a class on one topic. Expectations decide nothing but where there is no prediction."""
    usual = rule(anomaly, promises)
    if not is_loss(anomaly):
        return usual
    bounds = [expect.bounds[anomaly] for expect in expects if anomaly in expect.bounds]
    demanded = any(bound.lowest > 0 for bound in bounds)
    found = prediction.of(anomaly, topic)
    if found is None or (not found.explored and found.why == usual.why):
        none_at_all = all(bound.highest == 0 for bound in bounds)
        if usual.stand is Stand.FORBIDDEN and none_at_all:
            return usual
        if bounds:
            return Ruling(Stand.NOT_JUDGED, "the experiment's expectation decides; there is no prediction")
        return usual
    match found.chance:
        case Chance.IMPOSSIBLE:
            return Ruling(Stand.FORBIDDEN, f"predicted impossible: {found.why}", found.chance)
        case Chance.POSSIBLE:
            return Ruling(Stand.ALLOWED, f"predicted possible: {found.why}", found.chance)
        case Chance.UNKNOWN if usual.stand is Stand.FORBIDDEN and not demanded:
            return Ruling(Stand.FORBIDDEN, f"{usual.why}; no way to it was found: {found.why}", found.chance)
        case _:
            return Ruling(Stand.NOT_JUDGED, f"the prediction is unknown: {found.why}", found.chance)


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
