"""Tests of Kafka builds on real nodes: a folder of jars, a patch, a release without a lock."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ackproof.cli.main import main_code
from ackproof.cluster.install import EVERY_NODE, install
from ackproof.experiment.kafka import DEFAULT, KafkaBuild
from ackproof.experiment.spec import TopicSpec
from ackproof.provision import releases
from ackproof.provision.cache import sha256
from ackproof.provision.jars import kafka_jars
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.documents import CaseFile, VerdictFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.outcome import Verdict

from .conftest import Clusters
from .helpers import produce

pytestmark = pytest.mark.cluster
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
CALM = """\
name: calm
cluster: {kafka: {path: build}, brokers: 1, controllers: 1}
topics: {events: {replication_factor: 1}}
workload: {producers: {rate: 500/s}, duration: 1s}
expect: [{lost: 0}]
"""


def _batch(out: Path) -> tuple[Path, BatchFile]:
    path = (out / "latest").resolve()
    return path, BatchFile.load(BatchDir(path).batch_json)


@pytest.mark.nightly  # tests/unit/provision/test_builds.py has folders of jars
def test_a_folder_of_mavens_jars_runs_and_another_one_is_not_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder has the server's jars, but no logger behind slf4j, as a user may assemble it by hand."""
    folder = tmp_path / "build" / "libs"
    folder.mkdir(parents=True)
    for jar in kafka_jars(DEFAULT).classpath:
        if "log4j-" not in jar.name:
            shutil.copy2(jar, folder)
    (tmp_path / "calm.yaml").write_text(CALM, encoding="utf-8")
    out = tmp_path / "runs"
    assert main_code(["run", str(tmp_path / "calm.yaml"), "--out", str(out)]) == 0
    path, batch = _batch(out)
    run = CaseDir(path / batch.cases[0].run)
    case = CaseFile.load(run.case_json)
    (assumed,) = case.assumed
    line = DEFAULT.rpartition(".")[0]
    assert assumed == f"Kafka build ({DEFAULT}) is not a published release: the rules of {line} are assumed"
    assert assumed in VerdictFile.load(run.verdict_json).not_judged
    assert assumed in (path / "report.html").read_text(encoding="utf-8")
    (digests,) = case.jars.values()
    assert {jar.name: sha256(jar) for jar in folder.iterdir()}.items() < digests.items()
    assert f"Kafka version: {DEFAULT}" in (run.nodes / "1" / "server.log").read_text(encoding="utf-8")

    next(folder.glob("re2j-*.jar")).unlink()
    capsys.readouterr()
    assert main_code(["replay", str(run.path), "--out", str(out)]) == 254
    assert "has another digest now" in capsys.readouterr().err


RULES = """\
# One of the first, so that a later batch is in the log and the final read comes to its end.
RULE the third batch is acknowledged and not written
CLASS org.apache.kafka.storage.internals.log.LogSegment
METHOD append(long,org.apache.kafka.common.record.internal.MemoryRecords)
AT ENTRY
IF $0.log().file().getParentFile().getName().equals("events-0") && incrementCounter("batches") == 3
   && (!flag("bitten") || traceln("BITE"))
DO RETURN
ENDRULE
"""


def test_rules_break_a_release_and_leave_its_archive(tmp_path: Path) -> None:
    (tmp_path / "rules.btm").write_text(RULES, encoding="utf-8")
    (tmp_path / "calm.yaml").write_text(
        CALM.replace("{path: build}", f'{{version: "{DEFAULT}", patch: rules.btm}}'), encoding="utf-8"
    )
    out = tmp_path / "runs"
    assert main_code(["run", str(tmp_path / "calm.yaml"), "--out", str(out)]) in (1, 2)
    path, batch = _batch(out)
    assert batch.cases[0].verdict is not Verdict.PASS and batch.cases[0].counts["lost"] > 0
    run = CaseDir(path / batch.cases[0].run)
    said = {node.name: (node / "stdout.log").read_text(encoding="utf-8") for node in run.nodes.iterdir()}
    assert "BITE" in said.pop("1") and not any(said.values())
    case = CaseFile.load(run.case_json)
    assert case.environment["class-data archive"] == EVERY_NODE
    (digests,) = case.jars.values()
    assert digests["rules.btm"] == sha256(tmp_path / "rules.btm")


@pytest.mark.nightly  # the rules above are a build with every push
def test_one_changed_line_keeps_what_the_release_loses(tmp_path: Path) -> None:
    """Both cells are FAIL if the patch does not come before the release's classes."""
    assert main_code(["run", str(EXPERIMENTS / "patched-leader.yaml"), "--out", str(tmp_path)]) == 1
    _, batch = _batch(tmp_path)
    assert [(one.cell_name, one.verdict, one.counts["lost"]) for one in batch.cases] == [
        ("kafka=4.3.1", Verdict.FAIL, 3),
        ("kafka=4.3.1-patched", Verdict.PASS, 0),
    ]


@pytest.mark.nightly  # tests/unit/provision/test_builds.py asks a Maven that is a script
def test_a_release_that_has_no_lock_comes_from_maven(
    clusters: Clusters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "LOCKS", tmp_path / "no locks")
    monkeypatch.setenv("ACKPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(clusters, "install", lambda version: install(KafkaBuild(version)))
    cluster = clusters.start(kafka=DEFAULT, brokers=1)
    cluster.create_topics({"t": TopicSpec(replication_factor=1)})
    assert produce(cluster, "t", 10) == 10
    home = tmp_path / "cache" / f"kafka-{DEFAULT}"
    there = {jar.name: sha256(jar) for jar in (home / "jars").iterdir()}
    assert releases.read_lock(DEFAULT, home / "jars.lock").jars == there
    monkeypatch.undo()
    locked = releases.lock(DEFAULT)
    assert locked is not None and there == locked.jars
