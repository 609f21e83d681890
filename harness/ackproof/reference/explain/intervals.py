"""What was acknowledged without an offset (acks=0) and is missing: explained by what happened while it was on its way.

Such a record was never appended (the connection broke, the leader had gone) or was appended and truncated: nobody can
tell these apart. Records of one producer and partition that are missing in a row lie between one that survived before
and one that did after; in that time there must have been a new leader, or a fault. What a producer sent last can
also be gone because it closed before a broker that stood still for long had read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from ackproof.reference.explain.epochs import NEVER
from ackproof.reference.explain.rows import AckedRows, Bools, Ints
from ackproof.reference.replay.account import PRESENT
from ackproof.reference.replay.lives import Life
from ackproof.rundir.conformance import Interval
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Event, EventKind, FaultAsked, Note, fault_name

_MARGIN_NS: Final = 1_000_000_000
"""What broke a moment earlier may still be noticed: connections are made anew in about this time."""


class Disturbance(NamedTuple):
    """Something that can take records that are on their way."""

    begin_ns: int
    end_ns: int
    what: str


def disturbances(lives: Sequence[Life], events: Sequence[Event]) -> list[Disturbance]:
    """Deletions of the topic, new leaders, faults from when they were asked for to their recovery, ends of nodes."""
    found = list(_deletions(lives))
    found += [
        Disturbance(
            now.t_ns, now.t_ns, f"leader {now.partition.leader} in epoch {now.partition.leader_epoch}"
        )
        for life in lives
        for before, now in pairwise(life.history)
        if before.partition.leader_epoch != now.partition.leader_epoch
    ]
    last = events[-1].t_ns if events else 0
    asked: dict[int, Event] = {}
    for event in events:
        if event.kind is EventKind.FAULT_ASKED and event.fault is not None:
            asked[event.fault] = event
        elif event.kind in {EventKind.FAULT_RECOVERED, EventKind.FAULT_FAILED} and event.fault in asked:
            found.append(_fault(asked.pop(event.fault), event.t_ns))
        elif event.kind in {EventKind.NODE_ENDED, EventKind.NODE_DIED}:
            found.append(Disturbance(event.t_ns, event.t_ns, f"node {event.node} ended"))
    found += [_fault(event, last) for event in asked.values()]
    return found


def _deletions(lives: Sequence[Life]) -> Iterator[Disturbance]:
    """From the deletion of a topic until it was made anew; what was there before is gone too."""
    for number, life in enumerate(lives):
        if life.removal is not None:
            again = lives[number + 1].began_ns if number + 1 < len(lives) else NEVER
            by = f" by {life.removal.by}" if life.removal.by else ""
            yield Disturbance(life.removal.t_ns, again, f"the topic was deleted{by}")


def left_unread(events: Sequence[Event]) -> dict[int, str]:
    """Producers that closed before brokers had read all that they had sent: what they sent last may be gone."""
    return {
        event.what.producer: (
            f"{event.client} closed with {event.what.unread_bytes} bytes on their way that nobody read"
        )
        for event in events
        if isinstance(event.what, Note)
        and event.what.producer is not None
        and event.what.unread_bytes is not None
    }


def _fault(event: Event, until_ns: int) -> Disturbance:
    kind = event.what.kind if isinstance(event.what, FaultAsked) else "?"
    return Disturbance(event.t_ns, until_ns, f"fault {fault_name(event.fault or 0)} ({kind})")


def intervals(
    place: TopicPartition, rows: AckedRows, around: Sequence[Disturbance], unread: Mapping[int, str]
) -> tuple[list[Interval], Bools]:
    """The runs of missing records without an offset, and which rows a disturbance explains, or the producer's end."""
    explained = np.zeros(len(rows), np.bool_)
    found: list[Interval] = []
    for producer in np.unique(rows.producer[(rows.found != PRESENT) & (rows.offset < 0)]).tolist():
        mine = np.flatnonzero(rows.producer == producer)
        mine = mine[np.argsort(rows.seq[mine], kind="stable")]
        missing = (rows.found[mine] != PRESENT) & (rows.offset[mine] < 0)
        begins, ends = _runs(missing)
        since = rows.sent[mine][np.maximum(begins - 1, 0)]
        until = rows.done[mine][np.minimum(ends, len(mine) - 1)]
        for begin, end, first, last in zip(
            begins.tolist(), ends.tolist(), since.tolist(), until.tolist(), strict=True
        ):
            why = next((one.what for one in around if _meets(one, first, last)), "")
            if not why and end == len(mine):
                why = unread.get(producer, "")
            explained[mine[begin:end]] = bool(why)
            found.append(
                Interval(
                    topic=place[0],
                    partition=place[1],
                    producer=producer,
                    first_seq=int(rows.seq[mine[begin]]),
                    last_seq=int(rows.seq[mine[end - 1]]),
                    records=end - begin,
                    why=why and f"{why}: not appended, truncated or deleted; which, cannot be told",
                )
            )
    return found, explained


def _meets(one: Disturbance, first: int, last: int) -> bool:
    return one.begin_ns <= last + _MARGIN_NS and one.end_ns >= first - _MARGIN_NS


def _runs(flags: Bools) -> tuple[Ints, Ints]:
    """Where runs of True begin, and where each has ended."""
    edges = np.diff(np.concatenate(([0], flags.astype(np.int8), [0])))
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
