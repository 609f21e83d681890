"""What an audit gives back, and how its results come into the directory: whole, in place of older ones.

Findings and series have names of their own, and `audit.json`, replaced last and in one step, says which they are. So it
is also where nothing can be renamed, and a reader sees the older audit or this one, never some of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackproof.audit.findings_file import findings_file
from ackproof.audit.outputs import Outputs
from ackproof.audit.series import longest_ms
from ackproof.audit.units import Counted
from ackproof.rundir import storage
from ackproof.rundir.anomalies import LIVENESS, Anomaly
from ackproof.rundir.arrow import numbers, repeated
from ackproof.rundir.documents import AuditFile, FinalReadFlaws, RecordCounts
from ackproof.rundir.layout import SERIES_FILE, CaseDir
from ackproof.rundir.outcome import ExitCode
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import SERIES

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
    """`audit.json`. Every class that this version looks for has a count, if only 0; those of liveness
    where the run was watched."""
    totals = counted.totals
    return AuditFile(
        counts={
            anomaly.value: counted.counts[anomaly]
            for anomaly in Anomaly
            if anomaly not in LIVENESS or anomaly in counted.counts
        },
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


def publish(outputs: Outputs, counted: Counted, file: AuditFile) -> AuditFile:
    """Write the series, and then `audit.json`, which comes back; remove what it replaces. Raises OSError."""
    case = outputs.case
    cut = {place: longest_ms(acks) for place, acks in counted.acks.items()}
    with storage.writer(outputs.series, SERIES) as writer:
        for name in sorted(counted.series):
            with storage.parquet(outputs.work / "series" / name) as of_unit:
                for batch in of_unit.iter_batches(batch_size=1 << 17):
                    writer.write_batch(_whole(batch, cut))
    names = sorted(counted.findings)
    if not names:  # an empty file says which columns there would be
        none = outputs.findings("0")
        findings_file(none).close()
        names = [none.name]
    older, series = case.published, storage.renamed(outputs.series, SERIES_FILE)
    file = file.model_copy(update={"findings": tuple(names), "series": series.name})
    try:
        file.save(case.audit_json)
    except OSError:
        series.unlink(missing_ok=True)  # no audit has it, and the plain name is free for the next
        raise
    for path in older:
        if path.name not in (*names, series.name):
            path.unlink(missing_ok=True)
    outputs.leave(published=(*names, series.name))
    return file


def _whole(series: pa.RecordBatch, cut: Mapping[TopicPartition, float]) -> pa.RecordBatch:
    """The longest time without an acknowledgement is one of the whole bucket, also where that was cut."""
    at = series.schema.get_field_index("longest_gap_ms")
    gap, length = series[at], len(series)
    for place, longest in cut.items():
        # Arrays all of them: for a plain value Arrow imports pandas, 0.5 s at the end of the audit.
        topics, partition = repeated(place.topic, length), np.full(length, place.partition, np.int32)
        here = pc.and_(pc.equal(series["topic"], topics), pc.equal(series["partition"], numbers(partition)))
        gap = pc.if_else(here, numbers(np.full(length, longest)), gap)
    return series.set_column(at, series.schema.field(at), gap)


def withdraw(directory: Path) -> None:
    """Remove the results of an older audit."""
    case = CaseDir(directory)
    older = case.published
    case.audit_json.unlink(missing_ok=True)
    for path in older:
        path.unlink(missing_ok=True)
    storage.remove_empty(case.findings)
