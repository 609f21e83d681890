"""An audit without Spark of a ledger that a test spoils: fixtures, and what to expect of the result."""

from __future__ import annotations

import json

from ackproof.audit.units import Limits

from .rows import read, sent

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
