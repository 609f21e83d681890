"""Tests of expectations: demands that no run can meet, demands on two topics, and measured quantities."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from ackproof.cli.main import main_code
from ackproof.experiment.case import Case
from ackproof.experiment.experiment import ExpectSpec
from ackproof.judge import demands as place
from ackproof.judge import judge_case
from ackproof.judge.demands import demands, impossible_demands
from ackproof.judge.facts import Facts
from ackproof.judge.verdict import MODEL_ONLY, judge
from ackproof.plan.cases import cases, load
from ackproof.rundir.bounds import Bound
from ackproof.rundir.documents import CaseFile, ClassJudgement, QuietSeconds, VerdictFile
from ackproof.rundir.model import Chance, PredictedClass, PredictionFile
from ackproof.rundir.outcome import Verdict
from ackproof_model import oracle
from ackproof_model.predict.answers import USUAL_STATES
from ackproof_model.predict.prediction import SearchOptions, predict_case

from .conftest import MakeRun, Predicted, attempt

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
