"""Demands of an experiment, against what the model predicts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from ackproof.cli.main import main_code
from ackproof.experiment.case import Case
from ackproof.judge import demands as place
from ackproof.judge.demands import demands
from ackproof.judge.oracle import oracle_for
from ackproof.plan.cases import cases, load
from ackproof.rundir.model import PredictionFile
from ackproof_model import oracle
from ackproof_model.predict.answers import USUAL_STATES
from ackproof_model.predict.prediction import SearchOptions, predict_case
from model_cases import case_of

EXPERIMENT = """\
name: x
topics: {{t: {{replication_factor: 3, config: {{min.insync.replicas: 2}}}}}}
workload: {{producers: {{acks: {acks}, idempotence: {idempotence}}}, duration: 2s}}
faults:
  - stop: {{target: leader(t/0)}}
    at: 1s
    restart_after: 1s
expect:
  - {expect}
"""


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Return a function that writes an experiment file and returns its path. Predictions are cached in the test's
    folder."""
    monkeypatch.setenv("ACKPROOF_CACHE", str(tmp_path / "cache"))

    def write(expect: str, acks: str = "all", idempotence: str = "true") -> Path:
        path = tmp_path / "x.yaml"
        path.write_text(EXPERIMENT.format(expect=expect, acks=acks, idempotence=idempotence))
        return path

    return write


def test_a_demand_for_what_is_impossible_is_found(experiment) -> None:  # type: ignore[no-untyped-def]
    found = demands(cases(load(experiment('{duplicate: "> 0"}'))))
    assert found.impossible == [
        "x: 'every case: duplicate > 0' demands what is predicted impossible: duplicate: an idempotent producer "
        "writes no copies"
    ]


@pytest.mark.parametrize(
    ("expect", "acks", "idempotence"),
    [('{lost: "> 0"}', "0", "false"), ("{lost: 0}", "all", "true"), ('{duplicate: "> 0"}', "all", "false")],
)
def test_what_is_possible_or_not_demanded_is_not_complained_of(  # type: ignore[no-untyped-def]
    experiment, expect: str, acks: str, idempotence: str
) -> None:
    found = demands(cases(load(experiment(expect, acks, idempotence))))
    assert (found.impossible, found.rest) == ([], "")


def test_what_the_explorer_has_seen_to_its_end_is_used(  # type: ignore[no-untyped-def]
    experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short search leaves the demand open. Once `predict_case` has cached its full answer, the demand is refused."""
    monkeypatch.setattr(oracle, "QUICK_STATES", 1)
    file = experiment('{lost: "> 0"}')
    file.write_text(file.read_text().replace("replication_factor: 3", "replication_factor: 2"))
    assert demands(cases(load(file))).impossible == []
    (case,) = cases(load(file))
    said = predict_case(case).find_class("lost")
    assert said is not None and said.chance == "impossible"
    (text,) = demands(cases(load(file))).impossible
    assert "demands what is predicted impossible: lost: none of" in text


def test_without_time_it_says_what_it_left_out(experiment) -> None:  # type: ignore[no-untyped-def]
    found = demands(cases(load(experiment('{duplicate: "> 0"}'))), within_s=-1)
    assert (found.impossible, found.left_out) == ([], 1)
    assert "what 1 of them expect was not held against the prediction" in found.rest


def test_a_demand_beside_what_is_none_is_found(experiment) -> None:  # type: ignore[no-untyped-def]
    assert len(demands(cases(load(experiment('{duplicate: "> 0", lost: 0}')))).impossible) == 1


def test_each_case_is_asked_once_however_often_it_is_run(experiment) -> None:  # type: ignore[no-untyped-def]
    spec = load(experiment('{duplicate: "> 0"}'))
    assert len(demands(cases(spec, repeat=3)).impossible) == 1
    assert demands(cases(spec, repeat=3), within_s=-1).left_out == 1


def test_who_demands_nothing_is_not_left_out(experiment) -> None:  # type: ignore[no-untyped-def]
    assert demands(cases(load(experiment("{lost: 0}"))), within_s=-1).left_out == 0


def test_validate_refuses_the_file_with_the_same_words(  # type: ignore[no-untyped-def]
    experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_code(["validate", str(experiment('{duplicate: "> 0"}'))]) == 254
    assert "demands what is predicted impossible" in " ".join(capsys.readouterr().err.split())


def test_a_case_is_begun_until_the_time_is_over(  # type: ignore[no-untyped-def]
    experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "time", SimpleNamespace(monotonic=lambda: 5.0))
    assert demands(cases(load(experiment('{duplicate: "> 0"}'))), within_s=0).left_out == 0


@pytest.mark.parametrize(
    ("known", "most"), [((), "quick"), ((1,), "quick"), ((2,), "quick"), ((1, 2), "usual")]
)
def test_a_long_look_is_taken_only_where_every_world_is_known(  # type: ignore[no-untyped-def]
    experiment, monkeypatch: pytest.MonkeyPatch, known: tuple[int, ...], most: str
) -> None:
    looks = []

    def look(_case: Case, options: SearchOptions) -> PredictionFile:
        looks.append(options.max_states)
        return PredictionFile()

    monkeypatch.setattr(oracle, "scopes_of", lambda _cases: (1, 2))
    monkeypatch.setattr(oracle, "remembered", lambda scope: scope if scope in known else None)
    monkeypatch.setattr(oracle, "predict_case", look)
    assert demands(cases(load(experiment('{lost: "> 0"}')))).impossible == []
    assert looks == [{"quick": oracle.QUICK_STATES, "usual": USUAL_STATES}[most]]


def test_the_model_is_asked_of_a_cluster_of_our_own() -> None:
    assert isinstance(oracle_for(case_of()), oracle.ReferenceOracle)
