"""Tests that the audit finds exactly the planted flaws (flaws.py) in ledgers of 10³ to 10⁷ rows.

A clean ledger has no finding.
"""

from __future__ import annotations

import pytest

from ackproof.audit.units import Limits

from .agreement import WAYS
from .flaws import plant_ledger
from .ledgers import findings_of, write_ledger
from .local import audited
from .planted import BLOCK, assert_found
from .rows import read, sent

LARGEST = 2**53


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("base", [0, LARGEST - 3])
def test_a_thousand_records_of_each_way(tmp_path, way, base) -> None:
    limits = dict(WAYS[way])
    if "task_rows" in limits:
        limits |= {"task_rows": 3_000, "split_rows": 500, "share_rows": 300}
    if "range_rows" in limits:
        limits |= {"range_rows": 1_000, "slice_rows": 500}
    ledger = plant_ledger(9_000, 2, seed=1, base=base)
    path = ledger.write(tmp_path / "case")
    (result,) = audited([path], limits=Limits(**limits))
    assert_found(ledger, path, result)


def test_a_clean_one(tmp_path) -> None:
    ledger = plant_ledger(3_000, 0, seed=0)
    path = ledger.write(tmp_path / "case")
    (result,) = audited([path])
    assert not any(result.file.counts.values())
    assert result.code == 0
    assert_found(ledger, path, result)


@pytest.mark.audit
def test_a_hundred_thousand_records(audit, tmp_path) -> None:
    flawed, clean = plant_ledger(100_000, 20, seed=2), plant_ledger(100_000, 0, seed=0)
    paths = [flawed.write(tmp_path / "flawed"), clean.write(tmp_path / "clean")]
    one, other = audit(*paths)
    assert_found(flawed, paths[0], one)
    assert_found(clean, paths[1], other)
    assert other.code == 0


@pytest.mark.audit
@pytest.mark.nightly
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("rows", [1_000_000, 10_000_000])
def test_millions(audit, tmp_path, rows) -> None:
    for each in (rows // 20_000, 0):
        ledger = plant_ledger(rows, each, seed=rows)
        path = ledger.write(tmp_path / str(each))
        (result,) = audit(path)
        assert_found(ledger, path, result)
        assert ledger.blocks * BLOCK > rows // 4


def test_two_at_one_offset_are_not_one_before_the_other(tmp_path) -> None:
    """Seq 3 was not acknowledged and stands before both seqs 1 and 2, which were acknowledged at one offset."""
    produced = [sent(1, 5), sent(2, 5), sent(3, 3, outcome=2)]
    path = write_ledger(tmp_path / "case", produced, [read(3, 3), read(1, 5), read(2, 5, reader=8)])
    (result,) = audited([path])
    assert result.file.counts["reordered"] == 2
    found = [row["detail"] for row in findings_of(path) if row["class"] == "reordered"]
    assert found == ["one of the two not acked"] * 2
