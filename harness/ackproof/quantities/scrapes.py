"""One metric over time, of one node or of all nodes together: its number at each round of scrapes, and times without
usable rounds.

A round is usable if every live node with the metric answered. A dead node has no metrics, and the timeline says when it
was dead. A live node that did not answer may have had any number.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.over_time import Observations
from ackproof.rundir.lifelines import Spans
from ackproof.rundir.metrics import EVERY_S, Metric, Scrape, Shape

HOLE_NS: Final = 5_000_000_000
"""A time between two usable rounds is a hole if it is longer than this (ns). Rounds are a second apart; a busy machine
may drop one or two."""
_DIES_NS: Final = int(EVERY_S * 1e9)
"""A node that ends within this time (ns) after a scrape began need not have answered."""
_NOT_ASKED: Final = "nobody scraped metrics; they take observe: {metrics: true}"


@dataclass(frozen=True)
class Round:
    """One scrape of all nodes: requested at `t_ns`, last answer at `done_ns`, in ns since the run began.

    `number`: the metric over all nodes that answered; for a counter its increase since the first round, over all
    nodes that answered by then. None if none of these has it.
    """

    t_ns: int
    done_ns: int
    number: float | None


@dataclass(frozen=True)
class Hole:
    """Time without usable scrapes of a metric, in ns since the run began. `why`: the cause, without the times.

    It lies between two usable rounds of scrapes that are more than `HOLE_NS` apart; the begin and the end of the load
    count as such rounds. In `Scraped.gone` it is the time from the last scrape of a process to its end.
    """

    begin: float
    end: float
    why: str

    def __str__(self) -> str:
        return f"{self.why} from {self.begin / 1e9:.3f} s to {self.end / 1e9:.3f} s"


@dataclass(frozen=True)
class Scraped:
    """One metric over time, of one node or of all nodes together. Numbers of a counter are increases since the first
    round.

    `rounds`: usable rounds of scrapes, in order of time. `holes`: times without a usable round, in order of time.
    `gone`: times from the last scrape of a process to its end, for counters only. An increase in such a time was never
    scraped.
    """

    rounds: Sequence[Round]
    holes: Sequence[Hole]
    gone: Sequence[Hole] = ()

    def hole(self, begin: float, end: float) -> Hole | None:
        """Return the first hole that overlaps the time from `begin` to `end` (ns since the run began); None if none
        does."""
        return _first_overlap(self.holes, begin, end)

    def lost(self, begin: float, end: float) -> Hole | None:
        """Return the first time in `gone` (counts that ended with a process) that overlaps the time from `begin` to
        `end` (ns since the run began); None if none does."""
        return _first_overlap(self.gone, begin, end)

    def inside(self, begin: float, end: float) -> list[Round]:
        """Return the rounds that were requested from `begin` to before `end` (ns since the run began) and have a
        number."""
        return [one for one in self.rounds if begin <= one.t_ns < end and one.number is not None]


@dataclass(frozen=True)
class ScrapedObservations(Observations):
    """Numbers of a metric as observations of a state. `holes`: times without usable scrapes; only these count
    as holes, not every long time without a number."""

    holes: Sequence[Hole] = ()

    def hole(self, begin: float, end: float, *, first_ns: int = 0) -> str:
        """Return the first hole in the scrapes that overlaps the time from `begin` to `end` (ns), in words;
        '' if there is none. `first_ns` has no effect."""
        del first_ns
        return str(_first_overlap(self.holes, begin, end) or "")


def _first_overlap(holes: Sequence[Hole], begin: float, end: float) -> Hole | None:
    return next((one for one in holes if one.begin < end and begin < one.end), None)


def scraped(evidence: Evidence, metric: Metric, node: int | None) -> Scraped | str:
    """Return the rounds and holes of a metric: of one node, or (`node` None) of all nodes combined.

    Returns a text instead if no node ever answered with this metric: it says why. Raises `BadInput`, OSError or
    ArrowException if the scrapes cannot be read.
    """
    scrapes = evidence.scrapes
    if not scrapes:
        return _NOT_ASKED
    asked = [one for one in sorted(scrapes) if node in (None, one)]
    if not asked:
        return f"node {node} was never asked for its metrics"
    has = {one for one in asked if any(metric.name in (it.values or ()) for it in scrapes[one])}
    # A node that never answered may have the metric.
    silent = {one for one in asked if all(it.values is None for it in scrapes[one])}
    table = _Table(evidence, {one: scrapes[one] for one in sorted(has | silent)}, metric)
    times = sorted({one.t_ns for each in scrapes.values() for one in each})
    found = Scraped(
        *table.rounds_and_holes(times), table.lost_counts() if metric.shape is Shape.COUNTER else ()
    )
    if has:
        return found
    return str(found.holes[0]) if found.holes else f"no node has {metric.name} in this run"


class _Table:
    """Scrapes of one metric from the nodes that have it or may have it, from which `scraped` derives rounds, holes and
    lost counts."""

    def __init__(self, evidence: Evidence, scrapes: Mapping[int, Sequence[Scrape]], metric: Metric) -> None:
        self._begin, self._end = evidence.load_begins, evidence.load_ends
        self._lives = {node: evidence.lifelines.node(node).spans for node in scrapes}
        self._at = {(node, one.t_ns): one for node, each in scrapes.items() for one in each}
        self._metric = metric
        self._first_ns = min(one.t_ns for each in evidence.scrapes.values() for one in each)
        self._added = (
            {
                node: _added(each, self._lives[node], metric.name, self._first_ns)
                for node, each in scrapes.items()
            }
            if metric.shape is Shape.COUNTER
            else {}
        )

    def rounds_and_holes(self, times: Sequence[int]) -> tuple[list[Round], list[Hole]]:
        rounds: list[Round] = []
        missing: dict[int, list[int]] = {}
        for t_ns in times:
            one = self._round(t_ns)
            if isinstance(one, Round):
                rounds.append(one)
            else:
                missing[t_ns] = one
        end = max(self._end, times[-1])
        edges = [self._begin, *(one.t_ns for one in rounds if one.t_ns > self._begin), end]
        holes = [
            Hole(one, two, _why(sorted({node for at in missing if one <= at <= two for node in missing[at]})))
            for one, two in pairwise(edges)
            if two - one > HOLE_NS
        ]
        return rounds, holes

    def lost_counts(self) -> list[Hole]:
        """Return, for each process of a node that ended, the time from its last answered scrape to its end. Without
        such a scrape, the time begins with the process, or with the first round."""
        answered: dict[int, list[float]] = {node: [] for node in self._lives}
        for (node, t_ns), scrape in self._at.items():
            if scrape.values is not None:
                answered[node].append(t_ns)
        return [
            Hole(
                max([begin, self._first_ns, *(t_ns for t_ns in answered[node] if t_ns < end)]),
                end,
                f"what node {node} counted before its end is gone",
            )
            for node, spans in self._lives.items()
            for begin, end in spans
            if end < math.inf
        ]

    def _round(self, t_ns: int) -> Round | list[int]:
        """Return the metric over all nodes in the round of scrapes at `t_ns`. If live nodes did not answer, return
        their ids instead."""
        silent, numbers, done = [], [], t_ns
        for node, spans in self._lives.items():
            scrape = self._at.get((node, t_ns))
            if scrape is not None and scrape.values is not None:
                done = max(done, scrape.done_ns)
            elif any(begin <= t_ns and t_ns + _DIES_NS < end for begin, end in spans):
                silent.append(node)
            numbers += self._numbers(node, t_ns, scrape)
        if silent:
            return silent
        return Round(t_ns, done, self._metric.combine(numbers) if numbers else None)

    def _numbers(self, node: int, t_ns: int, scrape: Scrape | None) -> list[float]:
        if self._metric.shape is Shape.COUNTER:
            # What a node had counted stays counted when it is dead.
            times, added = self._added[node]
            before = bisect_right(times, t_ns)
            return [added[before - 1]] if before else []
        number = self._metric.value_in(scrape.values if scrape is not None else None)
        return [] if number is None else [number]


def _added(
    scrapes: Sequence[Scrape], spans: Spans, name: str, first_ns: int
) -> tuple[list[int], list[float]]:
    """Return two lists: the times of a node's answers with the counter `name`, and the counter's increase since the
    first round at each.

    A process counts from 0. So if the counter falls or the node restarts, the whole new count is added to the increase.
    `spans`: lifetimes of the node's processes. `first_ns`: time of the first round. The increase at the first answer is
    0 or, if its process started after `first_ns`, the whole count.
    """
    times: list[int] = []
    added: list[float] = []
    total, last, life = 0.0, 0.0, -math.inf
    for scrape in scrapes:
        value = (scrape.values or {}).get(name)
        if value is None:
            continue
        born = max((begin for begin, _ in spans if begin <= scrape.t_ns), default=-math.inf)
        if not times:
            total = value if born > first_ns else 0.0
        elif born != life or value < last:
            total += value
        else:
            total += value - last
        last, life = value, born
        times.append(scrape.t_ns)
        added.append(total)
    return times, added


def _why(silent: Sequence[int]) -> str:
    if not silent:
        return "nobody asked for metrics"
    if len(silent) == 1:
        return f"node {silent[0]} lived and did not tell its metrics"
    return f"nodes {', '.join(map(str, silent))} lived and did not tell their metrics"
