"""Finds the leader epochs of acknowledged rows, and whether the surviving log still has these rows.

A record is identified by its offset and the leader epoch that wrote it (KIP-101): logs with the same epoch at the same
offset have the same record. An acknowledgement carries the offset only. Its epoch follows from its times: a leader
appends from its election until it has died or follows another leader, and a record is appended between its send and its
acknowledgement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ackproof.rundir import storage
from ackproof.rundir.anomalies import REMOVED, REPLAYED
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import FinalRows, ledger_rows, parts, read_parts
from ackproof.rundir.outcome import Outcome, TxnOutcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.replicas import Replica
from ackproof.rundir.schema import FINDINGS, TRANSACTIONS
from ackproof.rundir.timeline import Event
from ackproof_model.replay.account import PRESENT, plain
from ackproof_model.replay.observed import SLACK_NS, Moment, Observed
from ackproof_reference.log import EpochEntry
from ackproof_reference.metadata import NO_LEADER

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_SEQ_BITS: Final = 40
_REMOVED: Final = [number for number, anomaly in enumerate(REPLAYED) if anomaly in REMOVED]


@dataclass(frozen=True)
class AckedRows:
    """Acknowledged records of one partition, a column per field.

    `offset`: -1 if the acknowledgement had none (acks=0). `found`: index of the audit's class in `REPLAYED`, or
    `PRESENT` if the audit has no such finding on the record. `sent`, `done`: times of the send and the acknowledgement,
    in ns since the run's start.
    """

    producer: Ints
    seq: Ints
    offset: Ints
    sent: Ints
    done: Ints
    found: npt.NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def missing(self) -> Bools:
        """Mask of the lost and the displaced rows: the audit did not find them at their offset, and no setting or
        administrator removed them."""
        gone: Bools = (self.found != PRESENT) & ~np.isin(self.found, _REMOVED)
        return gone

    def take(self, which: Bools | Ints) -> AckedRows:
        return AckedRows(*(column[which] for column in vars(self).values()))


def acked_rows(run: CaseDir) -> Iterator[tuple[TopicPartition, AckedRows]]:
    """Yield each partition with its acknowledged rows; nothing without a ledger. Raises OSError or ArrowException if
    the ledger cannot be read.

    Rows of a transaction without an acknowledged commit are left out, as in the audit.
    """
    if not parts(run.produced):
        return
    wanted = ["producer", "seq", "topic", "partition", "offset", "sent_ns", "done_ns", "txn"]
    table = ledger_rows(run.produced, wanted, pc.field("outcome") == int(Outcome.ACKED))
    table = table.filter(pa.array(_committed(run, table)))
    keys, kinds = _findings(run)
    topics = table["topic"].combine_chunks().dictionary_encode()
    code = topics.indices.to_numpy().astype(np.int64) * (1 << 32) + table["partition"].to_numpy()
    order = np.argsort(code, kind="stable")
    names = topics.dictionary.to_pylist()
    numbers = {
        name: table[name].to_numpy().astype(np.int64)[order]
        for name in ("producer", "seq", "offset", "sent_ns", "done_ns")
    }
    code = code[order]
    bounds = [0, *(np.flatnonzero(np.diff(code)) + 1).tolist(), len(code)]
    for begin, stop in pairwise(bounds):
        if begin == stop:
            continue
        mine = {name: column[begin:stop] for name, column in numbers.items()}
        found = np.full(stop - begin, PRESENT, np.int8)
        if len(keys):
            own = identity(mine["producer"], mine["seq"])
            at = np.clip(np.searchsorted(keys, own), 0, len(keys) - 1)
            found = np.where(keys[at] == own, kinds[at], PRESENT).astype(np.int8)
        place = TopicPartition(names[code[begin] >> 32], int(code[begin] & 0xFFFFFFFF))
        yield (
            place,
            AckedRows(mine["producer"], mine["seq"], mine["offset"], mine["sent_ns"], mine["done_ns"], found),
        )


def identity(producer: Ints, seq: Ints) -> Ints:
    """Return (producer, seq) of each row as one int64, so that one comparison or sort covers both. Each seq must be
    below 2⁴⁰."""
    return (producer << _SEQ_BITS) + seq


def _committed(run: CaseDir, table: pa.Table) -> Bools:
    txn = table["txn"].to_numpy().astype(np.int64)
    if not (txn >= 0).any():
        return np.ones(len(txn), np.bool_)
    told = read_parts(run.transactions, TRANSACTIONS)
    told = told.filter(pc.equal(told["outcome"], int(TxnOutcome.COMMITTED)))
    sure = identity(told["producer"].to_numpy().astype(np.int64), told["txn"].to_numpy().astype(np.int64))
    mine = identity(table["producer"].to_numpy().astype(np.int64), np.maximum(txn, 0))
    committed: Bools = (txn < 0) | np.isin(mine, sure)
    return committed


def _findings(run: CaseDir) -> tuple[Ints, npt.NDArray[np.int8]]:
    """Return two parallel arrays about the audit's findings of the classes `REPLAYED`: the identities of their records
    (`identity`), ascending, and the class of each as an index into `REPLAYED`."""
    keys, kinds = [], []
    if files := run.finding_parts:
        for number, anomaly in enumerate(REPLAYED):
            table = storage.read_rows(files, ["producer", "seq"], pc.field("class") == anomaly, FINDINGS)
            producer = table["producer"].to_numpy().astype(np.int64)
            keys.append(identity(producer, table["seq"].to_numpy().astype(np.int64)))
            kinds.append(np.full(len(producer), number, np.int8))
    if not keys:
        return np.empty(0, np.int64), np.empty(0, np.int8)
    every, classes = np.concatenate(keys), np.concatenate(kinds)
    order = np.argsort(every, kind="stable")
    return every[order], classes[order]


def timestamps(final_rows: FinalRows, place: TopicPartition) -> tuple[Ints, Ints]:
    """Return two parallel arrays of the final read of a partition: offsets, ascending, and the timestamp of the record
    at each, in ms. They are empty if nothing was read."""
    table = final_rows.read_partition(place)
    offset = table["offset"].to_numpy().astype(np.int64)
    order = np.argsort(offset, kind="stable")
    return offset[order], table["timestamp_ms"].to_numpy().astype(np.int64)[order]


NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True)
class LeaderEpoch:
    """One leader epoch: from its election until the last time at which its leader can have appended.

    Times are ns since the run's start; `end_ns` is NEVER if nothing ended it. `clean`: False if the leader was elected
    from outside of ISR and ELR, or if earlier changes are missing in the metadata log. `cause`: the step of the
    controller, in words. `offset`: offset, in the metadata log, of the record that elected the leader. `before`: the
    partition's state before the election, in words; '' if there was none.
    """

    epoch: int
    leader: int
    begin_ns: int
    end_ns: int
    clean: bool
    cause: str
    offset: int
    before: str = ""


def leader_epochs(history: Sequence[Moment], node_ends: Sequence[Event], learns: int) -> list[LeaderEpoch]:
    """Return every leader epoch of a partition that had a leader, oldest first.

    `history`: the partition's states, oldest first. `node_ends`: the events at which nodes ended, oldest first.
    `learns`: longest time in ns until a deposed leader knows its successor (`learns_ns`).
    """
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
    """Return the last time, in ns, at which the leader of `history[0]` can have appended in its epoch.

    That is when it died, joined another leader's ISR, or must have learned of its successor; `NEVER` if none of these
    happened.
    """
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
    """Log of the last leader, one entry per batch: `first` and `last` offset (both included), and its leader `epoch`.

    `starts`: the leader epochs with their start offsets, ascending. `log_start`, `log_end`: log start offset and log
    end offset.
    """

    first: Ints
    last: Ints
    epoch: Ints
    starts: tuple[EpochEntry, ...]
    log_start: int
    log_end: int

    def epoch_at(self, offsets: Ints) -> Ints:
        """Return the epoch of the batch at each offset; -1 where no batch has the offset."""
        if len(self.first) == 0:
            return np.full(len(offsets), -1, np.int64)
        at = np.clip(np.searchsorted(self.first, offsets, side="right") - 1, 0, None)
        covered = (offsets >= self.first[at]) & (offsets <= self.last[at])
        return np.where(covered, self.epoch[at], -1)

    def taken_over(self, epoch: int, offset: int) -> EpochEntry | None:
        """Return the first epoch after `epoch` that began at or below `offset`, and so overwrote it; None if no epoch
        did."""
        later = (entry for entry in self.starts if entry.epoch > epoch and entry.start <= offset)
        return min(later, default=None)


def kept_log(observed: Observed, replicas: Sequence[Replica], leader: int) -> KeptLog | None:
    """Return the log of broker `leader`; if it could not be read, the longest log among `replicas`; None if no log was
    read.

    Of a deleted replica only the epochs are known; each counts as one batch. Raises OSError or ArrowException if the
    file of batches cannot be read.
    """
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
    """Return the log of a deleted replica, of which only the epoch checkpoint is left: one batch for each epoch.

    Each epoch ends where the next one begins.
    """
    starts = tuple(EpochEntry(entry.epoch, entry.start) for entry in replica.epochs)
    first = np.array([entry.start for entry in starts], np.int64)
    last = np.array([*(entry.start for entry in starts[1:]), replica.log_end], np.int64)[: len(starts)] - 1
    epoch = np.array([entry.epoch for entry in starts], np.int64)
    return KeptLog(first, last, epoch, starts, replica.log_start, replica.log_end)


_NONE: Final = np.empty(0, np.int64)
NOTHING: Final = KeptLog(_NONE, _NONE, _NONE, (), 0, 0)
"""Empty log, for a topic that no longer exists."""


@dataclass(frozen=True)
class OffsetFates:
    """Possible fates of acknowledged records, as arrays with one element per row.

    `gone`: True if the record can be gone. `kept`: True if it can be kept. Both are True if the times do not decide.
    `expired`: True if its offset is below the log start. `old_epoch`: the epoch in which the record was appended, if a
    later leader can have removed it; else -1. `timely`: True if the times of its send and its acknowledgement fit one
    of the leader epochs.
    """

    gone: Bools
    kept: Bools
    expired: Bools
    old_epoch: Ints
    timely: Bools


def may_have_appended(leader_epoch: LeaderEpoch, rows: AckedRows) -> Bools:
    """Return a mask of the rows whose records the leader of this epoch can have appended. The times of their send and
    acknowledgement decide, with a tolerance of `SLACK_NS`."""
    end = min(leader_epoch.end_ns, NEVER - SLACK_NS) + SLACK_NS
    can: Bools = (rows.done >= leader_epoch.begin_ns - SLACK_NS) & (rows.sent <= end)
    return can


def possible_fates(
    log: KeptLog,
    leader_epochs: Sequence[LeaderEpoch],
    rows: AckedRows,
    *,
    ended: bool = False,
    before: tuple[Bools, Bools] | None = None,
) -> OffsetFates:
    """Return the possible fates of acknowledged rows that have an offset.

    `log`: the log in which the records are looked up. `leader_epochs`: epochs of the incarnation to which the log
    belongs. `ended`: True if the log was deleted with its topic after these epochs. `before`: two masks of the rows,
    those that an earlier incarnation can have held and those that can have been deleted with it; None without an
    earlier incarnation.
    """
    offsets = rows.offset
    held = log.epoch_at(offsets)
    expired = offsets < log.log_start
    inside_hole = (held < 0) & ~expired & (offsets < log.log_end)
    newest = max(
        [leader_epoch.epoch for leader_epoch in leader_epochs] + [entry.epoch for entry in log.starts],
        default=-1,
    )
    gone = np.zeros(len(offsets), np.bool_) if before is None else before[1].copy()
    kept = np.zeros(len(offsets), np.bool_)
    old_epoch = np.full(len(offsets), -1, np.int64)
    timely = np.zeros(len(offsets), np.bool_)
    for leader_epoch in leader_epochs:
        can = may_have_appended(leader_epoch, rows)
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
        here = timely | ~(timely if before is None else before[0])
        kept |= ~gone & (held >= 0) & here
    return OffsetFates(gone, kept, expired, old_epoch, timely)
