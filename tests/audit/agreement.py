"""What it means that the audit and the plain one agree. Imports nothing of the audit."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ackproof.rundir.layout import CaseDir

from . import reference
from .ledgers import findings_of, write_case, write_ledger
from .reference import Finding
from .strategies import Drawn

CLASSES = (
    *("lost", "overwritten", "duplicate", "resurrected", "surfaced", "phantom", "misrouted", "corrupted"),
    *("displaced", "reordered", "vanished", "conflict", "skipped", "rewound"),
    *("aborted-read", "torn-transaction", "early-read"),
    *("expired", "compacted", "deleted"),
)

WAYS = {
    "whole": {},
    "ranges": {"whole_rows": 0, "range_rows": 3, "slice_rows": 2, "split_rows": 4},
    "buckets": {"whole_rows": 0, "split_rows": 4, "share_rows": 3, "task_rows": 2},
    "buckets in ranges": {"whole_rows": 0, "split_rows": 2, "share_rows": 2, "task_rows": 1}
    | {"range_rows": 1, "slice_rows": 1},
}
"""`ackproof.audit.units.Limits` that lead through each way of the audit."""


def write(path: Path, drawn: Drawn, shuffle: random.Random) -> Path:
    write_ledger(path, drawn.produced, drawn.reads, drawn.transactions, shuffle=shuffle)
    if drawn.clients is not None:
        write_case(
            path,
            [_listed(client, *drawn.keys.get(int(client[1:]), (0, 0))) for client in drawn.clients],
            ended=[f"produced/p{number}" for number in drawn.closed],
        )
    return path


def _listed(client: str, keys: int, tombstone_every: int) -> dict[str, object]:
    told = {"keys": keys, "tombstone_every": tombstone_every}
    return {"id": client, "kind": "producer", "producer": int(client[1:]), **told}


def agree(drawn: Drawn, path: Path, result) -> None:
    expected = reference.audit(
        drawn.produced,
        drawn.reads,
        drawn.open_producers,
        drawn.transactions,
        drawn.read_committed,
        drawn.keys,
    )
    assert result.file is not None, result.reasons
    reasons = "\n".join(result.reasons)
    transactional = any(row.txn >= 0 for row in drawn.produced)
    assert ("no final read at read_committed" in reasons) == (transactional and not drawn.read_committed)
    assert ("says nothing of the transactions" in reasons) == (expected.untold > 0)
    assert expected.untold == 0 or f"of {expected.untold} produced rows" in reasons
    findings = Counter(
        Finding(row["class"], row["topic"], row["partition"], row["producer"], row["offset"], row["seq"])
        for row in findings_of(path)
    )
    assert findings == expected.findings
    assert result.file.counts == {name: expected.counts[name] for name in CLASSES}
    assert result.file.unledgered == expected.unledgered
    assert result.file.final_read.count == len(expected.final_read)
    assert [tuple(place) for place in result.file.final_read.places] == sorted(expected.final_read)
    both = {(row["producer"], row["seq"]) for row in findings_of(path) if row["detail"] == "both acked"}
    assert both == expected.both_acked
    records = result.file.records
    assert records.produced == len(drawn.produced)
    assert records.acked == sum(row.outcome == 0 for row in drawn.produced)
    assert records.failed == sum(row.outcome == 1 for row in drawn.produced)
    assert records.indeterminate == sum(row.outcome == 2 for row in drawn.produced)
    assert records.consumed_live == sum(read.phase in (0, 2) for read in drawn.reads)
    assert records.consumed_final == sum(read.phase == 1 for read in drawn.reads)
    assert result.file.consumed_committed == sum(read.phase == 3 for read in drawn.reads)
    agree_on_series(reference.series(drawn.produced, drawn.reads), path)


def agree_on_series(expected: list[reference.Bin], path: Path) -> None:
    found = [reference.Bin(**row) for row in pq.read_table(CaseDir(path).series).to_pylist()]
    assert [row[:7] for row in found] == [row[:7] for row in expected]
    for one, other in zip(found, expected, strict=True):
        assert one[7:] == pytest.approx(other[7:], nan_ok=True)
