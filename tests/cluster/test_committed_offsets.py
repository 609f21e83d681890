"""Tests of committed offsets on real brokers: a correct coordinator, one that forgets commits, and one that answers
offsets 50 too high.

Byteman changes the coordinator's memory (OffsetMetadataManager.replay); its log keeps what was committed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ackproof.cli.main import main_code
from ackproof.experiment.kafka import DEFAULT
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.committed import CommittedFile
from ackproof.rundir.document import read_lines
from ackproof.rundir.documents import VerdictFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.observed import CommittedStart
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.partition import TopicPartition

pytestmark = pytest.mark.cluster

RULE = """\
RULE planted
CLASS org.apache.kafka.coordinator.group.OffsetMetadataManager
METHOD replay(long,long,{package}.OffsetCommitKey,{package}.OffsetCommitValue)
AT ENTRY
IF ($4 != null && $3.topic().equals("orders")) && (!flag("bitten") || traceln("BITE"))
DO {action}
ENDRULE
"""
PACKAGE = "org.apache.kafka.coordinator.group.generated"
ACTIONS = {"forgets": "RETURN", "adds-50": "$4.setOffset($4.offset() + 50)"}
EXPERIMENT = """\
name: returns
cluster: {{brokers: 1, combined: true}}
topics: {{orders: {{partitions: 1, replication_factor: 1}}}}
workload:
  producers: {{rate: 300/s}}
  consumers: {{live: 1, commit_every: 100ms, start: committed}}
  duration: 3s
matrix:
  cluster.kafka: ["{release}", {builds}]
faults:
  - {{kill_client: {{client: reader}}, at: 2s, restart_after: 200ms}}
"""
ORDERS = TopicPartition("orders", 0)


def test_a_coordinator_that_forgets_or_changes_commits_is_found(tmp_path: Path) -> None:
    for name, action in ACTIONS.items():
        (tmp_path / f"{name}.btm").write_text(RULE.format(action=action, package=PACKAGE), encoding="utf-8")
    builds = ", ".join(f'{{version: "{DEFAULT}", patch: {name}.btm, name: {name}}}' for name in ACTIONS)
    file = tmp_path / "returns.yaml"
    file.write_text(EXPERIMENT.format(release=DEFAULT, builds=builds), encoding="utf-8")
    assert main_code(["run", str(file), "--out", str(tmp_path / "runs")]) == 1
    batch = BatchDir((tmp_path / "runs" / "latest").resolve())
    entries = BatchFile.load(batch.batch_json).cases
    assert [entry.verdict for entry in entries] == [Verdict.PASS, Verdict.FAIL, Verdict.FAIL]
    healthy, forgets, adds = (CaseDir(batch.path / entry.run) for entry in entries)

    (group,) = CommittedFile.load(healthy.committed).groups
    (start,) = read_lines(healthy.starts("r1"), CommittedStart)
    assert group.group == start.group == "ackproof-r0"
    assert 0 < start.offsets[0][2] < group.of_partition[ORDERS]
    said = VerdictFile.load(healthy.verdict_json).witnesses
    assert "OffsetFetch and the logs of __consumer_offsets have what was granted: 1 offsets" in said

    for run, answer in ((forgets, "answered none"), (adds, "which no client asked for")):
        (log,) = CommittedFile.load(run.committed).logs
        end = f"{answer}; the logs of __consumer_offsets/0 have {log.of_group('ackproof-r0')[ORDERS]}"
        told = "\n".join(VerdictFile.load(run.verdict_json).reasons)
        assert "when the run was over OffsetFetch" in told and end in told
        assert re.search(rf"when r1 started at [0-9.]+ s OffsetFetch .*{answer}$", told, re.MULTILINE)
        assert "BITE" in (run.nodes / "1" / "stdout.log").read_text(encoding="utf-8")
