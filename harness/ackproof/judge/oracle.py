"""The oracle: predicts which anomalies Kafka's protocol allows in a run, and explains its losses by observed steps.

The reference implementation answers, in a package of its own (entry points `ackproof.oracle`). Where it is not
installed, and for an attached cluster, the settings alone decide.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, Protocol

from ackproof.base.errors import BadInput
from ackproof.base.extensions import ORACLE, load_extension
from ackproof.experiment.case import Case
from ackproof.experiment.promises import Promises, rule
from ackproof.plan.cases import case_from_json
from ackproof.rundir.anomalies import CONDITIONAL, REPLAYED, Anomaly
from ackproof.rundir.documents import AuditFile, CaseFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import ClassExplained, ConformanceFile, PredictedClass, PredictionFile

NOT_INSTALLED: Final = (
    "no model of Kafka is installed (the package ackproof_model): the settings alone decide"
)
FOREIGN: Final = "a cluster that someone else runs: what its controllers decided is not seen"


class Oracle(Protocol):
    """Predictions and replays by a model of Kafka. They depend only on the case and on the files of the run."""

    def predict(self, case: Case, run: CaseDir | None) -> PredictionFile:
        """Predict which anomaly classes are possible under the faults that an audited run showed. Return the content of
        `prediction.json`.

        With `run` None: under the faults that the case plans, within a fraction of a second. Raises
        `BadInput` for files that cannot be read.
        """

    def replay(self, case: Case, run: CaseDir) -> ConformanceFile:
        """Replay the observed steps of an audited run, and explain its losses by them. Return the content of
        `conformance.json`. Raises `BadInput` for files that cannot be read."""


class SettingsOracle:
    """Oracle without a model: nothing is replayed, and each class (but those of liveness and groups) is predicted by
    the settings alone. `why`: reason why no model is asked, which predictions and replays name."""

    def __init__(self, why: str) -> None:
        self._why = why

    def predict(self, case: Case, run: CaseDir | None) -> PredictionFile:
        observed = run is not None
        return add_settings(case, PredictionFile(not_predicted=(self._why,), observed=observed))

    def replay(self, case: Case, run: CaseDir) -> ConformanceFile:
        """Return a replay that explains no loss. The count of each class that a replay could trace is `not_replayed`.
        Raises `BadInput` without a readable `audit.json`."""
        counts = AuditFile.load(run.audit_json).counts
        classes = tuple(
            ClassExplained(anomaly=name, count=count, explained=0, not_replayed=count)
            for name in REPLAYED
            if (count := counts.get(name, 0))
        )
        return ConformanceFile(not_replayed=(self._why,), classes=classes)


def oracle_for(case: Case) -> Oracle:
    """Return the oracle for the verdict on a case: the installed model of Kafka, or `SettingsOracle`. `SettingsOracle`
    decides for an attached cluster, and if no model is installed."""
    return SettingsOracle(FOREIGN) if case.experiment.ground.foreign else _installed_oracle()


@cache
def _installed_oracle() -> Oracle:
    make: Callable[[], Oracle] | None = load_extension(ORACLE)
    return SettingsOracle(NOT_INSTALLED) if make is None else make()


def predict_run(run: CaseDir) -> PredictionFile:
    """Predict which anomalies are possible under the faults that an audited run showed; write and return
    `prediction.json`. Raises `BadInput` for files that are missing or broken."""
    case = case_from_json(CaseFile.load(run.case_json).resolved)
    file = oracle_for(case).predict(case, run)
    file.save(run.prediction_json)
    return file


def replay_run(run: CaseDir) -> ConformanceFile:
    """Replay an audited run; write and return `conformance.json`. For a run that cannot be replayed, the file says why.
    Raises `BadInput` without a readable `case.json`."""
    case = case_from_json(CaseFile.load(run.case_json).resolved)
    try:
        file = oracle_for(case).replay(case, run)
    except BadInput as error:
        file = ConformanceFile(not_replayed=(f"the run cannot be replayed: {error}",))
    file.save(run.conformance_json)
    return file


def add_settings(case: Case, prediction: PredictionFile) -> PredictionFile:
    """Return the prediction with entries for the anomaly classes that it does not predict for some topic. The promises
    of the settings alone decide these entries (`explored` is False). Classes of liveness and of groups are not
    added."""
    general = [one for one in prediction.classes if not one.partitions]
    predicted = {(one.anomaly, topic) for one in general for topic in one.topics or ("",)}
    added: dict[PredictedClass, list[str]] = {}
    topics = case.experiment.topic_names()
    for anomaly in (name for name in Anomaly if name not in CONDITIONAL):
        for topic in topics:
            if predicted & {(anomaly, ""), (anomaly, topic)}:
                continue
            ruling = rule(anomaly, Promises.from_experiment(case.planned, topic))
            entry = PredictedClass(
                anomaly=anomaly,
                chance=ruling.foreseen,
                why=ruling.foretold,
                explored=False,
                by_settings=True,
            )
            added.setdefault(entry, []).append(topic)
    whole = (
        entry if len(names) == len(topics) else entry.model_copy(update={"topics": tuple(names)})
        for entry, names in added.items()
    )
    return prediction.model_copy(update={"classes": (*prediction.classes, *whole)})
