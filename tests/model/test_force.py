"""Stories as scripts: which step of a script stands for which of the model, and what a run of it came to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.faults.script.script import Script
from ackproof.plan import load
from ackproof.plan.cases import cases
from ackproof.reference.explore import explore, rules_in_words, scope_in_words
from ackproof.reference.force.experiment import Ground, file_text
from ackproof.reference.force.outcome import BESIDE, Word, outcome_of
from ackproof.reference.force.story import Story, read_story
from ackproof.reference.force.translate import Forced, NotForceable, translated
from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import AuditFile, RecordCounts, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.timeline import ScriptStep, Seen, Timeline

TAIL = "brokers=2,records=1,acks=1,kills=1"
NO_ELR = "brokers=2,records=1,min_insync=2,power_losses=1,cuts=1"
LAGGING = "brokers=2,records=1,kills=1,shrinks=1"


def story(words: str, *taken_away: str, kind: str = "lost") -> Story:
    scope = scope_in_words(words, rules_in_words("4.3", taken_away))
    (found,) = explore(scope, [kind]).found
    return Story(kind, found.text, scope, found.way, taken_away)


def acts(forced: list[Forced]) -> list[dict[str, object]]:
    return [{k: v for k, v in one.entry.items() if k not in ("then", "note")} for one in forced]


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
    assert any("proposes to drop" in told.happening.text for told in found.way)
    assert len(forced) == len([told for told in found.way if "proposes to drop" not in told.happening.text])
    file = tmp_path / "e.yaml"
    file.write_text(file_text(found, forced, Ground.of("4.3"), repeat=2))
    case, _ = cases(load(file))
    assert case.experiment.cluster.config == {"replica.lag.time.max.ms": "3000"}
    assert isinstance(case.faults[0], Script) and len(case.faults[0].steps) == len(forced)


def test_what_no_script_can_do_is_said() -> None:
    found = story(
        "brokers=2,records=1,idempotent=true,kills=1,retries=1", "sequence numbers", kind="duplicate"
    )
    with pytest.raises(
        NotForceable, match=r"step 2 \(client: sends once more record 0.*\): producers send again when"
    ):
        translated(found)


def test_a_broker_that_starts_cannot_be_met_before_it_is_unfenced() -> None:
    found = story("brokers=2,records=2,kills=1", "bounded high watermark", kind="diverged")
    with pytest.raises(NotForceable, match=r"answers broker \d .*: a broker that starts cannot be met"):
        translated(found)


def test_a_story_is_read_back_and_taken_anew(tmp_path: Path) -> None:
    found = story(TAIL)
    steps = [told.happening._asdict() for told in found.way]
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
        Ground.of(rules)
    assert Ground.of("4.1").release == "4.1.2"


@pytest.mark.parametrize(
    ("wrong", "lost", "word", "number"),
    [
        ("", 1, Word.HAPPENED, 0),
        ("", 0, Word.DIVERGED, 4),
        ("it was to come to leader 2, not 1", 1, Word.DIVERGED, 3),
        (f"{BESIDE}broker 2 was fenced", 1, Word.INCONCLUSIVE, 3),
    ],
)
def test_what_a_run_came_to(tmp_path: Path, wrong: str, lost: int, word: Word, number: int) -> None:
    found = story(TAIL)
    forced, run = translated(found), CaseDir(tmp_path)
    with Timeline(run.timeline, RunClock.start()) as timeline:
        for place, _ in enumerate(forced, 1):
            said = wrong if place == 3 else ""
            timeline.add(
                ScriptStep(number=place, step="x", waited_for="leader 2", wrong=said, seen=Seen(leader=1))
            )
            if said:
                break
    AuditFile(counts={"lost": lost}, records=RecordCounts(), complete=True).save(run.audit_json)
    VerdictFile(verdict=Verdict.PASS, reasons=()).save(run.verdict_json)
    outcome = outcome_of(found, forced, run)
    assert (outcome.word, outcome.number) == (word, number)
    if number == 3:
        assert outcome.model == "leader 2" and "broker 1 leads" in outcome.kafka and wrong in str(outcome)
