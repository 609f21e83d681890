"""States over time: `always`, `never` and `eventually`, each true, false, or not to be told for a hole in the looks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ackproof.quantities.evidence import Evidence, Spans
from ackproof.quantities.quantity import Ask, State
from ackproof.rundir.bounds import WHOLE, Bound, Mode
from ackproof.rundir.partition import TopicPartition

HOLE_NS: Final = 1_000_000_000
"""Who looks ten times a second and tells nothing for so long has not seen what was in between."""
FIRST_NS: Final = 5_000_000_000
"""So long the first look of a run may take: connections are made, clients started."""
_UNTOLD: Final = "no look tells it within that time"


@dataclass(frozen=True)
class Seen:
    """What became of a demand on a state. `holds` None: it cannot be told, and `why` says why."""

    holds: bool | None
    text: str
    why: str = ""


@dataclass(frozen=True)
class Looks:
    """What was known of a state of one partition: when (ns, ascending), and its number then."""

    times: Sequence[int]
    numbers: Sequence[float]

    @classmethod
    def of(cls, evidence: Evidence, state: State, place: TopicPartition) -> Looks:
        """Those looks that tell it."""
        known = [
            (sample.t_ns, number)
            for sample in evidence.samples_of.get(place, ())
            if (number := state.of_sample(sample)) is not None
        ]
        return cls([time for time, _ in known], [number for _, number in known])

    def inside(self, begin: float, end: float) -> Iterator[tuple[int, float]]:
        """Those from `begin` to before `end`."""
        first, behind = bisect_left(self.times, begin), bisect_left(self.times, end)
        return zip(self.times[first:behind], self.numbers[first:behind], strict=True)

    def hole(self, begin: float, end: float, *, first_ns: int = HOLE_NS) -> str:
        """Where nobody told it for too long between these, in words; '' nowhere."""
        before, behind = bisect_right(self.times, begin), bisect_left(self.times, end)
        least: float = self.times[before - 1] if before else begin
        most: float = self.times[behind] if behind < len(self.times) else end
        for number, (one, two) in enumerate(pairwise([least, *self.times[before:behind], most])):
            if two - one > (first_ns if number == 0 and not before else HOLE_NS):
                return f"no look tells it from {one / 1e9:.3f} s to {two / 1e9:.3f} s"
        return ""


def over_time(evidence: Evidence, ask: Ask, bound: Bound) -> Seen:
    """What is demanded of a state, held against what was seen of it."""
    state = ask.quantity.state
    assert state is not None
    if state.among is not None:
        found = state.among(evidence, ask)
        if isinstance(found, str):
            return Seen(None, "nothing", found)
        return _together([_of_looks(evidence, bound, looks, name, ()) for name, looks in found.items()], "")
    places = [place for place in sorted(evidence.samples_of) if ask.place in (None, place)]
    if not places:
        return Seen(None, "nothing", f"nobody looked at {ask.place or 'any partition'}")
    return _together([_of_one(evidence, ask, bound, place) for place in places], " partitions")


def _together(each: Sequence[Seen], what: str) -> Seen:
    for holds in (False, None):
        found = next((one for one in each if one.holds is holds), None)
        if found is not None:
            return found
    return each[0] if len(each) == 1 else Seen(True, f"so on all {len(each)}{what}")


def _of_one(evidence: Evidence, ask: Ask, bound: Bound, place: TopicPartition) -> Seen:
    state = ask.quantity.state
    assert state is not None
    name = f"{ask.quantity.name}({place})"
    decided: tuple[float, ...] = ()
    if bound.window == WHOLE and state.of_record is not None and bound.mode is not Mode.EVENTUALLY:
        every = [
            state.of_record(record) for life in evidence.metadata_log.states.get(place, ()) for record in life
        ]
        wrong = next((number for number in every if _is_wrong(bound, number)), None)
        if wrong is not None:
            return Seen(False, f"{name} was {wrong:.0f}, as the metadata log says")
        decided = () if evidence.metadata_log.hole else tuple(every)
    return _of_looks(evidence, bound, Looks.of(evidence, state, place), name, decided)


def _of_looks(evidence: Evidence, bound: Bound, looks: Looks, name: str, decided: Sequence[float]) -> Seen:
    spans = evidence.spans(bound.window)
    if isinstance(spans, str):
        return Seen(None, "nothing", spans)
    if bound.mode is Mode.EVENTUALLY:
        return _eventually(evidence, bound, looks, name, spans)
    within = [(max(begin, evidence.load_begins), min(end, evidence.load_ends)) for begin, end in spans]
    return _without_holes(bound, looks, name, within, decided)


def _is_wrong(bound: Bound, number: float) -> bool:
    return bound.holds(number) is (bound.mode is Mode.NEVER)


def _without_holes(
    bound: Bound,
    looks: Looks,
    name: str,
    spans: Sequence[tuple[float, float]],
    decided: Sequence[float],
) -> Seen:
    """Of `always` and `never`. `decided`: all numbers that it ever had, where that is known beside the looks."""
    numbers = list(decided)
    for begin, end in spans:
        for at, number in looks.inside(begin, end):
            if _is_wrong(bound, number):
                return Seen(False, f"{name} was {number:.0f} at {at / 1e9:.3f} s")
            numbers.append(number)
    whole = bound.window == WHOLE
    if not decided:
        for begin, end in spans:
            if hole := looks.hole(begin, end, first_ns=FIRST_NS if whole else HOLE_NS):
                return Seen(None, "not otherwise", f"{name}: {hole}")
    if not numbers:
        return Seen(None, "nothing", f"{name}: {_UNTOLD}")
    return Seen(
        True,
        f"{min(numbers):.0f} to {max(numbers):.0f}" if min(numbers) < max(numbers) else f"{numbers[0]:.0f}",
    )


def _eventually(evidence: Evidence, bound: Bound, looks: Looks, name: str, spans: Spans) -> Seen:
    """In some span of the window; what is so between two of them is so outside of it."""
    whole = bound.window == WHOLE
    each = [
        _within(bound, looks, name, evidence.load_begins if whole else begin, end, evidence.load_ends)
        for begin, end in spans
    ]
    return next((one for holds in (True, None) for one in each if one.holds is holds), each[-1])


def _within(bound: Bound, looks: Looks, name: str, begin: float, end: float, load_ends: int) -> Seen:
    last = max(looks.times[-1] if looks.times else 0, load_ends)
    until = end if bound.by_s is None else min(end, begin + bound.by_s * 1e9)
    inside = list(looks.inside(begin, min(end, until + 1)))
    for at, number in inside:
        if bound.holds(number):
            return Seen(True, f"{number:.0f} at {at / 1e9:.3f} s")
    if until > last:
        return Seen(None, "not", f"{name}: the run ended at {last / 1e9:.3f} s, before it was so")
    if hole := looks.hole(begin, until, first_ns=FIRST_NS if bound.window == WHOLE else HOLE_NS):
        return Seen(None, "not", f"{name}: {hole}")
    if not inside:
        return Seen(None, "nothing", f"{name}: {_UNTOLD}")
    return Seen(False, f"{name} was not so since {begin / 1e9:.3f} s until {until / 1e9:.3f} s")
