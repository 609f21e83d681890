"""What may have removed acknowledged records of each partition, and the timestamps that its records may have: derived
here once, from the settings, faults and clocks of a run, for the audit and the judge.

Retention deletes segments whose newest timestamp is older than `retention.ms` by the broker's own clock. It also
deletes the oldest segments while the rest still has `retention.bytes` (UnifiedLog.deleteOldSegments). Compaction
replaces a record by a later record with its key, below the active segment (LogCleanerManager.cleanableOffsets). A
missing record that no setting in force explains stays lost.

With CreateTime a broker stores the producer's timestamp, with LogAppendTime the time of the leader's append
(LogValidator). Most producers set each timestamp from the time of the produce call, which the ledger has. For those at
full speed without keys or identities the client library sets it, at that call (`ProducerSettings.stamps`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.experiment.backends import BACKENDS
from ackproof.experiment.case import Case
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.promises import InForce, settings_in_force
from ackproof.faults.planned.topics import SetConfig
from ackproof.judge.retention import SETTINGS, retention
from ackproof.plan.cases import case_from_json
from ackproof.quantities.evidence import Evidence
from ackproof.rundir.anomalies import MISSING, Anomaly
from ackproof.rundir.clock import STEP_NS
from ackproof.rundir.documents import CaseFile, FinalReadFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import ledger_rows
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.removals import EVER, NEVER, Removal, TimestampRule, write_by_partition
from ackproof.rundir.timeline import fault_name

if TYPE_CHECKING:
    from ackproof.judge.facts import Facts

_MS: Final = 1_000_000
_ANYTHING: Final = "command"
"""Kind of faults that run a user's command, which may change topics and clocks."""


class _Period(NamedTuple):
    """Settings that were in force from `begin_ns` to `end_ns`, in ns since the run's start; -inf: from before it."""

    settings: InForce
    begin_ns: float
    end_ns: float


class _Clock(NamedTuple):
    """Offset of a broker's clock in ns (positive: ahead), from `begin_ns` to `end_ns` (ns since the run's start).
    `fault`: number of the fault that shifts the clock; None: none does."""

    broker: int
    begin_ns: float
    end_ns: float
    ahead_ns: float
    fault: int | None = None


def work_out_removals(run: CaseDir) -> None:
    """Write `removals.json` of a run before its audit: for each partition the settings and requests that may have
    removed records, and until when (`Removal`). An older file is removed first.

    Writes none without a timeline or a case, which ledgers of other tools lack. Raises `BadInput`, OSError or
    ArrowException for facts of a run that cannot be read, OSError if the file cannot be written.
    """
    run.removals_json.unlink(missing_ok=True)
    if not run.timeline.exists() or not run.case_json.exists():
        return
    file = CaseFile.load(run.case_json)
    final = FinalReadFile.load(run.final_read) if run.final_read.exists() else None
    found = removals(Evidence.of_run(run), case_from_json(file.resolved), final)
    write_by_partition(run.removals_json, found.values())


def removals(evidence: Evidence, case: Case, final: FinalReadFile | None) -> Mapping[TopicPartition, Removal]:
    """Return for each partition of the case what may have removed its records: retention, compaction or deletion.
    `final`: the final read, which has the log starts; None if the run has none. If the read of a partition is
    incomplete, its log start counts as 0. Raises `BadInput`, OSError or ArrowException for facts that cannot be read.
    """
    spec = case.planned
    reads = (final.partitions, final.committed) if final is not None else ((), ())
    starts, committed = ({one.place: one.start for one in read if one.complete} for read in reads)
    topics = {name: _Topic(evidence, spec, name) for name in spec.topics}
    return {
        place: topics[place.topic].removal(place, starts.get(place, 0), committed.get(place, 0))
        for place in evidence.planned
        if place.topic in topics
    }


class _Topic:
    """Possible removals of the records of one topic. Its periods of settings are derived once, for all its
    partitions."""

    def __init__(self, evidence: Evidence, spec: ExperimentSpec, topic: str) -> None:
        self._evidence, self._spec, self._topic = evidence, spec, topic
        self._last = float(max((event.t_ns for event in evidence.events), default=0))
        self._periods = list(self._in_force())
        self._aged = self._by_age()
        self._may_expire = self._aged[0] > 0 or any(
            not math.isinf(retention(one.settings).bytes) for one in self._periods
        )

    def removal(self, place: TopicPartition, start: int, committed: int) -> Removal:
        """Return the possible removals of one partition.

        `start`, `committed`: its log start in the final reads at read_uncommitted and read_committed; 0: unknown.
        """
        until, why = max(self._aged, self._by_size(place))
        if until <= 0:
            start = committed = 0
        removal = Removal(
            *place,
            log_start=start,
            committed_start=committed,
            expired_until_ns=_clamp(until),
            expired_why=f"{place} begins at offset {start:,}: {why}" if start else "",
            may_expire=self._may_expire,
        )
        return self._with_the_deletion(self._with_the_compaction(removal))

    def _in_force(self) -> Iterator[_Period]:
        lives = self._evidence.faults
        for one in settings_in_force(self._spec, self._topic):
            life = None if one.fault is None else lives.get(one.fault)
            if one.fault is None:
                yield from (_Period(one, begin, end) for begin, end in self._unchanged())
            elif life is not None:
                yield _Period(one, life.asked, self._last if life.over is None else life.over)

    def _unchanged(self) -> Iterator[tuple[float, float]]:
        """Yield the times (begin, end in ns) in which no fault had changed retention or cleanup policy for the topic or
        the whole cluster. A change on one broker does not count."""
        begin = -math.inf
        for fault in self._spec.faults:
            life = self._evidence.faults.get(fault.number)
            if not isinstance(fault, SetConfig) or fault.broker is not None or life is None:
                continue
            if life.confirmed is not None and fault.may_set(self._spec, self._topic).keys() & SETTINGS:
                yield begin, life.confirmed
                begin = self._last if life.healed is None else life.healed
        if begin < self._last:
            yield begin, self._last

    def _clocks(self) -> Iterator[_Clock]:
        """Yield the clock offsets of every broker: one for the whole run, and one for each fault that shifts its clock.
        All brokers count: each may lead and delete records, and followers take over its log start.

        The offset for the whole run is 0, also if it is unknown whether the machine's clock was set. If it was set, the
        offset is the greatest observed deviation: the clock may have been ahead by as much.
        """
        moved = self._evidence.wall.moved_ns
        ahead = moved if STEP_NS < moved < math.inf else 0.0
        yield from (_Clock(broker, -math.inf, self._last, ahead) for broker in self._spec.cluster.broker_ids)
        for fault in self._spec.faults:
            life = self._evidence.faults.get(fault.number)
            if fault.clock_shift and life is not None:
                over = self._last if life.over is None else life.over
                yield from (
                    _Clock(node, life.asked, over, fault.clock_shift * 1e9, fault.number)
                    for node in life.nodes
                )

    def _by_age(self) -> tuple[float, str]:
        """Return the latest send time, in ns, of a record that some broker could take for older than
        `retention.ms`, and the reason in words; (`NEVER`, '') if there is none."""
        clocks = list(self._clocks())
        behind = max((-one.ahead_ns for one in clocks), default=0.0)
        best: tuple[float, str] = (NEVER, "")
        for settings, begin, end in self._periods:
            keeps = retention(settings).ms
            for clock in clocks:
                until = min(end, clock.end_ns)
                if (
                    math.isinf(keeps)
                    or clock.broker != settings.broker
                    or until <= max(begin, clock.begin_ns)
                ):
                    continue
                stamped = 0.0 if settings.stamped_when_sent else behind
                aged = min(until, until + clock.ahead_ns + stamped - keeps * 1e6)
                best = max(best, (aged, _older(keeps, settings, clock)))
        return best

    def _by_size(self, place: TopicPartition) -> tuple[float, str]:
        """Return the latest send time, in ns, of a record that `retention.bytes` may have deleted, and the reason in
        words; (`NEVER`, '') if there is none, or without the logs on disk.

        A broker deletes a segment only if the rest of the log has at least `retention.bytes`.
        """
        best: tuple[float, str] = (NEVER, "")
        left = None
        for settings, _, end in self._periods:
            keeps = retention(settings).bytes
            if math.isinf(keeps):
                continue
            left = self._bytes_left(place) if left is None else left
            if left is not None and left >= keeps:
                why = f"it has {left:,} bytes, at retention.bytes {keeps:,.0f}{_set_by(settings)}"
                best = max(best, (end, why))
        return best

    def _bytes_left(self, place: TopicPartition) -> int | None:
        if self._evidence.replicas is None:
            return None
        sums = self._evidence.logs.of_partition(place).group_by("node").aggregate([("bytes", "sum")])
        return min(sums["bytes_sum"].to_pylist(), default=None)

    def _with_the_compaction(self, removal: Removal) -> Removal:
        """Return the removal with its fields about compaction filled in; unchanged if the topic was never compacted.

        `compacted_until_ns` is the end of the last time with compaction, `EVER` if that is the end of the run.
        `compacted_below` is the highest base offset of a replica's active segment, below which a replica may have been
        cleaned. It is `EVER` without the logs on disk, or if the base offset of a replica is unknown.
        """
        compacted = [one for one in self._periods if "compact" in one.settings.policies]
        if not compacted:
            return removal
        last = max(compacted, key=lambda one: one.end_ns)
        seen = self._evidence.replicas
        mine = [] if seen is None else self._evidence.replicas_of.get(removal.place, ())
        bases = [one.active_base for one in mine]
        return replace(
            removal,
            compacted_until_ns=EVER if last.end_ns >= self._last else _clamp(last.end_ns),
            compacted_below=max(bases) if bases and min(bases) >= 0 else EVER,
            compacted_why=f"cleanup.policy is compact{_set_by(last.settings)}, and a later record has its key",
        )

    def _with_the_deletion(self, removal: Removal) -> Removal:
        for fault in self._spec.faults:
            life = self._evidence.faults.get(fault.number)
            if life is not None and fault.drops(self._topic):
                over = self._last if life.over is None else life.over
                removal = replace(
                    removal,
                    deleted_ns=max(removal.deleted_ns, life.asked),
                    deleted_until_ns=max(removal.deleted_until_ns, _clamp(over)),
                    deleted_why=f"fault {fault_name(fault.number)} deleted the topic {self._topic}",
                )
        return removal


def _older(keeps: float, settings: InForce, clock: _Clock) -> str:
    by = (
        ""
        if clock.fault is None
        else f" by the clock of broker {clock.broker} (fault {fault_name(clock.fault)})"
    )
    return f"what was sent before that is older than retention.ms {keeps:,.0f}{_set_by(settings)}{by}"


def _set_by(settings: InForce) -> str:
    return "" if settings.fault is None else f", as fault {fault_name(settings.fault)} set it"


def _clamp(time_ns: float) -> int:
    return int(max(NEVER, min(time_ns, EVER)))


def count_expired_apart(facts: Facts) -> Facts:
    """Return the facts with expired records counted as `expired`, which an audit of an older version counted as lost.
    Records that it counted as vanished, and that expired, are only subtracted."""
    below = reduce(or_, map(_below, _older_expired(facts)), pc.scalar(False))
    counts = dict(facts.audit.counts)
    gone = {anomaly: facts.count(anomaly, below) for anomaly in MISSING if counts.get(anomaly)}
    counts |= {anomaly: counts[anomaly] - count for anomaly, count in gone.items()}
    if gone.get(Anomaly.LOST):
        counts[Anomaly.EXPIRED] = gone[Anomaly.LOST]
    return replace(facts, audit=facts.audit.model_copy(update={"counts": counts}), expired_as_lost=below)


def _older_expired(facts: Facts) -> Sequence[Removal]:
    """Return the removals of partitions whose acknowledged records below the log start are all old enough to have
    expired. Partitions without such records are left out, and all if the ledger cannot be read."""
    found = []
    for one in (one for one in facts.removals.values() if one.log_start):
        wanted = _below(one) & (pc.field("outcome") == int(Outcome.ACKED))
        try:
            sent_ns = ledger_rows(facts.run.produced, ["sent_ns"], wanted)["sent_ns"]
        except (OSError, pa.ArrowException):
            continue  # there is no part, or the audit says that one cannot be read
        if len(sent_ns) and pc.max(sent_ns).as_py() <= one.expired_until_ns:
            found.append(one)
    return found


def _below(removal: Removal) -> pc.Expression:
    return (
        (pc.field("topic") == removal.topic)
        & (pc.field("partition") == removal.partition)
        & (pc.field("offset") >= 0)
        & (pc.field("offset") < removal.log_start)
    )


# -- timestamps ------------------------------------------------------------------------------------------------------


def work_out_timestamps(run: CaseDir) -> None:
    """Write `timestamps.json` of a run before its audit: for each partition the timestamps that its records may have
    (`TimestampRule`). An older file is removed first.

    Writes none for a run of an older version, or without a timeline, a case or producers. Raises `BadInput` for facts
    of a run that cannot be read, OSError if the file cannot be written.
    """
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

    `exact`: True if producers set all timestamps themselves; False if a client library set some
    (`TimestampRule.unsure_ns`). Yields no rule for clusters that ackproof did not start, whose defaults and clocks are
    not known; for simulated clusters; for partitions whose log a fault damaged; and for runs whose machine's clock is
    not known, or in which a command of the user may have changed anything.
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
