"""What happened in a run that never was: facts that a strategy drew. A run directory is written of them (`written`),
and each quantity is counted of them (the files beside) by the words of `docs/quantities.md`, with plain loops."""

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
"""Between which numbers it lies, in the unit of the quantity; None: unknown."""
Spans: TypeAlias = list[tuple[float, float]] | None
"""When a window was, in ns; None: it never was."""


class Fault(NamedTuple):
    """Its times in ns; None: that never came."""

    asked: int
    confirmed: int | None = None
    healed: int | None = None
    over: int | None = None
    kind: str = "kill"
    nodes: tuple[int, ...] = (1,)


class Attempt(NamedTuple):
    """A produce call; `done` -1: it was never told. `txn` -1: of none."""

    partition: int
    sent: int
    done: int
    outcome: int
    error: int = 0
    offset: int = -1
    txn: int = -1


class Read(NamedTuple):
    """A record that a reader was handed."""

    reader: str
    partition: int
    at: int
    offset: int
    phase: int = 0


class Try(NamedTuple):
    """An attempt of a reader to commit; `done` -1: it was never answered."""

    begun: int
    done: int
    error: str
    partitions: tuple[int, ...] = (0,)


class Scraped(NamedTuple):
    """What a node told of its metrics; None: it did not answer."""

    at: int
    done: int
    node: int
    values: dict[str, float] | None


@dataclass(frozen=True)
class Facts:
    """A run. Faults count from 1."""

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
    """Whether the metadata log has its last line."""
    zookeeper: bool = False
    disks: ReplicasFile | None = None
    batches: Sequence[dict[str, Any]] = ()
    scrapes: Sequence[Scraped] = ()
    lives: Sequence[tuple[int, int, bool]] = ()
    """When, which node, and whether it was started (else it ended)."""
    steps: Sequence[tuple[int, int]] = ()
    """Notes in the timeline: when, and by how much the wall clock was ahead then, in ns."""
    counts: Mapping[str, int] | None = None

    def place(self, partition: int) -> TopicPartition:
        return TopicPartition(TOPIC, partition)


Count: TypeAlias = Callable[[Facts, Ask, Window], Bounds]
Look: TypeAlias = tuple[int, float]
"""When, in ns, and the number then."""
Looks: TypeAlias = Mapping[str, list[Look]]
"""Of each thing that is asked about."""


def asked_for(ask: Ask, partitions: Iterable[int]) -> list[int]:
    """Those of the partitions that are asked about."""
    return [one for one in sorted(set(partitions)) if ask.place in (None, TopicPartition(TOPIC, one))]


def fault_of(facts: Facts, ask: Ask) -> Fault | None:
    """The one that is asked about, if it was confirmed."""
    number = ask.fault or 0
    if not 1 <= number <= len(facts.faults) or facts.faults[number - 1].confirmed is None:
        return None
    return facts.faults[number - 1]


def since(fault: Fault, low: float, high: float) -> tuple[float, float]:
    """From when a fault began, between asked and confirmed, until something between these two times; in s."""
    assert fault.confirmed is not None
    return max(0.0, low - fault.confirmed) / 1e9, max(0.0, high - fault.asked) / 1e9


def most(each: Iterable[tuple[float, float]]) -> Bounds:
    """The greatest of several numbers."""
    every = list(each)
    return (max(low for low, _ in every), max(high for _, high in every)) if every else None


def least(each: Iterable[tuple[float, float]]) -> Bounds:
    """The smallest of several numbers."""
    every = list(each)
    return (min(low for low, _ in every), min(high for _, high in every)) if every else None


def spans(facts: Facts, window: Window) -> Spans:
    """`docs/experiments.md`: `during fault N` from its confirmation until its healing is asked for, `after fault N`
    from its confirmation on; a fault is at work from when it is asked for until its healing is confirmed."""
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
    """The part of it that lies under load; empty where none does."""
    found = spans(facts, window)
    if found is None:
        return None
    cut = [(max(begin, facts.begins), min(end, facts.ends)) for begin, end in found]
    return [(begin, end) for begin, end in cut if begin < end]


def inside(at: float, found: list[tuple[float, float]]) -> bool:
    """Whether a time lies in one of these, their ends excluded."""
    return any(begin <= at < end for begin, end in found)
