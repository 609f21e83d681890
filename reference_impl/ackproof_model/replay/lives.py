"""A topic's name can have several lives: each incarnation has its own id, its own logs, and offsets from 0 on.

The metadata log says when one was created and when it was deleted; whom a run has to thank for it, its timeline says.
How far a broker may lag behind that log is said here too.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.spec import ClusterSpec
from ackproof.experiment.timing import longest_time_out
from ackproof.rundir.timeline import EventKind
from ackproof_model.replay.observed import ANYTHING, SLACK_NS, Observed
from ackproof_reference.metadata import Partition


class Moment(NamedTuple):
    """A partition's state from a time on. `clean`: no election from outside of ISR and ELR made it."""

    t_ns: int
    offset: int
    partition: Partition
    cause: str
    clean: bool


class Removal(NamedTuple):
    """A topic was deleted: when, by which record of the metadata log, and by which fault ('' nobody's)."""

    t_ns: int
    offset: int
    by: str


@dataclass
class Life:
    """One incarnation of a partition: its states from its creation on, and its topic's end."""

    topic_id: str = ""
    history: list[Moment] = field(default_factory=list)
    removal: Removal | None = None

    @property
    def began_ns(self) -> int:
        """When it was created."""
        return self.history[0].t_ns


def deleted_by(observed: Observed, topic: str, t_ns: int, done: Set[int]) -> FaultSpec | None:
    """The fault that had been asked to delete a topic when it was deleted: the latest that is not `done` with it."""
    faults = {fault.number: fault for fault in observed.case.faults}
    by = None
    for event in observed.events:
        if event.kind is not EventKind.FAULT_ASKED or event.fault is None or event.t_ns > t_ns + SLACK_NS:
            continue
        fault = faults.get(event.fault)
        if fault is not None and (fault.kind == ANYTHING or (fault.drops(topic) and event.fault not in done)):
            by = fault
    return by


def learns_ns(cluster: ClusterSpec, stall_ns: int = 0) -> int:
    """Until a deposed leader that stays in the ISR must have heard of it, in nanoseconds: twice its session.

    One that is not heard of for a session is fenced, and leaves the ISR with that (ClusterControlManager looks eight
    times a session); the second session is what a broker that is heard of may lag behind the metadata log. One whose
    disk stands still is heard of and learns nothing for `stall_ns`, and once more when it goes on too briefly.
    """
    return 2_000_000 * longest_time_out(cluster, cluster.metadata.session) + 2 * stall_ns


def answered_ns(observed: Observed, topic: str, lives: Sequence[Life], number: int, learns: int) -> int:
    """From when on brokers' answers are of this life of a topic, not of one before it, in ns since the run's start.

    A topic that is made anew is confirmed by every broker that shows it and by leaders that answer for new logs.
    Without that it takes as long as a broker may lag behind the metadata log (`learns`).
    """
    began = lives[number].began_ns
    if number == 0:
        return began
    faults = {fault.number for fault in observed.case.faults if fault.drops(topic)}
    confirmed = [event.t_ns for event in observed.recoveries if event.fault in faults and event.t_ns >= began]
    return min([*confirmed[:1], began + learns])
