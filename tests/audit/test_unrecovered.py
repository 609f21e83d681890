"""What a run saw of its recovery, as counts and findings: no ledger shows it."""

from __future__ import annotations

from ackproof.rundir.anomalies import LIVENESS
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.observed import RecoveryFile, Unrecovered

from .ledgers import findings_of, write_ledger
from .local import audited
from .rows import read, sent


def _found(anomaly: str, **more: object) -> Unrecovered:
    return Unrecovered.model_validate(
        {"anomaly": anomaly, "topic": "t", "partition": 0, "seen": "as planted", "for_s": 9, **more}
    )


def _ledger(tmp_path, file: RecoveryFile | None):
    directory = write_ledger(tmp_path / "case", [sent(0, 0)], [read(0, 0)])
    if file is not None:
        file.save(CaseDir(directory).recovery)
    (result,) = audited([directory])
    assert result.file is not None, result.reasons
    return result.file.counts, findings_of(directory)


def test_a_run_that_nobody_watched_counts_none_of_these_classes(tmp_path) -> None:
    counts, _ = _ledger(tmp_path, None)
    assert not set(LIVENESS) & counts.keys()


def test_a_run_in_which_all_recovered_counts_nought(tmp_path) -> None:
    counts, findings = _ledger(tmp_path, RecoveryFile(bounds={}, waited_s=0))
    assert {name: counts[name] for name in LIVENESS} == dict.fromkeys(LIVENESS, 0)
    assert list(findings) == []


def test_each_that_did_not_recover_is_a_finding(tmp_path) -> None:
    found = (
        _found("stuck-replica", node=2),
        _found("stuck-replica", node=3),
        _found("stuck-producer", client="p4", number=4),
        _found("hanging-transaction", last_stable=50),
        _found("no-controller", topic="", partition=-1),
    )
    counts, findings = _ledger(tmp_path, RecoveryFile(bounds={}, waited_s=9, unrecovered=found))
    assert counts["stuck-replica"] == 2
    rows = {(row["class"], row["topic"], row["producer"], row["offset"]) for row in findings}
    assert rows == {
        ("stuck-replica", "t", -1, -1),
        ("stuck-producer", "t", 4, -1),
        ("hanging-transaction", "t", -1, 50),
        ("no-controller", "", -1, -1),
    }
