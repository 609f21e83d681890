"""Batches of simulated runs in a second or two; only the audit, the single verdicts and the reports are stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ackproof.audit.results import AuditResult
from ackproof.run import conclude as concluding
from ackproof.run.batch import run_batch
from ackproof.run.batch_state import Batch
from ackproof.run.options import BatchOptions, plan_batch
from ackproof.run.phases import SilentWatcher
from ackproof.rundir.documents import AuditFile, RecordCounts, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict

TEXT = """\
name: recovery
backend: model
cluster: {{brokers: 3, config: {{broker.session.timeout.ms: {timeout}}}}}
topics:
  orders: {{partitions: 1, replication_factor: 3, config: {{min.insync.replicas: 2}}}}
workload: {{producers: {{rate: 100/s, linger: 50ms}}, duration: 5s}}
matrix:
  workload.producers.acks: [1, all]
faults:
  - kill: leader(orders/0)
    at: 2s
    restart_after: 3s
expect:
{expect}
repeat: {repeat}
seed: {seed}
"""
ACK = "time_to(first ack, fault 1)"
Go = Callable[..., Batch]


def audited(directories: list[Path], **_: object) -> list[AuditResult]:
    """Stand-in for the audit: writes for each run an `audit.json` with 5 acknowledged records and none lost."""
    counted = AuditFile(counts={"lost": 0}, records=RecordCounts(acked=5), complete=True)
    for directory in directories:
        counted.save(CaseDir(directory).audit_json)
    return [AuditResult(directory, counted, 0, ()) for directory in directories]


def passed(run: CaseDir) -> None:
    """Stand-in for the stages after a run: writes the verdict PASS."""
    VerdictFile(verdict=Verdict.PASS, reasons=()).save(run.verdict_json)


def repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    """Return a function that runs a batch of the experiment `TEXT` in `tmp_path`. `expect`: expectations of the
    experiment. `timeout`: the brokers' session time-out in ms. `only`, `at_most`: fields of `BatchOptions`."""
    monkeypatch.setattr(concluding.audit, "run", audited)
    monkeypatch.setattr(concluding, "run_stages", passed)
    monkeypatch.setattr(concluding, "judge_unwritten", lambda _: None)
    monkeypatch.setattr(concluding, "render_batch", lambda _: None)

    def run(
        *expect: str,
        timeout: int = 3000,
        repeat: int = 4,
        seed: int = 7,
        only: tuple[str, ...] = (),
        at_most: int | None = None,
    ) -> Batch:
        file = tmp_path / "recovery.yaml"
        expected = "\n".join(f"  - {one}" for one in expect)
        file.write_text(TEXT.format(expect=expected, timeout=timeout, repeat=repeat, seed=seed))
        options = BatchOptions((file,), only=only, out=tmp_path / "runs", at_most=at_most)
        return run_batch(plan_batch(options), SilentWatcher())

    return run
