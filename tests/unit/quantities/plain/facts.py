"""Facts of an invented run, which a strategy draws. `written` makes a run directory of them, and the other modules here
measure each quantity from them with plain loops, as `docs/quantities.md` defines it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from ackproof.quantities.quantity import Ask
from ackproof.rundir.bounds import Span, Window
from ackproof.rundir.metadata import MetadataRecord
from ackproof.rundir.observed import BrokerRound, FetchSources, Sample
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.replicas import ReplicasFile

MS = 1_000_000
SECOND = 1000 * MS
TOPIC = "orders"
Bounds: TypeAlias = tuple[float, float] | None
"""Least and greatest possible value of a quantity, in its unit; None: unknown."""
Spans: TypeAlias = list[tuple[float, float]] | None
"""Times (begin, end) of a window, in ns; None: it never came."""


class Fault(NamedTuple):
    """A fault that hit `nodes`. Times in ns since the run began; None: the event did not occur. `over`: its healing was
    confirmed."""

    asked: int
    confirmed: int | None = None
    healed: int | None = None
    over: int | None = None
    kind: str = "kill"
    nodes: tuple[int, ...] = (1,)


class Attempt(NamedTuple):
    """A produce call. Times in ns since the run began; `done` -1: no delivery report. `txn` -1: in no transaction."""

    partition: int
    sent: int
    done: int
    outcome: int
    error: int = 0
    offset: int = -1
    txn: int = -1


class Read(NamedTuple):
    """A record that a reader got at `at` (ns since the run began). `phase`: a `ReadPhase`."""

    reader: str
    partition: int
    at: int
    offset: int
    phase: int = 0


class Try(NamedTuple):
    """A reader's attempt to commit offsets of these partitions, in ns since the run began; `done` -1: no answer."""

    begun: int
    done: int
    error: str
    partitions: tuple[int, ...] = (0,)


class Scraped(NamedTuple):
    """One scrape of a node, requested at `at` and answered at `done` (ns). `values`: by metric; None: no answer."""

    at: int
    done: int
    node: int
    values: dict[str, float] | None


@dataclass(frozen=True)
class Facts:
    """Facts of one run. The first of `faults` has number 1. `committed`: numbers of committed transactions. `tries`,
    `fetching`: by reader."""

    begins: int = 0
    ends: int = 10 * SECOND
    faults: Sequence[Fault] = ()
    attempts: Sequence[Attempt] = ()
    committed: frozenset[int] = frozenset()
    reads: Sequence[Read] = ()
    readers: Sequence[str] = ()
    tries: Mapping[str, Sequence[Try]] = field(default_factory=dict)
    fetching: Mapping[str, Sequence[FetchSources]] = field(default_factory=dict)
    samples: Sequence[Sample] = ()
    rounds: Sequence[BrokerRound] = ()
    records: Sequence[MetadataRecord] = ()
    ended: bool = True
    """True if the metadata log has its last line (`LogEnded`)."""
    zookeeper: bool = False
    disks: ReplicasFile | None = None
    batches: Sequence[dict[str, Any]] = ()
    scrapes: Sequence[Scraped] = ()
    lives: Sequence[tuple[int, int, bool]] = ()
    """(Time in ns, node, True for a start and False for an end) of each start and end of a node."""
    steps: Sequence[tuple[int, int]] = ()
    """(Time, lead of the wall clock then), in ns, of each note in the timeline."""
    counts: Mapping[str, int] | None = None

    def place(self, partition: int) -> TopicPartition:
        return TopicPartition(TOPIC, partition)


Count: TypeAlias = Callable[[Facts, Ask, Window], Bounds]
Look: TypeAlias = tuple[int, float]
"""(Time in ns, number) of one observation of a state."""
Looks: TypeAlias = Mapping[str, list[Look]]
"""Observations by the name of what was observed, such as a partition."""


def asked_for(ask: Ask, partitions: Iterable[int]) -> list[int]:
    """Return those of `partitions` that the question is about, ascending and each once."""
    return [one for one in sorted(set(partitions)) if ask.place in (None, TopicPartition(TOPIC, one))]


def fault_of(facts: Facts, ask: Ask) -> Fault | None:
    """Return the fault of the question; None if it was not confirmed, or does not exist."""
    number = ask.fault or 0
    if not 1 <= number <= len(facts.faults) or facts.faults[number - 1].confirmed is None:
        return None
    return facts.faults[number - 1]


def since(fault: Fault, low: float, high: float) -> tuple[float, float]:
    """Return the bounds, in s, of the time from the fault's beginning (between request and confirmation) to an event
    between `low` and `high` ns."""
    assert fault.confirmed is not None
    return max(0.0, low - fault.confirmed) / 1e9, max(0.0, high - fault.asked) / 1e9


def most(each: Iterable[tuple[float, float]]) -> Bounds:
    """Return the bounds of the greatest of several numbers, each given by its bounds; None without any."""
    every = list(each)
    return (max(low for low, _ in every), max(high for _, high in every)) if every else None


def least(each: Iterable[tuple[float, float]]) -> Bounds:
    """Return the bounds of the smallest of several numbers, each given by its bounds; None without any."""
    every = list(each)
    return (min(low for low, _ in every), min(high for _, high in every)) if every else None


def spans(facts: Facts, window: Window) -> Spans:
    """Return the times of a window, as docs/experiments.md defines it. `during fault N`: from its confirmation until
    its healing is requested. `after fault N`: from its confirmation on. `during faults`: from the request of a fault
    until its healing is confirmed."""
    if window.span is Span.WHOLE:
        return [(-math.inf, math.inf)]
    if window.fault is not None:
        if not 1 <= window.fault <= len(facts.faults):
            return None
        fault = facts.faults[window.fault - 1]
        if fault.confirmed is None:
            return None
        if window.span is Span.AFTER:
            return [(fault.confirmed, math.inf)]
        ends = [one for one in (fault.healed, fault.over, facts.ends) if one is not None]
        return [(fault.confirmed, ends[0])] if fault.confirmed < ends[0] else None
    work = [(one.asked, facts.ends if one.over is None else one.over) for one in facts.faults]
    edges = sorted({facts.begins, facts.ends, *(edge for each in work for edge in each)})
    found: list[tuple[float, float]] = []
    for begin, end in itertools.pairwise(edges):
        busy = any(asked <= begin and end <= over for asked, over in work)
        if window.span is Span.OUTSIDE and not facts.begins <= begin < facts.ends:
            continue
        if busy is (window.span is Span.DURING_FAULTS):
            if found and found[-1][1] == begin:
                begin = found.pop()[0]
            found.append((begin, end))
    return found or None


def under_load(facts: Facts, window: Window) -> Spans:
    """Return the parts of a window that lie within the load; [] if none does, None if the window never came."""
    found = spans(facts, window)
    if found is None:
        return None
    cut = [(max(begin, facts.begins), min(end, facts.ends)) for begin, end in found]
    return [(begin, end) for begin, end in cut if begin < end]


def inside(at: float, found: list[tuple[float, float]]) -> bool:
    """Return True if `at` lies in one of these times. The begin of each belongs to it, the end does not."""
    return any(begin <= at < end for begin, end in found)
