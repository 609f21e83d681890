"""Documents that the reference implementation writes: `conformance.json`, `prediction.json`, `simulation.json`.

Writers: `ackproof_model.replay`, `ackproof.judge.oracle`, `ackproof_simulator.sweep`. The judge and the
reports read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from pydantic import Field

from ackproof.rundir.documents import Document, Scalar


class ForbiddenStep(Document):
    """A step that the protocol does not allow in the state in which it was observed."""

    rule: str
    """Name of the rule, such as `election out of the ISR`."""
    text: str
    """The observed step, as a sentence."""
    state_before: str
    """State of the partition and the brokers before the step, readable."""
    source: str
    """Source of the rule: a KIP, or a class of Kafka."""
    offset: int = -1
    """Offset of the record in the metadata log (in ZooKeeper mode: zxid); -1 for a step that is not in it."""
    t_ns: int = -1
    """Time since the run's start; -1 unknown."""
    topic: str = ""
    partition: int = -1


class Truncation(Document):
    """Offsets of a leader epoch that a later leader did not have: `from_offset` … `to_offset - 1`.

    `acked`: number of acknowledged records among them.
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
    """A deleted incarnation of a topic's partition. Times in ns of the run.

    Between `again_ns` and `until_ns` an acknowledgement can be of this incarnation or of the next one.
    """

    topic: str
    partition: int
    topic_id: str
    incarnation: int
    """Number of the incarnation, from 1, among those of this name in the run."""
    by: str
    """The fault that asked for the deletion; '' unknown."""
    created_ns: int
    removed_ns: int
    """Time of its deletion in the metadata log, at `offset`."""
    until_ns: int
    """Latest time at which its leader can have appended."""
    again_ns: int
    """Creation of the next incarnation; -1 never."""
    offset: int
    log_end: int
    """Log end offset of the last leader, if the broker had not removed the log yet; -1 unknown."""
    acked: int = 0
    """Acknowledged records that were deleted with it."""
    either: int = 0
    """Number of acknowledged offsets, `first_either` … `last_either`, that may be of this incarnation or of
    the next one."""
    first_either: int = -1
    last_either: int = -1
    why: str


class ClassExplained(Document):
    """One class of loss (`lost`, `displaced`, `expired`), and how many of its records the replay explains.

    `count` = `explained` + `by_interval` + `unexplained` + `not_replayed`. `by_interval`: acks without an offset.
    """

    anomaly: str
    count: int
    explained: int
    by_interval: int = 0
    unexplained: int = 0
    not_replayed: int = 0
    """Records on partitions that cannot be replayed: see `ConformanceFile.not_replayed`."""
    deleted: int = 0
    """Explained records that went with a deleted topic: see `ConformanceFile.deletions`."""


class UnexplainedRecord(Document):
    """An acknowledged record on which the final read and the replay disagree."""

    anomaly: str
    """Its class in the audit; `present` if the replay says that it must be gone and the audit found it."""
    topic: str
    partition: int
    producer: int
    seq: int
    offset: int
    why: str


class UnplacedLoss(Document):
    """Consecutive missing records that were acknowledged without an offset (acks=0): `first_seq` … `last_seq`.

    `why`: the event between the last surviving record of the producer and partition before them and the first
    one after. Empty: there was none, and the records are unexplained. A record that was never appended and
    one that was truncated look the same.
    """

    topic: str
    partition: int
    producer: int
    first_seq: int
    last_seq: int
    records: int
    why: str


class ElectionSeen(Document):
    """A new leader or epoch, and the leader that the reference elects in that state. -1: none."""

    topic: str
    partition: int
    leader_epoch: int
    observed: int
    reference: int
    cause: str
    offset: int = -1


class ConformanceFile(Document):
    """`conformance.json`."""

    replayed: int = 0
    """Number of replayed steps: records of the metadata log, samples, acknowledged offsets."""
    steps: dict[str, int] = Field(default_factory=dict)
    """Number of steps by kind (`fenced`, `ISR shrunk by its leader`, `preferred election`, …)."""
    forbidden: ForbiddenStep | None = None
    """The first forbidden step; None if there is none."""
    forbidden_steps: int = 0
    """Number of forbidden steps. Later ones may follow from the first."""
    more_forbidden: tuple[ForbiddenStep, ...] = ()
    """Examples of further forbidden steps."""
    truncations: tuple[Truncation, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    classes: tuple[ClassExplained, ...] = ()
    must_be_gone: int = 0
    """Acknowledged offsets that must be gone according to the replay."""
    either_way: int = 0
    """Acknowledged offsets of an unknown epoch: both gone and kept would be explained."""
    present: int = 0
    """Offsets that must be gone, and that the final read holds nevertheless."""
    unexplained: tuple[UnexplainedRecord, ...] = ()
    """Examples; `classes` and `present` have the numbers."""
    intervals: tuple[UnplacedLoss, ...] = ()
    """Examples of losses at acks=0."""
    elections: tuple[ElectionSeen, ...] = ()
    not_replayed: tuple[str, ...] = ()
    """Parts of the run that could not be replayed, with the reason."""

    @property
    def unexplained_records(self) -> int:
        """Return the number of lost records that no observed step explains: FAIL under any settings."""
        return sum(explained.unexplained for explained in self.classes)


class Chance(StrEnum):
    """Answer to "may this class of anomaly happen?", of a prediction, of settings and of a ruling."""

    IMPOSSIBLE = "impossible"
    """No interleaving within the scope leads to it, or the settings promise that none does."""
    POSSIBLE = "possible"
    UNKNOWN = "unknown"


GRAVEST_FIRST: Final = (Chance.POSSIBLE, Chance.UNKNOWN, Chance.IMPOSSIBLE)


class StoryStep(Document):
    """One step of a story: `actor` acts on `target` ("" none); `changed`: cells with their new values."""

    actor: str
    target: str = ""
    text: str
    changed: tuple[tuple[str, str], ...] = ()


class PredictedClass(Document):
    """The prediction of one anomaly class. `topics`: for these only; empty: for the whole case."""

    anomaly: str
    chance: Chance
    why: str
    story: tuple[str, ...] = ()
    """The shortest counterexample in readable lines, where the class is possible and the exploration reached it."""
    steps: tuple[StoryStep, ...] = ()
    """The same steps for a sequence diagram."""
    explored: bool = True
    """True if the exploration answered; else a rule did, and `why` names it."""
    topics: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    """For these partitions only (as `orders/0`), in place of their topics' answer; empty: all."""


class PredictionFile(Document):
    """`prediction.json`. Times in seconds."""

    classes: tuple[PredictedClass, ...] = ()
    rules: str = ""
    """The protocol variant, as `ackproof explore --rules` takes it."""
    scope: str = ""
    """Size of the explored world."""
    faults: tuple[str, ...] = ()
    """The faults in the explored world, each with its source."""
    observed: bool = False
    """True if the faults are those observed in a run, False if they are those that a case plans."""
    states: int = 0
    seconds: float = 0.0
    reductions: tuple[str, ...] | None = None
    """Reductions of the search on which the answers rest; empty: a plain search; None: not recorded."""
    clamped: tuple[str, ...] = ()
    """Numbers that were reduced to fit the exploration."""
    not_predicted: tuple[str, ...] = ()
    """Why there is no prediction, or none for some topics."""

    def find_class(self, anomaly: str, topic: str | None = None) -> PredictedClass | None:
        """Return the answer for a class on a topic (None: the gravest of all topics); None if there is none."""
        found = sorted(
            self._candidates(anomaly, topic), key=lambda answer: GRAVEST_FIRST.index(answer.chance)
        )
        return found[0] if found else None

    def _candidates(self, anomaly: str, topic: str | None) -> Iterator[PredictedClass]:
        for answer in self.classes:
            of_topic = not answer.partitions and (not answer.topics or topic in answer.topics)
            if answer.anomaly == anomaly and (topic is None or of_topic):
                yield answer

    def find_partitions(self, anomaly: str) -> tuple[PredictedClass, ...]:
        """Return the answers for a class on single partitions."""
        return tuple(answer for answer in self.classes if answer.anomaly == anomaly and answer.partitions)


class SimulatedSpread(Document):
    """One quantity over all simulated runs: records, or ms if the name ends so. -1: in no run.

    `runs`: number of runs in which it was known; `seen`: in which it was above 0. `mean_low`, `mean_high`: 95
    % interval of the mean (percentile bootstrap). `share_low`, `share_high`: 95 % interval of `seen` / `runs`
    (Wilson).
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
    """Number of runs in which a broker was the first leader after the first fault."""

    leader: int
    runs: int


class WorstSeed(Document):
    """A seed with many anomalies, and the one command that repeats it."""

    seed: int
    what: str
    value: float
    command: str


class ShrunkSchedule(Document):
    """The smallest fault schedule that still shows a finding at one seed; `runs`: number of schedules tried."""

    seed: int
    what: str
    value: float
    faults: tuple[str, ...]
    before: int
    runs: int


class SimulationFile(Document):
    """Simulated runs of one case. `linger_ms`: how long a batch gathers records; counts are as coarse as a batch."""

    case: str
    settings: dict[str, Scalar] = Field(default_factory=dict)
    runs: int = 0
    incomplete: int = 0
    """Runs that count nowhere: their final read was incomplete, or a fault was not confirmed."""
    first_seed: int = 0
    linger_ms: float = 0.0
    coarseness: float = 0.0
    """Granularity of counts: records that all producers together gather in `linger_ms`."""
    seconds: float = 0.0
    spreads: tuple[SimulatedSpread, ...] = ()
    elected: tuple[FirstLeader, ...] = ()
    worst: tuple[WorstSeed, ...] = ()
    shrunk: ShrunkSchedule | None = None

    def spread(self, name: str) -> SimulatedSpread | None:
        """Return the spread of one quantity; None if it has none."""
        return next((quantity for quantity in self.spreads if quantity.name == name), None)


class SweepFile(Document):
    """`ackproof simulate --json`: all cases."""

    cases: tuple[SimulationFile, ...]
    exit_code: int = 0
