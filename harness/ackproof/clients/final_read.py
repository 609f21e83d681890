"""The final read (docs/audit.md): every partition from log start to log end, once the cluster is at rest.

After every producer is closed, wait until each partition has an ISR of the declared size, and its high watermark, last
stable offset and leader's log end are equal at two looks a second apart in one leader epoch. Then reader processes read
from start until their *position* reaches the end, with transactions also at read_committed, and the leaders are asked
again. The read is complete if every partition settled, was read to its end, and has not changed.

A partition that did not settle is read as far as possible: the records that are present are evidence. The read does not
wait for what `run.recovery` found stuck: an ISR that stays short, a missing leader, a hanging transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event
from typing import Final

from ackproof.base.errors import WaitTimeout
from ackproof.base.processes import RunTag
from ackproof.base.wait import wait_until
from ackproof.clients.final_readers import FinalReadOrder, ReadOutcome, read_by_processes
from ackproof.cluster.protocol import Cluster
from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import FinalReadFile, PartitionRead
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition

REST_S: Final = 1.0
"""Least seconds between two equal states of a partition before it counts as at rest."""
_LOOK_EVERY_S: Final = 0.1
_AFTER_S: Final = 15.0
"""Seconds that leaders may take to answer after the final read, when they may be busy."""


@dataclass(frozen=True)
class End:
    """Leader epoch and offsets of a partition as its leader reports them (-1: unknown), and its ISR by the metadata.
    `log_end`: the leader's own log end offset, requested with a debugging replica id (`cluster.queries`)."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    start: int
    high_watermark: int
    last_stable: int
    log_end: int
    replicas: tuple[int, ...] = ()
    """Ids of the partition's current replicas; empty if unknown."""

    @property
    def is_known(self) -> bool:
        """True if the partition has a leader, which answered every request."""
        numbers = (self.leader, self.epoch, self.start, self.high_watermark, self.last_stable, self.log_end)
        return min(numbers) >= 0

    def unrest(self, isr_size: int, *, hanging: bool = False) -> str:
        """Return why the partition is not at rest, '' if it is.

        A partition is at rest if its leader answered, `isr_size` replicas are in the ISR (all, if there are fewer), and
        high watermark, last stable offset and log end are equal. `hanging`: a hanging transaction holds back the last
        stable offset, which is then not compared.
        """
        if not self.is_known:
            return "no answer from a leader"
        awaited = min(isr_size, len(self.replicas) or isr_size)
        if len(self.isr) < awaited:
            return f"ISR is {sorted(self.isr)}, {awaited} replicas are awaited"
        stable = self.high_watermark if hanging else self.last_stable
        if not self.high_watermark == stable == self.log_end:
            return (
                f"high watermark {self.high_watermark}, last stable offset {self.last_stable} and "
                f"log end {self.log_end} differ"
            )
        return ""


Ends = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, End]]
"""Function that returns the present state of the given partitions, without those whose leader did not answer. It takes
a few seconds at most."""


def ends_of(cluster: Cluster) -> Ends:
    """Return a function that reads the present ends of given partitions: offsets from their leaders, ISRs from the
    metadata.

    Its result lacks a partition whose leader does not answer, or whose leader and metadata disagree about the leader
    epoch.
    """

    def look(places: Sequence[TopicPartition]) -> Mapping[TopicPartition, End]:
        topics = tuple(dict.fromkeys(topic for topic, _ in places))
        ends = cluster.partition_ends(topics)
        states = cluster.topic_state(topics)
        seen: dict[TopicPartition, End] = {}
        for place in places:
            end, state = ends.get(place), states.get(place)
            if end is not None and state is not None and end.leader_epoch == state.leader_epoch:
                seen[place] = End(
                    leader=end.leader,
                    epoch=end.leader_epoch,
                    isr=state.isr,
                    start=end.start,
                    high_watermark=end.high_watermark,
                    last_stable=end.last_stable,
                    log_end=end.log_end,
                    replicas=state.replicas,
                )
        return seen

    return look


@dataclass
class _Watch:
    """State of one partition over several requests of the final read to its leader.

    `end`: the last answer. `since_s`: monotonic seconds since when the partition is at rest; 0: it is not. `settled`:
    True once the partition has been at rest for `REST_S`. `unrest`: why it is not settled; '' if it is.
    """

    end: End | None = None
    since_s: float = 0.0
    settled: bool = False
    unrest: str = "not looked at yet"

    def see(self, end: End | None, isr_size: int, now_s: float, *, hanging: bool = False) -> None:
        """Add one observation of the partition; `end` None: its leader did not answer. Sets `settled` once all
        observations of at least `REST_S` are at rest, and equal in leader epoch, log start and log end. `now_s`:
        monotonic seconds. `isr_size`, `hanging`: as in `End.unrest`."""
        self.unrest = "no answer" if end is None else end.unrest(isr_size, hanging=hanging)
        before, self.end = self.end, end if end is not None else self.end
        if self.unrest or end is None:
            self.since_s, self.settled = 0.0, False
        elif before is None or self.since_s == 0.0 or _changed(before, end):
            self.since_s, self.settled = now_s, False
            self.unrest = "at rest for less than a second"
        else:
            self.settled = now_s - self.since_s >= REST_S
            self.unrest = "" if self.settled else "at rest for less than a second"


def _changed(before: End, after: End) -> bool:
    return (before.epoch, before.start, before.log_end) != (after.epoch, after.start, after.log_end)


Read = Callable[[tuple[int, ...], tuple[int, ...]], ReadOutcome]
"""Function that reads each partition at read_uncommitted. Arguments: the start offsets and the end offsets, both in the
order of the partitions."""


def final_read(
    order: FinalReadOrder,
    ends: Ends,
    clock: RunClock,
    tag: RunTag,
    *,
    stop: Event | None = None,
    read: Read | None = None,
) -> FinalReadFile:
    """Wait until the cluster is at rest, read every partition from log start to log end, and ask the leaders again.
    Write the result to `observed/final-read.json`, and return it.

    `ends` is called for the state of partitions. `read` is called in place of reader processes, with the start and end
    offsets of `order.places`; then nothing is read at read_committed or a second time. If the read is incomplete, the
    result has the reasons, and nothing is raised. Raises `Interrupted` if `stop` is set. The reader processes are ended
    in any case.
    """
    watches = {place: _Watch() for place in order.places}
    reasons = _settle(order, ends, watches, stop)
    starts = tuple(_start(watches[place]) for place in order.places)
    goals = [
        tuple(
            _goal(watches[place], past_stable=not number and place in order.hanging) for place in order.places
        )
        for number in range(len(order.isolations))
    ]
    outcomes = [read(starts, goals[0])] if read else read_by_processes(order, starts, goals, clock, tag, stop)
    again = {} if read else _read_again(order, starts, goals[0], outcomes[0], clock, tag, stop)
    after = _look_again(ends, [place for place, watch in watches.items() if watch.settled], stop)
    found: list[tuple[PartitionRead, ...]] = []
    for who, outcome, ends_at in zip(("", "at read_committed "), outcomes, goals, strict=False):
        reasons += [who + reason for reason in outcome.reasons]
        partitions = []
        for number, (place, watch) in enumerate(watches.items()):
            position, then = outcome.positions[number], after.get(place)
            reason = _flaw(watch, ends_at[number], position, then, outcome.problems.get(str(place), ""))
            reasons += [f"{who}{place}: {reason}"] if reason else []
            partitions.append(
                PartitionRead(
                    topic=place.topic,
                    partition=place.partition,
                    start=starts[number],
                    end=ends_at[number],
                    epoch=-1 if watch.end is None else watch.end.epoch,
                    epoch_after=-1 if then is None else then.epoch,
                    position=position,
                    complete=not reason,
                    reason=reason,
                    records=outcome.records[number] if outcome.records else -1,
                    again=again.get(place, -1),
                )
            )
        found.append(tuple(partitions))
    file = FinalReadFile(
        complete=not reasons,
        reasons=tuple(reasons),
        partitions=found[0],
        committed=found[1] if len(found) > 1 else (),
    )
    file.save(CaseDir(tag.case_dir).final_read)
    return file


def _settle(
    order: FinalReadOrder, ends: Ends, watches: dict[TopicPartition, _Watch], stop: Event | None
) -> list[str]:
    """Ask leaders until all partitions are at rest, except those known to have no leader. Return the reason in a list
    if some are not at rest in time; [] otherwise. `watches` has the observations."""

    def look() -> bool:
        now = time.monotonic()
        seen = ends(order.places)
        for place, watch in watches.items():
            watch.see(seen.get(place), order.isr_size(place), now, hanging=place in order.hanging)
        return all(watch.settled for place, watch in watches.items() if place not in order.leaderless)

    try:
        wait_until(
            look,
            what="the cluster to settle",
            timeout_s=order.settle_s,
            interval_s=_LOOK_EVERY_S,
            stop=stop,
        )
    except WaitTimeout:
        return [f"the cluster did not settle within {order.settle_s:g} s"]
    return []


def _read_again(
    order: FinalReadOrder,
    starts: Sequence[int],
    ends: Sequence[int],
    first: ReadOutcome,
    clock: RunClock,
    tag: RunTag,
    stop: Event | None,
) -> dict[TopicPartition, int]:
    """Let a second reader read each partition that the first one read to its end, but with fewer records than offsets.

    A reader that is served less than the logs hold cannot tell its own error from the broker's; two can. Return the
    number of records that the second one read, without partitions that it did not read to the end. With transactions,
    and for compacted topics, nothing is read again: there, offsets may have no record.
    """
    short = [
        number
        for number, (place, count) in enumerate(zip(order.places, first.records, strict=False))
        if first.positions[number] >= ends[number]
        and count < ends[number] - starts[number]
        and place.topic not in order.compacted
    ]
    if order.transactions or not short:
        return {}
    places, goals = tuple(order.places[number] for number in short), tuple(ends[number] for number in short)
    second = replace(order, places=places, reader=order.reader + 1, second=True)
    begins = tuple(starts[number] for number in short)
    (outcome,) = read_by_processes(second, begins, [goals], clock, tag, stop)
    return {
        place: records
        for place, position, goal, records in zip(
            places, outcome.positions, goals, outcome.records, strict=False
        )
        if position >= goal
    }


def _look_again(ends: Ends, places: list[TopicPartition], stop: Event | None) -> dict[TopicPartition, End]:
    """Return the current state of these partitions, without those whose leader did not answer within `_AFTER_S`."""
    seen: dict[TopicPartition, End] = {}

    def look() -> bool:
        seen.update({place: end for place, end in ends(places).items() if end.is_known})
        return len(seen) == len(places)

    with suppress(WaitTimeout):  # the caller adds a reason for each missing partition
        wait_until(
            look,
            what="the leaders to say how the logs stand after the read",
            timeout_s=_AFTER_S,
            interval_s=_LOOK_EVERY_S,
            stop=stop,
        )
    return seen


def _start(watch: _Watch) -> int:
    return 0 if watch.end is None else max(0, watch.end.start)


def _goal(watch: _Watch, *, past_stable: bool = False) -> int:
    """Return the offset before which the read of a partition ends: its last stable offset, which is the log end at
    rest. 0 if its leader never answered.

    `past_stable`: True to return the high watermark instead, for a read_uncommitted read where a transaction holds the
    last stable offset back.
    """
    if watch.end is None:
        return 0
    if past_stable:
        return max(0, watch.end.high_watermark, watch.end.start)
    return max(0, watch.end.last_stable, watch.end.start)


def _flaw(watch: _Watch, goal: int, position: int, after: End | None, problem: str) -> str:
    """Return why the read of a partition is not complete, '' if it is. `position`: offset that the reader reached, of
    `goal`. `after`: the partition's end after the read. `problem`: the reader's own error, '' for none."""
    if not watch.settled or watch.end is None:
        return watch.unrest
    if position < goal:
        return f"the reader came to {position} of {goal}" + (f": {problem}" if problem else "")
    if problem:
        return problem
    if after is None:
        return f"no answer from a leader in {_AFTER_S:g} s after the read"
    if after.epoch != watch.end.epoch:
        return f"the leader epoch was {watch.end.epoch} before the read and {after.epoch} after it"
    if _changed(watch.end, after):
        return (
            f"the log was {watch.end.start}–{watch.end.log_end} before the read and "
            f"{after.start}–{after.log_end} after it"
        )
    return ""
