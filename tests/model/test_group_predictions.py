"""Tests of predictions for consumer groups: the incidents of a case, and the answer for each class."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.cli.main import main_code
from ackproof.experiment.case import Case
from ackproof.experiment.group import GroupSpec
from ackproof.rundir.anomalies import GROUP_CLASSES
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.groups import COMMITS, MEMBERSHIP, CommitResult
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.model import PredictedClass, PredictedGroupClass, PredictionFile
from ackproof.rundir.timeline import Event, EventKind
from ackproof_model.predict import groups
from ackproof_model.predict.answers import Answer, Answers
from ackproof_model.predict.cases import rules_for_group
from ackproof_model.predict.groups import predict_groups
from ackproof_reference.explore import search
from ackproof_reference.explore.scope import Scope
from ackproof_reference.rules import CommitMode, GroupProtocol
from model_cases import case_of

POSSIBLE, IMPOSSIBLE, UNKNOWN = Chance.POSSIBLE, Chance.IMPOSSIBLE, Chance.UNKNOWN
KILL = "kill: {target: leader(orders/0)}"
CUT = "isolate: {target: leader(orders/0)}"
EXACTLY_ONCE = "{commit: transaction, output: copies, protocol: consumer}"
Answered = dict[str, PredictedGroupClass]


def _case(group: str = "{}", fault: str = "", cluster: str = "") -> Case:
    return case_of(
        fault, cluster=cluster, producers=f"}}\n  groups: {{billing: {group}}}\n  duration: 15s\n#"
    )


def _predict(
    case: Case,
    *,
    lost: Chance = IMPOSSIBLE,
    vanished: Chance = IMPOSSIBLE,
    run: CaseDir | None = None,
    events: list[Event] | None = None,
    max_states: int = 60_000,
) -> Answered:
    def answer(scope: Scope) -> Answers:
        del scope
        return Answers(classes={"lost": Answer(chance=lost)}, states=1, exhausted=True, bound=1)

    classes = (PredictedClass(anomaly="vanished", chance=vanished, why=""),)
    file = PredictionFile(classes=classes)
    file = predict_groups(case, file, answer, max_states=max_states, run=run, events=events)
    assert [one.anomaly for one in file.groups] == list(GROUP_CLASSES)
    for one in file.groups:
        assert one.group == "billing" and one.why
        assert not one.steps or one.chance is not IMPOSSIBLE
    return {one.anomaly: one for one in file.groups}


def _with(answered: Answered, chance: Chance) -> set[str]:
    return {name for name, one in answered.items() if one.chance is chance}


@pytest.mark.parametrize(
    ("group", "possible"),
    [
        ("{commit: before}", set()),
        ("{commit: after}", set()),
        (EXACTLY_ONCE, set()),
        ("{commit: after, start: latest}", {"skipped-by-reset"}),
    ],
)
def test_without_faults_nothing_is_possible_but_what_the_settings_ask_for(
    group: str, possible: set[str]
) -> None:
    answered = _predict(_case(group))
    assert _with(answered, POSSIBLE) == possible
    assert _with(answered, UNKNOWN) == set()


@pytest.mark.parametrize(
    ("group", "possible"),
    [
        ("{commit: before}", {"undelivered"}),
        ("{commit: after}", {"redelivered"}),
        ("{commit: after, output: copies}", {"redelivered", "doubled-output"}),
        ("{commit: auto}", {"redelivered"}),
        ("{commit: auto, client: java}", {"redelivered"}),
        (EXACTLY_ONCE, set()),
        (
            "{commit: transaction, output: copies, group_metadata: false}",
            {
                "redelivered",
                "doubled-output",
                "torn-output",
                "regressed-commit",
                "zombie-commit",
                "two-owners",
            },
        ),
    ],
)
def test_a_killed_coordinator_costs_what_the_commit_mode_allows(group: str, possible: set[str]) -> None:
    answered = _predict(_case(group, KILL))
    assert _with(answered, POSSIBLE) == possible
    assert _with(answered, UNKNOWN) == set()
    for name in possible:
        assert len(answered[name].steps) > 3


def test_a_request_that_stays_under_way_leaves_what_it_leads_to_unknown() -> None:
    """A broker may take a commit after later ones. Kafka allows that, so classes that only this causes stay unknown."""
    plain = _predict(_case("{commit: after}", CUT))
    assert plain["regressed-commit"].chance is UNKNOWN and plain["regressed-commit"].steps
    assert plain["zombie-commit"].chance is plain["two-owners"].chance is IMPOSSIBLE
    assert _predict(_case(EXACTLY_ONCE, CUT))["torn-output"].chance is UNKNOWN, (
        "librdkafka: one producer epoch"
    )
    java = EXACTLY_ONCE.replace("{", "{client: java, ")
    assert _with(_predict(_case(java, CUT)), IMPOSSIBLE) == set(GROUP_CLASSES)


@pytest.mark.parametrize(
    ("lost", "chance"), [(POSSIBLE, POSSIBLE), (UNKNOWN, UNKNOWN), (IMPOSSIBLE, IMPOSSIBLE)]
)
def test_commits_are_lost_as_their_topic_loses_records(lost: Chance, chance: Chance) -> None:
    answered = _predict(_case("{commit: after}", KILL), lost=lost)
    assert answered["lost-commit"].chance is answered["regressed-commit"].chance is chance
    assert answered["zombie-commit"].chance is IMPOSSIBLE


def test_an_input_that_loses_what_was_read_leaves_processing_unknown() -> None:
    answered = _predict(_case("{commit: before}", KILL), vanished=POSSIBLE)
    assert answered["undelivered"].chance is POSSIBLE, "it is so anyway"
    assert answered["redelivered"].chance is answered["regressed-commit"].chance is UNKNOWN
    assert answered["zombie-commit"].chance is IMPOSSIBLE


@pytest.mark.parametrize(
    ("group", "fault", "cluster", "word"),
    [
        ("{commit: after}", "command: {inject: [ls], check: [ls], heal: [ls]}", "", "fault 1"),
        ("{commit: after, client: {command: [./member]}}", "", "", "programs"),
        ("{commit: after}", "", "config: {offsets.retention.minutes: 1}", "offsets.retention.minutes"),
        ("{commit: after}", "recreate: {topic: orders}", "", "deleted"),
    ],
)
def test_what_the_world_lacks_makes_nothing_impossible(
    group: str, fault: str, cluster: str, word: str
) -> None:
    answered = _predict(_case(group, fault, cluster))
    explored = {
        "undelivered",
        "redelivered",
        "lost-commit",
        "regressed-commit",
        "zombie-commit",
        "two-owners",
    }
    for name in explored:
        assert answered[name].chance is UNKNOWN or answered[name].steps
    assert word in answered["zombie-commit"].why


def test_a_search_that_a_limit_ends_makes_nothing_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "cached", lambda question, bound, work: work())
    monkeypatch.setattr(search, "_SLICE", 4)
    case = _case("{commit: after}", KILL)
    few = _predict(case, max_states=50)
    assert few["redelivered"].chance is few["zombie-commit"].chance is UNKNOWN
    assert "50 states" in few["zombie-commit"].why
    assert _predict(case)["zombie-commit"].chance is IMPOSSIBLE


def test_the_limit_of_the_command_also_holds_for_groups(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(groups, "cached", lambda question, bound, work: work())
    monkeypatch.setattr(search, "_SLICE", 4)
    file = Path(__file__).parents[2] / "experiments" / "groups" / "at-least-once-killed.yaml"
    assert main_code(["predict", str(file), "--max-states", "50", "--json"]) == 0
    told, *_ = json.loads(capsys.readouterr().out)
    said = {one["anomaly"]: one["why"] for one in told["groups"]}
    assert "the first 50 states do not show it" in said["zombie-commit"]


# -- what a run shows --------------------------------------------------------------------------------------------------


def _ledger(folder: Path, schema: pa.Schema, **values: object) -> None:
    path = folder / client_folder("g0") / "part-000000.parquet"
    path.parent.mkdir(parents=True)
    usual: dict[str, object] = {"string": "", "bool": False}
    row = {field.name: values.get(field.name, usual.get(str(field.type), 0)) for field in schema}
    pq.write_table(pa.Table.from_pylist([row], schema=schema), path)


def test_members_that_lost_partitions_count_as_removed(tmp_path: Path) -> None:
    case, run = _case("{commit: after}"), CaseDir(tmp_path)
    assert _with(_predict(case, run=run, events=[]), POSSIBLE) == set()
    _ledger(run.membership, MEMBERSHIP, group="another", event="lost")
    assert _with(_predict(case, run=run, events=[]), POSSIBLE) == set()
    (run.membership / client_folder("g0") / "part-000000.parquet").unlink()
    (run.membership / client_folder("g0")).rmdir()
    _ledger(run.membership, MEMBERSHIP, group="billing", event="lost")
    assert _with(_predict(case, run=run, events=[]), POSSIBLE) == {"redelivered"}


def test_commits_without_an_answer_count(tmp_path: Path) -> None:
    case, run = _case("{commit: before}"), CaseDir(tmp_path)
    _ledger(run.commits_ledger, COMMITS, group="billing", result=int(CommitResult.UNKNOWN))
    assert _with(_predict(case, run=run, events=[]), POSSIBLE) == {"undelivered"}


def test_a_member_that_ended_by_itself_counts_as_killed() -> None:
    died = Event(t_ns=1, wall_ns=1, kind=EventKind.CLIENT_DIED, client="g1")
    case = _case("{commit: before}")
    assert _with(_predict(case, events=[died]), POSSIBLE) == {"undelivered"}
    reader = died.model_copy(update={"client": "r0"})
    assert _with(_predict(case, events=[reader]), POSSIBLE) == set()


def test_planned_faults_that_never_came_do_not_count() -> None:
    assert _with(_predict(_case("{commit: after}", KILL), events=[]), POSSIBLE) == set()


# -- rules -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "protocol", "mode"),
    [
        ("{}", GroupProtocol.EAGER, CommitMode.AFTER),
        ("{assignor: cooperative-sticky}", GroupProtocol.COOPERATIVE, CommitMode.AFTER),
        ("{protocol: consumer, commit: timed}", GroupProtocol.CONSUMER, CommitMode.TIMED),
        ("{commit: auto}", GroupProtocol.EAGER, CommitMode.AT_DELIVERY),
        ("{commit: auto, client: java}", GroupProtocol.EAGER, CommitMode.TIMED),
    ],
)
def test_rules_follow_the_spec(group: str, protocol: GroupProtocol, mode: CommitMode) -> None:
    case = _case(group)
    rules = rules_for_group(case, case.experiment.workload.groups["billing"])
    assert (rules.protocol, rules.commit) == (protocol, mode)


def test_rules_follow_release_and_library() -> None:
    spec = GroupSpec(protocol="consumer")
    older = case_of(cluster="kafka: 4.2.1")
    assert not rules_for_group(older, spec).accept_since_assignment
    newer = case_of(cluster="kafka: 4.3.1")
    assert rules_for_group(newer, spec).accept_since_assignment
    assert not rules_for_group(newer, spec).epoch_per_transaction, "librdkafka speaks the first protocol"
    unstable = GroupSpec(isolation="read_uncommitted")
    assert not rules_for_group(newer, unstable).stable_fetch
