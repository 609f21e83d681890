"""Whether something was acknowledged on each targeted partition, before the first fault and after the last healing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.judge.facts import Facts, partitions_of
from ackproof.judge.liveness import blocked
from ackproof.judge.opinion import Opinion, lacks
from ackproof.rundir import storage
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import ledger_rows
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import SERIES_BIN_NS
from ackproof.rundir.timeline import EventKind


def check(facts: Facts) -> Iterator[Opinion]:
    """Lacks of acknowledgements around the faults."""
    asked = [event.t_ns for event in facts.events if event.kind is EventKind.FAULT_ASKED]
    healed = [event.t_ns for event in facts.events if event.kind is EventKind.FAULT_RECOVERED]
    if not asked:
        return
    run, case = facts.run, facts.case
    bins, hopeless = _acked_bins(run.series), dict(blocked(facts))
    for place in sorted(targeted_partitions(case, case.faults)):
        starts = bins.get(place, [])
        # Whole bins first: only an ack of the bin in which the fault fell could be on either side of it.
        if not any(start + SERIES_BIN_NS <= min(asked) for start in starts) and not _acked(
            run, place, pc.field("done_ns") < min(asked)
        ):
            yield lacks(f"nothing was acknowledged on {place} before the first fault")
        if (
            case.experiment.evidence.ack_after_healing
            and place not in hopeless
            and healed
            and not any(start >= max(healed) for start in starts)
            and not _acked(run, place, pc.field("done_ns") > max(healed))
        ):
            yield lacks(f"nothing was acknowledged on {place} after the last fault had healed")


def targeted_partitions(case: Case, faults: Sequence[FaultSpec]) -> set[TopicPartition]:
    """The partitions that the faults name; every one that is written to where a fault names none."""
    named: set[TopicPartition] = set()
    known = partitions_of(case, case.experiment.topics)
    for fault in faults:
        aims = {(role.topic, role.partition) for target in fault.targets for role in target.walk()}
        mine = {place for place in known if place in aims}
        if not mine:
            return partitions_of(case, case.experiment.topic_names())
        named |= mine
    return named


def _acked(run: CaseDir, place: TopicPartition, when: pc.Expression) -> bool:
    """Whether the produced ledger has an ack of this partition at such a time."""
    topic, partition = place
    wanted = (
        when
        & (pc.field("done_ns") >= 0)
        & (pc.field("outcome") == int(Outcome.ACKED))
        & (pc.field("topic") == topic)
        & (pc.field("partition") == partition)
    )
    try:
        return len(ledger_rows(run.produced, ["done_ns"], wanted)) > 0
    except (OSError, pa.ArrowException):
        return False  # the audit says that a part cannot be read; nothing is proven by it


def _acked_bins(series: Path) -> dict[TopicPartition, list[int]]:
    if not series.exists():
        return {}
    table = storage.read_table(series, columns=["topic", "partition", "start_ns", "acked"])
    bins: dict[TopicPartition, list[int]] = {}
    for row in table.to_pylist():
        if row["acked"] > 0:
            bins.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(row["start_ns"])
    return bins
