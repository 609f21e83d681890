"""`conformance.json`: an observed run replayed through the reference core, and what its steps explain.

Written by `ackproof_model.replay`; the judge and the reports read it.
"""

from __future__ import annotations

from pydantic import Field

from ackproof.rundir.documents import Document


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


class Unexplained(Document):
    """An acknowledged record of which the final read and the replay say different things."""

    anomaly: str
    """Its class in the audit; `present` where the replay says that it must be gone and the audit found it."""
    topic: str
    partition: int
    producer: int
    seq: int
    offset: int
    why: str


class Interval(Document):
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
    unexplained: tuple[Unexplained, ...] = ()
    """Examples; the numbers are in `classes` and `present`."""
    intervals: tuple[Interval, ...] = ()
    """Examples of what acks=0 lost."""
    elections: tuple[ElectionSeen, ...] = ()
    not_replayed: tuple[str, ...] = ()
    """What could not be replayed, and why."""

    @property
    def unexplained_records(self) -> int:
        """Lost and explained by no observed step: FAIL under any settings."""
        return sum(explained.unexplained for explained in self.classes)
