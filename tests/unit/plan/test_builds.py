"""Kafka builds in a file: versions, digests and names are filled in before the checks, and a stored case keeps them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.experiment.kafka import DEFAULT, LINES, KafkaBuild
from ackproof.experiment.problems import InvalidExperiment
from ackproof.plan.cases import case_from_json, case_to_json, cases, load
from ackproof.provision import releases
from ackproof.provision.progress import ProvisionFailed
from kafka_build import write_build

from .conftest import Load

TOPICS = "topics: {t: {partitions: 1}}\n"
MATRIX = (
    "name: any\n"
    + TOPICS
    + """\
matrix:
  cluster.kafka: ["4.3.1", {path: mine}, {path: mine, name: candidate}]
  workload.producers.acks: [1, all]
  exclude: [{kafka: ../mine, acks: 1}]
expect:
  - {given: {kafka: candidate}, lost: 0}
"""
)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return write_build(tmp_path / "mine")


def test_a_build_gets_version_digest_and_name(mine: Path, load_text: Load) -> None:
    plan = load_text(f"name: any\ncluster: {{kafka: {{path: mine}}}}\n{TOPICS}")
    kafka = plan.spec.cluster.kafka
    assert (kafka.version, kafka.path, kafka.name) == ("4.9.0", str(mine), "mine")
    assert kafka.digest is not None and len(kafka.digest) == 12
    (warning,) = plan.warnings
    newest = LINES[-1]
    assert f"mine (4.9.0) is not a published release: the rules of {newest} are assumed" in warning.message


def test_builds_stand_beside_releases_in_a_matrix(mine: Path, load_text: Load) -> None:
    plan = load_text(MATRIX.replace("../mine", "mine"))
    assert [cell.name for cell in plan.cells] == [
        "kafka=4.3.1,acks=1",
        "kafka=4.3.1,acks=all",
        "kafka=mine,acks=all",
        "kafka=candidate,acks=1",
        "kafka=candidate,acks=all",
    ]
    assert [len(cell.experiment.expect) for cell in plan.cells] == [0, 0, 0, 1, 1]
    assert plan.cells[3].settings == {"cluster.kafka": "candidate", "workload.producers.acks": 1}


def test_two_builds_need_two_names(mine: Path, load_text: Load) -> None:
    with pytest.raises(InvalidExperiment, match="'mine' gives a case the same name as another value"):
        load_text(MATRIX.replace(", name: candidate", "").replace("../mine", "mine"))


def test_a_stored_case_needs_no_build(mine: Path, load_text: Load) -> None:
    case = cases(load_text(f"name: any\ncluster: {{kafka: {{path: mine}}}}\n{TOPICS}"))[0]
    stored = json.loads(json.dumps(case_to_json(case)))
    for jar in mine.iterdir():
        jar.unlink()
    assert case_from_json(stored) == case
    assert case.assumptions == (case.experiment.cluster.kafka.assumption,)


@pytest.mark.parametrize(
    ("kafka", "said"),
    [
        ("{path: nowhere}", "nowhere: no such folder or .tgz"),
        ("{path: mine, image: a}", "path and image: give one of them"),
        ("{pth: mine}", "kafka has no field 'pth'"),
        ("{path: 7}", "no such folder"),
        ("{patch: fix.jar}", "a patch is a jar, a folder of classes or a .btm script"),
        ("[mine]", "expected a full version"),
        ("{path: mine, version: 4.8.0}", "mine is Kafka 4.9.0, not 4.8.0"),
    ],
)
def test_what_is_wrong_is_said_at_its_line(mine: Path, load_text: Load, kafka: str, said: str) -> None:
    with pytest.raises(InvalidExperiment) as refused:
        load_text(f"name: any\ncluster:\n  kafka: {kafka}\n{TOPICS}")
    (problem,) = refused.value.problems
    assert said in problem.message and (problem.line, problem.path) == (3, "cluster.kafka")


def test_rules_run_in_processes_alone(tmp_path: Path, load_text: Load) -> None:
    (tmp_path / "rules.btm").write_text("RULE any")
    kafka = f'kafka: {{version: "4.4.0", patch: {tmp_path / "rules.btm"}}}'
    build = load_text(f"name: any\ncluster: {{{kafka}}}\n{TOPICS}").spec.cluster.kafka
    assert build.has_rules and build.label == "4.4.0+rules.btm" and build.digest
    with pytest.raises(InvalidExperiment, match="a patch of Byteman rules runs in processes alone"):
        load_text(f"name: any\nbackend: docker\ncluster: {{{kafka}}}\n{TOPICS}")


def test_the_command_line_is_relative_to_the_working_folder(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    file = tmp_path / "elsewhere" / "e.yaml"
    file.write_text(f"name: any\n{TOPICS}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    plan = load(file, ["cluster.kafka={path: mine, name: candidate}"])
    assert plan.spec.cluster.kafka.path == str(mine) and plan.spec.cluster.kafka.label == "candidate"
    with pytest.raises(BadInput, match=r"--set cluster\.kafka="):
        load(file, ["cluster.kafka={path: mine"])
    with pytest.raises(BadInput, match="the file has no faults"):
        load(file, ["faults[2].upgrade.to={path: mine}"])
    file.write_text(f"name: any\nfaults: [{{kill: broker(1), at: 1s}}]\n{TOPICS}", encoding="utf-8")
    with pytest.raises(BadInput, match="that has no fields"):
        load(file, ["faults[1].at.x=3"])
    file.write_text(f'name: any\nmatrix: {{cluster.kafka: ["4.3.1", "4.4.0"]}}\n{TOPICS}', encoding="utf-8")
    with pytest.raises(BadInput, match="the matrix varies"):
        load(file, ["cluster.kafka={path: mine}"])


def test_newest_is_asked_for_and_stays(load_text: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "find_newest_release", lambda: "4.9.1")
    text = f"name: any\ncluster: {{kafka: newest}}\nfaults: [{{upgrade: {{to: newest}}, at: 1s}}]\n{TOPICS}"
    with pytest.raises(InvalidExperiment, match=r"Kafka 4\.9\.1 is not newer than 4\.9\.1"):
        load_text(text)
    plan = load_text(text.replace("kafka: newest", f'kafka: "{DEFAULT}"'))
    (upgrade,) = plan.spec.faults
    assert upgrade.builds == (KafkaBuild("4.9.1"),)
    assert [str(warning.path) for warning in plan.warnings] == ["faults[1].upgrade.to"]

    def refused() -> str:
        raise ProvisionFailed("nobody answers")

    monkeypatch.setattr(releases, "find_newest_release", refused)
    with pytest.raises(InvalidExperiment, match="nobody answers"):
        load_text(text)


def test_of_an_unknown_release_the_brokers_decide(load_text: Load) -> None:
    text = (
        'name: any\ncluster: {kafka: "4.99.0", features: {new.version: 3}}\n'
        "topics: {t: {config: {brand.new.setting: 1}}}\n"
    )
    assert load_text(text).spec.cluster.features == {"new.version": 3}
    with pytest.raises(InvalidExperiment, match=r"Kafka has no topic setting 'retention\.m'"):
        load_text(text.replace("brand.new.setting", "retention.m"))
    with pytest.raises(InvalidExperiment, match=r"new\.version"):
        load_text(text.replace("4.99.0", DEFAULT).replace("brand.new.setting", "retention.ms"))
