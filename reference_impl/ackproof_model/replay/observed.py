"""Facts of a finished run for the replay and the explanation, and the incarnations of each topic.

Times are nanoseconds since the run's start. Controllers stamp records with their wall clocks, which on one machine are
the run's; the case file says at which wall-clock time the run began.

A topic name can have several incarnations (`Life`): each has its own topic id, its own logs, and offsets from 0 on. The
metadata log says when each was created and deleted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa

from ackproof.experiment.backends import BACKENDS
from ackproof.experiment.case import Case
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.promises import settings_in_force
from ackproof.experiment.spec import ClusterSpec
from ackproof.experiment.timing import longest_time_out
from ackproof.faults.disks.slow_disk import SlowDisk
from ackproof.faults.planned.partitions import ElectUnclean
from ackproof.faults.script.spec import Script, StepSpec
from ackproof.rundir import storage
from ackproof.rundir.clock import STEP_NS, WallClock
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import FinalRows
from ackproof.rundir.lifelines import FaultLife, Lifelines
from ackproof.rundir.metadata import MetadataRecord, read_metadata
from ackproof.rundir.observed import Sample, read_samples, samples_by_partition
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.replicas import LogBatches, Replica, ReplicasFile
from ackproof.rundir.timeline import Event, FaultRecovered, NodeDied, NodeEnded, ScriptStep, read_timeline
from ackproof_reference.metadata import Partition

CUTS_LOGS: Final = frozenset(
    [
        "power_loss",
        "empty_disk",
        "flip_bits",
        "truncate_segment",
        "delete_checkpoint",
        "fail_log_dir",
        "command",
    ]
)
"""Kinds of faults that may remove appended records from a disk: even a clean election after them may lose records."""
_ROTS_ALL: Final = frozenset({"empty_disk", "fail_log_dir", "command"})
"""Kinds of faults that may damage the files of any partition: the protocol does not define what a broker then reads."""
ANYTHING: Final = "command"
"""Kind of faults that run a user's command, which may do anything."""
SLACK_NS: Final = 20_000_000
"""Tolerance of times: controllers stamp milliseconds of the wall clock, the run counts on the monotonic one."""
CLOCKS: Final = frozenset({"clock_jump"})


@dataclass(frozen=True)
class Observed:
    """The facts that were observed in one run, read from its run directory.

    `stamps_from_ns`: start of the run on the clock of record timestamps, in ns since the Unix epoch. It is 0 in a
    simulated run, because its ledgers must be the same for the same seed. `records`: records of the metadata log.
    `samples`, `replicas`: partition samples and replicas' logs, by partition; empty if the run has none. `deleted`:
    logs of deleted replicas that brokers had not removed yet. `lacks`: sentences on facts that are missing in the run
    directory.
    """

    run: CaseDir
    case: Case
    wall: WallClock
    stamps_from_ns: int
    records: tuple[MetadataRecord, ...]
    samples: Mapping[TopicPartition, Sequence[Sample]]
    replicas: Mapping[TopicPartition, Sequence[Replica]]
    deleted: Mapping[TopicPartition, Sequence[Replica]]
    events: tuple[Event, ...]
    lacks: tuple[str, ...]

    @property
    def experiment(self) -> ExperimentSpec:
        return self.case.experiment

    @cached_property
    def planned(self) -> ExperimentSpec:
        """The experiment with all faults of the case, including those that storms drew."""
        return self.case.planned

    def written_within(self, timestamp_ms: int) -> tuple[float, float]:
        """Return bounds, in ns since the run's start, of when a controller wrote a record; infinite if its clock
        cannot be compared with the run's.
        """
        if self.clocks:
            return -math.inf, math.inf
        first, last = self.wall.written_within(timestamp_ms)
        return first - SLACK_NS, last + SLACK_NS

    def t_ns(self, timestamp_ms: int) -> int:
        """Return a controller's wall-clock time (ms) as ns since the run's start. The result assumes that its clock was
        never set."""
        return timestamp_ms * 1_000_000 - self.wall.began_ns

    def rotted(self, place: TopicPartition) -> list[str]:
        """Return the kinds of the run's faults that damaged this partition's files, so that the protocol does not
        define the result."""
        return sorted(
            {
                fault.kind
                for fault in self.case.faults
                if fault.number in self.faults and (fault.kind in _ROTS_ALL or fault.rots(place))
            }
        )

    # What every partition asks of the events is worked out once: their number grows with that of the partitions.

    @cached_property
    def lifelines(self) -> Lifelines:
        return Lifelines.of_events(self.events)

    @property
    def faults(self) -> Mapping[int, FaultLife]:
        return self.lifelines.faults

    @cached_property
    def node_ends(self) -> Sequence[Event]:
        return [event for event in self.events if isinstance(event.what, NodeEnded | NodeDied)]

    @cached_property
    def stall_ns(self) -> int:
        """Longest time in ns for which a fault of the case freezes a disk; 0 without such a fault."""
        stalls = [round(fault.stall * 1e9) for fault in self.case.faults if isinstance(fault, SlowDisk)]
        return max(stalls, default=0)

    @cached_property
    def clocks(self) -> str:
        """A sentence if the controllers' clocks jumped, or the machine's was set, so that their times cannot be
        compared with the run's; else ''."""
        struck = {node for life in self.faults.values() if life.kind in CLOCKS for node in life.nodes}
        jumped = sorted(struck & set(self.experiment.cluster.controller_ids))
        if jumped:
            return f"the clocks of {jumped} jumped, so when an epoch began is not known"
        moved = self.wall.moved_ns
        if moved <= STEP_NS:
            return ""
        how = "may have been set" if math.isinf(moved) else f"was set by {moved / 1e9:.1f} s"
        return f"the clock of the machine {how}, so when an epoch began is not known"

    def stamped_when_sent(self, topic: str) -> bool:
        """Return True if the topic's records always have the time of their send (CreateTime), never of their
        append (LogAppendTime). True for a topic that the experiment does not have."""
        if topic not in self.experiment.topics:
            return True
        return all(one.stamped_when_sent for one in settings_in_force(self.planned, topic))

    def replicas_of(self, place: TopicPartition, topic_id: str) -> Sequence[Replica]:
        """Return the replicas' logs of one incarnation of the partition. `topic_id`: topic id of that incarnation; '':
        all incarnations. A log without a topic id is returned for every incarnation."""
        known = self.replicas.get(place, ())
        return [one for one in known if not (topic_id and one.topic_id) or one.topic_id == topic_id]

    @cached_property
    def cuts(self) -> Sequence[tuple[int, frozenset[int] | None]]:
        """Times (ns since the run's start) at which a fault or a script may have removed appended records
        from disks, with the nodes (None: any)."""
        found: list[tuple[int, frozenset[int] | None]] = [
            (life.asked, None if life.kind == ANYTHING else frozenset(life.nodes))
            for life in self.faults.values()
            if life.kind in CUTS_LOGS
        ]
        found += [
            (begin, frozenset([step.power_loss]))
            for _, begin, _, step in self._script_steps
            if step.power_loss is not None
        ]
        return found

    def cut_before(self, nodes: Iterable[int], t_ns: int) -> bool:
        """Return True if, by the time `t_ns`, a fault or a script may have removed records from the disk of
        one of these nodes."""
        theirs = set(nodes)
        return any(begin <= t_ns and (whose is None or whose & theirs) for begin, whose in self.cuts)

    @cached_property
    def _script_steps(self) -> Sequence[tuple[TopicPartition, int, int, StepSpec]]:
        """Steps that scripts carried out, each as (partition, begin, end, step); times in ns since the run's start."""
        found = []
        for fault in self.case.faults:
            if not isinstance(fault, Script):
                continue
            for before, event in pairwise(self.lifelines.fault_events.get(fault.number, ())):
                if isinstance(event.what, ScriptStep):
                    place = TopicPartition(event.topic or "", event.partition or 0)
                    found.append((place, before.t_ns, event.t_ns, fault.steps[event.what.number - 1]))
        return found

    def unclean_asked(self, place: TopicPartition, timestamp_ms: int) -> bool:
        """Return True if an unclean election of this partition may have been requested when a controller wrote a
        metadata record. `timestamp_ms`: timestamp of that record.

        Requests are `elect_unclean` faults and script steps for this partition, and all faults that run a user's
        command. Each counts from its begin to its end."""
        asks = (
            fault.number
            for fault in self.case.faults
            if fault.kind == ANYTHING
            or (isinstance(fault, ElectUnclean) and TopicPartition(*fault.partition) == place)
        )
        times = [self.fault_times[number] for number in asks if number in self.fault_times]
        times += [
            (begin, end)
            for of, begin, end, step in self._script_steps
            if step.elect == "unclean" and of == place
        ]
        first, last = self.written_within(timestamp_ms)
        return any(begin <= last and first <= end for begin, end in times)

    @cached_property
    def fault_times(self) -> Mapping[int, tuple[int, int]]:
        """Fault number → times of its request and of its end, in ns since the run's start; the end of the run for a
        fault that did not end."""
        last = self.events[-1].t_ns if self.events else 0
        return {
            number: (life.asked, last if life.over is None else life.over)
            for number, life in self.faults.items()
        }

    def batches(self, replica: Replica) -> pa.Table:
        """Return the record batches of one replica, sorted by offset: the columns `node`, `topic`, `partition`,
        `first_offset`, `last_offset` and `leader_epoch`. Raises OSError or ArrowException at the first call if the
        file cannot be read."""
        table = self._logs.of_replica(TopicPartition(replica.topic, replica.partition), replica.node)
        return table.sort_by("first_offset")

    @cached_property
    def _logs(self) -> LogBatches:
        columns = ["node", "topic", "partition", "first_offset", "last_offset", "leader_epoch"]
        return LogBatches(storage.read_table(self.run.replica_batches, columns=columns))

    @cached_property
    def final_rows(self) -> FinalRows:
        return FinalRows(self.run)


def observe(run: CaseDir, case: Case) -> Observed:
    """Read a run directory. A missing metadata log, samples or replicas' logs are no error: `lacks` of the result names
    them. Broken lines of the timeline and the samples are skipped. Raises `BadInput` for another broken file, OSError
    if the timeline or the samples cannot be read."""
    lacks: list[str] = []
    records: tuple[MetadataRecord, ...] = ()
    if run.metadata_log.exists():
        records = tuple(read_metadata(run.metadata_log))
    else:
        lacks.append(f"no step of the controllers: this run has no {run.metadata_log.name}")
    samples = samples_by_partition(read_samples(run.samples))
    if not samples:
        lacks.append("no high watermark: the partitions were not sampled")
    logs = ReplicasFile()
    if run.replicas.exists():
        logs = ReplicasFile.load(run.replicas)
    else:
        lacks.append("no truncation: the replicas' logs were not looked at")
    events, _ = read_timeline(run.timeline)
    file = CaseFile.load(run.case_json)
    return Observed(
        run=run,
        case=case,
        wall=WallClock.of_events(events, file.wall_ns),
        stamps_from_ns=0 if BACKENDS[file.backend].simulated else file.wall_ns,
        records=records,
        samples=samples,
        replicas=_by_place(logs.replicas),
        deleted=_by_place(logs.deleted),
        events=tuple(events),
        lacks=tuple(lacks),
    )


def _by_place(found: Iterable[Replica]) -> dict[TopicPartition, list[Replica]]:
    by: dict[TopicPartition, list[Replica]] = defaultdict(list)
    for one in found:
        by[TopicPartition(one.topic, one.partition)].append(one)
    return by


class Moment(NamedTuple):
    """State of a partition from the time `t_ns` on (ns since the run's start). `offset`: offset of its record in the
    metadata log.

    `cause`: the step, in words. `clean`: False if the leader was elected from outside of ISR and ELR, or if earlier
    changes are missing in the log."""

    t_ns: int
    offset: int
    partition: Partition
    cause: str
    clean: bool


class Removal(NamedTuple):
    """Deletion of a topic. `t_ns`: time, ns since the run's start. `offset`: offset of its record in the metadata log.
    `by`: the fault that requested it, as text such as `fault 1 (recreate)`; '' if no fault of the case can have
    requested it."""

    t_ns: int
    offset: int
    by: str


@dataclass
class Life:
    """One incarnation of a partition: its states since its creation, oldest first, and its topic's deletion
    (None: not deleted). `topic_id`: '' if the metadata log has none.
    """

    topic_id: str = ""
    history: list[Moment] = field(default_factory=list)
    removal: Removal | None = None

    @property
    def began_ns(self) -> int:
        return self.history[0].t_ns


def deleted_by(observed: Observed, topic: str, timestamp_ms: int, done: Set[int]) -> FaultSpec | None:
    """Return the fault that deleted a topic: of the faults that can have deleted it, the latest; None without one.

    `timestamp_ms`: time of the deletion by the controller's clock. Only faults whose injection may have begun by then
    are considered. `done`: numbers of the faults that made earlier deletions. These are excluded, because a fault
    deletes its topic once. A fault that runs a user's command is never excluded: the command may delete any topic at
    any time."""
    _, last = observed.written_within(timestamp_ms)
    faults = {fault.number: fault for fault in observed.case.faults}
    by = None
    for number, life in observed.faults.items():
        fault = faults.get(number) if life.asked <= last else None
        if fault is not None and (fault.kind == ANYTHING or (fault.drops(topic) and number not in done)):
            by = fault
    return by


def learns_ns(cluster: ClusterSpec, stall_ns: int = 0) -> int:
    """Return the longest time, in nanoseconds, for which a deposed leader can stay in the ISR without knowing its
    successor. It counts from the election of the successor in the metadata log.

    The time is two broker sessions, plus twice `stall_ns`:

    * A broker without heartbeats for one session is fenced, and so leaves the ISR. ClusterControlManager checks eight
      times per session.
    * The second session is for a broker that sends heartbeats, but applies the metadata log late.
    * `stall_ns`: longest time for which a disk is frozen. A broker on that disk sends heartbeats and applies no
      metadata. The time counts twice: the disk may freeze again before the broker has caught up."""
    return 2_000_000 * longest_time_out(cluster, cluster.metadata.session) + 2 * stall_ns


def answered_ns(observed: Observed, topic: str, lives: Sequence[Life], number: int) -> int:
    """Return the time, in ns since the run's start, from which brokers' answers are about incarnation `number` (from 0)
    of a topic. `lives`: the incarnations of one of its partitions, oldest first.

    The fault that recreates a topic is confirmed as healed once every broker shows the new incarnation and its leaders
    answer for the new logs. The result is the time of that confirmation. It is at most `learns_ns` after the creation:
    the longest time by which a broker can lag behind the metadata log. For incarnation 0 it is the time of the
    creation."""
    began = lives[number].began_ns
    if number == 0:
        return began
    healed = (
        observed.lifelines.fault_event(fault.number, FaultRecovered)
        for fault in observed.case.faults
        if fault.drops(topic)
    )
    latest = began + learns_ns(observed.experiment.cluster, observed.stall_ns)
    return min([latest, *(event.t_ns for event in healed if event and event.t_ns >= began)])
