"""Times without a success, of each operation of clients: produce, read, commit (of offsets to a group), metadata."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import LEAST_GAP_S
from ackproof.quantities.viewers import NOT_ASKED
from ackproof.rundir.brokers import ZNODES, Round, Told
from ackproof.rundir.commits import Commit
from ackproof.rundir.partition import TopicPartition

if TYPE_CHECKING:
    from ackproof.quantities.ledgers import Asked


class Gap(NamedTuple):
    """From one success to the next, in ns. `cut`: the load ended first, and somebody was still waiting. `sure_ns`: how
    much of it was seen to be one, where it was looked at from time to time only; None: all."""

    begin: float
    end: float
    cut: bool = False
    sure_ns: float | None = None

    @property
    def low_s(self) -> float:
        """How long it is at least."""
        return ((self.end - self.begin) if self.sure_ns is None else self.sure_ns) / 1e9

    @property
    def high_s(self) -> float:
        """How long it is at most."""
        return math.inf if self.cut else (self.end - self.begin) / 1e9

    @property
    def why(self) -> str:
        """Why it is not one number; '' it is."""
        if self.cut:
            return f"the end cut a gap on {{where}} at {(self.end - self.begin) / 1e9:.3f} s"
        return "" if self.sure_ns is None else "between two rounds"


Found: TypeAlias = Mapping[str, Sequence[Gap]] | str
"""The gaps of each thing that had some successes or attempts, in order; why there is nothing, in words."""
Gaps: TypeAlias = Callable[[Evidence, TopicPartition | None], Found]


def _nothing(what: str, place: TopicPartition | None) -> str:
    return f"{what} {place}" if place is not None else what.rpartition(" ")[0]


def unproduced(evidence: Evidence, place: TopicPartition | None) -> Found:
    """Between acknowledgements of a partition."""
    produced = evidence.ledgers.produced
    return {
        str(one): [*_between(asked), *_unanswered(evidence, asked)]
        for one, asked in sorted(produced.items())
        if place in (None, one)
    } or _nothing("nothing was sent to", place)


def unread(evidence: Evidence, place: TopicPartition | None) -> Found:
    """Between records of a partition that live readers, all together, were handed."""
    ledgers = evidence.ledgers
    return {
        str(one): [*_between(ledgers.read.get(one)), *_not_handed(evidence, one)]
        for one in sorted({**ledgers.produced, **ledgers.read})
        if place in (None, one)
    } or _nothing("nothing was sent to", place)


def _between(one: Asked | None) -> list[Gap]:
    """Those longer than `LEAST_GAP_S`."""
    first, last = one.done.bins if one is not None else ((), ())
    return [
        Gap(int(end), int(begin))
        for end, begin in zip(last[:-1], first[1:], strict=True)
        if begin - end > LEAST_GAP_S * 1e9
    ]


def _unanswered(evidence: Evidence, one: Asked) -> list[Gap]:
    """The gap behind the last acknowledgement, if something was sent or given up in it."""
    last = one.done.last
    if last is not None and one.waiting_ns <= last:
        return []
    begin = one.begun_ns if last is None else last
    return [Gap(begin, max(evidence.load_ends, one.waiting_ns), cut=True)]


def _not_handed(evidence: Evidence, place: TopicPartition) -> list[Gap]:
    """The gap behind the last read, if a record that live readers were not handed was acknowledged, or lay below the
    high watermark where acknowledgements name no offset."""
    sent, one = evidence.ledgers.produced.get(place), evidence.ledgers.read.get(place)
    if sent is None or sent.done.last is None:
        return []
    end = sent.last_offset if sent.last_offset >= 0 else _seen_end(evidence, place) - 1
    if end <= (-1 if one is None else one.last_offset):
        return []
    last = one.done.last if one is not None else None
    begin = int(sent.done.bins[0][0]) if last is None else last
    return [Gap(begin, max(evidence.load_ends, begin), cut=True)]


def _seen_end(evidence: Evidence, place: TopicPartition) -> int:
    return max((sample.high_watermark for sample in evidence.samples_of.get(place, ())), default=0)


def uncommitted(evidence: Evidence, place: TopicPartition | None) -> Found:
    """Between commits of a reader that the group coordinator took, as they were answered."""
    found = {
        reader: _between_commits(mine, evidence.load_ends)
        for reader, told in evidence.commits.items()
        if (mine := [one for one in told if place is None or _is_of(one, place)])
    }
    return found or _nothing("no reader committed an offset of", place)


def _is_of(commit: Commit, place: TopicPartition) -> bool:
    return any(place == (topic, partition) for topic, partition, _ in commit.offsets)


def _between_commits(told: Sequence[Commit], load_ends: float) -> list[Gap]:
    begin, found = told[0].begun_ns, []
    for one in told:
        if one.good:
            if one is not told[0]:
                found.append(Gap(begin, one.done_ns))
            begin = one.done_ns
    if not told[-1].good:
        found.append(Gap(begin, max(load_ends, begin, told[-1].done_ns), cut=True))
    return found


def undescribed(evidence: Evidence, place: TopicPartition | None) -> Found:
    """Between rounds in which some broker answered a Metadata request; of a partition, and named a leader."""
    if not evidence.rounds:
        return NOT_ASKED
    found, before, failed = [], evidence.rounds[0], list[Round]()
    for number, one in enumerate(evidence.rounds):
        if not any(_describes(told, place) for told in one.told):
            failed.append(one)
            continue
        if number:
            found.append(Gap(before.t_ns, one.done_ns, sure_ns=_sure(failed)))
        before, failed = one, []
    if failed:
        found.append(Gap(before.t_ns, failed[-1].done_ns, cut=True, sure_ns=_sure(failed)))
    return {str(place or "the cluster"): found}


def _describes(told: Told, place: TopicPartition | None) -> bool:
    return told.viewer != ZNODES and (
        place is None
        or any((row.topic, row.partition) == place and row.leader >= 0 for row in told.partitions)
    )


def _sure(failed: Sequence[Round]) -> float:
    return failed[-1].done_ns - failed[0].t_ns if failed else 0.0


GAPS: Final[Mapping[str, Gaps]] = {
    "produce": unproduced,
    "read": unread,
    "commit": uncommitted,
    "metadata": undescribed,
}
