"""What is known of a run when it is judged, read from its directory once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ackproof.experiment.case import Case
from ackproof.judge.copies import sent_again
from ackproof.judge.retention import GONE, Expired, expired
from ackproof.plan.cases import case_from_json
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.conformance import ConformanceFile
from ackproof.rundir.documents import AuditFile, CaseFile, Client, FinalReadFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import MetadataRecord, read_metadata
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.prediction import PredictionFile
from ackproof.rundir.pulse import Pulse, read_pulses
from ackproof.rundir.samples import Sample, read_samples
from ackproof.rundir.timeline import Event, PhaseBegan, read_timeline


@dataclass(frozen=True)
class Facts:
    """A run directory for the judge. Tables stay on disk until a check asks for them."""

    run: CaseDir
    backend: str
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
            clients=file.clients,
            case=case_from_json(file.resolved),
            audit=AuditFile.load(run.audit_json),
            replay=ConformanceFile.load(run.conformance_json),
            prediction=PredictionFile.load(run.prediction_json),
            events=tuple(events),
            timeline_whole=whole,
            final_read=FinalReadFile.load(run.final_read) if run.final_read.exists() else None,
        )

    @cached_property
    def phases(self) -> dict[str, int]:
        """Phase → when it began, in the order of the timeline; of one that begins twice the later time."""
        return {event.what.phase: event.t_ns for event in self.events if isinstance(event.what, PhaseBegan)}

    @cached_property
    def samples(self) -> list[Sample]:
        """What was seen of each partition through the protocol, in the order in which it was."""
        return read_samples(self.run.samples)

    @cached_property
    def pulses(self) -> list[Pulse]:
        """How the machine was doing, once a second."""
        return read_pulses(self.run.pulse)

    @cached_property
    def metadata(self) -> list[MetadataRecord]:
        """What the controllers decided; nothing where their log could not be looked at."""
        return list(read_metadata(self.run.metadata_log)) if self.run.metadata_log.exists() else []

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
