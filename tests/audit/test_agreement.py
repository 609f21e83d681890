"""The fast audit and the plain one (reference.py) say the same of whatever Hypothesis comes up with."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ackproof.audit.pipeline import audit_all
from ackproof.audit.results import AuditResult
from ackproof.audit.units import Limits

from . import reference
from .ledgers import findings_of, write_case, write_ledger
from .local import LocalContext
from .reference import Finding
from .strategies import Drawn, directories

CLASSES = (
    *("lost", "overwritten", "duplicate", "resurrected", "surfaced", "phantom", "misrouted", "corrupted"),
    *("displaced", "reordered", "vanished", "conflict", "skipped", "rewound"),
)

EXAMPLES = int(os.environ.get("ACKPROOF_EXAMPLES", "120"))
"""So many ledgers per way without Spark; raise it for a long look."""

WAYS = {
    "whole": Limits(),
    "ranges": Limits(range_rows=3),
    "buckets": Limits(whole_rows=0, split_rows=4, share_rows=3, task_rows=2),
    "buckets in ranges": Limits(whole_rows=0, split_rows=2, range_rows=1, share_rows=2, task_rows=1),
}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn=directories(), seed=st.integers(0, 2**32))
def test_both_say_the_same(way, drawn: Drawn, seed: int) -> None:
    compare([drawn], seed, lambda paths: audit_all(paths, LocalContext, lambda _: None, WAYS[way]))


@pytest.mark.audit
@pytest.mark.parametrize("way", WAYS)
@settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],  # what fails is made smaller by the test above, without Spark
)
@given(batch=st.lists(directories(), min_size=16, max_size=16), seed=st.integers(0, 2**32))
def test_both_say_the_same_of_many_directories_in_one_job(audit, way, batch: list[Drawn], seed: int) -> None:
    limits = replace(WAYS[way], task_rows=50_000)  # a task costs 50 ms
    compare(batch, seed, lambda paths: audit(*paths, limits=limits))


def compare(batch: list[Drawn], seed: int, run: Callable[[list[Path]], list[AuditResult]]) -> None:
    shuffle = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="ackproof-agreement-") as root:
        paths = [write(Path(root) / str(number), drawn, shuffle) for number, drawn in enumerate(batch)]
        for drawn, path, result in zip(batch, paths, run(paths), strict=True):
            agree(drawn, path, result)


def write(path: Path, drawn: Drawn, shuffle: random.Random) -> Path:
    write_ledger(path, drawn.produced, drawn.reads, shuffle=shuffle)
    if drawn.clients is not None:
        write_case(
            path,
            [{"id": client, "kind": "producer", "producer": int(client[1:])} for client in drawn.clients],
            ended=[f"produced/p{number}" for number in drawn.closed],
        )
    return path


def agree(drawn: Drawn, path: Path, result) -> None:
    expected = reference.audit(drawn.produced, drawn.reads, drawn.open_producers)
    assert result.file is not None, result.reasons
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
    assert records.consumed_live == sum(read.phase == 0 for read in drawn.reads)
    assert records.consumed_final == sum(read.phase == 1 for read in drawn.reads)
    agree_on_series(reference.series(drawn.produced, drawn.reads), path)


def agree_on_series(expected: list[reference.Bin], path: Path) -> None:
    found = [reference.Bin(**row) for row in pq.read_table(path / "series.parquet").to_pylist()]
    assert [row[:7] for row in found] == [row[:7] for row in expected]
    for one, other in zip(found, expected, strict=True):
        assert one[7:] == pytest.approx(other[7:], nan_ok=True)
