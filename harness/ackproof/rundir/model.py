"""`conformance.json`: an observed run replayed through the reference core, and what its steps explain.

Written by `ackproof_model.replay`; the judge and the reports read it.
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
    """Its name in a few words, such as `election out of the ISR`."""
    text: str
    """What was observed, as a sentence."""
    state_before: str
    """The state in which it was: partition and brokers, readable."""
    source: str
    """Where the rule is from: a KIP, or a class of Kafka."""
    offset: int = -1
    """Of the record in the metadata log (in ZooKeeper mode: zxid); -1 for what is not in it."""
    t_ns: int = -1
    """When, since the run's start; -1 unknown."""
    topic: str = ""
    partition: int = -1


class Truncation(Document):
    """Offsets of an epoch that a later leader did not have: `from_offset` … `to_offset - 1`.

    `acked`: how many acknowledged records of that epoch stood there.
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
    """An incarnation of a topic's partition that was deleted, and what it took with it. Times in ns of the run.

    Between `again_ns` and `until_ns` an acknowledgement can be of this incarnation or of the next one.
    """

    topic: str
    partition: int
    topic_id: str
    incarnation: int
    """1 is the first of that name in this run."""
    by: str
    """The fault that had been asked to delete it; '' nobody who is known."""
    created_ns: int
    removed_ns: int
    """When the controllers wrote down its deletion, at `offset` in the metadata log."""
    until_ns: int
    """Until when its leader can have appended at the latest."""
    again_ns: int
    """When the next incarnation was created; -1 never."""
    offset: int
    log_end: int
    """Where the last leader's log ended, if the broker had not removed it yet; -1 not seen."""
    acked: int = 0
    """Acknowledged records that went with it."""
    either: int = 0
    """Acknowledged offsets, `first_either` … `last_either`, of which nothing tells whether they were its."""
    first_either: int = -1
    last_either: int = -1
    why: str


class ClassExplained(Document):
    """One class of loss (`lost`, `displaced`, `expired`) and how much of it the replay explains, record by record.

    `count` = `explained` + `by_interval` + `unexplained` + `not_replayed`. `by_interval`: acks without an offset.
    """

    anomaly: str
    count: int
    explained: int
    by_interval: int = 0
    unexplained: int = 0
    not_replayed: int = 0
    """On partitions that cannot be replayed: see `ConformanceFile.not_replayed`."""
    deleted: int = 0
    """Of those that are explained, how many went with a topic that was deleted: see `ConformanceFile.deletions`."""


class UnexplainedRecord(Document):
    """An acknowledged record of which the final read and the replay say different things."""

    anomaly: str
    """Its class in the audit; `present` where the replay says that it must be gone and the audit found it."""
    topic: str
    partition: int
    producer: int
    seq: int
    offset: int
    why: str


class UnplacedLoss(Document):
    """Records acknowledged without an offset (acks=0) that are missing in a row: `first_seq` … `last_seq`.

    `why`: what lay between the last surviving record of that producer and partition before, and the first after.
    Empty: nothing did, and they are unexplained. Not appended and truncated cannot be told apart.
    """

    topic: str
    partition: int
    producer: int
    first_seq: int
    last_seq: int
    records: int
    why: str


class ElectionSeen(Document):
    """A new leader or epoch, and whom the reference names in that state. -1: nobody."""

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
    """Observed steps that were replayed: records of the metadata log, samples, acknowledged offsets."""
    steps: dict[str, int] = Field(default_factory=dict)
    """How many by kind (`fenced`, `ISR shrunk by its leader`, `preferred election`, …)."""
    forbidden: ForbiddenStep | None = None
    """The first forbidden step, None when there is none."""
    forbidden_steps: int = 0
    """How many there are in all: what follows the first may follow from it."""
    more_forbidden: tuple[ForbiddenStep, ...] = ()
    """Some of the further ones."""
    truncations: tuple[Truncation, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    classes: tuple[ClassExplained, ...] = ()
    must_be_gone: int = 0
    """Acked offsets of which the replay says that they must be gone."""
    either_way: int = 0
    """Acked offsets of which the observation does not tell the epoch: gone and kept would both be explained."""
    present: int = 0
    """Of those that must be gone, how many the final read holds at their offset all the same."""
    unexplained: tuple[UnexplainedRecord, ...] = ()
    """Examples; the numbers are in `classes` and `present`."""
    intervals: tuple[UnplacedLoss, ...] = ()
    """Examples of what acks=0 lost."""
    elections: tuple[ElectionSeen, ...] = ()
    not_replayed: tuple[str, ...] = ()
    """What could not be replayed, and why."""

    @property
    def unexplained_records(self) -> int:
        """Lost and explained by no observed step: FAIL under any settings."""
        return sum(explained.unexplained for explained in self.classes)


class Chance(StrEnum):
    """Answer to "may this class of anomaly happen?", of a prediction, of settings and of a ruling."""

    IMPOSSIBLE = "impossible"
    """No interleaving within the scope leads to it, or the settings promise that none does."""
    POSSIBLE = "possible"
    UNKNOWN = "unknown"


GRAVEST_FIRST: Final = (Chance.POSSIBLE, Chance.UNKNOWN, Chance.IMPOSSIBLE)


class StoryStep(Document):
    """One step of a story: who acts, on whom ("" nobody), what happens, and what it changed (cell, value after)."""

    actor: str
    target: str = ""
    text: str
    changed: tuple[tuple[str, str], ...] = ()


class PredictedClass(Document):
    """What is predicted of one anomaly class. `topics`: for these only; empty: for all of the case."""

    anomaly: str
    chance: Chance
    why: str
    story: tuple[str, ...] = ()
    """The shortest way to it in readable lines, where it is possible and the exploration reached it."""
    steps: tuple[StoryStep, ...] = ()
    """The same for a sequence diagram."""
    explored: bool = True
    """Whether the exploration answered; else a rule did, and `why` says which."""
    topics: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    """For these only (as `orders/0`), whatever is predicted of their topics; empty: for all of them."""


class PredictionFile(Document):
    """`prediction.json`. Times in seconds."""

    classes: tuple[PredictedClass, ...] = ()
    rules: str = ""
    """The protocol variant, as `ackproof explore --rules` takes it."""
    scope: str = ""
    """How large a world was looked at."""
    faults: tuple[str, ...] = ()
    """What was counted, each with where it is from."""
    observed: bool = False
    """Whether the faults are those of a run, not those that a case plans."""
    states: int = 0
    seconds: float = 0.0
    clamped: tuple[str, ...] = ()
    """What was made smaller to be looked at."""
    not_predicted: tuple[str, ...] = ()
    """Why there is no prediction, or none for some topics."""

    def find_class(self, anomaly: str, topic: str | None = None) -> PredictedClass | None:
        """The answer for a class on a topic (None: the gravest of all topics); None when there is none."""
        found = sorted(self._candidates(anomaly, topic), key=lambda one: GRAVEST_FIRST.index(one.chance))
        return found[0] if found else None

    def _candidates(self, anomaly: str, topic: str | None) -> Iterator[PredictedClass]:
        for one in self.classes:
            of_topic = not one.partitions and (not one.topics or topic in one.topics)
            if one.anomaly == anomaly and (topic is None or of_topic):
                yield one

    def find_partitions(self, anomaly: str) -> tuple[PredictedClass, ...]:
        """What is said of a class on single partitions, apart from their topics."""
        return tuple(one for one in self.classes if one.anomaly == anomaly and one.partitions)


class SimulatedSpread(Document):
    """One quantity over all simulated runs: records, or ms where the name ends so. -1: in no run.

    `runs`: in how many it was known; `seen`: in how many it was above 0. `mean_low`, `mean_high`: 95 % interval of the
    mean (percentile bootstrap); `share_low`, `share_high`: 95 % interval of the share `seen` / `runs` (Wilson).
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
    """How often a broker was the first to lead after the first fault."""

    leader: int
    runs: int


class WorstSeed(Document):
    """A seed with much of what must not be, and the one command that repeats it."""

    seed: int
    what: str
    value: float
    command: str


class ShrunkSchedule(Document):
    """The fewest faults that still show a finding at one seed; `runs`: how many schedules were tried."""

    seed: int
    what: str
    value: float
    faults: tuple[str, ...]
    before: int
    runs: int


class SimulationFile(Document):
    """Simulated runs of one case. `linger_ms`: how long a batch takes together; counts are as coarse as a batch."""

    case: str
    settings: dict[str, Scalar] = Field(default_factory=dict)
    runs: int = 0
    incomplete: int = 0
    """Runs whose final read was not complete, or in which a fault did not bite; they are in no number here."""
    first_seed: int = 0
    linger_ms: float = 0.0
    coarseness: float = 0.0
    """Records that all producers together gather in `linger_ms`: counts are known to so many."""
    seconds: float = 0.0
    spreads: tuple[SimulatedSpread, ...] = ()
    elected: tuple[FirstLeader, ...] = ()
    worst: tuple[WorstSeed, ...] = ()
    shrunk: ShrunkSchedule | None = None

    def spread(self, name: str) -> SimulatedSpread | None:
        """One of them by its name."""
        return next((one for one in self.spreads if one.name == name), None)


class SweepFile(Document):
    """`ackproof simulate --json`: all cases."""

    cases: tuple[SimulationFile, ...]
    exit_code: int = 0
