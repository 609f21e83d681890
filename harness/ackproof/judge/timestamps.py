"""Computes, before the audit, the timestamps that records may have, from the settings, the faults and the clocks of a
run.

With CreateTime a broker stores the producer's timestamp, with LogAppendTime the time of the leader's append
(LogValidator). Most producers set each timestamp from the time of the produce call, which the ledger has. For those at
full speed without keys or identities the client library sets it, at that call (`ProducerSettings.stamps`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from ackproof.experiment.backends import BACKENDS
from ackproof.experiment.case import Case
from ackproof.experiment.promises import settings_in_force
from ackproof.plan.cases import case_from_json
from ackproof.quantities.evidence import Evidence
from ackproof.rundir.clock import STEP_NS
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.removals import TimestampRule, write_by_partition

_MS: Final = 1_000_000
_ANYTHING: Final = "command"
"""Kind of faults that run a user's command, which may change topics and clocks."""


def work_out_timestamps(run: CaseDir) -> None:
    """Remove an older `timestamps.json` of a run, and write a new one before its audit. Writes none for a run
    of an older version, or without a timeline, a case or producers. Raises `BadInput` for facts of a run that
    cannot be read, OSError if it cannot be written."""
    run.timestamps_json.unlink(missing_ok=True)
    if not run.timeline.exists() or not run.case_json.exists():
        return
    file = CaseFile.load(run.case_json)
    stamps = {client.stamps for client in file.clients if client.kind == "producer"}
    if stamps and None not in stamps:
        evidence, case = Evidence.of_run(run), case_from_json(file.resolved)
        write_by_partition(run.timestamps_json, timestamp_rules(evidence, case, exact=False not in stamps))


def timestamp_rules(evidence: Evidence, case: Case, *, exact: bool) -> Iterator[TimestampRule]:
    """Yield a rule for each partition whose timestamps are known to be the producer's, or those of appends.

    `exact`: the producers set timestamps themselves. Yields no rule for clusters that ackproof did not start, whose
    defaults and clocks are not known; for simulated clusters; for partitions whose log a fault damaged; and for runs
    whose machine's clock is not known, or in which a command of the user may have changed anything.
    """
    backend, spec = BACKENDS[evidence.backend], case.planned
    if backend.foreign or backend.simulated or any(fault.kind == _ANYTHING for fault in case.faults):
        return
    off_ns = evidence.wall.moved_ns + STEP_NS
    if math.isinf(off_ns):
        return
    appended = _run_ms(evidence, case)
    for place in evidence.planned:
        if place.topic not in spec.topics or any(fault.rots(place) for fault in case.faults):
            continue
        sent = {one.stamped_when_sent for one in settings_in_force(spec, place.topic)}
        yield TimestampRule(
            *place,
            sent_from_ns=evidence.wall_ns if True in sent else None,
            appended_ms=appended if False in sent else None,
            unsure_ns=None if exact else int(off_ns),
        )


def _run_ms(evidence: Evidence, case: Case) -> tuple[int, int]:
    """Return the earliest and the latest time that a broker's clock can have shown during the run, in ms since the Unix
    epoch. Both allow for clock steps, observed or injected.
    """
    off = evidence.wall.moved_ns + STEP_NS + sum(abs(fault.clock_shift) for fault in case.faults) * 1e9
    last = max((event.t_ns for event in evidence.events), default=0)
    return int((evidence.wall_ns - off) // _MS), int((evidence.wall_ns + last + off) // _MS)
