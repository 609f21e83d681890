"""Which leader epochs an acknowledged offset can be of, and what the log that was kept says of it.

A record is known by its offset and the leader epoch that wrote it (KIP-101): logs that hold the same epoch at the same
offset hold the same record. An acknowledgement names its offset only. Its epoch follows from its times: a leader
appends between its election and the moment when it had died or followed another one, and the record was appended
between the send and its answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from ackproof.rundir.replicas import Replica
from ackproof.rundir.timeline import Event
from ackproof_model.explain.rows import AckedRows, Bools, Ints
from ackproof_model.replay.lives import Moment
from ackproof_model.replay.observed import SLACK_NS, Observed
from ackproof_model.replay.rules import plain
from ackproof_reference.log import EpochEntry
from ackproof_reference.metadata import NO_LEADER

NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True)
class LeaderEpoch:
    """One leader epoch: from its election until its leader can have appended in it for the last time."""

    epoch: int
    leader: int
    begin_ns: int
    end_ns: int
    clean: bool
    cause: str
    offset: int
    """Of its record in the metadata log."""
    before: str = ""
    """The state before its election, to be told."""


def leader_epochs(history: Sequence[Moment], node_ends: Sequence[Event], learns: int) -> list[LeaderEpoch]:
    """Every leader epoch of a partition that had a leader, oldest first. `learns`: see `learns_ns`."""
    found: list[LeaderEpoch] = []
    for number, moment in enumerate(history):
        leader, epoch = moment.partition.leader, moment.partition.leader_epoch
        before = history[number - 1].partition if number else None
        if leader == NO_LEADER or (before and (before.leader, before.leader_epoch) == (leader, epoch)):
            continue
        found.append(
            LeaderEpoch(
                epoch,
                leader,
                moment.t_ns,
                _last_append(leader, epoch, history[number:], node_ends, learns),
                moment.clean,
                moment.cause,
                moment.offset,
                plain(before) if before else "",
            )
        )
    return found


def _last_append(
    leader: int, epoch: int, history: Sequence[Moment], node_ends: Sequence[Event], learns: int
) -> int:
    """When the leader of `history[0]` had died, or had joined another's ISR, or must have heard of its successor."""
    begin, ends = history[0].t_ns, [NEVER]
    ends += [event.t_ns for event in node_ends if event.node == leader and event.t_ns > begin][:1]
    later = [moment for moment in history if moment.partition.leader_epoch != epoch]
    if later:
        left = False
        for moment in later:
            if moment.partition.leader == leader:
                ends.append(moment.t_ns + learns)
                break
            if left and leader in moment.partition.isr:
                ends.append(moment.t_ns)
                break
            left = left or leader not in moment.partition.isr
        if not left:
            ends.append(later[0].t_ns + learns)
    return min(ends)


@dataclass(frozen=True)
class KeptLog:
    """What the last leader's log holds: per batch first and last offset and epoch, and where its epochs began."""

    first: Ints
    last: Ints
    epoch: Ints
    starts: tuple[EpochEntry, ...]
    log_start: int
    log_end: int

    def epoch_at(self, offsets: Ints) -> Ints:
        """The epoch that each offset is held in, -1 where no batch has it."""
        if len(self.first) == 0:
            return np.full(len(offsets), -1, np.int64)
        at = np.clip(np.searchsorted(self.first, offsets, side="right") - 1, 0, None)
        covered = (offsets >= self.first[at]) & (offsets <= self.last[at])
        return np.where(covered, self.epoch[at], -1)

    def taken_over(self, epoch: int, offset: int) -> EpochEntry | None:
        """Of the epochs after `epoch`, the first that began at or below an offset; None when there is none."""
        later = (entry for entry in self.starts if entry.epoch > epoch and entry.start <= offset)
        return min(later, default=None)


def kept_log(observed: Observed, replicas: Sequence[Replica], leader: int) -> KeptLog | None:
    """The log of who led last, or (when it could not be read) of the replica with the most of it; None without any."""
    whole = [replica for replica in replicas if not replica.reason and replica.log_end >= 0]
    if not whole:
        return None
    chosen = next(
        (replica for replica in whole if replica.node == leader), max(whole, key=lambda one: one.log_end)
    )
    if chosen.deleted:
        return _of_checkpoints(chosen)
    table = observed.batches(chosen)
    first, last, epoch = (
        table[name].to_numpy().astype(np.int64) for name in ("first_offset", "last_offset", "leader_epoch")
    )
    starts = {entry.epoch: entry.start for entry in chosen.epochs}
    for at in np.flatnonzero(np.diff(epoch, prepend=-1)).tolist():
        starts.setdefault(int(epoch[at]), int(first[at]))
    return KeptLog(
        first,
        last,
        epoch,
        tuple(EpochEntry(*item) for item in sorted(starts.items())),
        chosen.log_start,
        chosen.log_end,
    )


def _of_checkpoints(replica: Replica) -> KeptLog:
    """A log that was deleted, of which no batches are kept: each epoch reaches to the next one's beginning."""
    starts = tuple(EpochEntry(entry.epoch, entry.start) for entry in replica.epochs)
    first = np.array([entry.start for entry in starts], np.int64)
    last = np.array([*(entry.start for entry in starts[1:]), replica.log_end], np.int64)[: len(starts)] - 1
    epoch = np.array([entry.epoch for entry in starts], np.int64)
    return KeptLog(first, last, epoch, starts, replica.log_start, replica.log_end)


_NONE: Final = np.empty(0, np.int64)
NOTHING: Final = KeptLog(_NONE, _NONE, _NONE, (), 0, 0)
"""The log of a topic that is not there any more."""


@dataclass(frozen=True)
class OffsetFates:
    """Per acked offset what the replay says: it can be gone, it can be kept (both: the times do not tell)."""

    gone: Bools
    kept: Bools
    expired: Bools
    """Below the log start."""
    old_epoch: Ints
    """Where it can be gone: the epoch that it was then of; -1 elsewhere."""
    timely: Bools
    """By its times it can be of one of the epochs that were asked of."""


class Before(NamedTuple):
    """Of acked offsets: which can be of an earlier incarnation, and which can have gone with it."""

    can: Bools
    gone: Bools


def possible(leader_epoch: LeaderEpoch, rows: AckedRows) -> Bools:
    """Which records, by when they were sent and answered, a leader can have appended in an epoch."""
    end = min(leader_epoch.end_ns, NEVER - SLACK_NS) + SLACK_NS
    can: Bools = (rows.done >= leader_epoch.begin_ns - SLACK_NS) & (rows.sent <= end)
    return can


def tell(
    log: KeptLog,
    of: Sequence[LeaderEpoch],
    rows: AckedRows,
    *,
    ended: bool = False,
    before: Before | None = None,
) -> OffsetFates:
    """Say it of acked rows that have an offset.

    `ended`: the log went with its topic after these epochs. `before`: what earlier topics of that name say of them.
    """
    offsets = rows.offset
    held = log.epoch_at(offsets)
    expired = offsets < log.log_start
    inside_hole = (held < 0) & ~expired & (offsets < log.log_end)
    newest = max(
        [leader_epoch.epoch for leader_epoch in of] + [entry.epoch for entry in log.starts], default=-1
    )
    gone = np.zeros(len(offsets), np.bool_) if before is None else before.gone.copy()
    kept = np.zeros(len(offsets), np.bool_)
    old_epoch = np.full(len(offsets), -1, np.int64)
    timely = np.zeros(len(offsets), np.bool_)
    for leader_epoch in of:
        can = possible(leader_epoch, rows)
        timely |= can
        kept |= can & (held == leader_epoch.epoch)
        if leader_epoch.epoch < newest:
            lost = can & (held != leader_epoch.epoch) & ~inside_hole & ~expired
            gone |= lost
            # The newest epoch below the one that holds it now: that one's log was cut.
            better = lost & ((old_epoch < 0) | (leader_epoch.epoch < held) | (held < 0))
            old_epoch[better] = leader_epoch.epoch
    if not ended:
        # The times were read too narrowly where neither holds: it is there, and no step would take it away.
        here = timely | ~(timely if before is None else before.can)
        kept |= ~gone & (held >= 0) & here
    return OffsetFates(gone, kept, expired, old_epoch, timely)
