"""A stand-in for Spark that runs the audit in this process, for tests that need thousands of audits."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from ackproof.audit.pipeline import audit_all
from ackproof.audit.results import AuditResult
from ackproof.audit.units import Limits
from ackproof.spark.job import Job

from .rows import read, sent


class LocalEdge:
    """Edge that runs the tasks of a job one after another. Groups and messages are pickled as in Spark."""

    cores_elsewhere = 0

    def __call__(self, job: Job) -> list:
        assert job.groups, "Spark refuses to cut into nothing"
        given = pickled([[group] for group in job.groups])
        messages = pickled([message for group in given for message in job.task(iter(group))])
        if job.judge is None:
            return [message for _, message in messages]
        found = defaultdict(list)
        for key, message in messages:
            found[sum(key) % job.partitions].append((key, message))
        return [result for number in range(job.partitions) for result in job.judge(iter(found[number]))]


def pickled(what: list) -> list:
    return pickle.loads(pickle.dumps(what))


def audited(directories: Sequence[Path], *, limits: Limits | None = None, **_: object) -> list[AuditResult]:
    """Audit directories as `ackproof.audit.run` does, without a JVM. Other keyword arguments are ignored."""
    return audit_all(directories, LocalEdge, lambda _: None, limits or Limits())


BUCKETS = Limits(whole_rows=0, split_rows=2, task_rows=1)
SENT = [sent(n, n // 2, partition=n % 2) for n in range(6)]
READ = [read(n, n // 2, partition=n % 2) for n in range(6)]


def part(ledger, kind="produced"):
    (path,) = sorted((ledger / "ledger" / kind).glob("*/part-*.parquet"))
    return path


def refused(run, ledger, *words):
    (result,) = run(ledger)
    assert (result.code, result.file) == (254, None)
    for word in words:
        assert word in result.reasons[0]
    assert not (ledger / "audit.json").exists()
    assert not list(ledger.glob(".audit*"))


def incomplete(run, ledger, *words):
    (result,) = run(ledger)
    assert result.code == 2
    for word in words:
        assert any(word in reason for reason in result.reasons), result.reasons
    assert result.file is not None
    assert not result.file.complete
    assert result.file.reasons == result.reasons
    assert json.loads((ledger / "audit.json").read_text())["complete"] is False
    assert not list(ledger.glob(".audit*"))
    return result.file
