"""What is known of a run when it is judged, read from its directory once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.experiment.case import Case
from ackproof.judge.copies import sent_again
from ackproof.judge.retention import GONE, Expired, expired
from ackproof.plan.cases import case_from_json
from ackproof.rundir import storage
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.conformance import ConformanceFile
from ackproof.rundir.documents import AuditFile, CaseFile, Client, FinalReadFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import MetadataRecord, TopicRemoved, read_metadata
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.prediction import PredictionFile
from ackproof.rundir.pulse import Pulse, read_pulses
from ackproof.rundir.replicas import BATCHES, ReplicasFile, read_batches
from ackproof.rundir.samples import Sample, read_samples
from ackproof.rundir.schema import FINDINGS
from ackproof.rundir.timeline import Event, FaultAsked, PhaseBegan, read_timeline


@dataclass(frozen=True)
class Facts:
    """A run directory for the judge. Tables stay on disk until a check asks for them."""

    run: CaseDir
    backend: str
    environment: Mapping[str, str]
    """What the run says of the ground it stood on; empty: nothing."""
    clients: tuple[Client, ...]
    case: Case
    audit: AuditFile
    replay: ConformanceFile
    prediction: PredictionFile
    events: tuple[Event, ...]
    timeline_whole: bool
    """Whether every line of the timeline could be read."""
    final_read: FinalReadFile | None

    @classmethod
    def of(cls, run: CaseDir) -> Facts:
        """Read them. Raises `BadInput` for what is missing and must be there, and for what cannot be read."""
        file = CaseFile.load(run.case_json)
        events, whole = read_timeline(run.timeline)
        return cls(
            run=run,
            backend=file.backend,
            environment=file.environment,
            clients=file.clients,
            case=case_from_json(file.resolved),
            audit=AuditFile.load(run.audit_json),
            replay=ConformanceFile.load(run.conformance_json),
            prediction=PredictionFile.load(run.prediction_json),
            events=tuple(events),
            timeline_whole=whole,
            final_read=FinalReadFile.load(run.final_read) if run.final_read.exists() else None,
        )

    @property
    def sealed(self) -> bool:
        """Whether the run says what it wrote: those of older versions lack facts, and are judged as they lie."""
        return self.run.seal.exists()

    @cached_property
    def phases(self) -> dict[str, int]:
        """Phase → when it began, in the order of the timeline; of one that begins twice the later time."""
        return {event.what.phase: event.t_ns for event in self.events if isinstance(event.what, PhaseBegan)}

    @cached_property
    def samples(self) -> list[Sample]:
        """What was seen of each partition through the protocol, in the order in which it was."""
        return read_samples(self.run.samples)

    @cached_property
    def samples_of(self) -> Mapping[TopicPartition, Sequence[Sample]]:
        """The samples of each partition, in the order in which they were taken, but those of an earlier incarnation."""
        found: dict[TopicPartition, list[Sample]] = defaultdict(list)
        for sample in self.samples:
            mine = found[TopicPartition(sample.topic, sample.partition)]
            if mine and sample.leader_epoch < mine[-1].leader_epoch and sample.topic in self.removed:
                mine.clear()
            mine.append(sample)
        return found

    @cached_property
    def in_sync(self) -> Mapping[TopicPartition, tuple[int, ...]]:
        """The ISR of each partition when it was seen last."""
        return {TopicPartition(one.topic, one.partition): one.isr for one in self.samples if one.isr}

    @cached_property
    def pulses(self) -> list[Pulse]:
        """How the machine was doing, once a second."""
        return read_pulses(self.run.pulse)

    @cached_property
    def metadata(self) -> list[MetadataRecord]:
        """What the controllers decided; nothing where their log could not be looked at."""
        return list(read_metadata(self.run.metadata_log)) if self.run.metadata_log.exists() else []

    @cached_property
    def removed(self) -> frozenset[str]:
        """Topics that were deleted, whether or not they were created again."""
        return frozenset(record.topic for record in self.metadata if isinstance(record, TopicRemoved))

    @cached_property
    def replicas(self) -> ReplicasFile | None:
        """The logs on disk; None where nobody looked at them. Raises `BadInput`."""
        return ReplicasFile.load(self.run.replicas) if self.run.replicas.exists() else None

    @cached_property
    def batches(self) -> pa.Table:
        """The batches of those logs. Raises `BadInput`."""
        return read_batches(self.run.replica_batches, BATCHES.names)

    def aimed_at(self, faults: Collection[int]) -> Iterator[tuple[int, int]]:
        """Each of these faults that was asked for, with a node at which it was aimed."""
        for event in self.events:
            if isinstance(event.what, FaultAsked) and event.fault is not None and event.fault in faults:
                yield from ((event.fault, node) for node in event.what.nodes)

    def count(self, anomaly: str, wanted: pc.Expression) -> int:
        """How many findings of a class are such."""
        findings = storage.dataset(self.run.finding_parts, FINDINGS)
        return int(findings.count_rows(filter=(pc.field("class") == anomaly) & wanted))

    @cached_property
    def expired(self) -> Sequence[Expired]:
        """Where retention deleted, if anything is gone that it could have deleted."""
        return expired(self) if any(self.audit.counts.get(anomaly) for anomaly in GONE) else ()

    @cached_property
    def sent_again(self) -> int:
        """How many `duplicate` findings no broker could have known for copies: see `copies`."""
        idempotent = self.case.experiment.workload.producers.idempotence
        return sent_again(self.run) if idempotent and self.audit.counts.get(Anomaly.DUPLICATE) else 0


def partitions_of(case: Case, topics: Iterable[str]) -> set[TopicPartition]:
    """All partitions of these topics."""
    return {
        TopicPartition(name, number)
        for name in topics
        for number in range(case.experiment.topics[name].partitions)
    }
