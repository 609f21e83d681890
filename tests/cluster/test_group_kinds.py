"""Tests of a share group with a killed member, and of a consumer group of a user's program, on real brokers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ackproof.rundir.documents import CaseFile, VerdictFile
from ackproof.rundir.groups import GroupsFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.shares import SharesFile

from .helpers import run_experiment

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

PROGRAM = Path(__file__).parents[1] / "support" / "command_member.py"
TEXT = """\
name: groups
cluster: {{brokers: 3, kafka: "4.4.0"}}
topics: {{orders: {{partitions: 3, replication_factor: 3, config: {{min.insync.replicas: "2"}}}}}}
workload:
  producers: {{rate: 200/s}}
  {kind}:
    billing: {{{fields}}}
  duration: 6s
faults:
  - {{at: 2s, kill_client: {{client: member(billing)}}, restart_after: 1s}}
"""


def judged(folder: Path, kind: str, fields: str) -> tuple[CaseDir, VerdictFile]:
    batch, said = run_experiment(folder, TEXT.format(kind=kind, fields=fields))
    (run,) = (CaseDir(path.parent) for path in batch.path.rglob("case.json"))
    assert run.verdict_json.exists(), said
    return run, VerdictFile.load(run.verdict_json)


def test_a_share_group_one_of_whose_members_is_killed(tmp_path: Path) -> None:
    fields = "members: 2, lock: 3s, batch: 20, record_time: 3ms, release_every: 50, reject_every: 97"
    run, verdict = judged(tmp_path, "share_groups", fields)
    assert verdict.verdict is Verdict.PASS, verdict.reasons
    file = SharesFile.load(run.shares)
    assert [end.rested for end in file.groups] == [True]
    assert (len(file.members), sum(one.killed for one in file.members)) == (3, 1)
    clients = {one.id: (one.kind, one.group, one.killed) for one in CaseFile.load(run.case_json).clients}
    assert {name: clients[name] for name in ("h0", "h1", "h2")} == {
        one.client: ("member", "billing", one.killed) for one in file.members
    }


def test_members_that_are_a_program_of_the_user(tmp_path: Path) -> None:
    command = json.dumps([sys.executable, str(PROGRAM), "{settings}"])
    fields = f"members: 2, batch: 20, record_time: 3ms, client: {{command: {command}}}"
    run, verdict = judged(tmp_path, "groups", fields)
    assert verdict.verdict is Verdict.PASS, verdict.reasons
    file = GroupsFile.load(run.groups)
    assert file.breaches == ()
    assert [end.caught_up for end in file.groups] == [True]
    assert (len(file.members), sum(one.killed for one in file.members)) == (3, 1)
