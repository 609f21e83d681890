"""Explains missing records that were acknowledged without an offset (acks=0) by events while they were in flight.

Such a record was never appended (the connection broke, the leader had ended), or it was appended and truncated; the
files do not tell which. Either requires a new leader, the end of a leader, or a fault between producer and leader. No
record is missing that was sent before the last time at which the leader was seen to append: a leader reads a producer's
records in order, so it had read all that were sent until then. Records below the start offset of the next leader stay.

A producer's last records can also be missing because it closed before a broker that stood still for long had read them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np

from ackproof.experiment.fault import FaultSpec
from ackproof.rundir.model import UnplacedLoss
from ackproof.rundir.observed import Sample
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Event, Note, fault_name
from ackproof_model.explain.epochs import (
    NEVER,
    AckedRows,
    Bools,
    Ints,
    KeptLog,
    LeaderEpoch,
    leader_epochs,
    timestamps,
)
from ackproof_model.replay.observed import Life, Observed, learns_ns

_AFTER_NS: Final = 1_000_000_000
"""Time, in ns, for which an event may still take effect after its end: clients reconnect within about a second."""
_BEFORE_NS: Final = 500_000_000
"""Greatest time, in ns, by which a leader may read one producer's requests later than another's."""


class Disturbance(NamedTuple):
    """An event that can remove records in flight, from `begin_ns` to `end_ns` (ns since the run's start). `intervals`
    explains missing records by such events.

    `what`: the event in words. `since_ns`: records acknowledged more than `_BEFORE_NS` before this time count as
    appended. `known_ns`: from this time on producers know of the event, so they lose no record that they send more than
    `_AFTER_NS` later. `fault`: the fault, if the event is one; it concerns producers for which `disturbs` is True.
    None: all producers. Connections and logs are in order, so an event removes consecutive records of a producer.
    """

    since_ns: int
    begin_ns: int
    end_ns: int
    known_ns: int
    what: str
    fault: FaultSpec | None = None

    def takes(self, producer: int, rows: AckedRows, before: Ints, after: Ints) -> Bools:
        """Return a mask of a producer's rows, in order of seq, that this event can have removed, judged by times alone:
        also rows that are not missing.

        `before`: for each row, when the last row up to it that is not missing was sent; without such a row, when the
        first row was sent. `after`: when the first row from it on that is not missing was acknowledged; `NEVER` without
        such a row. Both are in ns since the run's start.
        """
        if self.fault is not None and not self.fault.disturbs(producer):
            return np.zeros(len(rows), np.bool_)
        end, known = (min(time, NEVER - _AFTER_NS) + _AFTER_NS for time in (self.end_ns, self.known_ns))
        itself = (rows.done >= self.since_ns - _BEFORE_NS) & (rows.sent <= known)
        near: Bools = itself & (before <= end) & (after >= self.begin_ns - _AFTER_NS)
        return near


def disturbances(
    observed: Observed, place: TopicPartition, lives: Sequence[Life], log: KeptLog
) -> list[Disturbance]:
    """Return the events that can have removed records of a partition in flight: deletions, elections, ends
    and faults of leaders.

    `lives`: the partition's incarnations, oldest first. `log`: the log of the present incarnation.
    """
    learns = learns_ns(observed.experiment.cluster, observed.stall_ns)
    samples = observed.samples.get(place, ())
    reigns = [leader_epochs(life.history, observed.node_ends, learns) for life in lives]
    found = list(_deletions(lives, learns))
    for life, of in zip(lives, reigns, strict=True):
        found += _elections(observed, place, of, samples, log if life.removal is None else None, learns)
    every = [one for of in reigns for one in of]
    found += _ends(observed.node_ends, every, samples)
    found += _faults(observed, every, samples)
    return found


def _deletions(lives: Sequence[Life], learns: int) -> Iterator[Disturbance]:
    """Yield each deletion of the topic as a disturbance. A deletion removes all records of the deleted incarnation. It
    also removes records that are sent later, until the leaders surely know the next incarnation; without one, until the
    end of the run.

    `learns`: longest time in ns by which a leader may lag behind the metadata log (`learns_ns`)."""
    for number, life in enumerate(lives):
        if life.removal is not None:
            again = lives[number + 1].began_ns if number + 1 < len(lives) else NEVER - learns
            by = f" by {life.removal.by}" if life.removal.by else ""
            yield Disturbance(
                life.began_ns, life.removal.t_ns, again, again + learns, f"the topic was deleted{by}"
            )


def _elections(
    observed: Observed,
    place: TopicPartition,
    reigns: Sequence[LeaderEpoch],
    samples: Sequence[Sample],
    log: KeptLog | None,
    learns: int,
) -> Iterator[Disturbance]:
    """Yield each election as a disturbance. Records can be missing if they were sent after the last one that the new
    leader certainly has. Records that were sent once the old leader certainly knew of the new one are not affected.

    The old leader's log end counts only up to the new leader's start offset. Records above that offset were truncated,
    and may have waited in queues since long before.

    `reigns`: the leader epochs of one incarnation, oldest first. `log`: log of the present incarnation; None for a
    deleted one. `learns`: longest time in ns until a deposed leader knows its successor (`learns_ns`)."""
    for old, new in pairwise(reigns):
        start = None
        if log is not None:
            later = (entry.start for entry in log.starts if entry.epoch >= new.epoch)
            start = min(later, default=log.log_end)
        appended = _appended_ns(samples, old, new.begin_ns, start)
        yield Disturbance(
            min(appended, _sent_ns(observed, place, start)),
            new.begin_ns,
            new.begin_ns,
            max(old.end_ns, new.begin_ns + learns),
            f"leader {new.leader} in epoch {new.epoch}",
        )


def _sent_ns(observed: Observed, place: TopicPartition, start: int | None) -> int:
    """Return when the last of the records below offset `start` was sent, in ns since the run's start, by the timestamps
    of the final read. `NEVER` if that is not known: `start` is None, no such record was read, or timestamps may be
    times of appends."""
    if start is None or not observed.stamped_when_sent(place.topic):
        return NEVER
    offsets, stamps = timestamps(observed.final_rows, place)
    below = stamps[offsets < start]
    return int(below.max()) * 1_000_000 - observed.stamps_from_ns if len(below) else NEVER


def _appended_ns(
    samples: Sequence[Sample], reign: LeaderEpoch, until_ns: int, start: int | None = None
) -> int:
    """Return the latest time, in ns since the run's start, until which the leader of epoch `reign` surely appended all
    that it was sent. Return the begin of that epoch if the samples show no later time.

    `until_ns`: samples after this time are not used. `start`: the first sample with a log end above this offset, and
    all later samples, are not used; None: no limit.

    If the sampled log end grows from A to B, the leader appended after it had answered A. A sample shows the broker's
    newest answer, so A may be older than the first sample that shows it. But A was answered after the sample before
    that one. The time of that earlier sample is returned."""
    surely = before = shorter = reign.begin_ns
    ended = -1
    time = attrgetter("t_ns")
    first, last = bisect_left(samples, reign.begin_ns, key=time), bisect_right(samples, until_ns, key=time)
    for sample in samples[first:last]:
        if (end := sample.log_ends.get(reign.leader)) is None:
            continue
        if start is not None and end > start:
            break
        if end != ended:
            surely = shorter if end > ended >= 0 else surely
            shorter, ended = before, end
        before = sample.t_ns
    return surely


def _ends(
    node_ends: Sequence[Event], reigns: Sequence[LeaderEpoch], samples: Sequence[Sample]
) -> Iterator[Disturbance]:
    """Yield each end of a leader's process as a disturbance. Requests that the process had not read are lost, even if
    it restarts at once. `reigns`: the leader epochs of all incarnations."""
    for event in node_ends:
        for reign in _led(reigns, event.t_ns, event.t_ns):
            if reign.leader == event.node:
                begin = _appended_ns(samples, reign, event.t_ns)
                yield Disturbance(begin, event.t_ns, event.t_ns, event.t_ns, f"node {event.node} ended")


def _faults(
    observed: Observed, reigns: Sequence[LeaderEpoch], samples: Sequence[Sample]
) -> Iterator[Disturbance]:
    """Yield a disturbance for each fault that may concern a leader: it hit one, names no node, or fell into a time
    without a leader. The disturbance lasts from the request of the fault to its end. `reigns`: the leader epochs of all
    incarnations."""
    faults = {fault.number: fault for fault in observed.case.faults}
    for number, (asked, until) in observed.fault_times.items():
        aim, fault = observed.faults[number], faults.get(number)
        led = _led(reigns, asked, until)
        if aim.nodes and led and {one.leader for one in led}.isdisjoint(aim.nodes):
            continue
        begin = min((_appended_ns(samples, one, asked) for one in _led(reigns, asked, asked)), default=asked)
        yield Disturbance(begin, asked, until, until, f"fault {fault_name(number)} ({aim.kind})", fault)


def _led(reigns: Sequence[LeaderEpoch], begin: int, end: int) -> list[LeaderEpoch]:
    """Return the leader epochs among `reigns` that overlap the time from `begin` to `end` (ns), extended by `_AFTER_NS`
    on both sides."""
    early, late = begin - _AFTER_NS, end + _AFTER_NS
    return [one for one in reigns if one.begin_ns <= late and one.end_ns >= early]


def left_unread(events: Sequence[Event]) -> dict[int, str]:
    """Return producer → sentence, for each producer (acks=0) that closed before a broker had read all the bytes it had
    sent. The last records of such a producer may be missing."""
    return {
        event.what.producer: (
            f"{event.client} closed with {event.what.unread_bytes} bytes on their way that nobody read"
        )
        for event in events
        if isinstance(event.what, Note)
        and event.what.producer is not None
        and event.what.unread_bytes is not None
    }


def intervals(
    place: TopicPartition, rows: AckedRows, around: Sequence[Disturbance], unread: Mapping[int, str]
) -> tuple[list[UnplacedLoss], Bools]:
    """Find runs of consecutive missing records of a producer that were acknowledged without an offset. `rows`: the
    partition's acknowledged records.

    Return the runs (`why` is '' if nothing explains a run), and a mask of the rows that are explained. A run is
    explained by a disturbance (`around`), or at the end of a producer by bytes that no broker had read when it closed.
    `unread`: a sentence on such bytes, by producer (`left_unread`).
    """
    explained = np.zeros(len(rows), np.bool_)
    found: list[UnplacedLoss] = []
    for producer in np.unique(rows.producer[rows.missing & (rows.offset < 0)]).tolist():
        at = np.flatnonzero(rows.producer == producer)
        at = at[np.argsort(rows.seq[at], kind="stable")]
        mine = rows.take(at)
        missing = mine.missing & (mine.offset < 0)
        numbers = np.arange(len(mine))
        before = mine.sent[np.maximum.accumulate(np.where(missing, 0, numbers))]
        following = np.minimum.accumulate(np.where(missing, len(mine), numbers)[::-1])[::-1]
        after = np.append(mine.done, NEVER)[following]
        taken = [(one.what, one.takes(producer, mine, before, after)) for one in around]
        meets = np.logical_or.reduce([np.zeros(len(mine), np.bool_), *(which for _, which in taken)])
        for begin, end in sorted([*_runs(missing & meets), *_runs(missing & ~meets)]):
            run = np.arange(begin, end)
            why = next((what for what, which in taken if which[run].any()), "")
            if not why and end == len(mine):
                why = unread.get(producer, "")
            explained[at[run]] = bool(why)
            found.append(
                UnplacedLoss(
                    topic=place[0],
                    partition=place[1],
                    producer=producer,
                    first_seq=int(mine.seq[begin]),
                    last_seq=int(mine.seq[end - 1]),
                    records=end - begin,
                    why=why and f"{why}: not appended, truncated or deleted; which, cannot be told",
                )
            )
    return found, explained


def _runs(flags: Bools) -> Iterator[tuple[int, int]]:
    edges = np.diff(np.concatenate(([0], flags.astype(np.int8), [0])))
    yield from zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True)
