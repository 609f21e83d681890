"""Availability: the longest, total and number of gaps in which no produce, read, commit or metadata request succeeded.

One function for each of these operations finds its gaps; `_gaps` keeps those of a window, and the measures reduce them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import (
    LEAST_GAP_S,
    Argument,
    Ask,
    Quantity,
    Unknown,
    Value,
    Witness,
    longest,
    total,
)
from ackproof.quantities.viewers import rounds_of
from ackproof.rundir.bounds import Span, Unit, Window
from ackproof.rundir.observed import ZNODES, BrokerRound, OffsetCommit, ViewerAnswer
from ackproof.rundir.partition import TopicPartition

if TYPE_CHECKING:
    from ackproof.quantities.ledgers import PartitionOperations


_SHORT: Final = f"gaps below {LEAST_GAP_S:g} s are not told apart"


def _gaps(evidence: Evidence, ask: Ask, window: Window) -> list[tuple[Gap, str]]:
    """Return the gaps that overlap the window, each with the reason why its length is not exact ('': it is exact).
    Raises `Unknown` if nothing was observed in the window, or if the window never came.

    With `outside faults`, each fault-free part of a gap is returned instead. The end of the load cuts no gap: a part
    that reaches it goes on to the end of the gap.
    """
    spans, found = evidence.spans(window), GAPS[ask.quantity.variant](evidence, ask.place)
    if not any(one.overlaps(*span) for one in found.values() for span in spans):
        raise Unknown("nothing was there to be seen within that time")
    counted = []
    for where, one in found.items():
        for gap in one.gaps:
            touched = [span for span in spans if gap.overlaps(*span)]
            parts = [gap] if touched else []
            if window.span is Span.OUTSIDE:
                ends = (math.inf if end == evidence.load_ends else end for _, end in touched)
                parts = [gap.part(begin, end) for (begin, _), end in zip(touched, ends, strict=True)]
            counted += [(part, part.why.format(where=where)) for part in parts]
    return counted


def _longest(evidence: Evidence, ask: Ask, window: Window) -> Value:
    gaps = _gaps(evidence, ask, window)
    return longest([Value(0, LEAST_GAP_S, _SHORT), *(Value(gap.low_s, gap.high_s, why) for gap, why in gaps)])


def _added(evidence: Evidence, ask: Ask, window: Window, *, lengths: bool) -> Value:
    """Return the number of gaps of the operation that overlap the window and are longer than `ask.above_s` seconds.
    With `lengths`, return the total of their lengths in seconds instead. A gap that may be longer, but is not known to
    be, raises only the upper bound."""
    assert ask.above_s is not None
    values = [Value.exactly(0)]
    for gap, why in _gaps(evidence, ask, window):
        low, high = (gap.low_s, gap.high_s) if lengths else (1.0, 1.0)
        if gap.low_s > ask.above_s:
            values.append(Value(low, high, why if lengths else ""))
        elif gap.high_s > ask.above_s:
            values.append(Value(0, high, why))
    return total(values)


_WHERE: Final = {
    "produce": (
        "partitions",
        "two successive acknowledgements of a partition",
        "ledger/produced: done_ns of what was acknowledged",
        "Open above where the load ended in a gap in which something was sent or given up that was never acknowledged, "
        "and not taken back by its producer with its transaction; unknown where nothing was sent.",
        None,
    ),
    "read": (
        "partitions",
        "two successive records of a partition that live readers, all together, were handed",
        "ledger/consumed: read_ns of live reads",
        "Open above where live readers were never handed the last acknowledged record, or nobody knows which that is "
        "(acks=0); unknown where nothing was acknowledged or read, or there is no live reader.",
        Witness.READERS,
    ),
    "commit": (
        "readers",
        "two successive commits of offsets of a reader that the group coordinator took, or the first attempt and the "
        "first of these (`consumers: {commit_every}` is part of it)",
        "clients/*/commits.jsonl",
        "Open above where the load ended before an attempt was answered, or granted; unknown where no reader commits.",
        Witness.COMMITS,
    ),
    "metadata": (
        "rounds",
        "two successive rounds in which some broker answered a Metadata request (with t/p: and named its leader)",
        "observed/brokers.jsonl",
        "At least the rounds in between that nobody answered, at most from the round before to that after, or "
        "to the end of the load.",
        Witness.BROKERS,
    ),
}

_WITHIN: Final = (
    "Within a window: of the gaps that touch it, whole; `outside faults` of each gap the parts that no fault was at "
    "work in, each for itself."
)
_FORMS: Final = (
    (
        "longest_gap",
        Unit.SECONDS,
        "The longest time between {between}; of all {each} the longest.",
        (),
        _longest,
    ),
    (
        "total_gap",
        Unit.SECONDS,
        "All times between {between} that are longer than D, added up, over all {each}.",
        (Argument.ABOVE,),
        partial(_added, lengths=True),
    ),
    (
        "gaps",
        Unit.COUNT,
        "How many times between {between} are longer than D, over all {each}.",
        (Argument.ABOVE,),
        partial(_added, lengths=False),
    ),
)
QUANTITIES: Final = tuple(
    Quantity(
        name=name,
        variant=operation,
        unit=unit,
        definition=f"{definition.format(between=between, each=each)} {_WITHIN}",
        source=source,
        unknown=f"{unknown} Unknown, too, where all was over before the window, or came later.",
        required=required,
        optional=(Argument.PLACE,),
        needs=needs,
        windows=True,
        measure=measure,
    )
    for operation, (each, between, source, unknown, needs) in _WHERE.items()
    for name, unit, definition, required, measure in _FORMS
)


class Gap(NamedTuple):
    """Time between two successive successes of one kind, in ns since the run began.

    `end`: infinite if the end was not observed. `sure`: the part (begin, end) in which certainly nothing succeeded;
    None: all of it. `because`: why the length is not exact; '': `why` derives the reason from the times.
    """

    begin: float
    end: float
    sure: tuple[float, float] | None = None
    because: str = ""

    @property
    def cut(self) -> bool:
        """True if the end of the gap was not observed."""
        return self.end == math.inf

    def overlaps(self, begin: float, end: float) -> bool:
        """Return True if the gap overlaps the time from `begin` to `end` (ns). A gap whose end was not observed
        overlaps all later times."""
        return self.begin < end and begin < self.end

    def part(self, begin: float, end: float) -> Gap:
        """Return the part of the gap that lies between two times in ns since the run began."""
        sure = None
        if self.sure is not None:
            since = max(self.sure[0], begin)
            sure = since, max(since, min(self.sure[1], end))
        return Gap(max(self.begin, begin), min(self.end, end), sure, self.because)

    @property
    def low_s(self) -> float:
        """Least possible length of the gap, in seconds."""
        begin, end = (self.begin, self.end) if self.sure is None else self.sure
        return (end - begin) / 1e9

    @property
    def high_s(self) -> float:
        """Greatest possible length of the gap, in seconds; infinite if its end was not observed."""
        return (self.end - self.begin) / 1e9

    @property
    def why(self) -> str:
        """Reason why the length of the gap is not exact; '' if it is exact. The text may contain `{where}`, which
        stands for the name of the partition, reader or cluster."""
        if self.sure is None or self.low_s == self.high_s:
            return ""
        if self.because:
            return self.because
        if self.cut:
            return f"the end cut a gap on {{where}} at {(self.sure[1] - self.begin) / 1e9:.3f} s"
        return "between two rounds"


def _cut(begin: float, until: float) -> Gap:
    """Return a gap that lasted at least until `until`, whose end was not observed."""
    return Gap(begin, math.inf, sure=(begin, until))


class Watched(NamedTuple):
    """Gaps of one partition, reader or cluster, and the time for which it was observed.

    `since`: first attempt or success; `until`: last success (of a reader: end of its last attempt to commit), in ns
    since the run began. For the cluster they are -inf and inf. `gaps`: the gaps in order of time.
    """

    since: float
    until: float
    gaps: Sequence[Gap]

    def overlaps(self, begin: float, end: float) -> bool:
        """Return True if the time of observation overlaps the time from `begin` to `end` (ns). If the end of its last
        gap was not observed, the observation has no end."""
        return self.since < end and (begin <= self.until or any(gap.cut for gap in self.gaps))


Found: TypeAlias = Mapping[str, Watched]
"""Gaps, and the time of observation, by the name of the partition, reader or cluster."""


def _require_gaps(found: Found, nothing: str, where: str, place: TopicPartition | None) -> Found:
    """Return `found`. If it is empty, raise `Unknown` with the reason `nothing`, such as "nothing was sent". With a
    `place`, the reason ends with the preposition `where` and the partition: "nothing was sent to orders/0"."""
    if found:
        return found
    raise Unknown(f"{nothing} {where} {place}" if place is not None else nothing)


def _unproduced(evidence: Evidence, place: TopicPartition | None) -> Found:
    """Return the gaps between acknowledgements, and after the last (`_unanswered`), by partition (`orders/0`); of
    `place` alone unless it is None. Raises `Unknown` if nothing was sent there."""
    found = {
        str(one): Watched(
            asked.begun_ns,
            asked.begun_ns if asked.done.last is None else asked.done.last,
            [*_between(asked), *_unanswered(evidence, asked)],
        )
        for one, asked in sorted(evidence.ledgers.produced.items())
        if place in (None, one) and (asked.done.last is not None or asked.waiting_ns >= 0)
    }
    return _require_gaps(found, "nothing was sent", "to", place)


def unread(evidence: Evidence, place: TopicPartition | None) -> Found:
    """Return the gaps between reads by any live reader, and after the last (`_not_handed`), by partition (`orders/0`).
    `place`: only this partition; None: all. Raises `Unknown` without a live reader, and if nothing was acknowledged or
    read there."""
    from ackproof.quantities.ledgers import PartitionOperations

    ledgers = evidence.ledgers
    if not ledgers.read and not any(client.kind == "reader" for client in evidence.clients):
        raise Unknown("there was no live reader")
    found = {}
    for one in sorted({**ledgers.produced, **ledgers.read}):
        sent, handed = (each.get(one, PartitionOperations()) for each in (ledgers.produced, ledgers.read))
        ends = [each.done.bins for each in (sent, handed) if each.done.last is not None]
        if ends and place in (None, one):
            since, until = min(int(first[0]) for first, _ in ends), max(int(last[-1]) for _, last in ends)
            gaps = [*_between(handed), *_not_handed(evidence, one, sent, handed)]
            found[str(one)] = Watched(since, until, gaps)
    return _require_gaps(found, "nothing was acknowledged or read", "on", place)


def _between(one: PartitionOperations) -> list[Gap]:
    """Return the gaps longer than `LEAST_GAP_S` between two successive operations."""
    first, last = one.done.bins
    return [
        Gap(int(end), int(begin))
        for end, begin in zip(last[:-1], first[1:], strict=True)
        if begin - end > LEAST_GAP_S * 1e9
    ]


def _unanswered(evidence: Evidence, one: PartitionOperations) -> list[Gap]:
    """Return the gap after the last acknowledgement if an attempt that was never acknowledged was sent or reported
    after that; else nothing. Without any acknowledgement, the gap begins when the first attempt was sent."""
    last = one.done.last
    if last is not None and one.waiting_ns <= last:
        return []
    begin = one.begun_ns if last is None else last
    return [_cut(begin, max(evidence.load_ends, one.waiting_ns))]


def _not_handed(
    evidence: Evidence, place: TopicPartition, sent: PartitionOperations, handed: PartitionOperations
) -> list[Gap]:
    """Return the gap after the last read or, if nothing was read, after the first acknowledgement. Return nothing if
    live readers got every record, or nothing was acknowledged. There is a gap if the highest offset that they read is
    below the highest acknowledged offset. If acknowledgements carry no offset, the highest sampled high watermark − 1
    counts; without samples of it the gap has no known length (0 to infinite). Offsets that a truncation removed do not
    count."""
    if sent.done.last is None:
        return []
    marks = [one.high_watermark for one in evidence.samples_of.get(place, ()) if one.high_watermark >= 0]
    end = max([sent.last_offset, *(mark - 1 for mark in marks if sent.nameless)])
    ends = [
        one.log_ends[one.leader] for one in evidence.samples_of.get(place, ()) if one.leader in one.log_ends
    ]
    if ends and ends[-1] < max(ends):  # the log was truncated: what was acknowledged above its end is gone
        end = min(end, ends[-1] - 1)
    begin = int(sent.done.bins[0][0]) if handed.done.last is None else handed.done.last
    if end > handed.last_offset:
        return [_cut(begin, max(evidence.load_ends, begin))]
    if sent.nameless and not marks:
        because = "nobody saw how many records of {where} live readers should have been handed"
        return [Gap(begin, math.inf, (begin, begin), because)]
    return []


def uncommitted(evidence: Evidence, place: TopicPartition | None) -> Found:
    """Return the gaps between offset commits that the group coordinator accepted, by the reader's client id. The time
    from the first attempt to the first accepted commit is a gap, too. So is the time since the last accepted commit, if
    the newest attempt was not accepted.

    With a `place`, only commits that contain this partition count. Raises `Unknown` if no reader tried such a commit.
    """
    found = {
        reader: Watched(
            mine[0].begun_ns, max(one.done_ns for one in mine), _between_commits(mine, evidence.load_ends)
        )
        for reader, told in evidence.commits.items()
        if (mine := [one for one in told if place is None or place in [offset[:2] for offset in one.offsets]])
    }
    return _require_gaps(found, "no reader committed an offset", "of", place)


def _between_commits(told: Sequence[OffsetCommit], load_ends: float) -> list[Gap]:
    begin, found = told[0].begun_ns, []
    for one in told:
        if one.good:
            found.append(Gap(begin, one.done_ns))
            begin = one.done_ns
    if not told[-1].good:
        found.append(_cut(begin, max(load_ends, begin, told[-1].done_ns)))
    return found


def _undescribed(evidence: Evidence, place: TopicPartition | None) -> Found:
    """Return the gaps between rounds in which some broker answered a Metadata request: one entry, for the cluster. With
    a `place`, an answer counts only if it names a leader of this partition.

    The times from the beginning of the load to the first such round, and from the last one to the end of the load, are
    gaps, too. The least length of a gap is the time from its first to its last failed round, 0 without any. Raises
    `Unknown` without rounds.
    """
    rounds, found, failed = rounds_of(evidence), list[Gap](), list[BrokerRound]()
    before = min(evidence.load_begins, rounds[0].t_ns)
    for number, one in enumerate(rounds):
        if not any(_describes(told, place) for told in one.told):
            failed.append(one)
            continue
        if number or before < one.t_ns:
            found.append(Gap(before, one.done_ns, _sure(before, failed)))
        before, failed = one.t_ns, []
    if failed:
        found.append(Gap(before, math.inf, _sure(before, failed)))
    elif evidence.load_ends > rounds[-1].done_ns:
        found.append(Gap(before, evidence.load_ends, _sure(before, [])))
    return {str(place or "the cluster"): Watched(-math.inf, math.inf, found)}


def _describes(told: ViewerAnswer, place: TopicPartition | None) -> bool:
    return told.viewer != ZNODES and (
        place is None
        or any((row.topic, row.partition) == place and row.leader >= 0 for row in told.partitions)
    )


def _sure(before: float, failed: Sequence[BrokerRound]) -> tuple[float, float]:
    """Return the time in which certainly no broker answered: from the first to the last of the `failed` rounds. Without
    failed rounds it is empty and begins at `before`, the last good round."""
    return (failed[0].t_ns, failed[-1].done_ns) if failed else (before, before)


GAPS: Final[Mapping[str, Callable[[Evidence, TopicPartition | None], Found]]] = {
    "produce": _unproduced,
    "read": unread,
    "commit": uncommitted,
    "metadata": _undescribed,
}
