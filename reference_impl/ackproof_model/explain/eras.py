"""The incarnations of a partition: their leaders over time, and the records that later leaders or the deletion removed.

A truncation removes offsets of an epoch that a later leader did not have. Earlier incarnations of a topic had offsets
from 0 on, as the present one has, and an acknowledgement names no incarnation. By its times it can belong to an
incarnation whose leader could still append when it was sent, and that existed when it was acknowledged. A leader
appends until it learns of the deletion; its log shows that, because it is shorter afterwards, or waits to be removed
and has no newer record. A leader's log only grows while it leads, so a row with a lower offset than an earlier
acknowledgement is not from that log.

If an acknowledgement can belong to two incarnations, the timestamp of the record that is at its offset now decides
(`explanation`). The rest is counted as undecided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

import numpy as np

from ackproof.rundir.model import Deletion, ForbiddenStep, Truncation
from ackproof.rundir.observed import Sample
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.replicas import Replica
from ackproof_model.explain.epochs import (
    NEVER,
    NOTHING,
    AckedRows,
    Bools,
    Ints,
    KeptLog,
    LeaderEpoch,
    OffsetFates,
    kept_log,
    leader_epochs,
    may_have_appended,
    possible_fates,
)
from ackproof_model.replay.observed import SLACK_NS, Life, Observed, Removal, learns_ns

_ABOVE: Final = "ack above what its epoch kept"
_STAMP_NS = 2_000_000
"""Greatest time, in ns, by which a record's timestamp may precede the ledger's time of its send."""


@dataclass(frozen=True)
class Era:
    """One incarnation of a partition (from a creation of its topic to a deletion): its leader epochs, and the log of
    its last leader."""

    observed: Observed
    place: TopicPartition
    leader_epochs: Sequence[LeaderEpoch]
    log: KeptLog

    def truncations(
        self, rows: AckedRows, told: OffsetFates, gone: Bools
    ) -> Iterator[tuple[Truncation, ForbiddenStep | None]]:
        """Yield one truncation per leader epoch that lost rows of the mask `gone`. With it comes the forbidden step, if
        clean elections truncated records that acks=all had acknowledged; else None.

        `told`: fates of the rows, which give the epoch in which each gone row was appended. An epoch without
        a known successor yields nothing.
        """
        for epoch in np.unique(told.old_epoch[gone & (told.old_epoch >= 0)]).tolist():
            mine = gone & (told.old_epoch == epoch)
            offsets: Ints = rows.offset[mine]
            lowest, highest = int(offsets.min()), int(offsets.max())
            taken = self.log.taken_over(epoch, lowest)
            leader_epoch = self._successor(epoch, taken.epoch if taken else -1)
            if leader_epoch is None:
                continue
            start = taken.start if taken else lowest
            cut = Truncation(
                topic=self.place.topic,
                partition=self.place.partition,
                from_offset=min(start, lowest),
                to_offset=highest + 1,
                old_epoch=epoch,
                new_epoch=leader_epoch.epoch,
                new_leader=leader_epoch.leader,
                why=f"{leader_epoch.cause}: broker {leader_epoch.leader} led from offset {start} on "
                f"in epoch {leader_epoch.epoch}"
                + ("" if leader_epoch.clean else ", elected from outside of the ISR"),
                acked=int(mine.sum()),
            )
            yield cut, self._acks_all(epoch, leader_epoch, lowest, int(mine.sum()))

    def _successor(self, old: int, new: int) -> LeaderEpoch | None:
        """Return leader epoch `new`; if the metadata log does not have it, the first one after epoch `old`; None if
        there is none."""
        exact = [one for one in self.leader_epochs if one.epoch == new]
        return next(iter(exact or [one for one in self.leader_epochs if one.epoch > old]), None)

    def _acks_all(self, old: int, new: LeaderEpoch, offset: int, count: int) -> ForbiddenStep | None:
        """Return the forbidden step if a truncation removed records that acks=all had acknowledged. None with another
        acks setting, or if Kafka allows the truncation.

        Such records are below the high watermark, so each leader that is elected from ISR or ELR has them. The
        truncation is allowed in two cases. A leader after epoch `old`, up to epoch `new`, was not elected cleanly
        (`LeaderEpoch.clean`). Or a fault may have removed records from the disk of such a leader.

        `old`: leader epoch of the records. `new`: the epoch that took over their offsets. `offset`: their lowest
        offset. `count`: their number."""
        between = [one for one in self.leader_epochs if old < one.epoch <= new.epoch]
        acks = self.observed.experiment.workload.producers.acks
        cut = self.observed.cut_before({one.leader for one in between}, new.begin_ns)
        if acks != "all" or cut or not all(one.clean for one in between):
            return None
        return ForbiddenStep(
            rule=_ABOVE,
            text=f"{self.place}: {count} records that acks=all had acknowledged in epoch {old}, from offset "
            f"{offset} on, are above what epoch {old} kept; broker {new.leader} was elected cleanly ({new.cause})",
            state_before=new.before,
            source="KIP-101, KIP-966; Partition.maybeIncrementLeaderHW",
            offset=new.offset,
            t_ns=new.begin_ns,
            topic=self.place.topic,
            partition=self.place.partition,
        )

    def forbidden_step(
        self, rows: AckedRows, nowhere: Bools, what: str, end: str, before: str
    ) -> ForbiddenStep:
        """Return the report of a step that the protocol forbids: acknowledged offsets are in no log, although no later
        leader can have removed them. `nowhere`: mask of the rows with these offsets, not empty.

        `what` and `end` are parts of the report's sentence: `PARTITION{what}, the first OFFSET of producer P, seq S;
        {end}`. So `what` begins with `: ` or `, `. `before`: the partition's state before the step, in words."""
        at = int(np.flatnonzero(nowhere)[0])
        return ForbiddenStep(
            rule=_ABOVE,
            text=f"{self.place}{what}, the first {int(rows.offset[at])} of producer {int(rows.producer[at])}, seq "
            f"{int(rows.seq[at])}; {end}",
            state_before=before,
            source="KIP-101; UnifiedLog.append",
            t_ns=int(rows.done[at]),
            topic=self.place.topic,
            partition=self.place.partition,
        )


@dataclass(frozen=True)
class PastLife:
    """A deleted incarnation of a partition, and the acknowledged rows (with an offset) that can belong to it.

    `era`: its leader epochs and its log. `life`: its states, from the metadata log. `removal`: the deletion of its
    topic. `number`: position among the incarnations, from 1. `again_ns`: time at which the next incarnation was
    created; -1: never. `told`: fates of the rows according to its log; None if the log was not read. `can`: mask of the
    rows that can belong to it, by time and offset. `log_end`: log end offset at the deletion; -1 if its log was not
    read.
    """

    era: Era
    life: Life
    removal: Removal
    number: int
    again_ns: int
    told: OffsetFates | None
    can: Bools
    log_end: int

    @property
    def held_rows(self) -> Bools:
        """Mask of the rows that its log had at the deletion, or had lost before by truncation or retention. If its log
        is unknown: all rows that can belong to it."""
        if self.told is None:
            return self.can
        return self.can & (self.told.kept | self.told.gone | self.told.expired)

    @property
    def truncated(self) -> Bools:
        """Mask of the rows that were certainly truncated before the deletion."""
        if self.told is None:
            return np.zeros(len(self.can), np.bool_)
        return self.can & self.told.gone & ~self.told.kept

    def deletion(self, rows: AckedRows, mine: Bools, either: Bools) -> Deletion:
        """Return the deletion as `conformance.json` has it. `mine`: mask of the rows that were deleted with the
        incarnation. `either`: mask of the rows for which this is undecided."""
        removal, until = self.removal, max((one.end_ns for one in self.era.leader_epochs), default=-1)
        by = removal.by or "nobody who is known"
        return Deletion(
            topic=self.era.place.topic,
            partition=self.era.place.partition,
            topic_id=self.life.topic_id,
            incarnation=self.number,
            by=removal.by,
            created_ns=self.life.began_ns,
            removed_ns=removal.t_ns,
            until_ns=until,
            again_ns=self.again_ns,
            offset=removal.offset,
            log_end=self.log_end,
            acked=int(mine.sum()),
            either=int(either.sum()),
            first_either=int(rows.offset[either].min()) if either.any() else -1,
            last_either=int(rows.offset[either].max()) if either.any() else -1,
            why=f"the topic was deleted by {by} at {removal.t_ns / 1e9:.3f} s",
        )

    def forbidden_step(self, rows: AckedRows, nowhere: Bools) -> ForbiddenStep:
        """Return the report of a step that the protocol forbids: the deleted log lacked acknowledged offsets, although
        no leader had truncated them. `nowhere`: mask of the rows with these offsets, not empty."""
        last, name = self.era.leader_epochs[-1], f", incarnation {self.number}"
        what = f"{name}: {int(nowhere.sum())} acknowledged offsets are not in the log that was deleted with the topic"
        led = f"broker {last.leader} led in epoch {last.epoch} until the topic was deleted"
        return self.era.forbidden_step(rows, nowhere, what, f"that log ended at {self.log_end}", led)


def past_lives(
    observed: Observed, place: TopicPartition, lives: Sequence[Life], rows: AckedRows
) -> Sequence[PastLife]:
    """Return the deleted incarnations of a partition, oldest first. `lives`: all of its incarnations. `rows`:
    its acknowledged rows that have an offset."""
    found = []
    for number, life in enumerate(lives, start=1):
        if life.removal is not None:
            again = lives[number].began_ns if number < len(lives) else -1
            found.append(
                _past_life(Era(observed, place, (), NOTHING), life, life.removal, number, again, rows)
            )
    return found


def _past_life(
    unknown: Era, life: Life, removal: Removal, number: int, again_ns: int, rows: AckedRows
) -> PastLife:
    observed, place = unknown.observed, unknown.place
    learns = learns_ns(observed.experiment.cluster, observed.stall_ns)
    leader = next((one.partition.leader for one in reversed(life.history) if one.partition.leader >= 0), -1)
    replica = _deleted(observed.deleted.get(place, ()), life.topic_id, leader)
    log = None if replica is None else kept_log(observed, [replica], leader)
    samples = observed.samples.get(place, ())
    of = [
        replace(one, end_ns=min(one.end_ns, removal.t_ns + learns, _shorter_ns(one, removal, samples)))
        for one in leader_epochs(life.history, observed.node_ends, learns)
    ]
    if of and replica is not None and replica.newest_ms >= 0 and observed.stamped_when_sent(place[0]):
        newest = replica.newest_ms * 1_000_000 - observed.stamps_from_ns + 1_000_000 + _STAMP_NS
        kept = len(of) - _own(of)
        of = [*of[:kept], *(replace(one, end_ns=min(one.end_ns, newest)) for one in of[kept:])]
    can = _can(of, rows, again_ns if again_ns >= 0 else NEVER)
    told = None if log is None else possible_fates(log, of, rows, ended=True)
    era = replace(unknown, leader_epochs=of, log=log or NOTHING)
    return PastLife(era, life, removal, number, again_ns, told, can, log.log_end if log else -1)


def _own(of: Sequence[LeaderEpoch]) -> int:
    """Return the number of leader epochs at the end of `of` (oldest first) that one broker led in a row. In these its
    log only grew."""
    return len(list(takewhile(lambda one: one.leader == of[-1].leader, reversed(of))))


def _deleted(replicas: Sequence[Replica], topic_id: str, leader: int) -> Replica | None:
    """Return the log of a deleted incarnation (`topic_id`) on its last leader (`leader`). None unless exactly one of
    `replicas` is known to be that log. `replicas`: deleted logs that brokers had not removed from disk yet.

    Logs of other replicas are no substitute, because they may be shorter."""
    mine = [one for one in replicas if one.node == leader and topic_id and one.topic_id == topic_id]
    return mine[0] if len(mine) == 1 else None


def _shorter_ns(leader_epoch: LeaderEpoch, removal: Removal, samples: Sequence[Sample]) -> int:
    """Return the time in ns of the first sample after the deletion (`removal`) in which a leader's log is shorter than
    before. By then the leader knew of the deletion. `NEVER` if there is no such sample."""
    longest = -1
    for sample in samples:
        end = sample.log_ends.get(leader_epoch.leader)
        if end is None or sample.t_ns < leader_epoch.begin_ns:
            continue
        if sample.t_ns <= removal.t_ns:
            longest = max(longest, end)
        elif end < longest:
            return sample.t_ns
    return NEVER


def _can(of: Sequence[LeaderEpoch], rows: AckedRows, again_ns: int) -> Bools:
    """Return a mask of the rows that can have been appended in these epochs of an incarnation; False everywhere without
    epochs.

    `again_ns`: time in ns at which the next incarnation was created. Rows that were acknowledged later are left out if
    only the last leader can have appended them, and its log cannot have them (`_overtaken`).
    """
    if not of:
        return np.zeros(len(rows), np.bool_)
    each = [may_have_appended(leader_epoch, rows) for leader_epoch in of]
    before = union(each[: len(of) - _own(of)], len(rows))
    last = union(each[len(of) - _own(of) :], len(rows))
    later = rows.done >= min(again_ns, NEVER - SLACK_NS) - SLACK_NS
    return before | (last & ~(later & _overtaken(rows, last & ~before & ~later)))


def _overtaken(rows: AckedRows, sure: Bools) -> Bools:
    """Return a mask of the rows whose records cannot be in the last leader's log. That log only grew, so a record that
    is sent after another one was acknowledged gets a higher offset. A row is in the mask if it was sent after a row of
    `sure` was acknowledged, and its offset is not higher.

    `sure`: mask of the rows that count as records of that log. No earlier leader can have appended them, and they were
    acknowledged before the next incarnation was created."""
    order = np.argsort(rows.done[sure], kind="stable")
    done, highest = rows.done[sure][order], np.maximum.accumulate(rows.offset[sure][order])
    if len(done) == 0:
        return np.zeros(len(rows), np.bool_)
    at = np.searchsorted(done, rows.sent, side="right") - 1
    behind: Bools = (at >= 0) & (highest[np.clip(at, 0, None)] >= rows.offset)
    return behind


def union(masks: Sequence[Bools], count: int) -> Bools:
    """Return the union of row masks of length `count`; False everywhere without masks."""
    every: Bools = np.logical_or.reduce([*masks, np.zeros(count, np.bool_)])
    return every
