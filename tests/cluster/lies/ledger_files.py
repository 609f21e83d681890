"""Lies planted after a run: its ledgers, copied and rewritten."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ackproof.rundir.documents import CaseFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.observed import read_pulses
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.parts import has_end, mark_end
from ackproof.rundir.seal import seal

Rows = list[dict[str, object]]


def copy_of(run: CaseDir, folder: Path) -> CaseDir:
    """Copy a run directory to `folder`, which must not exist yet; return the copy."""
    shutil.copytree(run.path, folder)
    return CaseDir(folder)


def rewrite(client: Path, change: Callable[[Rows], Rows]) -> None:
    """Replace the parts of a ledger by one part with the rows that `change` returns for all of the ledger's rows.
    `client`: the client's folder in the ledger.

    A reader's rows get new numbers `read_seq` from 0, in the order of those that `change` returned. `_END`, if there is
    one, the seal, and for a producer the counts in the run's pulses are adapted. The counts of records in
    `final-read.json` are not: where the final reader must agree with its ledger, the caller changes them.
    """
    parts = sorted(client.glob("part-*.parquet"))
    schema = pq.read_schema(parts[0])
    rows: Rows = [row for part in parts for row in pq.read_table(part, partitioning=None).to_pylist()]
    sent, acked = len(rows), _acked(rows)
    changed = change(rows)
    if "read_seq" in schema.names:
        changed = [
            {**row, "read_seq": number}
            for number, row in enumerate(sorted(changed, key=lambda row: int(str(row["read_seq"]))))
        ]
    for part in parts:
        part.unlink()
    pq.write_table(pa.Table.from_pylist(changed, schema=schema), client / "part-000000.parquet")
    if has_end(client):
        mark_end(client)
    run = CaseDir(client.parents[2])
    if "outcome" in schema.names:
        _count(run, len(changed) - sent, _acked(changed) - acked)
    reseal(run)


def _acked(rows: Rows) -> int:
    return sum(row.get("outcome") == Outcome.ACKED for row in rows)


def _count(run: CaseDir, sent: int, acked: int) -> None:
    """Add these numbers to the counts of sent and acknowledged records in the pulses of a run."""
    pulses = [
        pulse.model_copy(update={"sent": max(0, pulse.sent + sent), "acked": max(0, pulse.acked + acked)})
        for pulse in read_pulses(run.pulse)
    ]
    run.pulse.write_text("".join(pulse.model_dump_json() + "\n" for pulse in pulses), encoding="utf-8")


def reseal(run: CaseDir) -> None:
    """Seal the run again, so that its files count as written by the run."""
    seal(run, CaseFile.load(run.case_json).run_id)


def in_order(rows: Rows, partition: int) -> Rows:
    """Return the rows of one partition in the order in which the reader got them."""
    return sorted((r for r in rows if r["partition"] == partition), key=lambda r: int(str(r["read_seq"])))


def without_one(rows: Rows, place: int) -> Rows:
    """Return all rows except the one with index `place` in the order of seq."""
    ordered = sorted(rows, key=lambda row: int(str(row["seq"])))
    return [*ordered[:place], *ordered[place + 1 :]]


def without_last(rows: Rows) -> Rows:
    """Return all rows except the one with the greatest seq: the remaining seqs have no hole."""
    return sorted(rows, key=lambda row: int(str(row["seq"])))[:-1]


def skipping(rows: Rows) -> Rows:
    """Lie of a reader: three records of partition 0 are missing."""
    skipped = in_order(rows, 0)[20:23]
    return [row for row in rows if row not in skipped]


def going_back(rows: Rows) -> Rows:
    """Lie of a reader: two successive records of partition 0 are swapped."""
    first, second = in_order(rows, 0)[20:22]
    first["read_seq"], second["read_seq"] = second["read_seq"], first["read_seq"]
    return rows


def twice(rows: Rows) -> Rows:
    """Lie of a final read: the first record of partition 0 is there again, after the end of the log."""
    there = in_order(rows, 0)
    last = there[-1]
    again = {
        **there[0],
        "offset": int(str(last["offset"])) + 1,
        "read_seq": 1 + max(int(str(row["read_seq"])) for row in rows),
    }
    return [*rows, again]


def other_record(rows: Rows) -> Rows:
    """Lie of a live reader: at one offset of partition 0 it got another record than the final reader."""
    one = in_order(rows, 0)[20]
    one["seq"] = int(str(one["seq"])) + 100_000
    return rows


def one_failed(rows: Rows) -> Rows:
    """Lie of a producer: one record that was written counts as failed."""
    rows[10] |= {"outcome": 1, "error": 19, "offset": -1}
    return rows
