"""Tests of `ackproof explore` and `ackproof predict`: parsing of their options, and their output."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.cli.main import main_code
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.model import PredictionFile
from ackproof_model.explore import PROTOCOLS, World, explore, kafka, rules_in_words, scope_in_words
from ackproof_model.predict.answers import answers, smaller
from ackproof_model.predict.prediction import predict_case
from ackproof_reference.explore.scope import Budget, Scope
from ackproof_reference.pacifica import PacificaRules
from ackproof_reference.quorum import QuorumRules
from ackproof_reference.rules import Rules, rules_of
from ackproof_reference.zookeeper import ZooKeeperRules
from model_cases import case_of

LOSING = "brokers=2,records=1,acks=1,kills=1"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACKPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ackproof_model.predict.answers._known", {})
    return tmp_path / "cache"


def test_a_scope_in_words() -> None:
    scope = scope_in_words("brokers=2, records=2,acks=1,min_insync=2,kills=1,unclean_election=true", Rules())
    assert (scope.brokers, scope.records, scope.acks, scope.budget) == (2, 2, 1, Budget(kills=1))
    assert (scope.rules.min_insync, scope.rules.unclean_election) == (2, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("kils=1", "did you mean 'kills'"),
        ("kills", "expected name=value"),
        ("kills=-1", "whole number"),
        ("brokers=9", "from 1 to 5"),
        ("acks=2", "0, 1 or all"),
        ("idempotent=yes", "true or false"),
    ],
)
def test_a_scope_that_makes_no_sense_is_bad_input(words: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        scope_in_words(words, Rules())


def test_unknown_rules_and_protections_are_bad_input() -> None:
    with pytest.raises(BadInput, match="no rules for Kafka"):
        rules_in_words("0.1", ())
    with pytest.raises(BadInput, match="did you mean 'maximal ISR'"):
        rules_in_words("4.1", ["maximal IRS"])


def test_an_unreplicated_record_dies_with_its_leader() -> None:
    found = explore(kafka("4.1", (), LOSING), ["lost"])
    (tale,) = found.found
    assert [step.text.split(";")[0] for step in tale.steps[:2]] == ["sends record 0", "is killed"]
    assert tale.story[-1].startswith("✗  lost")


def test_a_search_goes_on_where_it_was_left(tmp_path: Path) -> None:
    asked = kafka("4.3", (), "brokers=2,records=1,kills=1,cuts=1")
    saved = tmp_path / "search"
    first = explore(asked, ["lost"], max_seconds=1e-9, saved=saved)
    while not first.exhausted and saved.stat().st_size < 200:
        first = explore(asked, ["lost"], max_seconds=1e-9, saved=saved)
    last = explore(asked, ["lost"], saved=saved)
    assert last.exhausted and last.missing == ("lost",)
    assert last.states == explore(asked, ["lost"]).states


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        (kafka("4.3", (), "brokers=3"), "lost"),
        (kafka("3.9", (), "brokers=3,kills=1"), "lost"),
        (kafka("4.3", ("eligible leader replicas",), "brokers=3,kills=1"), "lost"),
        (kafka("4.3", (), "brokers=3,kills=1"), "vanished"),
        (PROTOCOLS["quorum"].world("", ()), "lost"),
    ],
)
def test_a_search_of_something_else_is_not_gone_on_with(other: World, wanted: str, tmp_path: Path) -> None:
    """Under other rules the same states have other next steps, so a saved search of them must be refused."""
    saved = tmp_path / "search"
    explore(kafka("4.3", (), "brokers=3,kills=1"), ["lost"], max_seconds=1e-9, saved=saved)
    with pytest.raises(BadInput, match="of another world"):
        explore(other, [wanted], saved=saved)


@pytest.mark.parametrize("content", [b"", b"name: storm", b"cluster:\nx\n", b"N.", b'{"found": {}}'])
def test_a_file_that_is_no_saved_search_is_bad_input(content: bytes, tmp_path: Path) -> None:
    saved = tmp_path / "search"
    saved.write_bytes(content)
    with pytest.raises(BadInput, match="not a search of this scope"):
        explore(kafka("4.3", (), LOSING), ["lost"], saved=saved)
    assert saved.read_bytes() == content


@pytest.mark.parametrize(
    ("protocol", "words", "off", "kind"),
    [
        ("quorum", "elections=2,entries=1", "votes for newer logs", "lost"),
        ("quorum", "elections=2,crashes=1", "durable votes", "two leaders"),
        ("quorum", "elections=2,crashes=1", "durable log", "lost"),
        ("pacifica", "suspicions=1,entries=1", "leases", "stale read"),
        ("pacifica", "suspicions=2,entries=1", "version check", "lost"),
        ("zookeeper", "expiries=2", "epoch check", "overwritten"),
        ("zookeeper", "expiries=1", "watch before reading", "nobody"),
        ("transactions", "repeats=1", "strict markers", "torn"),
        ("transactions", "repeats=0,moves=1", "epochs of their own", "hanging"),
    ],
)
def test_other_protocols_are_asked_alike(
    protocol: str, words: str, off: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["explore", "--of", protocol, "--scope", words, "--find", kind]
    assert main_code([*asked, "--without", off]) == 0
    told = capsys.readouterr().out
    assert f"{PROTOCOLS[protocol].title} without {off}: " in told
    assert f"✗  {kind}: " in told
    assert main_code([*asked, "--max-seconds", "20"]) in (0, 2)
    assert f"{kind}: " in (told := capsys.readouterr().out)
    assert "✗" not in told


def test_each_protection_of_each_protocol_has_a_name() -> None:
    for rules, protocol in (
        (QuorumRules, "quorum"),
        (PacificaRules, "pacifica"),
        (ZooKeeperRules, "zookeeper"),
    ):
        assert sorted(PROTOCOLS[protocol].protections.values()) == sorted(one.name for one in fields(rules))
    of_transactions = PROTOCOLS["transactions"].protections.values()
    assert {*of_transactions, "idempotence"} == {*_among_the_last("idempotence")}


def _among_the_last(first: str) -> list[str]:
    """Return the fields of `Rules` from `first` on, which concern producers."""
    names = [one.name for one in fields(Rules)]
    return names[names.index(first) :]


def test_the_page_of_a_quorum_is_drawn(tmp_path: Path) -> None:
    page = tmp_path / "story.html"
    asked = ["explore", "--of", "quorum", "--without", "durable log", "--html", str(page), "--json"]
    assert main_code(asked) == 0
    drawn = page.read_text("utf-8")
    assert "a majority quorum without durable log comes to a record that is lost" in drawn
    assert "server 2" in drawn


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rules", "4.1"], "--rules and --force speak of a partition of Kafka"),
        (["--force"], "--rules and --force speak of a partition of Kafka"),
        (["--scope", "brokers=3"], "unknown name 'brokers'"),
        (["--scope", "servers=9"], "from 1 to 5"),
        (["--without", "durable logs"], "did you mean 'durable log'"),
        (["--find", "stale read"], "unknown class 'stale read'"),
    ],
)
def test_what_a_quorum_does_not_know(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_code(["explore", "--of", "quorum", *arguments]) == 254
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_story_of_another_protocol_is_not_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_code(["explore", "--of", "quorum", "--without", "durable log", "--json"]) == 0
    (tmp_path / "story.json").write_text(capsys.readouterr().out, encoding="utf-8")
    assert main_code(["force", str(tmp_path / "story.json")]) == 254
    assert "a story of 'quorum'" in " ".join(capsys.readouterr().err.split())


def test_what_is_possible_in_a_smaller_world_is_possible(own_cache: Path) -> None:
    scope = Scope(Rules(min_insync=1), acks=1, budget=Budget(kills=1, cuts=1), settled=True)
    assert {world.budget for world, _ in smaller(scope)} == {Budget(kills=1), Budget(cuts=1)}
    said = answers(scope, max_states=2000)
    assert said.classes["lost"].chance is Chance.POSSIBLE
    assert said.classes["lost"].scope == "brokers=2,records=1,acks=1,kills=1"
    assert said.classes["vanished"].chance is Chance.UNKNOWN
    assert len(list((own_cache / "predictions").iterdir())) == 1


def test_only_a_scope_that_is_seen_to_its_end_makes_a_class_impossible() -> None:
    scope = Scope(Rules(min_insync=2), brokers=3, budget=Budget(kills=2), settled=True)
    assert answers(scope, max_states=100).classes["lost"].chance is Chance.UNKNOWN
    assert answers(scope).classes["lost"].chance is Chance.IMPOSSIBLE


def test_answers_come_back_from_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    scope = Scope(Rules(), brokers=2, acks=1, budget=Budget(kills=1), settled=True)
    first = answers(scope)
    monkeypatch.setattr("ackproof_model.predict.answers._known", {})
    monkeypatch.setattr("ackproof_model.predict.answers.Search", None)
    assert answers(scope) == first


def _of(prediction: PredictionFile, anomaly: str) -> Chance | None:
    found = prediction.find_class(anomaly)
    return found.chance if found else None


def test_acks_1_may_lose_what_only_its_leader_had_and_overwritten_goes_with_it() -> None:
    case = case_of("kill: {target: leader(orders/0)}", acks="1", replicas=2)
    prediction = predict_case(case)
    assert (_of(prediction, "lost"), _of(prediction, "overwritten")) == (Chance.POSSIBLE, Chance.POSSIBLE)
    assert (_of(prediction, "vanished"), _of(prediction, "conflict")) == (
        Chance.IMPOSSIBLE,
        Chance.IMPOSSIBLE,
    )
    assert prediction.faults == ("fault 1 (kill leader(orders/0)): kills=1",)


def test_without_faults_nothing_is_lost() -> None:
    assert _of(predict_case(case_of(acks="1", replicas=2)), "lost") is Chance.IMPOSSIBLE


def test_acks_0_may_lose_with_any_fault_that_breaks_a_connection() -> None:
    case = case_of("reset: {link: clients -> leader(orders/0)}", "for: 1s", acks="0", replicas=2)
    found = predict_case(case).find_class("lost")
    assert found is not None and (found.chance, found.explored) == (Chance.POSSIBLE, False)


def test_of_a_log_that_rots_nothing_is_called_impossible_and_that_is_said() -> None:
    prediction = predict_case(case_of("flip_bits: {target: leader(orders/0)}", "for: 1s", min_insync=2))
    apart = [*prediction.find_partitions("lost"), *prediction.find_partitions("conflict")]
    assert {(one.chance, one.explored, one.partitions) for one in apart} == {
        (Chance.UNKNOWN, False, ("orders/0",))
    }
    elsewhere = prediction.find_class("lost", "orders")
    assert elsewhere is not None and elsewhere.chance is Chance.IMPOSSIBLE
    assert _of(prediction, "lost") is Chance.UNKNOWN
    (said,) = prediction.not_predicted
    assert said == "orders/0: flip_bits took from its log what the protocol counts on"


def test_a_log_that_rots_where_it_is_the_only_one_loses_as_with_its_power() -> None:
    prediction = predict_case(case_of("truncate_segment: {target: leader(orders/0)}", replicas=1))
    (lost,) = prediction.find_partitions("lost")
    assert lost.chance is Chance.POSSIBLE and lost.story
    assert "as a loss of power does" in lost.why
    assert prediction.not_predicted == ()


def test_the_command_explore_draws_its_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "story.html"
    assert main_code(["explore", "--scope", LOSING, "--html", str(page), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["found"]["lost"]["steps"][1]["text"] == "is killed"
    text = page.read_text()
    assert 'class="sequence"' in text and "2. broker 1: is killed" in text
    assert "Content-Security-Policy" in text and "<script" not in text and " style=" not in text


def test_an_exhausted_scope_is_an_answer_and_a_limit_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = []
    for words in ([], ["--no-reductions"]):
        assert main_code(["explore", "--scope", "brokers=2,kills=1", *words]) == 0
        out = capsys.readouterr().out
        assert "lost: impossible in this scope" in out
        sizes.append(int(out.splitlines()[-1].split()[0]))
    assert sizes[0] < sizes[1]
    assert main_code(["explore", "--scope", "brokers=3,kills=3", "--max-seconds", "0.001"]) == 2
    assert "lost: unknown" in capsys.readouterr().out


EXPERIMENT = """\
name: t
topics: {{orders: {{replication_factor: 2}}}}
workload: {{producers: {{acks: {acks}}}}}
faults: [{{kill: {{target: leader(orders/0)}}, at: 1s}}]
expect: [{{lost: "> 0"}}]
"""


@pytest.mark.parametrize(("acks", "code"), [("1", 0), ("all", 254)])
def test_a_demand_for_what_is_impossible_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], acks: str, code: int
) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(EXPERIMENT.format(acks=acks))
    assert main_code(["predict", str(file), "--story", "lost"]) == code
    said = capsys.readouterr()
    assert ("is killed" in said.out) == (code == 0)
    assert ("demands what is predicted impossible" in said.err) == (code == 254)


@pytest.mark.parametrize(("width", "narrow"), [(60, True), (105, False)])
def test_a_terminal_that_has_no_room_for_the_table_is_told_in_lines(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    narrow: bool,
) -> None:
    monkeypatch.setattr("ackproof.console._WIDE", width)
    file = tmp_path / "t.yaml"
    file.write_text(EXPERIMENT.format(acks="1"))
    assert main_code(["predict", str(file)]) == 0
    table = capsys.readouterr().out.partition("Impossible in every case")[0].rstrip().splitlines()
    assert max(map(len, table)) <= width
    assert (table[0].split()[0] == "case") is not narrow
    assert any(line.startswith("  possible: lost") for line in table) is narrow


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("7.0", "Kafka 7.0 is not known; the newest is 4.4.0"),
        ("4.5", "Kafka 4.5 is not known"),
        ("4", "'4' is not one release"),
        ("4.3-zk", "has no ZooKeeper mode"),
    ],
)
def test_rules_are_those_of_a_release_that_exists(version: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        rules_in_words(version, ())


@pytest.mark.parametrize("version", ["4.3.1", "4.0", "3.9-zk", "3.9.2", "2.8-zk", "2.4"])
def test_rules_of_releases_that_exist(version: str) -> None:
    assert rules_in_words(version, ()) == rules_of(version)


def test_a_class_whose_story_is_asked_for_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("name: t\ntopics:\n  orders: {}\nworkload: {duration: 1s}\n")
    assert main_code(["predict", str(file), "--story", "losst"]) == 254
    assert "--story: unknown class 'losst' (did you mean 'lost'?)" in capsys.readouterr().err
