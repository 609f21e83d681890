"""Facts of a run that the judge needs, read once from the run's directory."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow.compute as pc

from ackproof.experiment.backends import Ability
from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.promises import Promises, may_compact
from ackproof.judge.excuses import excused
from ackproof.judge.removal import count_expired_apart, removals
from ackproof.judge.starved import calm, quiet
from ackproof.plan.cases import case_from_json
from ackproof.quantities.answer import answered
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Answer, Ask
from ackproof.quantities.vocabulary import parse_ask
from ackproof.rundir import storage
from ackproof.rundir.anomalies import MISSING, Anomaly
from ackproof.rundir.bounds import Bound
from ackproof.rundir.committed import CommittedFile
from ackproof.rundir.documents import AuditFile, CaseFile, FinalReadFile, QuietSeconds
from ackproof.rundir.guarantees import Excuse
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.lifelines import Spans
from ackproof.rundir.metadata import PartitionChanged
from ackproof.rundir.model import ConformanceFile, PredictionFile
from ackproof.rundir.observed import Pulse, RecoveryFile, read_pulses
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.removals import Removal
from ackproof.rundir.schema import FINDINGS
from ackproof.rundir.timeline import FaultAsked
from ackproof.rundir.windows import WindowFile, read_windows

_UNMARKED: Final = re.compile(
    r"find leader endpoint for partitions Set\(([^)]*)\) while trying to send transaction markers"
)


@dataclass(frozen=True)
class Facts(Evidence):
    """Facts of a run, as the judge needs them. Tables stay on disk until a check asks for them; a broken one then
    raises `BadInput`, OSError or ArrowException.

    `final_read`: None if the run recorded none. `recovery`: clients and partitions that had not recovered at the end;
    None if the run did not look for them (older versions, the model). `expired_as_lost`: filter for findings that an
    audit of an older version counts as lost or vanished although the records expired; None: nothing to filter.
    """

    audit: AuditFile
    case: Case
    replay: ConformanceFile
    prediction: PredictionFile
    final_read: FinalReadFile | None
    expired_as_lost: pc.Expression | None = None
    recovery: RecoveryFile | None = None

    @classmethod
    def read(cls, run: CaseDir) -> Facts:
        """Return the facts of an audited, predicted and replayed run. Records that expired, and that an audit of an
        older version counted as lost, are counted as expired (`count_expired_apart`). Raises `BadInput` for a required
        file that is missing, and `BadInput`, OSError or ArrowException for one that cannot be read."""
        file = CaseFile.load(run.case_json)
        facts = cls.of_run(
            run,
            audit=AuditFile.load(run.audit_json),
            case=case_from_json(file.resolved),
            replay=ConformanceFile.load(run.conformance_json),
            prediction=PredictionFile.load(run.prediction_json),
            final_read=FinalReadFile.load(run.final_read) if run.final_read.exists() else None,
            recovery=RecoveryFile.load(run.recovery) if run.recovery.exists() else None,
        )
        gone = any(facts.audit.counts.get(anomaly) for anomaly in MISSING)
        return count_expired_apart(facts) if gone and Anomaly.EXPIRED not in facts.audit.counts else facts

    @cached_property
    def committed(self) -> CommittedFile | None:
        """Committed offsets at the end of the run; None if none were requested. Raises `BadInput` for a broken file."""
        return CommittedFile.load(self.run.committed) if self.run.committed.exists() else None

    @property
    def sealed(self) -> bool:
        """True if the run has a seal (`seal.json`, digests of its files). Runs of the oldest versions have none, and
        they lack some of the facts here."""
        return self.run.seal.exists()

    @cached_property
    def windows(self) -> Sequence[WindowFile]:
        """Windows of a soak in order: the parts of its load that were audited while it ran. () for other runs. Raises
        `BadInput` for a broken file."""
        return tuple(read_windows(self.run))

    @cached_property
    def log_starts(self) -> Mapping[TopicPartition, int]:
        """First remaining offset of each partition after a soak deleted audited records; empty if it deleted none."""
        deleted = [one for one in self.windows if one.deleted]
        return {one.place: one.end for one in deleted[-1].read} if deleted else {}

    @cached_property
    def in_sync(self) -> Mapping[TopicPartition, tuple[int, ...]]:
        """ISR (node ids) of each partition in its last sample with an ISR. Partitions without such a sample are
        missing."""
        return {place: one.isr for place, each in self.every_sample_of.items() for one in each if one.isr}

    @cached_property
    def pulses(self) -> list[Pulse]:
        """Load of the machine and totals of the harness, once a second; empty if the run recorded none."""
        return read_pulses(self.run.pulse)

    @cached_property
    def decided_of(self) -> Mapping[TopicPartition, Sequence[PartitionChanged]]:
        """Records of the metadata log that set leader, ISR or replicas of a partition, by partition, in order. Raises
        `BadInput` for a broken metadata log."""
        found: dict[TopicPartition, list[PartitionChanged]] = defaultdict(list)
        for record in self.metadata:
            if isinstance(record, PartitionChanged):
                found[TopicPartition(record.topic, record.partition)].append(record)
        return dict(found)

    @cached_property
    def quiet(self) -> Spans:
        """Time spans (begin, end), in ns since the run's start, with load and without an active fault
        (`starved.quiet`)."""
        return quiet(self)

    @cached_property
    def calm(self) -> QuietSeconds | None:
        """Measurements of the machine and the clients under load (`starved.calm`); None if they were not recorded. The
        sending rate and the acknowledgement time are of the seconds without an active fault."""
        return calm(self)

    def aimed_at(self, faults: Collection[int]) -> Iterator[tuple[int, int]]:
        """Yield (fault number, node id) for each node at which one of these faults was aimed. `faults`: numbers of the
        faults."""
        for number in faults:
            for event in self.lifelines.fault_events.get(number, ()):
                if isinstance(event.what, FaultAsked):
                    yield from ((number, node) for node in event.what.nodes)

    @cached_property
    def disk_fault(self) -> FaultSpec | None:
        """First fault, or command of the user, that may have changed files of a broker; None if no fault can."""
        faults = (one for one in self.case.faults if Ability.DISKS in one.ASKS or one.kind == "command")
        return next(faults, None)

    @cached_property
    def unmarked(self) -> frozenset[TopicPartition]:
        """Partitions for which a coordinator skipped a transaction marker, according to its own log.

        It mistakes a partition without a leader for one of a deleted topic (Kafka 4.3 and later, KAFKA-20734). Only
        topics of the case that no fault deletes count.
        """
        logs = [log.read_text("utf-8", "replace") for log in self.run.nodes.glob("*/server.log*")]
        found = {name for log in logs for names in _UNMARKED.findall(log) for name in names.split(", ")}
        places = {TopicPartition(topic, int(n)) for topic, _, n in (one.rpartition("-") for one in found)}
        spec = self.case.planned
        kept = {topic for topic in spec.topics if not Promises.from_experiment(spec, topic).dropped}
        return frozenset(place for place in places if place.topic in kept)

    @cached_property
    def disk_nodes(self) -> frozenset[int]:
        """Ids of the nodes at which a fault of disks was aimed."""
        at_disks = {fault.number for fault in self.case.faults if Ability.DISKS in fault.ASKS}
        return frozenset(node for _, node in self.aimed_at(at_disks))

    def count(self, anomaly: str, wanted: pc.Expression) -> int:
        """Return the number of findings of an anomaly class for which the filter `wanted` is True, without those that
        `expired_as_lost` selects. Raises OSError or ArrowException if the findings cannot be read."""
        findings = storage.open_dataset(self.run.finding_parts, FINDINGS)
        if self.expired_as_lost is not None and anomaly in MISSING:
            wanted &= ~self.expired_as_lost
        return int(findings.count_rows(filter=(pc.field("class") == anomaly) & wanted))

    @cached_property
    def removals(self) -> Mapping[TopicPartition, Removal]:
        return removals(self, self.case, self.final_read)

    def may_expire(self, place: TopicPartition) -> bool:
        """Return True if retention could delete records of a partition in this run."""
        return place in self.removals and self.removals[place].may_expire

    def may_compact(self, topic: str) -> bool:
        return may_compact(self.case.planned, topic)

    def why_removed(self, anomaly: str) -> str:
        """Return the settings or requests that explain the records counted as `anomaly`, each once, separated
        by `; `; '' for classes other than expired, compacted and deleted.
        """
        whys = {
            Anomaly.EXPIRED: [one.expired_why for one in self.removals.values()],
            Anomaly.COMPACTED: [one.compacted_why for one in self.removals.values()],
            Anomaly.DELETED: [one.deleted_why for one in self.removals.values()],
        }
        return "; ".join(filter(None, dict.fromkeys(whys.get(Anomaly(anomaly), []))))

    @cached_property
    def answers(self) -> Sequence[tuple[Ask, Bound, Answer]]:
        """Expectations of the case on a single run, each as (question, bound, answer): the quantity, the bound that the
        case demands, and the run's number with whether it is within the bound."""
        return answers(self, self.case)

    @cached_property
    def excused(self) -> Mapping[str, Mapping[Excuse, int]]:
        """Number of findings that a client library or a setting explains, by class and excuse."""
        return excused(self)


def answers(evidence: Evidence, case: Case) -> Sequence[tuple[Ask, Bound, Answer]]:
    """Return (question, bound, answer of the run) for each expectation of a case on a single run. Raises `BadInput`,
    OSError or ArrowException if the files of a state (`Quantity.state`) cannot be read."""
    return [
        (ask, bound, answered(evidence, ask, bound))
        for expect in case.experiment.expect
        for name, bound in expect.bounds.items()
        for ask in (parse_ask(name),)
    ]


def partitions_of(case: Case, topics: Iterable[str]) -> set[TopicPartition]:
    """Return every partition of these topics in the case's plan. Raises KeyError for a topic that the case does not
    have."""
    return {
        TopicPartition(name, number)
        for name in topics
        for number in range(case.experiment.topics[name].partitions)
    }
