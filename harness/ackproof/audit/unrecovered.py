"""Classes of liveness: no row of a ledger shows them. They come from what the run saw of its recovery."""

from __future__ import annotations

import pyarrow as pa

from ackproof.audit.findings_file import findings_file
from ackproof.audit.outputs import Outputs
from ackproof.audit.units import Counted
from ackproof.rundir.anomalies import LIVENESS, Anomaly
from ackproof.rundir.observed import RecoveryFile, Unrecovered
from ackproof.rundir.schema import FINDINGS


def add_unrecovered(outputs: Outputs, counted: Counted) -> None:
    """Count them and write their findings; nothing for a run that was not watched. Raises OSError, `BadInput`."""
    path = outputs.case.recovery
    if not path.exists():
        return
    file = RecoveryFile.load(path)
    for name in LIVENESS:
        counted.counts[name] += len(file.of(name))
    if not file.unrecovered:
        return
    findings = outputs.findings("recovery")
    with findings_file(findings) as writer:
        writer.write_table(pa.Table.from_pylist([_row(one) for one in file.unrecovered], schema=FINDINGS))
    counted.findings.append(findings.name)


def _row(one: Unrecovered) -> dict[str, object]:
    return {
        "class": one.anomaly,
        "topic": one.topic,
        "partition": one.partition,
        "producer": one.number if one.anomaly == Anomaly.STUCK_PRODUCER else -1,
        "offset": one.last_stable if one.anomaly == Anomaly.HANGING_TRANSACTION else -1,
        "seq": -1,
        "detail": one.seen,
    }
