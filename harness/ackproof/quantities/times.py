"""Times after a fault: seconds from the beginning of the fault until an event."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.over_time import HOLE_NS
from ackproof.quantities.quantity import Argument, Ask, Quantity, Unknown, Value, Witness, longest, shortest
from ackproof.rundir.bounds import Unit, Window
from ackproof.rundir.lifelines import FaultLife
from ackproof.rundir.metadata import LogEnded
from ackproof.rundir.observed import Sample
from ackproof.rundir.partition import TopicPartition

if TYPE_CHECKING:
    from ackproof.quantities.ledgers import FirstOutcomes

MS: Final = 1_000_000
WALL_WITHIN_NS: Final = 20 * MS
"""Greatest drift of the wall clock, against the monotonic one, with which times from controllers are still used."""

Event: TypeAlias = Callable[[Evidence, FaultLife, Ask], Value]
"""Function that measures the time from a fault to an event, in seconds. Raises `Unknown` if it cannot be known."""


def between(life: FaultLife, after_ns: float, until_ns: float) -> Value:
    """Return the seconds from the beginning of a fault to an event that was between `after_ns` and `until_ns` (ns since
    the run began).

    The fault began between its request and its confirmation; the bounds of the value cover that, too. The time of a
    fault that was never confirmed counts from its request.
    """
    confirmed = life.asked if life.confirmed is None else life.confirmed
    return Value(max(0.0, (after_ns - confirmed) / 1e9), max(0.0, (until_ns - life.asked) / 1e9))


def not_until(life: FaultLife, last_ns: float, what: str, end: str = "the last observation") -> Value:
    """Return the time from a fault to an event that had not happened when observation ended: a value without an upper
    bound, marked `never`.

    `last_ns`: end of the observation, in ns since the run began. `what`: the sentence that stays true until then, such
    as `nothing was refused`. `end`: what ended the observation, for the same sentence.
    """
    seen = between(life, last_ns, last_ns)
    return Value(seen.low, math.inf, f"{what} until {last_ns / 1e9:.3f} s of the run, {end}", never=True)


def _measure(event: Event, evidence: Evidence, ask: Ask, _: Window) -> Value:
    return event(evidence, evidence.confirmed_fault(ask.fault)[0], ask)


# -- requests -------------------------------------------------------------------------------------------------------


def _request(
    first: Callable[[FirstOutcomes], int | None],
    of_all: Callable[[list[Value]], Value],
    what: str,
    evidence: Evidence,
    life: FaultLife,
    ask: Ask,
) -> Value:
    assert life.confirmed is not None
    if evidence.unanswered and ask.quantity.variant != "first refused":
        raise Unknown(
            "with acks=0 no broker acknowledges: a delivery report says that the socket took the request"
        )
    since = evidence.ledgers.since(life.confirmed)
    places = [place for place in sorted(since) if ask.place in (None, place)]
    if not places:
        raise Unknown(f"nothing was sent to {ask.place}" if ask.place else "nothing was sent")
    values = []
    for place in places:
        at = first(since[place])
        end = max(evidence.load_ends, life.confirmed)
        never = not_until(life, end, f"{what} on {place}", "the end of the load")
        values.append(never if at is None else between(life, at, at))
    return of_all(values)


# -- what was sampled -----------------------------------------------------------------------------------------------


def _looked_at(
    evidence: Evidence, life: FaultLife, ask: Ask
) -> tuple[Mapping[TopicPartition, Sequence[Sample]], Sequence[Value]]:
    """Return the samples of each partition of the question, from the last one before the fault on; and an unknown value
    for each partition without a sample in the second before the fault."""
    looked, unseen = {}, []
    for place in sorted(evidence.samples_of):
        if ask.place not in (None, place):
            continue
        samples = evidence.samples_of[place]
        before = bisect_right(samples, life.asked, key=attrgetter("t_ns"))
        if before and life.asked - samples[before - 1].t_ns <= HOLE_NS:
            looked[place] = samples[before - 1 :]
        else:
            when = f" for {HOLE_NS / 1e9:.0f} s" if before else ""
            unseen.append(Value(0, math.inf, f"{place} was not looked at{when} before the fault"))
    return looked, unseen


def _first(life: FaultLife, looks: Sequence[Sample], is_it: Callable[[Sample], bool], what: str) -> Value:
    """Return the time until the first sample after `looks[0]` at which `is_it` holds: it lies between that sample and
    the one before. If there is none, the value has no upper bound; `what` says in words what did not come."""
    for one, two in pairwise(looks):
        if is_it(two):
            return between(life, max(one.t_ns, life.asked), two.t_ns)
    return not_until(life, looks[-1].t_ns, what)


def _new_leader(evidence: Evidence, life: FaultLife, ask: Ask) -> Value:
    looked, unseen = _looked_at(evidence, life, ask)
    values = [
        _first(life, looks, partial(_leads_later, looks[0]), f"{place} had no leader in a later epoch")
        for place, looks in looked.items()
        if ask.place is not None or looks[0].leader in life.nodes
    ]
    none = f"fault {ask.fault} hit no node that led a partition; name the partition"
    return _together(longest, values, unseen, none)


def _together(
    of_all: Callable[[list[Value]], Value], values: Sequence[Value], unseen: Sequence[Value], none: str
) -> Value:
    """Return one time, to which `of_all` combines the times of all partitions: the known ones (`values`) and the
    unknown ones (`unseen`), which widen its bounds. Raises `Unknown` if no time is known; `none`: the reason if there
    is no partition."""
    if not values:
        raise Unknown(unseen[0].why if unseen else none)
    return of_all([*values, *unseen])


def _leads_later(before: Sample, sample: Sample) -> bool:
    return sample.leader >= 0 and sample.leader_epoch > before.leader_epoch


def _shrunk(evidence: Evidence, life: FaultLife, ask: Ask) -> Value:
    looked, unseen = _looked_at(evidence, life, ask)
    values = [
        _first(life, looks, partial(_lacks, looks[0].isr), f"the ISR of {place} lost nobody")
        for place, looks in looked.items()
    ]
    return _together(shortest, values, unseen, "no partition was looked at before the fault")


def _lacks(isr: Sequence[int], sample: Sample) -> bool:
    return not set(isr) <= set(sample.isr)


def _full(evidence: Evidence, life: FaultLife, ask: Ask) -> Value:
    looked, unseen = _looked_at(evidence, life, ask)
    values = []
    for place, looks in looked.items():
        shrunk = next((number for number, one in enumerate(looks) if _lacks(looks[0].isr, one)), None)
        if shrunk is not None:
            never = f"the ISR of {place} was not full again"
            values.append(_first(life, looks[shrunk:], lambda one: set(one.replicas) <= set(one.isr), never))
    return _together(longest, values, unseen, "no ISR was seen to shrink after the fault")


def _equal(evidence: Evidence, life: FaultLife, ask: Ask) -> Value:
    looked, unseen = _looked_at(evidence, life, ask)
    values = []
    for place, samples in looked.items():
        looks = [one for one in pairwise(samples) if one[0].leader in one[0].log_ends]
        apart = next((number for number, (one, two) in enumerate(looks) if not _caught_up(one, two)), None)
        if apart is None:
            continue
        behind = looks[apart:]
        equal = next((number for number, (one, two) in enumerate(behind) if _caught_up(one, two)), None)
        what = f"the replicas of {place} were not equal"
        if equal is None:
            values.append(not_until(life, behind[-1][1].t_ns, what))
        else:
            values.append(between(life, behind[equal - 1][1].t_ns, behind[equal][1].t_ns))
    return _together(longest, values, unseen, "no replica was seen to be behind its leader after the fault")


def _caught_up(one: Sample, two: Sample) -> bool:
    """Return True if at the second sample each replica has all that the leader had at the first.

    Under load, two log ends that are requested one after the other are never equal.
    """
    return all(two.log_ends.get(replica, -1) >= one.log_ends[one.leader] for replica in two.replicas)


# -- what the controllers wrote -------------------------------------------------------------------------------------


def _controller(evidence: Evidence, life: FaultLife, _: Ask) -> Value:
    if hole := evidence.metadata_log.hole:
        raise Unknown(hole)
    _check_wall(evidence)
    epoch, unsure = None, False
    for record in evidence.metadata_log.records:
        if isinstance(record, LogEnded):
            break
        first, last = evidence.wall.written_within(record.timestamp_ms)
        if last <= life.asked:
            epoch = record.epoch
        elif epoch is None:
            raise Unknown("the metadata log begins after the fault")
        elif record.epoch > epoch and first < life.asked:
            epoch, unsure = record.epoch, True
        elif record.epoch > epoch:
            return between(life, life.asked if unsure else first, last)
    if unsure:
        return Value(0, math.inf, "a controller began within a moment of when the fault was asked for")
    return not_until(life, evidence.load_ends, "no controller began", "the end of the load")


def _check_wall(evidence: Evidence) -> None:
    """Raise `Unknown` if times in the metadata log cannot be compared with times of the run. Controllers date records
    by the wall clock. No fault may have moved clocks, and the wall clock must have moved by at most `WALL_WITHIN_NS`
    against the monotonic clock."""
    if any(life.kind == "clock_jump" for life in evidence.faults.values()):
        raise Unknown("a fault moved wall clocks, by which the metadata log is dated")
    if not evidence.wall_ns:
        raise Unknown("the run does not say by the wall clock when it began")
    moved = evidence.wall.moved_ns
    if moved > WALL_WITHIN_NS:
        raise Unknown(
            f"the wall clock, by which the metadata log is dated, moved by {moved / 1e9:.3f} s in the run"
        )


_PRODUCED: Final = "ledger/produced, timeline.jsonl"
_SAMPLED: Final = "observed/partitions.jsonl, timeline.jsonl"
_OPEN: Final = "Never, and open above, where the load ended first"
_ACKS_0: Final = "Unknown with acks=0, which no broker acknowledges."
_SAMPLES: Final = "Between two samples; never, and open above, where no sample showed it"
_UNSEEN: Final = " A partition that nobody looked at within the second before the fault may have any time."
_EVENTS: Final[tuple[tuple[str, Event, str, str, str], ...]] = (
    (
        "first refused",
        partial(_request, lambda one: one.refused, shortest, "nothing was refused"),
        "the first record that was sent once it was confirmed was told not to be acknowledged (it failed, or its "
        "outcome is unknown); of all partitions the earliest",
        _PRODUCED,
        f"{_OPEN}.",
    ),
    (
        "first accepted",
        partial(_request, lambda one: one.accepted, longest, "nothing was accepted"),
        "the first record was sent, once it was confirmed, that was acknowledged in the end; of all partitions the "
        "latest. What waits in a producer until it can be acknowledged counts from when it was handed to that",
        _PRODUCED,
        f"{_OPEN}. {_ACKS_0}",
    ),
    (
        "first ack",
        partial(_request, lambda one: one.acked, longest, "nothing was acknowledged"),
        "the first acknowledgement came of a record that was sent once it was confirmed; of all partitions the latest",
        _PRODUCED,
        f"{_OPEN}. {_ACKS_0}",
    ),
    (
        "new leader",
        _new_leader,
        "a sample showed a leader in a later leader epoch; of all partitions that were led by a node which the fault "
        "hit the latest",
        _SAMPLED,
        f"{_SAMPLES}; unknown where the fault hit no leader.{_UNSEEN}",
    ),
    (
        "isr shrunk",
        _shrunk,
        "a sample showed an ISR that lacks a replica which was in it at the last sample before; of all partitions the "
        "earliest",
        _SAMPLED,
        f"{_SAMPLES}.{_UNSEEN}",
    ),
    (
        "isr full",
        _full,
        "a sample showed an ISR with all replicas again, after one that lacked some it had before; of all partitions "
        "whose ISR shrank the latest",
        _SAMPLED,
        f"{_SAMPLES}; unknown where no ISR shrank.{_UNSEEN}",
    ),
    (
        "replicas equal",
        _equal,
        "a sample showed each replica with all that the leader had at the sample before, by their log ends, after one "
        "that showed some without it, or not at all; of all partitions where one was behind the latest",
        _SAMPLED,
        f"{_SAMPLES}; unknown where no replica was behind.{_UNSEEN}",
    ),
    (
        "controller elected",
        _controller,
        "a controller of a later epoch wrote its first record",
        "observed/metadata.jsonl, timeline.jsonl",
        "As wide as the wall clock moved, and a millisecond; unknown where a fault moves clocks, "
        "and where the metadata log has a hole.",
    ),
)

QUANTITIES: Final = tuple(
    Quantity(
        name="time_to",
        variant=variant,
        unit=Unit.SECONDS,
        definition=f"From when fault N began until {words}. It began between being asked for and being confirmed.",
        source=source,
        unknown=f"{unknown} Unknown where the fault was not confirmed.",
        required=(Argument.FAULT,),
        optional=() if variant == "controller elected" else (Argument.PLACE,),
        needs=Witness.QUORUM if variant == "controller elected" else None,
        measure=partial(_measure, event),
    )
    for variant, event, words, source, unknown in _EVENTS
)
