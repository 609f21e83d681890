"""Documents of the reference implementation: `conformance.json`, `prediction.json`, `simulation.json`.

`ackproof.judge.oracle` writes the first two, `ackproof_simulator` the third. The judge and the reports read them.
"""

from __future__ import annotations

from pydantic import Field

from ackproof.rundir.anomaly_terms import GRAVEST_FIRST, Chance
from ackproof.rundir.document import Document
from ackproof.rundir.documents import Scalar


class ForbiddenStep(Document):
    """An observed step that the protocol does not allow in the state before it. `topic`, `partition`: the partition
    that it changed; `partition` -1: the whole topic, `topic` '': neither."""

    rule: str
    """Name of the rule, such as `election out of the ISR`."""
    text: str
    """The observed step, as a sentence."""
    state_before: str
    """State of the partition and the brokers before the step, in readable form."""
    source: str
    """Source of the rule: a KIP, or a class of Kafka."""
    offset: int = -1
    """Offset of the record in the metadata log (in ZooKeeper mode: zxid); -1 if the step is in no record."""
    t_ns: int = -1
    """Time of the step, in ns since the run's start; -1 unknown."""
    topic: str = ""
    partition: int = -1
    certain: bool = False
    """True if a record of the metadata log and the state before it prove the step, whatever else is missing."""


class Truncation(Document):
    """A truncation: offsets of leader epoch `old_epoch`, from `from_offset` on, which a later leader did not have.

    `to_offset`: offset after the last acknowledged record among them. `new_epoch`, `new_leader`: the later leader.
    `why`: how it became leader, in words. `acked`: number of acknowledged records at these offsets.
    """

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    old_epoch: int
    new_epoch: int
    new_leader: int
    why: str
    acked: int = 0


class Deletion(Document):
    """A deleted incarnation of a topic's partition (from a creation of the topic to its deletion). Times are ns since
    the run's start.

    `created_ns`: its creation. `until_ns`: latest time at which its leader can still have appended; -1 without a
    leader. `again_ns`: creation of the next incarnation; -1 never. An acknowledgement between `again_ns` and `until_ns`
    can belong to either incarnation. `either`: number of acknowledged records that may belong to this incarnation or to
    another one. `first_either`, `last_either`: their lowest and highest offset; -1 without any. `why`: the deletion in
    words.
    """

    topic: str
    partition: int
    topic_id: str
    incarnation: int
    """Number of this incarnation among the topics of this name in the run, from 1."""
    by: str
    """The fault that requested the deletion, as text such as `fault 1 (recreate)`; '' if no fault of the case can have
    requested it."""
    created_ns: int
    removed_ns: int
    """Time of its deletion in the metadata log, by the record at `offset`."""
    until_ns: int
    again_ns: int
    offset: int
    log_end: int
    """Log end offset of the last leader, if the broker had not removed the log yet; -1 unknown."""
    acked: int = 0
    """Number of acknowledged records that were deleted with it."""
    either: int = 0
    first_either: int = -1
    last_either: int = -1
    why: str


class ClassExplained(Document):
    """Acknowledged records of one class (`lost`, `displaced`, `expired`, `compacted`, `deleted`): their number, and the
    result of the replay. The replay repeats the observed steps in the reference implementation, and looks for the step
    that removed each record.

    `explained`: a step was found; `deleted`: those of them that were deleted with their topic
    (`ConformanceFile.deletions`). `by_interval`: acknowledged without an offset, and explained by an event such as an
    election, or by bytes that no broker had read (`UnplacedLoss.why`). `unexplained`: nothing explains them.
    `not_replayed`: not examined, for the reasons in `ConformanceFile.not_replayed`. For `lost` and `displaced`, `count`
    = `explained` + `by_interval` + `unexplained` + `not_replayed`.
    """

    anomaly: str
    count: int
    explained: int
    by_interval: int = 0
    unexplained: int = 0
    not_replayed: int = 0
    deleted: int = 0


class UnexplainedRecord(Document):
    """An acknowledged record on which the final read and the replay disagree. `why`: both results, in words."""

    anomaly: str
    """Class of the record in the audit; `present` if the replay says that it must be gone but the audit found
    it.
    """
    topic: str
    partition: int
    producer: int
    seq: int
    offset: int
    why: str


class UnplacedLoss(Document):
    """Consecutive missing records that were acknowledged without an offset (acks=0): `first_seq` … `last_seq`.

    `why`: what explains the loss; '' if nothing does. It is an event between the surviving records of the same producer
    and partition just before and just after the missing ones. Or, after the last survivor, bytes that no broker had
    read when the producer closed. A record that was never appended looks the same as one that was truncated.
    """

    topic: str
    partition: int
    producer: int
    first_seq: int
    last_seq: int
    records: int
    why: str


class ElectionSeen(Document):
    """A change of a partition's leader or leader epoch in the metadata log. `observed`: its leader from then on.
    `reference`: the leader that the reference implementation elects in the state before. -1 in either: no leader.

    `cause`: the controller's step, in words; `forbidden` if no step leads there. `offset`: offset of the record in the
    metadata log; -1: unknown.
    """

    topic: str
    partition: int
    leader_epoch: int
    observed: int
    reference: int
    cause: str
    offset: int = -1


class ConformanceFile(Document):
    """`conformance.json`: result of replaying the observed run (metadata log, samples of logs, losses) through the
    reference implementation."""

    replayed: int = 0
    """Number of replayed steps: records of the metadata log, samples, acknowledged offsets."""
    steps: dict[str, int] = Field(default_factory=dict)
    """Number of steps by kind (`fenced`, `ISR shrunk by its leader`, `preferred election`, …)."""
    forbidden: ForbiddenStep | None = None
    """The first forbidden step by time, those of unknown time last; None if there is none."""
    forbidden_steps: int = 0
    """Number of forbidden steps. Later ones may be consequences of the first."""
    more_forbidden: tuple[ForbiddenStep, ...] = ()
    """The next forbidden steps in the same order, a limited number."""
    truncations: tuple[Truncation, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    classes: tuple[ClassExplained, ...] = ()
    must_be_gone: int = 0
    """Number of acknowledged offsets that must be gone according to the replay."""
    either_way: int = 0
    """Number of acknowledged offsets of an unknown epoch. The replay explains both their loss and their presence."""
    present: int = 0
    """Number of offsets that must be gone according to the replay but are in the final read."""
    unexplained: tuple[UnexplainedRecord, ...] = ()
    """Examples of records on which audit and replay disagree. `classes` and `present` have their numbers."""
    intervals: tuple[UnplacedLoss, ...] = ()
    """Examples of losses at acks=0."""
    elections: tuple[ElectionSeen, ...] = ()
    not_replayed: tuple[str, ...] = ()
    """Parts of the run that could not be replayed, each with the reason."""

    @property
    def unexplained_records(self) -> int:
        """Number of lost or displaced records that no observed step explains. The judge counts them against Kafka under
        any settings."""
        return sum(explained.unexplained for explained in self.classes)


class StoryStep(Document):
    """One step of a counterexample: `actor` acts on `target` ("" for none). `changed`: (name, new value) of
    each part of the model's state that the step changed."""

    actor: str
    target: str = ""
    text: str
    changed: tuple[tuple[str, str], ...] = ()


class PredictedClass(Document):
    """The model's prediction for one anomaly class. `topics`: topics to which it applies; empty: the whole case, or
    only `partitions`. `why`: its reason, in words."""

    anomaly: str
    chance: Chance
    why: str
    story: tuple[str, ...] = ()
    """The shortest counterexample in readable lines; empty if the class is not possible or a rule answered."""
    ending: str = ""
    """The finding of the last step, in words; '' without a counterexample, and in files of older versions."""
    steps: tuple[StoryStep, ...] = ()
    """The counterexample of `story` as steps for a sequence diagram."""
    explored: bool = True
    """True if the answer comes from the exploration, False if from a rule, which `why` names."""
    by_settings: bool | None = None
    """True if the settings of the case alone answer; None: not recorded, as in files of older versions."""
    topics: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    """Partitions such as `orders/0` for which this answer replaces the one of their topics; empty: it is about whole
    topics."""


class PredictedGroupClass(Document):
    """Answer of the reference implementation on one anomaly class of one consumer group. `why`: the reason in words;
    of a search, the size of the explored world. `steps`: shortest sequence of steps that leads to the anomaly, in
    words; () unless a search found one."""

    group: str
    anomaly: str
    chance: Chance
    why: str
    steps: tuple[str, ...] = ()


class PredictionFile(Document):
    """`prediction.json`: which anomalies can happen with these settings and faults. `states`: number of states that the
    search visited. `seconds`: duration of the search."""

    classes: tuple[PredictedClass, ...] = ()
    rules: str = ""
    """The protocol variant, as `ackproof explore --rules` takes it."""
    scope: str = ""
    """Size of the explored world."""
    faults: tuple[str, ...] = ()
    """The faults in the explored world, each with its source."""
    observed: bool = False
    """True if the faults are those observed in a run; False if they are those that the case plans."""
    states: int = 0
    seconds: float = 0.0
    reductions: tuple[str, ...] | None = None
    """Reductions of the search on which the answers depend. Empty: a plain search. None: no search, or not recorded."""
    clamped: tuple[str, ...] = ()
    """Numbers of the case that were reduced to fit the exploration."""
    not_predicted: tuple[str, ...] = ()
    """Why there is no prediction, or none for some topics."""
    groups: tuple[PredictedGroupClass, ...] = ()
    """Answers on consumer groups. Files of older versions, and runs without groups, have none."""

    def find_class(self, anomaly: str, topic: str | None = None) -> PredictedClass | None:
        """Return the gravest prediction for a class; None if there is none.

        `topic`: only predictions about this topic, or about the whole case, without those about single partitions
        (`find_partitions`). None: all predictions.
        """
        found = [answer for answer in self.classes if answer.anomaly == anomaly]
        if topic is not None:
            found = [one for one in found if not one.partitions and topic in (one.topics or (topic,))]
        return min(found, key=lambda answer: GRAVEST_FIRST.index(answer.chance), default=None)

    def find_partitions(self, anomaly: str) -> tuple[PredictedClass, ...]:
        """Return the predictions for a class that are about single partitions."""
        return tuple(answer for answer in self.classes if answer.anomaly == anomaly and answer.partitions)


class SimulatedSpread(Document):
    """Spread of one quantity over the simulated runs of a case, without the `incomplete` ones. The unit is records, or
    ms if the name ends in `ms`. If no run knows the quantity, `runs` is 0, and quantiles and means are -1.

    `runs`: number of runs in which the quantity was known. `seen`: number of runs in which it was above 0. `mean_low`,
    `mean_high`: 95 % interval of the mean (percentile bootstrap). `share_low`, `share_high`: 95 % interval of `seen` /
    `runs` (Wilson).
    """

    name: str
    runs: int
    seen: int
    least: float
    p05: float
    p50: float
    p95: float
    most: float
    mean: float
    mean_low: float
    mean_high: float
    share_low: float
    share_high: float


class FirstLeader(Document):
    """Number of simulated runs (`runs`) in which the broker `leader` was the first new leader of any partition after
    the first fault."""

    leader: int
    runs: int


class WorstSeed(Document):
    """A seed whose simulated run had many anomalies, and the command that repeats this run.

    `what`: the quantity by which it was chosen, such as `lost`. `value`: its number in this run.
    """

    seed: int
    what: str
    value: float
    command: str


class ShrunkSchedule(Document):
    """A fault schedule, as small as a search found, that still shows an anomaly at one seed.

    `what`: the quantity that shows it. `value`: its number under this schedule. `before`: number of faults that began
    in the run with the full schedule, without storms. `runs`: number of schedules tried.
    """

    seed: int
    what: str
    value: float
    faults: tuple[str, ...]
    before: int
    runs: int


class SimulationFile(Document):
    """Results of all simulated runs of one case. `runs`: number of these runs. `first_seed`: seed of the first; the
    others are the next integers. In a run's folder it is 0, and the seeds begin at that of the case.

    `incomplete`: number of runs whose final read was incomplete, or in which a fault was not confirmed. They count in
    `runs` and are left out of `spreads`, `elected` and `worst`. `linger_ms`: time for which a producer fills a batch.
    `coarseness`: number of records that all producers together gather in that time. Counts are exact only to about this
    number, because a batch is simulated as a whole. `seconds`: duration of the simulation. `spreads`: one per quantity.
    `elected`: first leaders after the first fault. `worst`: seeds with the most lost records, duplicates or
    unavailability.
    """

    case: str
    settings: dict[str, Scalar] = Field(default_factory=dict)
    runs: int = 0
    incomplete: int = 0
    first_seed: int = 0
    linger_ms: float = 0.0
    coarseness: float = 0.0
    seconds: float = 0.0
    spreads: tuple[SimulatedSpread, ...] = ()
    elected: tuple[FirstLeader, ...] = ()
    worst: tuple[WorstSeed, ...] = ()
    shrunk: ShrunkSchedule | None = None
    """The smallest schedule of faults that shows an anomaly; None if none was searched or found."""

    def spread(self, name: str) -> SimulatedSpread | None:
        """Return the spread of one quantity; None if the file does not have it."""
        return next((quantity for quantity in self.spreads if quantity.name == name), None)


class SweepFile(Document):
    """Output of `ackproof simulate --json`: all cases, and the exit code of the command."""

    cases: tuple[SimulationFile, ...]
    exit_code: int = 0
