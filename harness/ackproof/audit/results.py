"""What an audit gives back, and how its results come into the directory: whole, in place of older ones."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow.parquet as pq

from ackproof.audit.units import FINDINGS as FINDINGS_FOLDER
from ackproof.audit.units import SERIES_PARTS, Counted
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.documents import AuditFile, FinalReadFlaws, RecordCounts
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import ExitCode
from ackproof.rundir.schema import FINDINGS, SERIES

COUNTED = int(ExitCode.PASS)
INCOMPLETE = int(ExitCode.INCONCLUSIVE)
BAD_INPUT = int(ExitCode.BAD_INPUT)


@dataclass(frozen=True)
class AuditResult:
    """One directory. `file` is None where nothing could be counted.

    `code`: 0 counted and complete; 2 counted what is there, but incomplete, or Spark died; 254 not a ledger.
    """

    directory: Path
    file: AuditFile | None
    code: int
    reasons: tuple[str, ...]


def document(counted: Counted, reasons: tuple[str, ...], digests: Mapping[str, str]) -> AuditFile:
    """`audit.json`. Every class that this version looks for has a count, if only 0."""
    totals = counted.totals
    return AuditFile(
        counts={anomaly.value: counted.counts[anomaly] for anomaly in Anomaly},
        records=RecordCounts.model_validate(asdict(totals)),
        counted=dict(digests),
        complete=not reasons,
        reasons=reasons,
        unledgered=counted.unledgered,
        consumed_committed=totals.consumed_committed,
        contents={str(place): sums for place, sums in sorted(counted.contents.items())},
        final_read=FinalReadFlaws(
            count=counted.flaws,
            places=tuple([place.topic, place.partition, offset] for place, offset in counted.flaw_places),
        ),
    )


def publish(directory: Path, work: Path, file: AuditFile) -> None:
    """Put findings, series and `audit.json` into place, `audit.json` last. Raises OSError."""
    case = CaseDir(directory)
    findings = work / FINDINGS_FOLDER
    if not any(findings.iterdir()):
        pq.write_table(FINDINGS.empty_table(), findings / "part-0.parquet")
    series = work / "series.parquet"
    with pq.ParquetWriter(series, SERIES, compression="zstd") as writer:
        for part in sorted((work / SERIES_PARTS).iterdir()):
            with pq.ParquetFile(part) as of_bucket:
                for batch in of_bucket.iter_batches(batch_size=1 << 17):
                    writer.write_batch(batch)
    withdraw(directory)
    if case.findings.exists():
        shutil.rmtree(case.findings)
    findings.rename(case.findings)
    series.replace(case.series)
    file.save(case.audit_json)


def withdraw(directory: Path) -> None:
    """Remove the results of an older audit: they would pass for those of this one."""
    case = CaseDir(directory)
    if not case.audit_json.exists():
        return  # what stands there is not ours
    case.audit_json.unlink(missing_ok=True)
    case.series.unlink(missing_ok=True)
    shutil.rmtree(case.findings, ignore_errors=True)
