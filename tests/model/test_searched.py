"""Which reductions a search used, in the judgement of a class, and the prediction of a run without them."""

from __future__ import annotations

import json

import pytest

from ackproof.cli.main import main_code
from ackproof.judge import judge_case
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.model import PredictionFile
from ackproof.rundir.outcome import Verdict
from ackproof_reference.explore.scope import ALL
from judged_run import MakeRun, Predicted


@pytest.mark.parametrize("used", [("void", "ranking"), (), None], ids=["reduced", "plain", "older"])
@pytest.mark.parametrize("explored", [True, False])
def test_a_class_names_the_reductions_of_the_search_behind_it(
    make_run: MakeRun, prediction: Predicted, used: tuple[str, ...] | None, explored: bool
) -> None:
    prediction.says(lost=Chance.IMPOSSIBLE)
    (one,) = prediction.file.classes
    update = {"classes": (one.model_copy(update={"explored": explored}),), "reductions": used}
    prediction.file = prediction.file.model_copy(update=update)
    verdict = judge_case(make_run(producers="acks: 1", lost=1))
    assert verdict.verdict is Verdict.FAIL
    named = {one.anomaly: one.reductions for one in verdict.classes}
    assert named["lost"] == (used if explored else None)
    assert {name for name, reductions in named.items() if reductions} <= {"lost"}


def test_a_run_is_predicted_again_without_reductions(
    make_run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ackproof predict` on a run's folder searches with what the run showed, and writes no file. Too low a limit
    leaves the class unknown."""
    run = make_run(lost=1)
    before = run.prediction_json.read_bytes()
    told = []
    for words in ([], ["--no-reductions"], ["--no-reductions", "--max-states", "9"]):
        assert main_code(["predict", str(run.path), "--json", *words]) == 0
        (answer,) = json.loads(capsys.readouterr().out)
        told.append(PredictionFile.model_validate_json(json.dumps(answer)))
    assert [one.reductions for one in told] == [ALL.names, (), ()]
    assert all(one.observed for one in told)
    reduced, plain, cut = (one.find_class("lost") for one in told)
    assert reduced and plain and cut
    assert (reduced.chance, plain.chance, cut.chance) == (Chance.IMPOSSIBLE,) * 2 + (Chance.UNKNOWN,)
    assert told[1].states > told[0].states
    assert run.prediction_json.read_bytes() == before


@pytest.mark.parametrize("words", [["--set", "cluster.brokers=1"], ["first.yaml"]], ids=["set", "file"])
def test_a_run_is_predicted_as_it_ran(
    make_run: MakeRun, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_code(["predict", str(make_run().path), *words]) == 254
    assert "give runs alone" in capsys.readouterr().err
