"""Tests of forced counterexamples: translation into a script, and the outcome of its run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.cli.main import main_code
from ackproof.faults.script.spec import Script
from ackproof.plan import load
from ackproof.plan.cases import cases
from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import AuditFile, RecordCounts, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.script_state import ScriptState
from ackproof.rundir.timeline import ScriptStep, Timeline
from ackproof_model.explore import explore, rules_in_words, scope_in_words, world_of
from ackproof_model.force.experiment import ForcedVerdict, Ground, file_text, outcome_of
from ackproof_model.force.story import Story, read_story
from ackproof_model.force.translate import Forced, NotForceable, translated
from ackproof_reference.explore.model import ActionKind
from ackproof_reference.rules import Truncation

CATALOGUE = Path(__file__).parents[2] / "experiments"
EXPERIMENT = CATALOGUE / "slept-through-epoch.yaml"
TAIL = "brokers=2,records=1,acks=1,kills=1"
NO_ELR = "brokers=2,records=1,min_insync=2,power_losses=1,cuts=1"
WALKING = "brokers=2,records=2,hand_overs=2"
LAGGING = "brokers=2,records=1,kills=1,shrinks=1"


def story(words: str, *taken_away: str, kind: str = "lost", **otherwise: object) -> Story:
    scope = scope_in_words(words, rules_in_words("4.3", taken_away))
    changed = {name: value for name, value in otherwise.items() if hasattr(scope, name)}
    rules = {name: value for name, value in otherwise.items() if name not in changed}
    scope = replace(scope, rules=replace(scope.rules, **rules), **changed)
    (found,) = explore(world_of(scope), [kind]).found
    return Story(kind, found.text, scope, found.way)


def acts(forced: list[Forced]) -> list[dict[str, object]]:
    return [{k: v for k, v in one.entry.items() if k not in ("then", "within", "note")} for one in forced]


def test_a_tail_that_nobody_fetched() -> None:
    forced = translated(story(TAIL))
    assert acts(forced) == [{"send": 0, "until": "appended"}, {"kill": 1}, {"end_session": 1}, {"learn": 2}]
    assert [one.number for one in forced] == [1, 2, 3, 4]
    assert forced[-1].entry["then"] == {
        "acked": 1,
        "leader": 2,
        "epoch": 1,
        "isr": [2],
        "elr": [],
        "fenced": [1],
        "down": [1],
        "ends": {"1": 1, "2": 0},
        "believed": {"2": 1},
        "high_watermarks": {"2": 0},
    }


def test_a_start_stands_where_the_model_unfences() -> None:
    forced = translated(story(NO_ELR, "eligible leader replicas"))
    assert acts(forced) == [
        {"send": 0, "until": "appended"},
        {"fetch": 2, "side": "request"},
        {"fetch": 2, "side": "response"},
        {"fetch": 2},
        {"power_loss": 1, "keep": 0},
        {"end_session": 2},
        {"end_session": 1},
        {"start": 1},
        {"learn": 1},
    ]
    assert forced[-2].number == 12  # registered in step 10, learnt in step 11
    then = [one.entry["then"] for one in forced[-2:]]
    assert [step["believed"] for step in then if isinstance(step, dict)] == [{"2": 0}, {"1": 2, "2": 0}]


def test_what_a_leader_proposes_by_itself_is_no_step(tmp_path: Path) -> None:
    found = story(LAGGING, "maximal ISR")
    forced = translated(found)
    proposes = [line.action.kind is ActionKind.PROPOSE_SHRINK for line in found.way]
    assert any(proposes)
    assert len(forced) == proposes.count(False)
    file = tmp_path / "e.yaml"
    file.write_text(file_text(found, forced, Ground.from_rules("4.3"), repeat=2))
    case, _ = cases(load(file))
    assert case.experiment.cluster.config == {"replica.lag.time.max.ms": "3000"}
    assert isinstance(case.faults[0], Script) and len(case.faults[0].steps) == len(forced)


@pytest.mark.parametrize(("asked", "backend"), [(None, "process"), ("docker", "docker")])
def test_it_is_forced_where_it_is_asked_for(tmp_path: Path, asked: str | None, backend: str) -> None:
    """The backend is written into the experiment file."""
    found = story(TAIL)
    file = tmp_path / "e.yaml"
    file.write_text(file_text(found, translated(found), Ground.from_rules("4.3", backend=asked)))
    assert load(file).spec.backend == backend


def test_a_smaller_isr_is_made_first() -> None:
    forced = translated(
        story(
            "brokers=2,records=1,preferred=1,power_losses=1",
            "broker epochs",
            assigned=(2, 1),
            started_isr=(1,),
            victims=(2,),
        )
    )
    before = [one for one in forced if not one.number]
    assert acts(before) == [{"open": "metadata"}, {"stop": 2}, {"start": 2}, {"shut": "metadata"}]
    then = before[-1].entry["then"]
    assert isinstance(then, dict)
    # 2 led by preference, so one election lies before the story; epochs count from the script's beginning.
    assert (then["leader"], then["epoch"], then["isr"], then["believed"]) == (1, 1, [1], {"1": 1, "2": 1})
    assert [one.number for one in forced if "proposal" in one.entry] == [12]


def test_who_asks_where_an_epoch_ends_fetches() -> None:
    old = story("brokers=2,records=2,hand_overs=3", "fetch fencing", truncation=Truncation.WALK_BACK)
    asked = [number for number, told in enumerate(old.way, 1) if "asks where" in told.action.text]
    assert asked == [11]
    assert acts([one for one in translated(old) if one.number in (11, 12, 14)]) == [
        {"fetch": 2, "side": "request"},
        {"fetch": 2, "side": "response"},
    ]


def test_an_answer_that_cuts_nothing_is_no_step() -> None:
    found = story(WALKING, "walking back", kind="diverged")
    here = tuple(
        told._replace(action=told.action._replace(target="broker 1", broker=1))
        if "sends record 1" in told.action.text
        else told
        for told in found.way
    )
    assert "epoch 1 ends at 1" in here[9].action.text
    forced = translated(replace(found, way=here))
    assert [one.number for one in forced if one.number > 7] == [12, 14, 15]


def test_producers_go_where_they_know_the_leader() -> None:
    with pytest.raises(
        NotForceable, match=r"step 6 .*: a producer sends to the leader that it knows of, broker 1"
    ):
        translated(story(WALKING, "walking back", kind="diverged"))


def test_a_producer_sends_again_what_it_has_not_heard_of(tmp_path: Path) -> None:
    words = "brokers=2,records={},idempotent=true,kills=1,retries=1"
    found = story(words.format(1), "sequence numbers", kind="duplicate")
    forced = translated(found)
    assert acts(forced) == [{"send": 0, "until": "appended"}, {"resend": 0}]
    file = tmp_path / "e.yaml"
    file.write_text(file_text(found, forced, Ground.from_rules("4.3")))
    case, *_ = cases(load(file))
    assert case.experiment.workload.producers.config == {"socket.timeout.ms": "3000"}


def test_what_no_script_can_do_is_said() -> None:
    words = "brokers=2,records=2,idempotent=true,kills=1,retries=1"
    with pytest.raises(
        NotForceable,
        match=r"step 2 \(client: sends once more record 0.*\): a producer sends again all that it has not",
    ):
        translated(story(words, "sequence numbers", kind="duplicate"))


def test_a_broker_that_starts_cannot_be_met_before_it_is_unfenced() -> None:
    found = story("brokers=2,records=2,kills=1", "bounded high watermark", kind="diverged")
    with pytest.raises(NotForceable, match=r"answers broker \d .*: a broker that starts cannot be met"):
        translated(found)


def test_who_registers_and_is_never_unfenced_must_not_have_changed_the_partition() -> None:
    found = story("brokers=2,records=1,min_insync=2,kills=1,power_losses=1,cuts=1")
    with pytest.raises(NotForceable, match=r"step 9 \(broker 1: starts .*a broker registers, which changes"):
        translated(found)


def test_a_story_is_read_back_and_taken_anew(tmp_path: Path) -> None:
    found = story(TAIL)
    steps = [
        {"actor": told.action.actor, "text": told.action.text, "target": told.action.target}
        for told in found.way
    ]
    file = {
        "rules": "4.3",
        "without": [],
        "scope": TAIL,
        "found": {"lost": {"text": found.text, "steps": steps}},
    }
    path = tmp_path / "story.json"
    path.write_text(json.dumps(file))
    assert read_story(path) == (found, "4.3")
    steps[2]["text"] = steps[2]["text"].replace("broker 2 leads", "broker 1 leads")
    path.write_text(json.dumps(file))
    with pytest.raises(BadInput, match="step 3 is not possible"):
        read_story(path)
    path.write_text("{}")
    with pytest.raises(BadInput, match="not a story"):
        read_story(path)


@pytest.mark.parametrize(
    ("rules", "words"),
    [("3.5", "no release of Kafka 3.5 runs here"), ("3.9-zk", "ZooKeeper mode cannot be forced")],
)
def test_where_no_release_is(rules: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Ground.from_rules(rules)
    assert Ground.from_rules("4.1").release == "4.1.2"


@pytest.mark.parametrize(
    ("wrong", "unexpected", "lost", "word", "number"),
    [
        ("", (), 1, ForcedVerdict.HAPPENED, 0),
        ("", (), 0, ForcedVerdict.DIVERGED, 4),
        ("it was to come to leader 2, not 1", (), 1, ForcedVerdict.DIVERGED, 3),
        ("unexpected: broker 2 was fenced", ("broker 2 was fenced",), 1, ForcedVerdict.INCONCLUSIVE, 3),
    ],
)
def test_what_a_run_came_to(
    tmp_path: Path, wrong: str, unexpected: tuple[str, ...], lost: int, word: ForcedVerdict, number: int
) -> None:
    found = story(TAIL)
    forced, run = translated(found), CaseDir(tmp_path)
    with Timeline(run.timeline, RunClock.start()) as timeline:
        for place, _ in enumerate(forced, 1):
            step = ScriptStep(number=place, step="x", waited_for="leader 2", seen=ScriptState(leader=1))
            if place == 3 and wrong:
                timeline.add(step.model_copy(update={"wrong": wrong, "unexpected": unexpected}))
                break
            timeline.add(step)
    AuditFile(counts={"lost": lost}, records=RecordCounts(), complete=True).save(run.audit_json)
    VerdictFile(verdict=Verdict.PASS, reasons=()).save(run.verdict_json)
    outcome = outcome_of(found, forced, run)
    assert (outcome.verdict, outcome.number) == (word, number)
    if number == 3:
        assert outcome.model == "leader 2" and "broker 1 leads" in outcome.kafka and wrong in str(outcome)


def test_a_story_that_rests_on_the_high_watermarks_of_followers_waits_for_these(tmp_path: Path) -> None:
    found = story("brokers=2,records=2,shrinks=1", "bounded high watermark", kind="diverged")
    forced, run = translated(found), CaseDir(tmp_path)
    then = forced[-1].entry["then"]
    assert isinstance(then, dict)
    assert (then["ends"], then["high_watermarks"]) == ({"1": 2, "2": 1}, {"1": 2, "2": 2})
    with Timeline(run.timeline, RunClock.start()) as timeline:
        for place, _ in enumerate(forced, 1):
            timeline.add(ScriptStep(number=place, step="x", seen=ScriptState(leader=1)))
    assert outcome_of(found, forced, run).verdict is ForcedVerdict.HAPPENED


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("explore --rules 3.5 --force", "no release of Kafka 3.5 runs here"),
        ("explore --rules 3.9-zk --force", "a story of ZooKeeper mode cannot be forced"),
        ("explore --force --kafka 3.8.0", "--kafka: Kafka 3.8.0 is not supported: 3.9 is the oldest"),
        ("explore --repeat 3", "--repeat says how a story is forced; it goes with --force"),
        ("explore --backend docker", "--backend says how a story is forced; it goes with --force"),
        ("explore --force --backend model", "'model' is not one of 'process', 'docker', 'auto'"),
        ("predict {file} --force", "say which class"),
    ],
)
def test_wrong_usage_is_said_before_the_search(
    capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    assert main_code(words.format(file=EXPERIMENT).split()) == 254
    told = capsys.readouterr()
    assert said in told.err and not told.out


def test_a_prediction_without_a_story_is_no_answer_unless_it_is_impossible(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["predict", str(EXPERIMENT), "--story", "lost", "--force", "--max-states", "100"]
    assert main_code(words) == 2
    assert "nothing to force: no way was found within so many states" in capsys.readouterr().out
    calm = tmp_path / "calm.yaml"
    calm.write_text("name: t\ntopics: {orders: {}}\nworkload: {duration: 1s, producers: {acks: all}}\n")
    assert main_code(["predict", str(calm), "--story", "lost", "--force"]) == 0
    assert "nothing to force: it is impossible" in capsys.readouterr().out
