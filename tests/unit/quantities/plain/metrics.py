"""Plain implementation of quantities of metrics, from scrapes."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from ackproof.quantities.quantity import Ask
from ackproof.rundir.bounds import WHOLE, Bound, Mode, Window
from ackproof.rundir.metrics import METRICS, Metric, Shape

from .demands import is_wrong, settles, stale
from .facts import SECOND, Bounds, Count, Facts, Look, Scraped, fault_of, since, spans, under_load

HOLE = 5 * SECOND


@dataclass(frozen=True)
class Told:
    """A metric over time, in ns. `rounds`: (requested, answered, number) of each round in which every live node
    answered; number None: no live node has the metric. `holes`: (begin, end) of times without such a round."""

    rounds: list[tuple[int, int, float | None]]
    holes: list[tuple[float, float]]
    deaths: list[tuple[float, float]]
    """(Last scrape, end) of each process that ended, for nodes with the metric."""

    def numbers(self) -> list[tuple[int, int, float]]:
        return [(at, done, number) for at, done, number in self.rounds if number is not None]

    def hidden(self, begin: float, end: float) -> list[tuple[float, float]]:
        return [one for one in self.holes if one[0] < end and begin < one[1]]


def metric_of(ask: Ask) -> Metric:
    return METRICS[ask.quantity.variant.removeprefix("metric ")]


def told_of(facts: Facts, ask: Ask) -> Told | None:
    metric = metric_of(ask)
    asked = sorted({one.node for one in facts.scrapes if ask.node in (None, one.node)})
    mine = {node: [one for one in facts.scrapes if one.node == node] for node in asked}
    has = [node for node in asked if any(metric.name in (one.values or {}) for one in mine[node])]
    # who never answered may have it
    mute = [node for node in asked if all(one.values is None for one in mine[node])]
    times = sorted({one.at for one in facts.scrapes})
    rounds: list[tuple[int, int, float | None]] = []
    for at in times:
        done, numbers, owing = at, [], False
        for node in [*has, *mute]:
            answer = next((one for one in mine[node] if one.at == at and one.values is not None), None)
            if answer is not None:
                done = max(done, answer.done)
            elif _owes(facts, node, at):
                owing = True
            number = _number(facts, metric, mine[node], node, at)
            numbers += [] if number is None else [number]
        if owing:
            continue
        together = max(numbers, default=0) if metric.greatest else sum(numbers)
        rounds.append((at, done, together if numbers else None))
    if not times:
        return None
    edges = [facts.begins, *(at for at, _, _ in rounds if at > facts.begins), max(facts.ends, times[-1])]
    holes = [(one, two) for one, two in itertools.pairwise(edges) if two - one > HOLE]
    deaths = []
    for node in [*has, *mute]:
        answers = [one.at for one in mine[node] if one.values is not None]
        for birth, death in _lives(facts, node):
            if death != math.inf:
                deaths.append((max([birth, times[0], *(at for at in answers if at < death)]), death))
    return Told(rounds, holes, deaths) if has else None


def _lives(facts: Facts, node: int) -> list[tuple[float, float]]:
    """Return (begin, end) in ns of each process of a node; one without bounds if no event names the node."""
    events = [(at, began) for at, one, began in facts.lives if one == node]
    if not events:
        return [(-math.inf, math.inf)]
    found = []
    begin: float | None = None if events[0][1] else -math.inf
    for at, began in events:
        if began:
            begin = at
        elif begin is not None:
            found.append((begin, float(at)))
            begin = None
    if begin is not None:
        found.append((begin, math.inf))
    return found


def _owes(facts: Facts, node: int, at: int) -> bool:
    """Return True if the node must answer a scrape at `at`: it ran then, and for a second after."""
    return any(begin <= at and at + SECOND < end for begin, end in _lives(facts, node))


def _number(facts: Facts, metric: Metric, scrapes: list[Scraped], node: int, at: int) -> float | None:
    if metric.shape is not Shape.COUNTER:
        for one in scrapes:
            if one.at == at and one.values is not None and metric.name in one.values:
                return one.values[metric.name] * metric.factor
        return None
    first = min(one.at for one in facts.scrapes)
    added: float | None = None
    last, born = 0.0, -math.inf
    for one in scrapes:
        if one.at > at or one.values is None or metric.name not in one.values:
            continue
        value = one.values[metric.name]
        birth = max((begin for begin, _ in _lives(facts, node) if begin <= one.at), default=-math.inf)
        if added is None:
            added = value if birth > first else 0.0
        else:
            added += value if birth != born or value < last else value - last
        last, born = value, birth
    return added


def time_to(facts: Facts, ask: Ask, _: Window) -> Bounds:
    fault, told, shows = fault_of(facts, ask), told_of(facts, ask), ask.shows
    if fault is None or told is None or shows is None:
        return None
    before = [one for one in told.rounds if one[1] <= fault.asked]
    if not before:
        return None
    counter = metric_of(ask).shape is Shape.COUNTER
    base = (before[-1][2] or 0) if counter else 0

    def shown(number: float | None) -> bool:
        return number is not None and shows.holds(number - base)

    if not counter and shown(before[-1][2]):
        return None
    hidden = [begin for begin, end in told.holes if end > fault.asked]
    last = before[-1][0]
    for at, done, number in told.rounds[len(before) :]:
        if shown(number):
            early = [begin for begin in hidden if begin < at]
            return since(fault, max(early[0] if early else last, fault.asked), done)
        last = at
    return since(fault, max(hidden[0] if hidden else last, fault.asked), 0)[0], math.inf


def greatest(facts: Facts, ask: Ask, window: Window) -> Bounds:
    told, found = told_of(facts, ask), under_load(facts, window)
    if told is None or not found:
        return None
    each = []
    for begin, end in found:
        numbers = [number for at, _, number in told.numbers() if begin <= at < end]
        if told.hidden(begin, end):
            each.append((max(numbers, default=-math.inf), math.inf))
        elif numbers:
            each.append((max(numbers), max(numbers)))
    if not each or max(low for low, _ in each) == -math.inf:
        return None
    return max(low for low, _ in each), max(high for _, high in each)


def last(facts: Facts, ask: Ask, window: Window) -> Bounds:
    told, found = told_of(facts, ask), under_load(facts, window)
    if told is None or not found:
        return None
    inside = [(at, number) for at, _, number in told.numbers() if any(b <= at < e for b, e in found)]
    since_then = inside[-1][0] if inside else -math.inf
    for begin, end in found:
        if end > since_then and told.hidden(max(begin, since_then), end):
            return None
    return (inside[-1][1], inside[-1][1]) if inside else None


def increase(facts: Facts, ask: Ask, window: Window) -> Bounds:
    told, found = told_of(facts, ask), under_load(facts, window)
    if told is None or not found or not told.numbers():
        return None
    low = high = 0.0
    for begin, end in found:
        inside = [number for at, done, number in told.numbers() if begin <= at and done < end]
        before = [number for _, done, number in told.numbers() if done <= begin]
        behind = [number for at, _, number in told.numbers() if at >= end]
        low += inside[-1] - inside[0] if inside else 0
        died = any(asked < end and begin < death for asked, death in told.deaths)
        seen = before and behind and not told.hidden(begin, end) and not died
        high += behind[0] - before[-1] if seen else math.inf
    return low, high


def looks(facts: Facts, ask: Ask) -> list[Look] | None:
    told = told_of(facts, ask)
    return None if told is None else [(at, number) for at, _, number in told.numbers()]


def demanded(facts: Facts, ask: Ask, bound: Bound) -> bool | None:
    """Return whether a bound on a metric holds, as for other states; None: undecided. Of long times without a number,
    only a hole in the scrapes makes it undecided."""
    told, found = told_of(facts, ask), spans(facts, bound.window)
    if told is None or found is None:
        return None
    numbers = told.numbers()
    if bound.mode is Mode.SETTLES:
        seen = [(at, number) for at, _, number in numbers]
        return settles(facts, seen, bound, lambda _, begin, end, __: bool(told.hidden(begin, end)))
    if bound.mode is not Mode.EVENTUALLY:
        within = under_load(facts, bound.window) or []
        mine = [number for at, _, number in numbers if any(b <= at < e for b, e in within)]
        if any(is_wrong(bound, number) for number in mine):
            return False
        return None if not mine or any(told.hidden(b, e) for b, e in within) else True
    found = [(facts.begins, math.inf)] if bound.window == WHOLE else found
    unseen = False
    for begin, end in found:
        until = min(end, begin + (math.inf if bound.by_s is None else bound.by_s * SECOND))
        in_time = [number for at, _, number in numbers if begin <= at <= until and at != end]
        if any(bound.holds(number) for number in in_time):
            seen = [(at, number) for at, _, number in numbers]
            if not stale(facts, seen, bound, in_time):
                return True
            unseen |= until > max([facts.ends, *(at for at, _ in seen)])
            continue
        unseen |= not in_time or until > max([facts.ends, *(at for at, _, _ in numbers)])
        unseen |= bool(told.hidden(begin, until))
    return None if unseen else False


COUNTED: dict[str, Count] = {
    "time_to(metric M)": time_to,
    "metric_max(M)": greatest,
    "metric_last(M)": last,
    "metric_increase(M)": increase,
}
LOOKED: dict[str, object] = {"metric(M)": looks}
