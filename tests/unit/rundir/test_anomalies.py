"""Tests of the table of anomaly classes and of docs/anomalies.md, which is generated from it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from ackproof.experiment.evidence import Liveness
from ackproof.rundir.anomalies import LIVENESS, PREDICTED_WITH, TABLE, Anomaly, count_text, gravity, markdown
from ackproof.rundir.anomaly_terms import Concern, RuledBy
from ackproof.rundir.schema import FINDINGS

DOCS = Path(__file__).parents[3] / "docs" / "anomalies.md"


def test_the_documentation_is_that_of_the_table() -> None:
    assert DOCS.read_text() == markdown()


def test_each_class_has_one_row_in_the_order_of_the_audit() -> None:
    assert list(TABLE) == list(Anomaly)
    assert sorted(gravity(name)[1] for name in TABLE) == list(range(len(Anomaly)))


def test_a_finding_names_columns_that_findings_have() -> None:
    for row in TABLE.values():
        assert set(row.columns) < set(FINDINGS.names)


def test_a_class_that_proves_itself_breaks_a_promise() -> None:
    assert not [row.name for row in TABLE.values() if row.proves and row.concern is Concern.NOTHING]


def test_an_experiment_bounds_the_recovery_of_each_class_of_liveness() -> None:
    assert sorted(get_args(Liveness)) == sorted(LIVENESS)


def test_the_model_searches_for_classes_of_loss_and_for_no_other() -> None:
    """`PREDICTED_WITH` and the classes it predicts are all non-transactional classes of loss."""
    assert PREDICTED_WITH == {"lost": "overwritten", "vanished": "conflict"}
    decided = {*PREDICTED_WITH, *PREDICTED_WITH.values()}
    loss = {row.name for row in TABLE.values() if row.ruled_by is RuledBy.LOSS}
    assert decided == {name for name in loss if not TABLE[name].transactional}


def test_the_gravest_are_told_first_and_information_last() -> None:
    told = sorted(["surfaced", "duplicate", "of-a-newer-version", "resurrected", "lost"], key=gravity)
    assert told == ["lost", "resurrected", "duplicate", "of-a-newer-version", "surfaced"]


@pytest.mark.parametrize(
    ("count", "name", "words"),
    [
        (1, "duplicate", "1 duplicate copy"),
        (2, "duplicate", "2 duplicate copies"),
        (1200, "lost", "1,200 acknowledged records"),
        (3, "of-a-newer-version", "3 of-a-newer-version"),
    ],
)
def test_a_count_in_words(count: int, name: str, words: str) -> None:
    assert count_text(count, name) == words
