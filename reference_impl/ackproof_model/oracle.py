"""The oracle of the judge (`ackproof.judge.oracle`), answered by the reference implementation."""

from __future__ import annotations

from typing import Final

from ackproof.experiment.case import Case
from ackproof.judge.oracle import Oracle
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import ConformanceFile, PredictionFile
from ackproof_model.predict.answers import USUAL_STATES, remembered
from ackproof_model.predict.prediction import SearchOptions, predict_case, predict_run, scopes_of
from ackproof_model.replay.metadata import conform

QUICK_GROUP_STATES: Final = 3_000
"""Limit of distinct states for the model of a consumer group, in a prediction without a run."""
QUICK_STATES: Final = 20_000
"""Limit of distinct states for one scope of a partition's model, in a prediction without a run: a quarter of a second
on an idle core."""


class ReferenceOracle(Oracle):
    """Predicts and replays runs for the judge, by the search of the model and the reference implementation."""

    def predict(self, case: Case, run: CaseDir | None) -> PredictionFile:
        """Predict the anomalies that are possible in an audited run, by its timeline and metadata log. If `run` is
        None: under the faults that the case plans.

        Without a run the search is limited to `QUICK_STATES` states, unless the answers for the usual limit are cached
        for each of the case's scopes: then these are used. Raises `BadInput`, OSError or ArrowException for files that
        cannot be read."""
        if run is None:
            known = all(remembered(scope) is not None for scope in scopes_of([case]))
            states = USUAL_STATES if known else QUICK_STATES
            return predict_case(case, SearchOptions(states, group_states=QUICK_GROUP_STATES))
        return predict_run(case, run)

    def replay(self, case: Case, run: CaseDir) -> ConformanceFile:
        """Replay an audited run by the reference implementation and explain its losses. Return the content of
        `conformance.json`. Raises `BadInput`, OSError or ArrowException for files that cannot be read."""
        return conform(run, case)
