"""Tests of expectations: demands that no run can meet, demands on two topics, and measured quantities."""

from __future__ import annotations

import pytest

from ackproof.experiment.experiment import ExpectSpec
from ackproof.judge import judge_case
from ackproof.judge.demands import impossible_demands
from ackproof.judge.facts import Facts
from ackproof.judge.verdict import MODEL_ONLY, judge
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.bounds import Bound
from ackproof.rundir.documents import CaseFile, ClassJudgement, QuietSeconds, VerdictFile
from ackproof.rundir.model import PredictedClass, PredictionFile
from ackproof.rundir.outcome import Verdict
from judged_run import MakeRun, Predicted, attempt

TO_LOSE = (ExpectSpec(bounds={"lost": Bound.parse("> 0")}),)
TWO_TOPICS = """\
name: t
topics:
  orders: {config: {min.insync.replicas: 1}}
  other: {config: {min.insync.replicas: 1}}
workload: {producers: {acks: all}, duration: 1s}
faults: [{kill: {target: broker(1)}, at: 1s, restart_after: 1s}]
"""
ACKED = {("orders", 0): (0, 30), ("other", 0): (0, 30)}


def _of(said: VerdictFile, anomaly: str) -> ClassJudgement:
    (one,) = [one for one in said.classes if one.anomaly == anomaly]
    return one


@pytest.mark.parametrize("chance", [Chance.UNKNOWN, Chance.POSSIBLE])
def test_an_unmet_demand_for_what_may_be_is_said_without_more(
    make_run: MakeRun, prediction: Predicted, chance: Chance
) -> None:
    prediction.says(lost=chance)
    said = judge_case(make_run(producers="acks: 1", expect='expect: [{lost: "> 0"}]'))
    assert said.reasons == ("not demonstrated: expected lost > 0, counted 0",)


def test_what_the_settings_alone_forbid_is_not_laid_to_the_observed_faults(make_run: MakeRun) -> None:
    said = judge_case(make_run(producers="idempotence: true", expect='expect: [{duplicate: "> 0"}]'))
    assert said.reasons == ("not demonstrated: expected duplicate > 0, counted 0",)


def test_a_demand_of_which_nothing_is_predicted_is_only_unmet(make_run: MakeRun) -> None:
    nothing = PredictionFile()
    assert list(impossible_demands(nothing, TO_LOSE)) == []
    run = make_run(expect='expect: [{lost: "> 0"}]')
    nothing.save(run.prediction_json)
    assert judge_case(run).reasons == ("not demonstrated: expected lost > 0, counted 0",)


def test_what_may_be_removed_no_prediction_speaks_of(prediction: Predicted) -> None:
    prediction.says(lost=Chance.IMPOSSIBLE, duplicate=Chance.IMPOSSIBLE)
    copies = (ExpectSpec(bounds={"duplicate": Bound.parse("> 0")}),)
    assert list(impossible_demands(prediction.file, TO_LOSE, removable=False))
    assert not list(impossible_demands(prediction.file, TO_LOSE, removable=True))
    assert list(impossible_demands(prediction.file, copies, removable=True))


def test_an_expectation_of_none_is_no_demand(make_run: MakeRun, prediction: Predicted) -> None:
    """An unknown prediction leaves a class forbidden if the settings forbid it and no bound demands a finding."""
    prediction.says(lost=Chance.UNKNOWN)
    said = judge_case(make_run(expect="expect: [{lost: 0}]"))
    assert _of(said, "lost").forbidden is True


def test_expectations_that_allow_some_leave_a_loss_forbidden(make_run: MakeRun) -> None:
    said = judge_case(make_run(expect='expect: [{lost: 0}, {lost: "<= 5"}]'))
    assert _of(said, "lost").forbidden is True


def test_one_demand_among_several_expectations_is_one(make_run: MakeRun, prediction: Predicted) -> None:
    prediction.says(lost=Chance.UNKNOWN)
    said = judge_case(make_run(expect='expect: [{lost: "> 0"}, {lost: "<= 5"}]'))
    assert _of(said, "lost").forbidden is None


def _of_two_topics(orders: Chance, other: Chance) -> PredictionFile:
    both = {"orders": orders, "other": other}
    return PredictionFile(
        classes=tuple(
            PredictedClass(anomaly="lost", chance=chance, why="as planted", topics=(topic,))
            for topic, chance in both.items()
        )
    )


def test_what_is_unknown_on_one_topic_is_shown_until_something_is_seen(
    make_run: MakeRun, prediction: Predicted
) -> None:
    prediction.file = _of_two_topics(Chance.UNKNOWN, Chance.POSSIBLE)
    said = judge_case(make_run(experiment=TWO_TOPICS, acked_bins=ACKED))
    assert (_of(said, "lost").forbidden, _of(said, "lost").predicted) == (None, "unknown")


def test_what_is_unknown_on_every_topic_is_open_wherever_it_was_seen(
    make_run: MakeRun, prediction: Predicted
) -> None:
    prediction.file = _of_two_topics(Chance.UNKNOWN, Chance.UNKNOWN)
    said = judge_case(make_run(experiment=TWO_TOPICS, acked_bins=ACKED, lost=2))
    assert said.reasons == (
        "lost: 2 acknowledged records. Neither forbidden nor allowed: the prediction is unknown: as planted",
    )


def test_a_prediction_for_one_topic_leaves_the_other_to_its_settings(
    make_run: MakeRun, prediction: Predicted
) -> None:
    found = PredictedClass(anomaly="lost", chance=Chance.IMPOSSIBLE, why="as planted", topics=("orders",))
    prediction.file = PredictionFile(classes=(found,))
    run = make_run(experiment=TWO_TOPICS, acked_bins=ACKED)
    judge_case(run)
    other = PredictionFile.load(run.prediction_json).find_class("lost", "other")
    assert other is not None
    assert (other.chance, other.explored) == (Chance.UNKNOWN, False)


@pytest.mark.parametrize(("backend", "said"), [("process", False), ("model", True)])
def test_a_run_of_the_model_judges_the_model_and_says_so(make_run: MakeRun, backend: str, said: bool) -> None:
    run = make_run()
    CaseFile.load(run.case_json).model_copy(update={"backend": backend}).save(run.case_json)
    assert (MODEL_ONLY in judge_case(run).not_judged) is said


SENT = [attempt(number, at) for number, at in enumerate((0.5, 1.05, 1.2, 1.3))]
"""Attempts that were all sent at 0 s. The longest gap between acknowledgements is 0.55 s, the longest latency 1.3 s."""


@pytest.mark.parametrize(
    ("expect", "verdict", "reason"),
    [
        ('longest_gap(produce): "< 1s"', Verdict.PASS, ""),
        (
            'longest_gap(produce): "< 100ms"',
            Verdict.FAIL,
            "expected longest_gap(produce) < 100ms, measured 550 ms with timing chaos",
        ),
        (
            'latency(max): "> 1m"',
            Verdict.INCONCLUSIVE,
            "not demonstrated: expected latency(max) > 60s, measured 1.300 s with timing chaos",
        ),
        (
            "lag: never > 5",
            Verdict.INCONCLUSIVE,
            "it cannot be told: lag(orders/0): no observation of it within that time",
        ),
        (
            'time_to(first ack, fault 1): "< 6s"',
            Verdict.INCONCLUSIVE,
            "nothing was acknowledged on orders/0 until 1.400 s of the run",
        ),
    ],
)
def test_what_each_comes_to(make_run: MakeRun, expect: str, verdict: Verdict, reason: str) -> None:
    found = judge(Facts.read(make_run(expect=f"expect:\n  - {expect}", attempts=SENT)))
    assert found.verdict is verdict
    assert reason in " ".join(found.reasons)
    (one,) = found.expected
    assert one.timing == ("" if expect.startswith("lag") else "chaos")
    assert one.holds is {Verdict.PASS: True, Verdict.FAIL: False}.get(verdict, one.holds)


@pytest.mark.parametrize(
    ("expect", "verdict"),
    [
        ('longest_gap(produce): "< 100ms"', Verdict.INCONCLUSIVE),
        ('longest_gap(produce): "> 100ms"', Verdict.INCONCLUSIVE),
        ('longest_gap(produce): "< 60s"', Verdict.PASS),
        ('rate(produce): "> 1/s"', Verdict.PASS),
        ('rate(produce): "< 100000/s"', Verdict.INCONCLUSIVE),
        ('attempts(acked): "> 0"', Verdict.PASS),
        ("lost: 0", Verdict.PASS),
    ],
)
def test_what_takes_time_on_a_starved_machine_is_held_neither_against_kafka_nor_for_it(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, expect: str, verdict: Verdict
) -> None:
    starved = QuietSeconds(
        seconds=1, asked_rate=None, sent_rate=1, median_ms=1, late_ms=1, looks_per_s=1, busy=1, stolen=0,
        cpu_pressure=0, io_pressure=0, memory_pressure=0, starved=("it stood still",),
    )  # fmt: skip
    monkeypatch.setattr(Facts, "calm", starved)
    found = judge(Facts.read(make_run(expect=f"expect:\n  - {expect}", attempts=SENT)))
    assert found.verdict is verdict
    assert ["on a starved machine: it stood still" in one for one in found.reasons] == [True] * (
        verdict is Verdict.INCONCLUSIVE
    )


def test_what_is_lacking_elsewhere_does_not_hide_it(make_run: MakeRun) -> None:
    """An expectation that cannot be decided does not hide a forbidden loss."""
    run = make_run(expect="expect:\n  - {lost: 0}\n  - lag: never > 5", attempts=SENT, lost=1)
    assert judge(Facts.read(run)).verdict is Verdict.FAIL
