"""Publish the results of an audit: `audit.json`, findings and series, replaced as a whole. Also add the counts of
deleted windows of a soak and of the liveness classes.

Findings and series have unique names, and `audit.json`, replaced last and atomically, lists them. A reader
sees the older audit or this one, never a mixture, also in a store without renames.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackproof.audit.outputs import NOTHING_DELETED, DeletedRecords, Outputs, create_findings
from ackproof.audit.series import longest_ms
from ackproof.audit.units import Tally
from ackproof.base.errors import BadInput
from ackproof.ledgers.directory import Ledger
from ackproof.ledgers.lookup import NumberRuns
from ackproof.rundir import storage
from ackproof.rundir.anomalies import CONDITIONAL, LIVENESS, Anomaly
from ackproof.rundir.arrow import repeat_text, to_arrow
from ackproof.rundir.documents import AuditFile, DeletedWindows, FinalReadFlaws, RecordCounts
from ackproof.rundir.layout import SERIES_FILE, CaseDir, client_folder
from ackproof.rundir.observed import RecoveryFile
from ackproof.rundir.outcome import ExitCode
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import DELETED
from ackproof.rundir.schema import FINDINGS, SERIES
from ackproof.rundir.windows import WindowFile, read_windows, window_findings

COUNTED = int(ExitCode.PASS)
INCOMPLETE = int(ExitCode.INCONCLUSIVE)
BAD_INPUT = int(ExitCode.BAD_INPUT)


@dataclass(frozen=True)
class AuditResult:
    """Audit of one directory. `file` is None if nothing could be counted. `code`: 0 complete; 2 incomplete,
    or failed because of Spark or a file; 254 not a valid ledger. `reasons`: why `code` is not 0."""

    directory: Path
    file: AuditFile | None
    code: int
    reasons: tuple[str, ...]


def build_audit_file(counted: Tally, reasons: tuple[str, ...], digests: Mapping[str, str]) -> AuditFile:
    """Return the content of `audit.json`, except `groups`, `deleted`, `findings` and `series`, which the caller and
    `publish` fill in. A class without findings has the count 0. Classes of liveness and of groups are left out if
    `counted` lacks them.

    A class without findings has the count 0. Classes of liveness and of groups are left out if `counted` lacks them.
    `reasons`: why the audit is incomplete; empty if it is complete. `digests`: SHA-256 of each counted part, by path.
    """
    totals = counted.totals
    return AuditFile(
        counts={
            anomaly.value: counted.counts[anomaly]
            for anomaly in Anomaly
            if anomaly not in CONDITIONAL or anomaly in counted.counts
        },
        records=RecordCounts.model_validate(totals),
        counted=dict(digests),
        complete=not reasons,
        reasons=reasons,
        unledgered=counted.unledgered,
        consumed_committed=totals["consumed_committed"],
        contents={str(place): sums for place, sums in sorted(counted.contents.items())},
        final_read=FinalReadFlaws(
            count=counted.flaws,
            places=tuple([place.topic, place.partition, offset] for place, offset in counted.flaw_places),
        ),
    )


def publish(outputs: Outputs, counted: Tally, file: AuditFile) -> AuditFile:
    """Write the series and `audit.json`, and then remove the older files that these replace and the temporary files of
    this audit. Return the content of `audit.json`: `file` with the names of the published files.

    Raises OSError; the results of an older audit are then complete, unless the error came while they were removed.
    """
    case = outputs.case
    cut = {place: longest_ms(acks) for place, acks in counted.acks.items()}
    with storage.create_parquet(outputs.series, SERIES) as writer:
        for name in sorted(counted.series):
            with storage.open_parquet(outputs.work / "series" / name) as of_unit:
                for batch in of_unit.iter_batches(batch_size=1 << 17):
                    writer.write_batch(_with_longest_gap(batch, cut))
    names = sorted(counted.findings)
    if not names:  # write an empty table: it still shows the columns
        none = outputs.findings("0")
        create_findings(none).close()
        names = [none.name]
    older, series = case.published, storage.rename_unless_taken(outputs.series, SERIES_FILE)
    file = file.model_copy(update={"findings": tuple(names), "series": series.name})
    try:
        file.save(case.audit_json)
    except OSError:
        series.unlink(missing_ok=True)  # no `audit.json` names this file
        raise
    for path in older:
        if path.name not in (*names, series.name):
            path.unlink(missing_ok=True)
    outputs.leave(published=(*names, series.name))
    return file


def _with_longest_gap(series: pa.RecordBatch, cut: Mapping[TopicPartition, float]) -> pa.RecordBatch:
    """Return the series with the column `longest_gap_ms` recomputed for the partitions in `cut`, whose buckets were cut
    into ranges.

    `cut`: longest time between acknowledgements in ms; -1: fewer than two acknowledgements.
    """
    at = series.schema.get_field_index("longest_gap_ms")
    gap, length = series[at], len(series)
    for place, longest in cut.items():
        # Pass arrays only: for a plain value Arrow imports pandas, which takes 0.5 s.
        topics, partition = repeat_text(place.topic, length), np.full(length, place.partition, np.int32)
        here = pc.and_(pc.equal(series["topic"], topics), pc.equal(series["partition"], to_arrow(partition)))
        gap = pc.if_else(here, to_arrow(np.full(length, longest)), gap)
    return series.set_column(at, series.schema.field(at), gap)


def withdraw(directory: Path) -> None:
    """Remove `audit.json`, the findings and the series of an older audit; missing files are no error. Raises OSError if
    one cannot be removed."""
    case = CaseDir(directory)
    older = case.published
    case.audit_json.unlink(missing_ok=True)
    for path in older:
        path.unlink(missing_ok=True)
    storage.remove_empty(case.findings)


_OUTCOMES: Final = ("produced", "acked", "failed", "indeterminate")


def read_deleted_windows(case: CaseDir) -> tuple[WindowFile, ...]:
    """Return the results of all audited windows of a soak (`--soak`), kept ones too, if it deleted any (`--keep`).
    Return () if it deleted none, or if the run is no soak. Raises `BadInput` for a broken file."""
    found = tuple(read_windows(case))
    return found if any(window.deleted for window in found) else ()


def find_unexplained_deletions(found: Sequence[WindowFile], ledger: Ledger) -> list[str]:
    """Return one reason for each folder of a client whose `_DELETED` marker lists parts although no window was deleted:
    these parts were never audited. `found`: result of `read_deleted_windows`."""
    return [
        f"ledger/{kind}/{client_folder(client)}: {DELETED} lists parts, and no window of a soak was deleted"
        for (kind, client), parts in ledger.deleted.items()
        if parts and not found
    ]


def collect_deleted(found: Sequence[WindowFile], ledger: Ledger) -> DeletedRecords:
    """Return the records and attempts that the audit leaves out because their windows of a soak were deleted. The
    result has, by partition, the offset at which the last deleted window ends, and by producer the seqs of the
    attempts. `found`: result of `read_deleted_windows`."""
    gone = [window for window in found if window.deleted]
    if not gone:
        return NOTHING_DELETED
    audited = {name for window in gone for name in window.parts}
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for client, producer in ledger.producers.items():
        deleted = ledger.deleted.get(("produced", client), ())
        spans[producer] += [(first, last) for first, last, rows in deleted if rows]
    for part in ledger.parts:
        name = f"{client_folder(part.client)}/{Path(part.path).name}"
        if part.kind == "produced" and name in audited and part.client in ledger.producers:
            spans[ledger.producers[part.client]].append(part.numbers)
    starts = {window.place: window.end for window in gone[-1].read}
    runs = {producer: NumberRuns.from_spans(found) for producer, found in spans.items() if found}
    return DeletedRecords(starts, runs)


def sum_windows(found: Sequence[WindowFile], ledger: Ledger, spared: int) -> DeletedWindows | None:
    """Return the counts of a soak for `audit.json`; None if no window was deleted. They are sums of attempts and reads
    over all windows, and the numbers of deleted windows and deleted attempts.

    `found`: result of `read_deleted_windows`. `spared`: number of acked attempts in the ledgers whose records were
    deleted with a window.
    """
    if not found:
        return None
    sums = {name: sum(getattr(window, name) for window in found) for name in _OUTCOMES}
    read = RecordCounts(
        **sums,
        consumed_live=sum(window.live for window in found),
        consumed_final=sum(window.followed for window in found),
    )
    gone = sum(
        rows for (kind, _), parts in ledger.deleted.items() if kind == "produced" for _, _, rows in parts
    )
    deleted = sum(window.deleted for window in found)
    return DeletedWindows(windows=deleted, records=read, gone=gone, spared=spared)


def copy_window_findings(case: CaseDir, found: Sequence[WindowFile], into: Path) -> Counter[str]:
    """Copy the findings of deleted windows into the file `into`. Return their number by class; without findings no file
    is written. Raises `BadInput` if a window's findings cannot be read, OSError if `into` cannot be written.

    `found`: result of `read_deleted_windows`. A soak deletes a window only if all its findings are of class surfaced,
    which every configuration allows.
    """
    counts: Counter[str] = Counter()
    paths = [window_findings(case, window.number) for window in found if window.deleted and window.counts]
    if paths:
        with create_findings(into) as writer:
            for path in paths:
                try:
                    table = storage.read_table(path).select(FINDINGS.names).cast(FINDINGS)
                except (OSError, KeyError, ValueError, pa.ArrowException) as error:
                    raise BadInput(f"{path} cannot be read: {error}") from error
                counts.update(table["class"].to_pylist())
                writer.write_table(table)
    return counts


def add_unrecovered(outputs: Outputs, counted: Tally) -> None:
    """Count the liveness classes from `observed/recovery.json` (stalled groups only in a run with groups), add them to
    `counted`, and write their findings.

    Does nothing if this file is missing: the run was not observed. Raises OSError, and `BadInput` for a broken file.
    """
    path = outputs.case.recovery
    if not path.exists():
        return
    file = RecoveryFile.load(path)
    for name in LIVENESS:
        if name == Anomaly.STALLED and not outputs.case.groups.exists():
            continue
        counted.counts[name] += len(file.of_class(name))
    if not file.unrecovered:
        return
    rows = [
        {
            "class": entry.anomaly,
            "topic": entry.topic,
            "partition": entry.partition,
            "producer": entry.number if entry.anomaly == Anomaly.STUCK_PRODUCER else -1,
            "offset": entry.last_stable if entry.anomaly == Anomaly.HANGING_TRANSACTION else -1,
            "seq": -1,
            "detail": entry.seen,
        }
        for entry in file.unrecovered
    ]
    findings = outputs.findings("recovery")
    with create_findings(findings) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=FINDINGS))
    counted.findings.append(findings.name)
