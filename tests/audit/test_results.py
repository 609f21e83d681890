"""Tests of the audit of a soak with deleted windows, of deleted parts, and of the liveness classes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.audit.units import Limits
from ackproof.rundir.anomalies import LIVENESS
from ackproof.rundir.documents import AuditFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.observed import RecoveryFile, Unrecovered
from ackproof.rundir.parts import DELETED, deleted_parts, mark_deleted, mark_end
from ackproof.rundir.schema import FINDINGS
from ackproof.rundir.windows import WindowFile, WindowRead, window_findings, window_json

from .ledgers import findings_of, produced_table, write_case, write_ledger
from .local import BUCKETS, audited
from .rows import live, read, sent

ENDS = (10, 18, 45)
HOT = Limits(whole_rows=0, range_rows=4, slice_rows=4, split_rows=2, task_rows=1)


def window(run: CaseDir, number: int, **changes: Any) -> None:
    start = ENDS[number - 1] if number else 0
    path = window_json(run, number)
    path.parent.mkdir(parents=True)
    WindowFile(
        number=number, last=number == 2, from_ns=0, to_ns=0, counts=changes.pop("counts", {}), produced=10, acked=10,
        read=(WindowRead(topic="t", partition=0, start=start, end=ENDS[number]),), failed=0, indeterminate=0, live=10,
        followed=ENDS[number] - start, open=0, late=0, pinned={}, parts=(f"client=p0/part-00000{number}.parquet",),
        **changes,
    ).save(path)  # fmt: skip


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Return the folder of a run with 30 attempts in three parts. Its first two windows, and the part of the first,
    were deleted.

    The second window ends at offset 18, in the middle of its part. Seqs 13 and 25 are acknowledged without an offset.
    Seq 25 is in no log; a live reader saw the other 29. The final read has offsets 18 to 29 without seq 25. At 40 to 43
    it has seqs 4, 12 and 19 again, and seq 99, which nobody sent.
    """
    run = tmp_path / "run"
    final = [read(n, n) for n in range(18, 30) if n != 25]
    again = [read(4, 40), read(12, 41), read(19, 42), read(99, 43)]
    write_ledger(run, [], [live(n, n) for n in range(30) if n != 25] + final + again)
    folder = run / "ledger" / "produced" / "client=p0"
    folder.mkdir(parents=True)
    for number in range(3):
        rows = [sent(n, -1 if n in (13, 25) else n) for n in range(10 * number, 10 * number + 10)]
        pq.write_table(produced_table(rows), folder / f"part-{number:06d}.parquet")
    mark_deleted(folder, folder / "part-000000.parquet")
    mark_end(folder)
    write_case(run, [{"id": "p0", "kind": "producer", "producer": 0}])
    window(CaseDir(run), 0, deleted=True, counts={"surfaced": 1})
    surfaced = dict.fromkeys(FINDINGS.names, 3) | {"class": "surfaced", "topic": "t", "detail": ""}
    pq.write_table(pa.Table.from_pylist([surfaced], schema=FINDINGS), window_findings(CaseDir(run), 0))
    window(CaseDir(run), 1, deleted=True)
    window(CaseDir(run), 2)
    return run


def counts(file: AuditFile | None) -> dict[str, int]:
    assert file is not None
    return {name: count for name, count in file.counts.items() if count}


@pytest.mark.parametrize("limits", [Limits(), BUCKETS, HOT], ids=["whole", "buckets", "hot"])
def test_nothing_is_said_of_what_was_deleted(ledger: Path, limits: Limits) -> None:
    (result,) = audited([ledger], limits=limits)
    assert not [reason for reason in result.reasons if "client=p0" in reason], result.reasons
    assert counts(result.file) == {"lost": 1, "duplicate": 1, "phantom": 1, "surfaced": 1}
    found = {row["class"]: (row["seq"], row["offset"]) for row in findings_of(ledger)}
    assert found == {"lost": (25, -1), "duplicate": (19, 42), "phantom": (99, 43), "surfaced": (3, 3)}


def test_unreadable_findings_of_a_deleted_window_end_this_audit_alone(ledger: Path, tmp_path: Path) -> None:
    shutil.copytree(ledger, other := tmp_path / "other")
    window_findings(CaseDir(ledger), 0).write_bytes(b"no Parquet")
    broken, whole = audited([ledger, other])
    assert broken.file is None and "000000" in broken.reasons[0] and "cannot be read" in broken.reasons[0]
    assert counts(whole.file) == {"lost": 1, "duplicate": 1, "phantom": 1, "surfaced": 1}


def test_what_was_deleted_counts(ledger: Path) -> None:
    (result,) = audited([ledger])
    assert result.file is not None
    assert result.file.records.acked == 20
    deleted = result.file.deleted
    assert deleted is not None
    assert (deleted.windows, deleted.gone) == (2, 10)
    assert deleted.spared == len({10, 11, 13, 14, 15, 16, 17}), "12 is there, elsewhere"
    assert result.file.audited.acked == 30
    assert result.file.audited.consumed_final == 45


@pytest.mark.parametrize("limits", [Limits(), HOT], ids=["whole", "hot"])
def test_what_was_not_deleted_is_lost(ledger: Path, limits: Limits) -> None:
    """The audit of the same ledgers finds all losses if no window is marked as deleted."""
    for number in range(3):
        file = WindowFile.load(window_json(CaseDir(ledger), number))
        file.model_copy(update={"deleted": False}).save(window_json(CaseDir(ledger), number))
    (result,) = audited([ledger], limits=limits)
    assert result.file is not None
    assert result.file.deleted is None
    assert counts(result.file) == {
        "lost": 8, "vanished": 18, "displaced": 1, "reordered": 1, "duplicate": 1, "phantom": 2
    }  # fmt: skip


def test_a_part_that_is_gone_and_not_written_down_is_missed(ledger: Path) -> None:
    folder = ledger / "ledger" / "produced" / "client=p0"
    (folder / "_DELETED").unlink()
    (result,) = audited([ledger])
    assert any("its rows 0 to 9 are in no part" in reason for reason in result.reasons), result.reasons


def test_what_was_deleted_is_written_down(ledger: Path) -> None:
    (one,) = deleted_parts(ledger / "ledger" / "produced" / "client=p0")
    assert (one.name, one.rows, one.first, one.last) == ("part-000000.parquet", 10, 0, 9)


@pytest.mark.parametrize("rows", [10, 0], ids=["its rows", "no rows"])
@pytest.mark.parametrize("kind", ["produced", "consumed"])
@pytest.mark.parametrize("windows", [True, False], ids=["windows of which none was deleted", "no soak"])
def test_a_part_that_no_soak_deleted_is_missed(tmp_path: Path, kind: str, rows: int, windows: bool) -> None:
    """A false entry in _DELETED must not hide the rows of a part."""
    run = write_ledger(
        tmp_path / "run", [sent(n) for n in range(10)], [read(n, read_seq=n) for n in range(10)]
    )
    clients = {"produced": "p0", "consumed": "r9"}
    write_case(run, [{"id": "p0", "kind": "producer", "producer": 0}, {"id": "r9"}])
    for ledger, client in clients.items():
        mark_end(run / "ledger" / ledger / f"client={client}")
    if windows:
        window(CaseDir(run), 0)
    (result,) = audited([run])
    assert (result.code, result.reasons) == (0, ())
    folder = run / "ledger" / kind / f"client={clients[kind]}"
    part = folder / "part-0.parquet"
    kept = part.read_bytes()
    mark_deleted(folder, part)
    if not rows:
        (told,) = deleted_parts(folder)
        part.write_bytes(kept)
        lie = told._replace(rows=0, first=-1, last=-1)
        (folder / DELETED).write_text(json.dumps(lie._asdict()) + "\n")
    (result,) = audited([run])
    said = f"ledger/{kind}/client={clients[kind]}: _DELETED lists parts, and no window of a soak was deleted"
    assert result.code == 2
    assert said in result.reasons


def _unrecovered(anomaly: str, **more: object) -> Unrecovered:
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
    wanted = [name for name in LIVENESS if name != "stalled"]  # which a run without groups does not count
    assert {name: counts[name] for name in LIVENESS if name in counts} == dict.fromkeys(wanted, 0)
    assert list(findings) == []


def test_each_that_did_not_recover_is_a_finding(tmp_path) -> None:
    found = (
        _unrecovered("stuck-replica", node=2),
        _unrecovered("stuck-replica", node=3),
        _unrecovered("stuck-producer", client="p4", number=4),
        _unrecovered("hanging-transaction", last_stable=50),
        _unrecovered("no-controller", topic="", partition=-1),
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
