"""Checks that the load is sufficient evidence: the audit counted all rows, and each targeted partition acknowledged
records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.base.units import rough_duration
from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.judge.facts import Facts, partitions_of
from ackproof.judge.liveness import blocked
from ackproof.judge.opinion import Opinion, lacks
from ackproof.rundir import storage
from ackproof.rundir.anomalies import GROUP_CLASSES, LIVENESS, REMOVED, Anomaly
from ackproof.rundir.arrow import rows_of
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import ledger_rows
from ackproof.rundir.lifelines import KILLED
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import SERIES_BIN_NS
from ackproof.rundir.timeline import ClientEnded


def check_audit(facts: Facts) -> Iterator[Opinion]:
    """Yield `lacks` opinions (evidence is missing) about the audit and the load.

    An opinion is yielded if the audit is incomplete, with one for each client that had to be killed. One is yielded if
    it did not look for an anomaly class. Classes of groups and of removed records, and without `recovery.json` those of
    liveness, need not be counted. One is yielded if records were read that no producer's ledger has, or if the
    producers' libraries got more records than the ledgers have. One is yielded if nothing was produced or acknowledged,
    or if the share of indeterminate produce attempts is above `evidence.max_indeterminate`.
    """
    audit = facts.audit
    if not audit.complete:
        yield lacks("the audit is incomplete: " + ("; ".join(audit.reasons) or "no reason recorded"))
        yield from map(lacks, _name_overdue_clients(facts))
    if audit.unledgered:
        # A row is in the journal before its record is sent, and the journal outlives its client.
        yield lacks(f"{audit.unledgered:,} records were read whose producers' ledgers do not have them")
    # `checks.groups` says of each group which of its classes were not counted.
    needless = (*REMOVED, *GROUP_CLASSES, Anomaly.STALLED, *(LIVENESS if facts.recovery is None else ()))
    if uncounted := [anomaly for anomaly in Anomaly if anomaly not in {*needless, *audit.counts}]:
        yield lacks(f"the audit did not look for {', '.join(uncounted)}")
    produced = audit.audited.produced
    handed = facts.pulses[-1].sent if facts.pulses else 0
    if handed > produced:
        yield lacks(
            f"{handed:,} records were handed to the producers' libraries, and their ledgers have {produced:,}"
        )
    if produced == 0:
        yield lacks("nothing was produced")
        return
    if audit.audited.acked == 0:
        yield lacks("nothing was acknowledged")
    share = audit.audited.indeterminate / produced
    bound = facts.case.experiment.evidence.max_indeterminate
    if share > bound:
        yield lacks(
            f"{share:.0%} of the attempts are indeterminate, more than the {bound:.0%} that the experiment allows",
            numbers={"share": share, "bound": bound},
        )


def _name_overdue_clients(facts: Facts) -> Iterator[str]:
    """Yield a sentence for each producer and reader that was asked to end and did not, so that the run killed it."""
    asked = facts.phases.get("drain", math.inf)
    for client in facts.clients:
        for event in facts.lifelines.client(client.id).ends if client.kind in ("producer", "reader") else ():
            if isinstance(event.what, ClientEnded) and event.what.status in KILLED and event.t_ns > asked:
                waited = rough_duration((event.t_ns - asked) / 1e9)
                yield (
                    f"{client.kind} {client.id} was asked to end, did not within {waited}, and was killed; "
                    f"what its library said last is in clients/{client.id}/output.log"
                )


def check_acks(facts: Facts) -> Iterator[Opinion]:
    """Yield a `lacks` opinion (evidence is missing) for each partition without an acknowledgement before the first
    fault, or without one after the last confirmed healing. Only partitions at which a fault is aimed count; all that
    producers write to if a fault names none.

    No acknowledgement after healing is required if `evidence.ack_after_healing` is off, or if no healing was confirmed.
    None is required on a partition that had not recovered by the end, or that had fewer running replicas than
    min.insync.replicas (`liveness.blocked`). Nothing is yielded if no fault was requested.
    """
    asked = [life.asked for life in facts.faults.values()]
    healed = [life.recovered for life in facts.faults.values() if life.recovered is not None]
    if not asked:
        return
    first, bins = min(asked), _acked_bins(facts.run.series)
    targeted = _targeted_partitions(facts.case, facts.case.faults)
    # Whole bins first: only an ack of the bin in which the fault fell could be on either side of it.
    silent = [place for place in targeted if min(bins.get(place, ()), default=first) + SERIES_BIN_NS > first]
    early = _silent_partitions(facts.run, silent, pc.field("done_ns") < first)
    missing = [(place, "before the first fault") for place in early]
    if facts.case.experiment.evidence.ack_after_healing and healed:
        last, hopeless = max(healed), dict(blocked(facts))
        silent = [
            place
            for place in targeted
            if place not in hopeless and max(bins.get(place, ()), default=-1) < last
        ]
        late = _silent_partitions(facts.run, silent, pc.field("done_ns") > last)
        missing += [(place, "after the last fault had healed") for place in late]
    for place, when in sorted(missing, key=lambda one: one[0]):
        yield lacks(f"nothing was acknowledged on {place} {when}", subject=str(place))


def _targeted_partitions(case: Case, faults: Sequence[FaultSpec]) -> set[TopicPartition]:
    """Return the partitions at which these faults are aimed. If one of the faults names no partition, return all that
    producers write to."""
    named: set[TopicPartition] = set()
    known = partitions_of(case, case.experiment.topics)
    for fault in faults:
        aims = {(role.topic, role.partition) for target in fault.targets for role in target.walk()}
        mine = {place for place in known if place in aims}
        if not mine:
            return partitions_of(case, case.experiment.topic_names())
        named |= mine
    return named


def _silent_partitions(
    run: CaseDir, places: Sequence[TopicPartition], when: pc.Expression
) -> set[TopicPartition]:
    """Return the given partitions without an acknowledged row in the produced ledger for which `when` holds.
    Return all of them if the ledger cannot be read."""
    if not places:
        return set()
    wanted = when & (pc.field("done_ns") >= 0) & (pc.field("outcome") == int(Outcome.ACKED))
    try:
        rows = ledger_rows(run.produced, ["topic", "partition"], wanted)
    except (OSError, pa.ArrowException):
        return set(places)  # the audit names a part that cannot be read; nothing is proven by it
    groups = rows.group_by(["topic", "partition"]).aggregate([]).to_pylist()
    return set(places) - {TopicPartition(row["topic"], row["partition"]) for row in groups}


def _acked_bins(series: Path) -> dict[TopicPartition, list[int]]:
    if not series.exists():
        return {}
    table = storage.read_table(series, columns=["topic", "partition", "start_ns", "acked"])
    table = table.filter(pc.field("acked") > 0)
    bins: dict[TopicPartition, list[int]] = {}
    for topic, partition, start in rows_of(table, "topic", "partition", "start_ns"):
        bins.setdefault(TopicPartition(topic, partition), []).append(start)
    return bins
