"""Tests of how predictions of the model, and its explanations of losses, decide a verdict."""

from __future__ import annotations

import pytest

from ackproof.experiment.promises import Promises, Ruling, rule
from ackproof.judge import judge_case
from ackproof.judge.checks.classes import ruling
from ackproof.judge.demands import impossible_demands
from ackproof.plan.cases import case_from_json
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.model import (
    ClassExplained,
    ConformanceFile,
    Deletion,
    ForbiddenStep,
    PredictedClass,
    PredictionFile,
    UnexplainedRecord,
)
from ackproof.rundir.outcome import Verdict
from judged_run import MakeRun, Predicted, Replayed

LOSS = ("lost", "overwritten", "vanished", "conflict")


@pytest.mark.parametrize("anomaly", LOSS)
def test_what_is_predicted_impossible_fails_whatever_was_promised(
    make_run: MakeRun, prediction: Predicted, anomaly: str
) -> None:
    prediction.says(**{anomaly: Chance.IMPOSSIBLE})
    verdict = judge_case(make_run(producers="acks: 1", min_insync=1, **{anomaly: 1}))
    assert verdict.verdict is Verdict.FAIL
    assert "predicted impossible: as planted" in verdict.reasons[0]
    assert [one.predicted for one in verdict.classes if one.anomaly == anomaly] == ["impossible"]


@pytest.mark.parametrize("anomaly", LOSS)
def test_what_is_predicted_possible_passes(make_run: MakeRun, prediction: Predicted, anomaly: str) -> None:
    prediction.says(**{anomaly: Chance.POSSIBLE})
    verdict = judge_case(make_run(producers="acks: all", min_insync=2, **{anomaly: 1}))
    assert verdict.verdict is Verdict.PASS
    (said,) = [one for one in verdict.classes if one.anomaly == anomaly]
    assert (said.forbidden, said.predicted, said.why) == (
        False,
        "possible",
        "predicted possible: as planted",
    )


def test_possible_and_not_seen_is_shown_as_that(make_run: MakeRun, prediction: Predicted) -> None:
    prediction.says(lost=Chance.POSSIBLE)
    verdict = judge_case(make_run(producers="acks: 1"))
    (said,) = [one for one in verdict.classes if one.anomaly == "lost"]
    assert verdict.verdict is Verdict.PASS
    assert said.why == "possible, not seen: as planted"


@pytest.mark.parametrize(
    ("producers", "min_insync", "lost", "expected"),
    [
        ("acks: 1", 1, 1, Verdict.INCONCLUSIVE),
        ("acks: 1", 1, 0, Verdict.PASS),
        ("acks: all", 1, 1, Verdict.INCONCLUSIVE),
        ("acks: all", 2, 1, Verdict.FAIL),
        ("acks: all", 2, 0, Verdict.PASS),
    ],
)
def test_unknown_and_seen_is_inconclusive_unless_the_settings_promise_to_keep_it(
    make_run: MakeRun, prediction: Predicted, producers: str, min_insync: int, lost: int, expected: Verdict
) -> None:
    prediction.says(lost=Chance.UNKNOWN)
    assert judge_case(make_run(producers=producers, min_insync=min_insync, lost=lost)).verdict is expected


def test_an_expectation_allows_nothing_that_is_predicted_impossible(
    make_run: MakeRun, prediction: Predicted
) -> None:
    prediction.says(lost=Chance.IMPOSSIBLE)
    run = make_run(producers="acks: 1", expect='expect: [{lost: "> 0"}]', lost=4)
    assert judge_case(run).verdict is Verdict.FAIL


def test_an_unmet_demand_says_when_the_observed_faults_make_it_impossible(
    make_run: MakeRun, prediction: Predicted
) -> None:
    prediction.says(lost=Chance.IMPOSSIBLE)
    verdict = judge_case(make_run(producers="acks: 1", expect='expect: [{lost: "> 0"}]'))
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert "make impossible" in verdict.reasons[0]


def test_a_demand_for_what_is_predicted_impossible_is_named(make_run: MakeRun, prediction: Predicted) -> None:
    run = make_run(producers="acks: 1", expect='expect: [{lost: "> 0"}, {vanished: 0}]')
    case = case_from_json(CaseFile.load(run.case_json).resolved)
    prediction.says(lost=Chance.IMPOSSIBLE, vanished=Chance.IMPOSSIBLE)
    (said,) = impossible_demands(prediction.file, case.experiment.expect)
    assert "lost" in said
    prediction.says(lost=Chance.UNKNOWN)
    assert not list(impossible_demands(prediction.file, case.experiment.expect))


def test_the_prediction_is_written_with_every_class(make_run: MakeRun, prediction: Predicted) -> None:
    prediction.says(lost=Chance.POSSIBLE)
    run = make_run(producers="acks: 1")
    judge_case(run)
    file = PredictionFile.load(run.prediction_json)
    phantom, lost = file.find_class("phantom", "orders"), file.find_class("lost", "orders")
    assert phantom is not None and lost is not None
    assert (phantom.chance, phantom.explored) == (Chance.IMPOSSIBLE, False)
    assert (lost.chance, lost.explored) == (Chance.POSSIBLE, True)


def _lost(**of_lost: int) -> ConformanceFile:
    counts = {"explained": 0, **of_lost}
    return ConformanceFile(replayed=9, classes=(ClassExplained(anomaly="lost", count=3, **counts),))


@pytest.mark.parametrize(
    ("said", "expected", "note"),
    [
        (_lost(explained=3), Verdict.PASS, ""),
        (_lost(explained=2, unexplained=1), Verdict.FAIL, ""),
        (_lost(not_replayed=3), Verdict.PASS, "that were not replayed"),
        (ConformanceFile(), Verdict.PASS, "says nothing of what was lost"),
    ],
)
def test_a_loss_that_no_step_explains_fails_under_any_settings(
    make_run: MakeRun,
    prediction: Predicted,
    replay: Replayed,
    said: ConformanceFile,
    expected: Verdict,
    note: str,
) -> None:
    prediction.says(lost=Chance.POSSIBLE)
    replay.file = said
    run = make_run(producers="acks: 1", min_insync=1, lost=3)
    verdict = judge_case(run)
    assert verdict.verdict is expected
    assert note in " ".join(verdict.not_judged)
    assert bool(note) == any("explanations" in text for text in verdict.not_judged)
    assert ConformanceFile.load(run.conformance_json) == said


@pytest.mark.parametrize(
    ("acks", "of_lost", "note"),
    [
        ("all", {"by_interval": 2}, "2 of 3 lost have no acknowledged offset to be traced by"),
        ("0", {"by_interval": 2}, ""),
        ("all", {"explained": 3}, ""),
    ],
)
def test_losses_that_no_offset_tells_are_said_where_acks_have_offsets(
    make_run: MakeRun, prediction: Predicted, replay: Replayed, acks: str, of_lost: dict[str, int], note: str
) -> None:
    prediction.says(lost=Chance.POSSIBLE)
    replay.file = _lost(**of_lost)
    verdict = judge_case(make_run(producers=f"acks: {acks}", min_insync=1, lost=3))
    assert [text for text in verdict.not_judged if "explanations" in text] == (
        [f"explanations: {note}"] if note else []
    )
    traced = [text for text in verdict.witnesses if "traced to the step" in text]
    assert traced == (["lost: all 3 are traced to the step that took them"] if "explained" in of_lost else [])


@pytest.mark.parametrize(
    ("by", "who"),
    [
        (("fault 1 (recreate)", "fault 1 (recreate)"), "fault 1 (recreate)"),
        (("", ""), "nobody who is known"),
        (("", "fault 1 (recreate)"), "fault 1 (recreate)"),
        (("fault 1 (recreate)", "fault 3 (recreate)"), "fault 1 (recreate), fault 3 (recreate)"),
    ],
)
def test_what_went_with_its_topic_is_told_beside_what_was_truncated(
    make_run: MakeRun, prediction: Predicted, replay: Replayed, by: tuple[str, str], who: str
) -> None:
    prediction.says(lost=Chance.POSSIBLE)
    went = Deletion(
        topic="orders",
        partition=0,
        topic_id="",
        incarnation=1,
        by="",
        created_ns=0,
        removed_ns=1,
        until_ns=1,
        again_ns=2,
        offset=9,
        log_end=-1,
        why="",
    )
    replay.file = _lost(explained=3, deleted=2).model_copy(
        update={"deletions": tuple(went.model_copy(update={"by": one}) for one in by)}
    )
    verdict = judge_case(make_run(producers="acks: 1", min_insync=1, lost=3))
    (said,) = [text for text in verdict.witnesses if "traced to the step" in text]
    assert said.endswith(f"2 of them went with a topic that was deleted by {who}")


def test_a_replay_has_nothing_to_explain_where_nothing_is_lost(make_run: MakeRun, replay: Replayed) -> None:
    replay.file = ConformanceFile()
    verdict = judge_case(make_run(producers="acks: all"))
    assert verdict.verdict is Verdict.PASS
    assert [text for text in verdict.not_judged if "explanations" in text] == []


def _explained(anomaly: str, count: int, explained: int = 0, unexplained: int = 0) -> ConformanceFile:
    one = ClassExplained(anomaly=anomaly, count=count, explained=explained, unexplained=unexplained)
    return ConformanceFile(replayed=9, classes=(one,))


@pytest.mark.parametrize(
    ("said", "silent"),
    [
        (_explained("displaced", 3, explained=3), False),
        (_explained("lost", 0), False),
        (_explained("lost", 3, explained=3), True),
    ],
)
def test_only_what_was_lost_is_an_answer_for_what_was_lost(
    make_run: MakeRun, prediction: Predicted, replay: Replayed, said: ConformanceFile, silent: bool
) -> None:
    prediction.says(lost=Chance.POSSIBLE)
    replay.file = said
    verdict = judge_case(make_run(producers="acks: 1", min_insync=1, lost=3))
    assert any("says nothing of what was lost" in text for text in verdict.not_judged) is not silent
    assert not any("all 0 are traced" in text for text in verdict.witnesses)


def test_what_is_no_loss_needs_no_explanation(make_run: MakeRun, replay: Replayed) -> None:
    replay.file = _explained("vanished", 3, unexplained=3)
    assert judge_case(make_run(producers="acks: 1", min_insync=1)).verdict is Verdict.PASS


def test_an_audit_that_did_not_look_for_losses_asks_for_no_explanation(
    make_run: MakeRun, replay: Replayed
) -> None:
    replay.file = ConformanceFile()
    verdict = judge_case(make_run(producers="acks: 1", audit={"counts": {"phantom": 0}}))
    assert [text for text in verdict.not_judged if "explanations" in text] == []


def test_an_unexplained_loss_needs_full_evidence(
    make_run: MakeRun, prediction: Predicted, replay: Replayed
) -> None:
    prediction.says(lost=Chance.POSSIBLE)
    replay.file = _lost(unexplained=3)
    assert judge_case(make_run(producers="acks: 1", lost=3, events=())).verdict is Verdict.INCONCLUSIVE


def test_a_forbidden_step_fails_even_if_nothing_is_lost(make_run: MakeRun, replay: Replayed) -> None:
    step = ForbiddenStep(rule="election out of the ISR", text="4 leads", state_before="", source="KIP-966")
    replay.file = ConformanceFile(replayed=9, forbidden=step, forbidden_steps=2)
    verdict = judge_case(make_run(producers="acks: all"))
    assert verdict.verdict is Verdict.FAIL
    assert "election out of the ISR: 4 leads; KIP-966 (one of 2" in verdict.reasons[0]


def test_one_forbidden_step_is_not_the_first_of_several(make_run: MakeRun, replay: Replayed) -> None:
    step = ForbiddenStep(rule="election out of the ISR", text="4 leads", state_before="", source="KIP-966")
    replay.file = ConformanceFile(replayed=9, forbidden=step, forbidden_steps=1)
    assert judge_case(make_run(producers="acks: all")).reasons[0].endswith("4 leads; KIP-966")


def test_what_is_unknown_and_demanded_is_not_forbidden(make_run: MakeRun, prediction: Predicted) -> None:
    prediction.says(lost=Chance.UNKNOWN)
    run = make_run(producers="acks: all", min_insync=2, expect='expect: [{lost: "> 0"}]', lost=1)
    assert judge_case(run).verdict is Verdict.INCONCLUSIVE


def test_a_ruling_is_the_settings_where_the_exploration_says_nothing(make_run: MakeRun) -> None:
    """The settings rule if the file predicts nothing of the class, or predicts it by the settings' own rule."""
    run = make_run(producers="acks: all", min_insync=2)
    promises = Promises.from_experiment(
        case_from_json(CaseFile.load(run.case_json).resolved).planned, "orders"
    )
    usual = rule("lost", promises)

    def said(*classes: PredictedClass) -> Ruling:
        return ruling(PredictionFile(classes=classes), "lost", "orders", promises, ())

    def possible(why: str, **more: bool) -> PredictedClass:
        return PredictedClass(anomaly="lost", chance=Chance.POSSIBLE, why=why, **more)

    assert usual.chance is Chance.IMPOSSIBLE
    assert said() == said(possible(usual.why, explored=False)) == usual
    assert said(possible("in other words", explored=False, by_settings=True)) == usual
    rule_made = possible(usual.why, explored=False, by_settings=False)
    for found in (possible(usual.why, explored=True), possible("another", explored=False), rule_made):
        assert said(found).chance is Chance.POSSIBLE


def test_a_replay_that_contradicts_the_final_read_is_no_evidence(make_run: MakeRun, replay: Replayed) -> None:
    there = UnexplainedRecord(
        anomaly="present",
        topic="orders",
        partition=0,
        producer=0,
        seq=4,
        offset=7,
        why="a later leader cut it",
    )
    replay.file = ConformanceFile(replayed=9, present=2, unexplained=(there,))
    verdict = judge_case(make_run(producers="acks: all"))
    assert verdict.verdict is Verdict.INCONCLUSIVE
    (reason,) = verdict.reasons
    assert reason.startswith("2 acknowledged records must be gone")
    assert reason.endswith("such as orders/0 offset 7: a later leader cut it")


TWO_TOPICS = """\
name: t
topics:
  orders: {partitions: 1, replication_factor: 3, config: {min.insync.replicas: 1}}
  gone: {partitions: 1, replication_factor: 3, config: {min.insync.replicas: 1}}
workload: {producers: {acks: all, idempotence: true}, duration: 2s}
faults:
  - recreate: {topic: gone}
    at: 1s
"""


@pytest.mark.parametrize(("topic", "said"), [("gone", Verdict.PASS), ("orders", Verdict.INCONCLUSIVE)])
def test_what_is_unknown_on_one_topic_is_open_only_if_it_was_seen_there(
    make_run: MakeRun, prediction: Predicted, topic: str, said: Verdict
) -> None:
    """A finding on a topic that a fault deletes leaves the unknown prediction for another topic without effect."""
    unknown = PredictedClass(anomaly="lost", chance=Chance.UNKNOWN, why="as planted", topics=("orders",))
    prediction.file = PredictionFile(classes=(unknown,), observed=True)
    numbers = {"partition": 0, "producer": 0, "offset": 3, "seq": 3}
    finding = {"class": "lost", "topic": topic, "detail": "", **numbers}
    bins = {("orders", 0): (0, 30), ("gone", 0): (0, 30)}
    verdict = judge_case(make_run(experiment=TWO_TOPICS, findings=[finding], acked_bins=bins, lost=1))
    assert (verdict.verdict, [why for why in verdict.reasons if "lost" in why] == []) == (
        said,
        said is Verdict.PASS,
    )
