"""What a verdict needs before it may be said (DESIGN §1.1). Each lack is one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.documents import AuditFile, FinalReadFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import SERIES_BIN_NS
from ackproof.rundir.timeline import Event, EventKind, fault_name, read_timeline


def lacking(run: CaseDir, case: Case, audit: AuditFile) -> list[str]:
    """Every reason why this run cannot carry a verdict; empty when it can."""
    events, whole = read_timeline(run.timeline)
    return [
        *_of_the_run(events, whole),
        *_of_the_final_read(run, case, audit),
        *_of_the_faults(case, events),
        *_of_the_acks(run, case, events),
        *_of_the_nodes(case, events),
        *_of_the_audit(case, audit),
    ]


def _of_the_run(events: Sequence[Event], whole: bool) -> Iterator[str]:
    if not events:
        yield "the run left no timeline"
        return
    for event in events:
        if event.kind is EventKind.ERROR:
            yield f"the run did not go through: {event.detail.get('error', 'no reason recorded')}"
    if events[-1].kind is not EventKind.END:
        yield "the run has no end: the harness stopped before it was through"
    if not whole:
        yield "the timeline has lines that cannot be read"


def _of_the_final_read(run: CaseDir, case: Case, audit: AuditFile) -> Iterator[str]:
    if not run.final_read.exists():
        yield "there was no final read"
        return
    final = FinalReadFile.load(run.final_read)
    if not final.complete:
        reasons = "; ".join(final.reasons) or "no reason recorded"
        yield f"the final read is incomplete: {reasons}"
    read = {(partition.topic, partition.partition) for partition in final.partitions}
    unread = sorted(_partitions(case, case.experiment.topics) - read)
    if unread:
        yield "the final read says nothing of " + ", ".join(
            f"{topic}/{partition}" for topic, partition in unread
        )
    readers = [("the final reader", final.partitions, audit.records.consumed_final)]
    if case.experiment.workload.producers.transaction_size is not None:
        if {(one.topic, one.partition) for one in final.committed} != read:
            yield "there was no final read at read_committed of what producers wrote in transactions"
        readers.append(("the final reader at read_committed", final.committed, audit.consumed_committed))
    for who, partitions, rows in readers:
        handed = [partition.records for partition in partitions]
        if -1 not in handed and sum(handed) != rows:
            # What a ledger lacks for no fault of Kafka's must not be called lost.
            yield f"{who} was handed {sum(handed)} records, and its ledger has {rows}"
    if audit.final_read.count:
        yield (
            f"the final reader went back, or passed over offsets that another read shows, "
            f"in {audit.final_read.count} places"
        )


def _of_the_faults(case: Case, events: Sequence[Event]) -> Iterator[str]:
    for fault in case.faults:
        mine = [event for event in events if event.fault == fault.number]
        kinds = {event.kind for event in mine}
        name = f"fault {fault_name(fault.number)} ({fault})"
        if EventKind.FAULT_MISSED in kinds and EventKind.FAULT_FAILED not in kinds:
            continue  # drawn by a storm, which says whether enough of them bit
        failures = [
            str(event.detail.get("reason", "")) for event in mine if event.kind is EventKind.FAULT_FAILED
        ]
        if failures:
            yield from (f"{name}: {failure}" for failure in failures)
        elif EventKind.FAULT_ASKED not in kinds:
            yield f"{name} was never injected"
        elif EventKind.FAULT_CONFIRMED not in kinds:
            yield f"{name} was not confirmed"
        elif EventKind.FAULT_RECOVERED not in kinds:
            yield f"{name} was not confirmed as healed"


def targeted_partitions(case: Case, faults: Sequence[FaultSpec]) -> set[TopicPartition]:
    """The partitions that the faults name; every one that is written to where a fault names none."""
    named: set[TopicPartition] = set()
    known = _partitions(case, case.experiment.topics)
    for fault in faults:
        mine = {
            place for place in known if any(place == (role.topic, role.partition) for role in fault.targets)
        }
        if not mine:
            return _partitions(case, case.experiment.topic_names())
        named |= mine
    return named


def _partitions(case: Case, topics: Iterable[str]) -> set[TopicPartition]:
    return {
        TopicPartition(name, partition)
        for name in topics
        for partition in range(case.experiment.topics[name].partitions)
    }


def _of_the_acks(run: CaseDir, case: Case, events: Sequence[Event]) -> Iterator[str]:
    asked = [event.t_ns for event in events if event.kind is EventKind.FAULT_ASKED]
    healed = [event.t_ns for event in events if event.kind is EventKind.FAULT_RECOVERED]
    if not asked:
        return
    bins = _acked_bins(run.series)
    for place in sorted(targeted_partitions(case, case.faults)):
        starts = bins.get(place, [])
        # Whole bins first: only an ack of the bin in which the fault fell could be on either side of it.
        if not any(start + SERIES_BIN_NS <= min(asked) for start in starts) and not _acked(
            run, place, pc.field("done_ns") < min(asked)
        ):
            yield f"nothing was acknowledged on {place} before the first fault"
        if (
            case.experiment.evidence.ack_after_healing
            and healed
            and not any(start >= max(healed) for start in starts)
            and not _acked(run, place, pc.field("done_ns") > max(healed))
        ):
            yield f"nothing was acknowledged on {place} after the last fault had healed"


def _acked(run: CaseDir, place: TopicPartition, when: pc.Expression) -> bool:
    """Whether the produced ledger has an ack of this partition at such a time."""
    parts = [str(part) for part in sorted(run.produced.glob("client=*/part-*.parquet"))]
    topic, partition = place
    wanted = (
        when
        & (pc.field("done_ns") >= 0)
        & (pc.field("outcome") == int(Outcome.ACKED))
        & (pc.field("topic") == topic)
        & (pc.field("partition") == partition)
    )
    try:
        return int(ds.dataset(parts, format="parquet").count_rows(filter=wanted)) > 0
    except (OSError, pa.ArrowException):
        return False  # the audit says that a part cannot be read; nothing is proven by it


def _acked_bins(series: Path) -> dict[TopicPartition, list[int]]:
    if not series.exists():
        return {}
    table = pq.read_table(series, columns=["topic", "partition", "start_ns", "acked"])
    bins: dict[TopicPartition, list[int]] = {}
    for row in table.to_pylist():
        if row["acked"] > 0:
            bins.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(row["start_ns"])
    return bins


def _of_the_nodes(case: Case, events: Sequence[Event]) -> Iterator[str]:
    if not case.experiment.evidence.node_deaths:
        for event in events:
            if event.kind is EventKind.NODE_DIED:
                yield f"node {event.node} ended by itself ({event.detail.get('status', 'unknown status')})"
    for event in events:
        if event.kind is EventKind.CLIENT_DIED:
            yield f"client {event.client} ended by itself ({event.detail.get('status', 'unknown status')})"


def _of_the_audit(case: Case, audit: AuditFile) -> Iterator[str]:
    if not audit.complete:
        yield "the audit is incomplete: " + ("; ".join(audit.reasons) or "no reason recorded")
    uncounted = [anomaly for anomaly in Anomaly if anomaly not in audit.counts]
    if uncounted:
        yield f"the audit did not look for {', '.join(uncounted)}"
    produced = audit.records.produced
    if produced == 0:
        yield "nothing was produced"
        return
    if audit.records.acked == 0:
        yield "nothing was acknowledged"
    share = audit.records.indeterminate / produced
    bound = case.experiment.evidence.max_indeterminate
    if share > bound:
        yield f"{share:.0%} of the attempts are indeterminate, more than the {bound:.0%} that the experiment allows"
