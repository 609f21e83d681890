"""Evidence: the files of one run from which quantities are measured. `judge.Facts` extends it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ackproof.quantities.metadata_log import MetadataLog
from ackproof.quantities.quantity import Unknown
from ackproof.rundir.bounds import WHOLE, Span, Window
from ackproof.rundir.clock import WallClock
from ackproof.rundir.document import read_lines
from ackproof.rundir.documents import AuditFile, CaseFile, Client
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.lifelines import ALWAYS, FaultLife, Lifelines, Spans
from ackproof.rundir.metadata import BrokerRegistered, MetadataRecord, TopicRemoved, read_metadata
from ackproof.rundir.metrics import Scrape, read_scrapes
from ackproof.rundir.observed import (
    BrokerRound,
    CommittedStart,
    FetchSources,
    OffsetCommit,
    Sample,
    read_commits,
    read_samples,
    samples_by_partition,
)
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Event, read_timeline

if TYPE_CHECKING:
    import pyarrow as pa

    from ackproof.quantities.ledgers import Ledgers
    from ackproof.rundir.groups import GroupsFile
    from ackproof.rundir.ledger import FinalRows
    from ackproof.rundir.replicas import LogBatches, Replica, ReplicasFile

D = TypeVar("D")


@dataclass(frozen=True)
class Evidence:
    """Files of one run directory. `of_run` reads the timeline, the case and the audit; other files are read at
    the first use of a property.

    All times are in ns since the run began, unless said otherwise.
    """

    run: CaseDir
    backend: str
    environment: Mapping[str, str]
    """The machine and software that the run recorded; empty if it recorded none."""
    clients: tuple[Client, ...]
    wall_ns: int
    """Wall-clock time in ns at which the run began; 0: not recorded."""
    zookeeper: bool
    """True if ZooKeeper keeps the cluster's metadata."""
    unanswered: bool
    """True if no broker acknowledges what producers send (acks=0)."""
    planned: tuple[TopicPartition, ...]
    """Partitions of the case's topics."""
    events: tuple[Event, ...]
    timeline_whole: bool
    """True if every line of the timeline could be read."""
    audit: AuditFile | None
    """Counts of the audit; None if the run was not audited."""

    @classmethod
    def of_run(cls, run: CaseDir, **more: Any) -> Self:  # noqa: ANN401 - fields of a subclass
        """Return the evidence in a run directory. `more`: fields that a subclass adds, or has read itself. Raises
        `BadInput` or OSError for files that cannot be read."""
        events, whole = read_timeline(run.timeline)
        file = CaseFile.load(run.case_json)
        if "audit" not in more:
            more["audit"] = AuditFile.load(run.audit_json) if run.audit_json.exists() else None
        return cls(
            run=run,
            backend=file.backend,
            environment=file.environment,
            clients=file.clients,
            wall_ns=file.wall_ns,
            zookeeper=_resolved(file, "experiment", "cluster", "mode") == "zookeeper",
            unanswered=_resolved(file, "experiment", "workload", "producers", "acks") in (0, "0"),
            planned=_planned_partitions(file),
            events=tuple(events),
            timeline_whole=whole,
            **more,
        )

    @cached_property
    def timing(self) -> str:
        """Name of the time-outs and intervals that the brokers had, such as `chaos` (`rundir.documents.Timing`); '' in
        runs of older versions. Raises `BadInput` if `case.json` cannot be read."""
        timing = CaseFile.load(self.run.case_json).timing
        return "" if timing is None else timing.name

    @cached_property
    def lifelines(self) -> Lifelines:
        return Lifelines.of_events(self.events)

    @cached_property
    def wall(self) -> WallClock:
        """The wall clock of the run's machine, by which controllers date the records of the metadata log."""
        return WallClock.of_events(self.events, self.wall_ns)

    @cached_property
    def phases(self) -> Mapping[str, int]:
        """Start time of each phase, by its name, in the order of the timeline."""
        return self.lifelines.phases

    @cached_property
    def samples(self) -> Sequence[Sample]:
        """Samples of all partitions, taken through Kafka's protocol, in order of time; empty if the run took
        none. Unreadable lines are left out. Raises OSError if the file cannot be read."""
        return read_samples(self.run.samples)

    @cached_property
    def every_sample_of(self) -> Mapping[TopicPartition, Sequence[Sample]]:
        """Samples of each partition that has any, in order, also those before its topic was deleted."""
        return samples_by_partition(self.samples)

    @cached_property
    def samples_of(self) -> Mapping[TopicPartition, Sequence[Sample]]:
        """Samples of each partition, in order of time. Samples of a topic that was deleted and created again count only
        since then. A planned partition without samples has an empty list. Raises OSError if the samples cannot be read,
        `BadInput` for a broken metadata log."""
        found: dict[TopicPartition, Sequence[Sample]] = defaultdict(tuple, dict.fromkeys(self.planned, ()))
        for place, samples in self.every_sample_of.items():
            pairs = enumerate(pairwise(samples), start=1) if place.topic in self.removed else ()
            again = [number for number, (one, two) in pairs if two.leader_epoch < one.leader_epoch]
            found[place] = samples[again[-1] :] if again else samples
        return found

    @cached_property
    def metadata(self) -> list[MetadataRecord]:
        """Records of the metadata log; empty if the run did not read it. Raises `BadInput` for a broken file."""
        return list(read_metadata(self.run.metadata_log)) if self.run.metadata_log.exists() else []

    @cached_property
    def metadata_log(self) -> MetadataLog:
        """States of each partition in the metadata log of the run, and the first reason why the log is incomplete.
        Raises `BadInput` for a broken file."""
        return MetadataLog.from_records(
            self.metadata, simulated=self.backend == "model", kraft=not self.zookeeper
        )

    @cached_property
    def racks(self) -> Mapping[int, str]:
        """Rack of each broker that ever registered: as registered, else as in the case; '' for none. Raises `BadInput`
        for a broken file."""
        dealt = {
            node: rack for rack, nodes in CaseFile.load(self.run.case_json).racks.items() for node in nodes
        }
        registered = (one for one in self.metadata if isinstance(one, BrokerRegistered))
        return {one.node: one.rack or dealt.get(one.node, "") for one in registered}

    @cached_property
    def replicas(self) -> ReplicasFile | None:
        """The replicas' logs on disk; None if the run did not read them. Raises `BadInput` for a broken file."""
        from ackproof.rundir.replicas import ReplicasFile

        return ReplicasFile.load(self.run.replicas) if self.run.replicas.exists() else None

    @cached_property
    def batches(self) -> pa.Table:
        """Record batches of the logs on disk (schema `replicas.BATCHES`). Raises `BadInput`, OSError or ArrowException
        if the file cannot be read, also if the run did not read the logs."""
        from ackproof.rundir.replicas import read_batches

        return read_batches(self.run.replica_batches)

    @cached_property
    def logs(self) -> LogBatches:
        """Record batches of the logs on disk, log by log. Raises the same errors as `batches`."""
        from ackproof.rundir.replicas import LogBatches

        return LogBatches(self.batches)

    @cached_property
    def replicas_of(self) -> Mapping[TopicPartition, Sequence[Replica]]:
        found: dict[TopicPartition, list[Replica]] = defaultdict(list)
        for replica in self.replicas.replicas if self.replicas is not None else ():
            found[TopicPartition(replica.topic, replica.partition)].append(replica)
        return found

    @cached_property
    def final_rows(self) -> FinalRows:
        from ackproof.rundir.ledger import FinalRows

        return FinalRows(self.run)

    @cached_property
    def scrapes(self) -> Mapping[int, Sequence[Scrape]]:
        """Scrapes of the nodes' metrics, by node id; empty if the run scraped none. Raises `BadInput`, OSError or
        ArrowException if they cannot be read."""
        return read_scrapes(self.run.metrics)

    @cached_property
    def rounds(self) -> Sequence[BrokerRound]:
        """Rounds of requests to each running broker, and in ZooKeeper mode to the znodes; empty if the run sent none.
        Raises `BadInput` or OSError if they cannot be read."""
        return list(read_lines(self.run.brokers, BrokerRound))

    @cached_property
    def fetching(self) -> Mapping[str, Sequence[FetchSources]]:
        """Reports of live readers on the brokers from which they fetched, by reader. Readers without reports
        are left out. Raises `BadInput` or OSError if they cannot be read."""
        return self._of_readers(lambda reader: list(read_lines(self.run.served(reader), FetchSources)))

    @cached_property
    def commits(self) -> Mapping[str, Sequence[OffsetCommit]]:
        """Offset commits that live readers tried, by reader. Readers without any are left out.

        Raises `BadInput` or OSError if they cannot be read.
        """
        return self._of_readers(lambda reader: read_commits(self.run.commits(reader)))

    @cached_property
    def starts(self) -> Mapping[str, CommittedStart]:
        """Start of each live reader that started at committed offsets, by reader. Readers that started elsewhere are
        left out. Raises `BadInput` or OSError if a file cannot be read."""
        told = self._of_readers(lambda reader: list(read_lines(self.run.starts(reader), CommittedStart)))
        return {reader: first for reader, (first, *_) in told.items()}

    @cached_property
    def groups(self) -> GroupsFile | None:
        """State of consumer groups and of their members at the end; None in a run without groups. Raises `BadInput` for
        a broken file."""
        from ackproof.rundir.groups import GroupsFile

        return GroupsFile.load(self.run.groups) if self.run.groups.exists() else None

    def _of_readers(self, read: Callable[[str], Sequence[D]]) -> Mapping[str, Sequence[D]]:
        """Return the entries that `read` returns for each live reader, by the reader's id. Readers without entries are
        left out."""
        told = {client.id: read(client.id) for client in self.clients if client.kind == "reader"}
        return {reader: lines for reader, lines in told.items() if lines}

    @cached_property
    def removed(self) -> frozenset[str]:
        """Topics that were deleted, whether or not they were created again. Raises `BadInput` for a broken metadata
        log."""
        return frozenset(record.topic for record in self.metadata if isinstance(record, TopicRemoved))

    @cached_property
    def ledgers(self) -> Ledgers:
        """Operations in the ledgers, by partition. Files are read, and errors raised, only by the methods of the
        result."""
        from ackproof.quantities.ledgers import Ledgers

        return Ledgers(self.run)

    # -- times --------------------------------------------------------------------------------------------------

    @property
    def load_begins(self) -> int:
        """Time at which clients were started, in ns since the run began; 0 if no client was started."""
        return self.phases.get("load", 0)

    @cached_property
    def load_ends(self) -> int:
        """Time at which producers were asked to close, in ns since the run began; without that, the time of the last
        event."""
        last = max((event.t_ns for event in self.events), default=0)
        return self.phases.get("drain", last)

    @cached_property
    def faults(self) -> Mapping[int, FaultLife]:
        return self.lifelines.faults

    def spans(self, window: Window) -> Spans:
        """Return the time spans (begin, end) of a window in ns since the run began, ascending; (-inf, inf) for the
        whole run.

        Raises `Unknown` in these cases: the fault of the window was not confirmed; with `during`, it was confirmed only
        once it or the load had ended; with `during faults`, no fault was active; with `outside faults`, one always was.
        """
        if window == WHOLE:
            return ALWAYS
        if window.fault is not None:
            return self._span_of_fault(window)
        lives = [
            (life.asked, self.load_ends if life.over is None else life.over) for life in self.faults.values()
        ]
        among = unite_spans([(asked, over) for asked, over in lives if asked < over])
        if window.span is Span.DURING_FAULTS:
            if not among:
                raise Unknown("no fault was at work")
            return among
        load_begins, load_ends = float(self.load_begins), float(self.load_ends)
        edges = [load_begins, *(edge for span in among for edge in span), load_ends]
        between = zip(edges[::2], edges[1::2], strict=True)
        cut = [(max(begin, load_begins), min(end, load_ends)) for begin, end in between]
        if outside := tuple(one for one in cut if one[0] < one[1]):
            return outside
        raise Unknown("a fault was at work all the time")

    def under_load(self, window: Window) -> Spans:
        """Return the parts of a window between the begin and the end of the load; empty if the window lies outside.
        Raises `Unknown` if the window never came."""
        cut = ((max(begin, self.load_begins), min(end, self.load_ends)) for begin, end in self.spans(window))
        return tuple((begin, end) for begin, end in cut if begin < end)

    def load_s(self, window: Window) -> float:
        """Return the length of `under_load` in seconds. Raises `Unknown` if that is empty, or if the window never
        came."""
        if length := math.fsum(end - begin for begin, end in self.under_load(window)) / 1e9:
            return length
        raise Unknown("there was no load then")

    def confirmed_fault(self, number: int | None) -> tuple[FaultLife, int]:
        """Return the times of a fault, and the time at which it was confirmed, in ns since the run began. Raises
        `Unknown` if the fault was never confirmed, or if `number` is None."""
        life = self.faults.get(number or 0)
        if life is None or life.confirmed is None:
            raise Unknown(f"fault {number} was not confirmed")
        return life, life.confirmed

    def _span_of_fault(self, window: Window) -> Spans:
        life, confirmed = self.confirmed_fault(window.fault)
        if window.span is Span.AFTER:
            return ((confirmed, math.inf),)
        ended = life.healed if life.healed is not None else life.over
        ended = self.load_ends if ended is None else ended
        if ended <= confirmed:
            raise Unknown(f"fault {window.fault} was confirmed no sooner than it or the load ended")
        return ((confirmed, ended),)


def _planned_partitions(file: CaseFile) -> tuple[TopicPartition, ...]:
    """Return the partitions of a case's topics; empty if the case does not name them."""
    topics = _resolved(file, "experiment", "topics")
    counts = {
        name: _resolved(file, "experiment", "topics", name, "partitions")
        for name in (topics if isinstance(topics, dict) else ())
    }
    return tuple(
        TopicPartition(name, number)
        for name, count in counts.items()
        for number in range(count if isinstance(count, int) else 0)
    )


def _resolved(file: CaseFile, *path: str) -> object:
    """Return the value at a path of keys in the resolved case; None if there is none."""
    data: object = file.resolved
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data


def unite_spans(spans: Iterable[tuple[float, float]]) -> Spans:
    """Return the time spans in ascending order, with spans that overlap or touch merged."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return tuple(found)
