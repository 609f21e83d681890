"""Checks whether a run's files are complete, readable and unchanged, and whether `audit.json` belongs to them.

Checked before anything is derived from the run: a missing or foreign file must not be taken for an effect of Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.base.errors import BadInput, UnreadableFile
from ackproof.experiment.backends import BACKENDS
from ackproof.plan.cases import case_from_json
from ackproof.rundir import storage
from ackproof.rundir.anomalies import GONE
from ackproof.rundir.document import read_lines
from ackproof.rundir.documents import AuditFile, CaseFile, FinalReadFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import read_metadata
from ackproof.rundir.metrics import read_scrapes
from ackproof.rundir.observed import BrokerRound, FetchSources, read_commits, read_pulses, read_samples
from ackproof.rundir.replicas import ReplicasFile, read_batches
from ackproof.rundir.schema import SERIES
from ackproof.rundir.seal import SealFile, find_changes


def not_as_written(run: CaseDir) -> tuple[str, ...]:
    """Return a reason for each file of a sealed run that is missing, new, changed, unreadable or of another run; ()
    without such files.

    Numbers of the audit that do not fit the files are reasons, too. A run without a seal is only checked for files that
    cannot be parsed, if it is of an older version; else the missing seal is the reason.
    """
    flaws = find_changes(run) or tuple(_unreadable(run))
    if flaws or not run.seal.exists() or not run.audit_json.exists():
        return flaws
    try:
        audit = AuditFile.load(run.audit_json)
    except UnreadableFile as error:
        name = run.audit_json.relative_to(run.path)
        return (f"{name}: {error.why}; write it again: ackproof audit",)
    return (
        *_beside_the_seal(run, audit),
        *_out_of_range(audit),
        *_beside_findings(run, audit),
        *_beside_series(run, audit),
    )


def _unreadable(run: CaseDir) -> Iterator[str]:
    """Yield a sentence for each file of the run that exists and cannot be parsed. Ledgers, timeline and audit are read
    elsewhere. Also yield one if there is `replicas.json`, but not the file of the batches of its logs."""
    readers: tuple[tuple[Path, Callable[[Path], object]], ...] = (
        (run.case_json, _read_case),
        (run.final_read, FinalReadFile.load),
        (run.metadata_log, lambda path: list(read_metadata(path))),
        (run.samples, lambda path: _check_lines(path, len(read_samples(path)))),
        (run.pulse, lambda path: _check_lines(path, len(read_pulses(path)))),
        (run.metrics, read_scrapes),
        (run.brokers, lambda path: _check_lines(path, len(list(read_lines(path, BrokerRound))))),
        *((path, read_commits) for path in sorted(run.clients.glob("*/commits.jsonl"))),
        *(
            (path, lambda path: list(read_lines(path, FetchSources)))
            for path in sorted(run.clients.glob("*/served.jsonl"))
        ),
        (run.replicas, ReplicasFile.load),
        (run.replica_batches, read_batches),
        (run.series, lambda path: storage.read_table(path).select(SERIES.names)),
    )
    for path, read in readers:
        try:
            if path.exists():
                read(path)
        except (BadInput, OSError, pa.ArrowException, KeyError) as error:
            name = path.relative_to(run.path)
            remedy = "; write it again: ackproof audit" if path == run.series else ""
            yield f"{name}: cannot be read: {str(error).removeprefix(f'{path}: ').splitlines()[0]}{remedy}"
    if run.replicas.exists() and not run.replica_batches.exists():
        yield f"{run.replica_batches.relative_to(run.path)}: not there, and {run.replicas.name} lists logs"


def _read_case(path: Path) -> None:
    file = CaseFile.load(path)
    case = case_from_json(file.resolved)
    for name, outer, inner in (
        ("case", file.case, case.id),
        ("settings", file.settings, case.settings),
        ("repeat", file.repeat, case.repeat),
        ("seed", file.seed, case.seed),
        ("cell", file.cell, case.cell),
    ):
        if outer != inner:
            raise BadInput(f"its {name} is {outer}, and that of the resolved case {inner}")
    if file.backend not in BACKENDS:
        raise BadInput(f"there is no backend {file.backend}")


def _check_lines(path: Path, understood: int) -> None:
    lines = sum(1 for line in path.read_bytes().splitlines() if line.strip())
    if lines != understood:
        raise BadInput(f"{lines - understood} of {lines} lines say nothing that can be understood")


def _beside_the_seal(run: CaseDir, audit: AuditFile) -> Iterator[str]:
    seal = SealFile.load(run.seal)
    parts = {name: file for name, file in seal.files.items() if name.startswith("ledger/") and file.rows >= 0}
    ledgers = {
        name: file
        for name, file in parts.items()
        if name.startswith(("ledger/produced/", "ledger/consumed/"))
    }
    counted = audit.counted
    strange = sorted(n for n, sha256 in counted.items() if n not in parts or parts[n].sha256 != sha256)
    uncounted = sorted(ledgers.keys() - counted.keys())
    if strange:
        yield f"audit.json counted other files than those of this run: {', '.join(strange[:3])}"
    elif audit.complete and uncounted:
        yield f"audit.json calls itself complete and did not count {', '.join(uncounted[:3])}"
    elif audit.complete and (rows := sum(written.rows for written in ledgers.values())) != _rows_of(audit):
        yield f"audit.json has {_rows_of(audit):,} rows, and {rows:,} were written"
    # What was acknowledged and is not lost is there; but a transaction may be aborted, and a key have a later record.
    spared = audit.deleted.spared if audit.deleted is not None else 0
    gone = sum(audit.counts.get(anomaly, 0) for anomaly in GONE)
    there = audit.records.acked - gone - spared
    transactional = any(name.startswith("ledger/transactions/") for name in seal.files)
    keyed = any(client.keys for client in CaseFile.load(run.case_json).clients)
    if there > audit.records.consumed_final and not transactional and not keyed:
        yield (
            f"audit.json counts {there:,} acked records that are not lost, and the final read has "
            f"{audit.records.consumed_final:,}"
        )


def _rows_of(audit: AuditFile) -> int:
    records = audit.records
    return records.produced + records.consumed_live + records.consumed_final + audit.consumed_committed


def _out_of_range(audit: AuditFile) -> Iterator[str]:
    records = audit.records
    numbers = {**audit.counts, **records.model_dump(), "unledgered": audit.unledgered}
    numbers |= {"final_read": audit.final_read.count, "consumed_committed": audit.consumed_committed}
    for name, number in numbers.items():
        if number < 0:
            yield f"audit.json: {name} is {number}"
    told = records.acked + records.failed + records.indeterminate
    if told != records.produced:
        yield (
            f"audit.json: {records.acked:,} acked, {records.failed:,} failed and {records.indeterminate:,} "
            f"indeterminate are {told:,}, and {records.produced:,} were produced"
        )
    if audit.complete and audit.reasons:
        yield f"audit.json calls itself complete, and incomplete: {'; '.join(audit.reasons)}"


def _beside_findings(run: CaseDir, audit: AuditFile) -> Iterator[str]:
    try:
        found: Counter[str] = Counter()
        for path in run.finding_parts:
            with storage.open_parquet(path) as file:
                for batch in file.iter_batches(columns=["class"]):
                    found.update(batch.column(0).to_pylist())
    except (OSError, pa.ArrowException) as error:
        yield f"findings: cannot be read ({str(error).splitlines()[0]})"
        return
    for name in sorted({*found, *audit.counts}):
        if found[name] != audit.counts.get(name, 0):
            yield f"audit.json counts {audit.counts.get(name, 0):,} {name}, and findings has {found[name]:,}"


def _beside_series(run: CaseDir, audit: AuditFile) -> Iterator[str]:
    """Yield a sentence for each total that differs between the audit and `series.parquet`: acked, failed and
    indeterminate attempts, and live reads. Yield nothing without that file."""
    if not run.series.exists():
        return
    table = storage.read_table(run.series, columns=["acked", "failed", "indeterminate", "read"])
    counts = audit.records.model_dump() | {"read": audit.records.consumed_live}
    for name in table.column_names:
        if (told := int(pc.sum(table[name]).as_py() or 0)) != counts[name]:
            yield f"audit.json counts {counts[name]:,} {name}, and series.parquet {told:,}"
