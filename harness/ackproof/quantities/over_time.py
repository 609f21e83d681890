"""Expectations on a state over time: `always`, `never`, `eventually` and `settles`.

The answer is true, false, or unknown where too much time passed without an observation. With a time bound, or after a
fault, `eventually` is not met by a state that held when the window began and not when it ended. `_came_about` has the
exception.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Answer, Ask, State, Unknown
from ackproof.rundir.bounds import WHOLE, Bound, Mode, Span
from ackproof.rundir.lifelines import Spans
from ackproof.rundir.partition import TopicPartition

HOLE_NS: Final = 1_000_000_000
"""A time between two observations is a hole in the evidence if it is longer than this (ns). Samples are taken ten times
a second."""
FIRST_NS: Final = 5_000_000_000
"""A time without observations at the begin of a run is a hole only if it is longer than this (ns): connections are made
and clients started."""
_UNTOLD: Final = "no observation of it within that time"


@dataclass(frozen=True)
class Observations:
    """Observed numbers of one state, such as the ISR size of a partition.

    `times`: times of the observations in ns since the run began, ascending. `numbers`: the number observed at each
    time.
    """

    times: Sequence[int]
    numbers: Sequence[float]

    @classmethod
    def from_pairs(cls, known: Iterable[tuple[int, float | None]]) -> Observations:
        """Return the observations of (time in ns, number) pairs in order of time. Pairs whose number is None are left
        out."""
        told = [(time, number) for time, number in known if number is not None]
        return cls([time for time, _ in told], [number for _, number in told])

    @classmethod
    def read(cls, evidence: Evidence, state: State, place: TopicPartition) -> Observations:
        return cls.from_pairs(
            (sample.t_ns, state.of_sample(sample)) for sample in evidence.samples_of.get(place, ())
        )

    def inside(self, begin: float, end: float) -> Iterator[tuple[int, float]]:
        first, behind = bisect_left(self.times, begin), bisect_left(self.times, end)
        return zip(self.times[first:behind], self.numbers[first:behind], strict=True)

    def hole(self, begin: float, end: float, *, first_ns: int = HOLE_NS) -> str:
        """Return in words where observations are missing between the times `begin` and `end` (ns); '' if none is
        missing.

        Observations are missing if two successive ones are more than 1 s (`HOLE_NS`) apart. Without an observation at
        or before `begin`, `begin` counts as one. Without an observation at or after `end`, `end` counts as one.
        `first_ns`: limit, instead of 1 s, from `begin` to the first of all observations.
        """
        before, behind = bisect_right(self.times, begin), bisect_left(self.times, end)
        least: float = self.times[before - 1] if before else begin
        most: float = self.times[behind] if behind < len(self.times) else end
        for number, (one, two) in enumerate(pairwise([least, *self.times[before:behind], most])):
            if two - one > (first_ns if number == 0 and not before else HOLE_NS):
                return f"no observation of it from {one / 1e9:.3f} s to {two / 1e9:.3f} s"
        return ""


def over_time(evidence: Evidence, ask: Ask, bound: Bound) -> Answer:
    """Compare an expectation on a state (`ask`, `bound`) with the observations of a run.

    Over several partitions or subjects, the first that breaks the expectation decides, else the first that is unknown;
    otherwise the expectation holds. Raises `Unknown` if the run did not observe the partitions or subjects in question,
    or if the window never came; `BadInput`, OSError or ArrowException for broken files.
    """
    state = ask.quantity.state
    assert state is not None
    if state.among is not None:
        found = state.among(evidence, ask)
        return _together(
            [_of_observed(evidence, bound, observed, name, ()) for name, observed in found.items()], ""
        )
    each = [_of_one(evidence, ask, bound, place) for place in places_of(evidence, ask)]
    return _together(each, " partitions")


def places_of(evidence: Evidence, ask: Ask) -> list[TopicPartition]:
    """Return the partitions that the question is about, of those that were planned or sampled. Raises `Unknown` if
    there are none."""
    if found := [place for place in sorted(evidence.samples_of) if ask.place in (None, place)]:
        return found
    raise Unknown(f"nobody looked at {ask.place or 'any partition'}")


def _wrong(text: str) -> Answer:
    return Answer(text, False, broken=True)


def _together(each: Sequence[Answer], what: str) -> Answer:
    for holds in (False, None):
        found = next((one for one in each if one.holds is holds), None)
        if found is not None:
            return found
    return each[0] if len(each) == 1 else Answer(f"so on all {len(each)}{what}", True)


def _of_one(evidence: Evidence, ask: Ask, bound: Bound, place: TopicPartition) -> Answer:
    state = ask.quantity.state
    assert state is not None
    name = f"{ask.quantity.name}({place})"
    decided: tuple[float, ...] = ()
    if bound.window == WHOLE and state.of_record is not None and bound.mode in (Mode.ALWAYS, Mode.NEVER):
        every = [
            state.of_record(record) for life in evidence.metadata_log.states.get(place, ()) for record in life
        ]
        wrong = next((number for number in every if _is_wrong(bound, number)), None)
        if wrong is not None:
            return _wrong(f"{name} was {wrong:.0f}, as the metadata log says")
        decided = () if evidence.metadata_log.hole else tuple(every)
    return _of_observed(evidence, bound, Observations.read(evidence, state, place), name, decided)


def _of_observed(
    evidence: Evidence, bound: Bound, observed: Observations, name: str, decided: Sequence[float]
) -> Answer:
    spans = evidence.spans(bound.window)
    if bound.mode is Mode.EVENTUALLY:
        return _eventually(evidence, bound, observed, name, spans)
    if bound.mode is Mode.SETTLES:
        return _settles(evidence, bound, observed, name, spans[0][0])
    within = [(max(begin, evidence.load_begins), min(end, evidence.load_ends)) for begin, end in spans]
    return _without_holes(bound, observed, name, within, decided)


def _is_wrong(bound: Bound, number: float) -> bool:
    return bound.holds(number) is (bound.mode is Mode.NEVER)


def _without_holes(
    bound: Bound,
    observed: Observations,
    name: str,
    spans: Sequence[tuple[float, float]],
    decided: Sequence[float],
) -> Answer:
    """Answer `always` and `never`, which need observations without holes in all `spans`, unless `decided` is given.
    `name`: the state in words. `decided`: all numbers of the state in the metadata log; empty if the log is incomplete
    or not used."""
    numbers = list(decided)
    for begin, end in spans:
        for at, number in observed.inside(begin, end):
            if _is_wrong(bound, number):
                return _wrong(f"{name} was {number:.0f} at {at / 1e9:.3f} s")
            numbers.append(number)
    if not decided:
        for begin, end in spans:
            if hole := observed.hole(begin, end, first_ns=_first_ns(bound)):
                return Answer("not otherwise", None, why=f"{name}: {hole}")
    if not numbers:
        return Answer("nothing", None, why=f"{name}: {_UNTOLD}")
    low, high = min(numbers), max(numbers)
    return Answer(f"{low:.0f} to {high:.0f}" if low < high else f"{low:.0f}", True)


def _eventually(evidence: Evidence, bound: Bound, observed: Observations, name: str, spans: Spans) -> Answer:
    """Answer `eventually`: the state must hold at some time in one of the window's spans. The time between two spans is
    left out. `name`: the state in words."""
    each = [
        _eventually_between(
            evidence, bound, observed, name, evidence.load_begins if bound.window == WHOLE else begin, end
        )
        for begin, end in spans
    ]
    return next((one for holds in (True, None) for one in each if one.holds is holds), each[-1])


def _eventually_between(
    evidence: Evidence, bound: Bound, observed: Observations, name: str, begin: float, end: float
) -> Answer:
    last = max(observed.times[-1] if observed.times else 0, evidence.load_ends)
    until = end if bound.by_s is None else min(end, begin + bound.by_s * 1e9)
    inside = list(observed.inside(begin, min(end, until + 1)))
    if first := next(((at, number) for at, number in inside if bound.holds(number)), None):
        held = f"{first[1]:.0f} at {first[0] / 1e9:.3f} s"
        if first != inside[0] or bound.holds(inside[-1][1]) or _came_about(evidence, bound, observed):
            return Answer(held, True)
        at, number = inside[-1]
        gone = f"{name} was {held}, when its time began, and {number:.0f} at {at / 1e9:.3f} s"
        if until > last:
            return Answer("not", None, why=f"{gone}; the run ended before it was so again")
        return _wrong(f"{gone}, when its time was over")
    if until > last:
        return Answer("not", None, why=f"{name}: the run ended at {last / 1e9:.3f} s, before it was so")
    if hole := observed.hole(begin, until, first_ns=_first_ns(bound)):
        return Answer("not", None, why=f"{name}: {hole}")
    if not inside:
        return Answer("nothing", None, why=f"{name}: {_UNTOLD}")
    return _wrong(f"{name} was not so since {begin / 1e9:.3f} s until {until / 1e9:.3f} s")


def _came_about(evidence: Evidence, bound: Bound, observed: Observations) -> bool:
    """Return True if `eventually` is met by a state that held at the first observation of the window already, and no
    longer at the last. The state may have begun to hold before the window; then the window did not bring it about.

    For a window of a fault, the answer is True if the state did not hold at the last observation before that fault was
    requested. Without a time bound, it is True for each window that does not begin after a fault (`Span.AFTER`).
    Otherwise it is False.
    """
    if bound.by_s is None and bound.window.span is not Span.AFTER:
        return True
    if bound.window.fault is None:
        return False
    before = bisect_left(observed.times, evidence.faults[bound.window.fault].asked)
    return before > 0 and not bound.holds(observed.numbers[before - 1])


def _settles(evidence: Evidence, bound: Bound, observed: Observations, name: str, begin: float) -> Answer:
    """Answer `settles`: the state must hold from some moment until the load ends. If an observation breaks it before,
    that moment has a deadline: `bound.by_s` seconds after the window or the load began, whichever is later; without
    `by_s`, the end of the load. `name`: the state in words. `begin`: begin of the window, in ns."""
    begin, end = max(begin, evidence.load_begins), evidence.load_ends
    by = end if bound.by_s is None else begin + bound.by_s * 1e9
    inside = list(observed.inside(begin, end))
    wrong = next(
        (number for number in reversed(range(len(inside))) if not bound.holds(inside[number][1])), -1
    )
    if not inside:
        return Answer("nothing", None, why=f"{name}: {_UNTOLD}")
    held = next((at for at, number in inside if bound.holds(number)), None)
    told = f", and so at {held / 1e9:.3f} s" if held is not None else ", and never so"
    at, number = inside[wrong]
    if wrong == len(inside) - 1:
        told = f"{name} was {number:.0f} at {at / 1e9:.3f} s, when the load ended{told}"
        if by > end:
            return Answer("not", None, why=f"{told}; its time was not over")
        return _wrong(told)
    since = begin if wrong < 0 else at
    if hole := observed.hole(since, end, first_ns=_first_ns(bound)):
        return Answer("not", None, why=f"{name}: {hole}")
    since, settled = inside[wrong + 1]
    if wrong >= 0 and since > by:
        return _wrong(f"{name} was {number:.0f} at {at / 1e9:.3f} s, and so to stay from {since / 1e9:.3f} s")
    return Answer(f"{settled:.0f} from {since / 1e9:.3f} s until the load ended", True)


def _first_ns(bound: Bound) -> int:
    return FIRST_NS if bound.window == WHOLE else HOLE_NS
