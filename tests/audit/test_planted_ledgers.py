"""Tests that the audit finds exactly the planted flaws (flaws.py) in ledgers of 10³ to 10⁷ rows.

A clean ledger has no finding.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow.dataset as ds
import pytest

from ackproof.audit.units import Limits

from .agreement import CLASSES, WAYS
from .flaws import FLAWS
from .ledgers import findings_of, write_ledger
from .local import audited
from .planted import BLOCK, PARTITIONS, Ledger, place
from .rows import read, sent

PER_IDENTITY = ("lost", "overwritten", "duplicate", "resurrected", "surfaced", "displaced", "reordered")
LARGEST = 2**53


def planted(rows: int, each: int, *, seed: int, base: int = 0) -> Ledger:
    """Return a ledger of about `rows` rows with `each` blocks of every flaw. 0: a clean ledger."""
    ledger = Ledger(max(rows // 27, 3 * PARTITIONS), base=base)
    if not each:
        return ledger
    inner = np.arange(PARTITIONS, ledger.blocks - PARTITIONS)
    chosen = np.random.default_rng(seed).permutation(inner)
    homes, helpers = chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]
    assert len(homes) >= each * len(FLAWS), "a larger ledger"
    by_partition = [list(helpers[helpers % PARTITIONS == part]) for part in range(PARTITIONS)]
    for number, plant in enumerate(FLAWS):
        blocks = homes[number * each : (number + 1) * each]
        # In the next partition: never at home.
        helping = [by_partition[(block + 1) % PARTITIONS].pop() for block in blocks]
        plant(ledger, blocks, np.array(helping))
    return ledger


def check(ledger: Ledger, path, result) -> None:
    assert result.file is not None, result.reasons
    expected = {name: sum(map(len, ledger.expected.get(name, ()))) for name in CLASSES}
    assert result.file.counts == expected
    assert result.file.unledgered == ledger.unledgered
    assert result.file.records.produced == int(ledger.written.sum())
    assert result.file.final_read.count == sum(map(len, ledger.final_gaps))
    found: dict[str, Counter] = {name: Counter() for name in CLASSES}
    for batch in ds.dataset(path / "findings", format="parquet", partitioning=None).to_batches():
        for row in batch.to_pylist():
            identity = row["producer"], row["seq"]
            where = (row["topic"], row["partition"]), row["offset"]
            found[row["class"]][identity if row["class"] in PER_IDENTITY else where] += 1
    for name, pieces in ledger.expected.items():
        pairs = [(int(one), int(two)) for piece in pieces for one, two in piece]
        wanted = Counter(pair if name in PER_IDENTITY else (place(pair[0]), pair[1]) for pair in pairs)
        assert found[name] == wanted, name


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("base", [0, LARGEST - 3])
def test_a_thousand_records_of_each_way(tmp_path, way, base) -> None:
    limits = dict(WAYS[way])
    if "task_rows" in limits:
        limits |= {"task_rows": 3_000, "split_rows": 500, "share_rows": 300}
    if "range_rows" in limits:
        limits |= {"range_rows": 1_000, "slice_rows": 500}
    ledger = planted(9_000, 2, seed=1, base=base)
    path = ledger.write(tmp_path / "case")
    (result,) = audited([path], limits=Limits(**limits))
    check(ledger, path, result)


def test_a_clean_one(tmp_path) -> None:
    ledger = planted(3_000, 0, seed=0)
    path = ledger.write(tmp_path / "case")
    (result,) = audited([path])
    assert not any(result.file.counts.values())
    assert result.code == 0
    check(ledger, path, result)


@pytest.mark.audit
def test_a_hundred_thousand_records(audit, tmp_path) -> None:
    flawed, clean = planted(100_000, 20, seed=2), planted(100_000, 0, seed=0)
    paths = [flawed.write(tmp_path / "flawed"), clean.write(tmp_path / "clean")]
    one, other = audit(*paths)
    check(flawed, paths[0], one)
    check(clean, paths[1], other)
    assert other.code == 0


@pytest.mark.audit
@pytest.mark.nightly
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("rows", [1_000_000, 10_000_000])
def test_millions(audit, tmp_path, rows) -> None:
    for each in (rows // 20_000, 0):
        ledger = planted(rows, each, seed=rows)
        path = ledger.write(tmp_path / str(each))
        (result,) = audit(path)
        check(ledger, path, result)
        assert ledger.blocks * BLOCK > rows // 4


def test_two_at_one_offset_are_not_one_before_the_other(tmp_path) -> None:
    """Seq 3 was not acknowledged and stands before both seqs 1 and 2, which were acknowledged at one offset."""
    produced = [sent(1, 5), sent(2, 5), sent(3, 3, outcome=2)]
    path = write_ledger(tmp_path / "case", produced, [read(3, 3), read(1, 5), read(2, 5, reader=8)])
    (result,) = audited([path])
    assert result.file.counts["reordered"] == 2
    found = [row["detail"] for row in findings_of(path) if row["class"] == "reordered"]
    assert found == ["one of the two not acked"] * 2
