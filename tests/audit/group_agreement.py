"""Functions that audit a run with a consumer group and compare the result with the plain one (group_reference.py)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from ackproof.audit.units import Limits
from ackproof.judge import prepare_audit
from ackproof.rundir.anomalies import GROUP_CLASSES
from ackproof.rundir.layout import CaseDir

from .group_reference import count_groups
from .local import audited

CUT = Limits(whole_rows=0, split_rows=500, slice_rows=250, range_rows=400, task_rows=500)
"""Limits that cut each pass of the audit of a planted group into units."""


def audit_groups(folder: Path, limits: Limits | None = None):
    """Audit a run with one group. Return the audited file, and how often each finding of a group class was found:
    (class, topic, partition, producer, seq, offset). `limits` None: the usual ones."""
    prepare_audit([folder])
    (result,) = audited([folder], limits=limits)
    assert result.file is not None, result.reasons
    found = Counter()
    for path in CaseDir(folder).finding_parts:
        for row in pq.read_table(path, partitioning=None).to_pylist():
            if row["class"] in GROUP_CLASSES:
                found[
                    tuple(row[name] for name in ("class", "topic", "partition", "producer", "seq", "offset"))
                ] += 1
                assert row["group"] == "billing"
                assert row["detail"]
    return result.file, found


def agree(folder: Path, limits: Limits | None = None):
    """Assert that the audit and the plain implementation agree on a run with one group. Return the audited file."""
    file, found = audit_groups(folder, limits)
    (counts,) = file.groups
    expected = +count_groups(folder)["billing"]
    assert found == Counter({key: n for key, n in expected.items() if key[0] in counts.counts})
    sums = Counter()
    for key, count in found.items():
        sums[key[0]] += count
    assert counts.counts == {name: sums[name] for name in counts.counts}
    assert {name: file.counts[name] for name in counts.counts} == counts.counts
    return file
