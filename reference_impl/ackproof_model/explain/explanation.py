"""Explains losses: compares the acknowledged offsets that the observed epochs must have removed with the audit.

Inputs per partition: the leader epochs with their times from the replay, the last leader's log, and every acknowledged
row. An offset that can belong to two epochs (a deposed leader went on acknowledging) is decided by timestamps: the
producer stamped the record when it sent it, and the final read shows the timestamp of the record at that offset now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ackproof.experiment.promises import may_compact
from ackproof.rundir.anomalies import REPLAYED
from ackproof.rundir.model import UnexplainedRecord
from ackproof.rundir.partition import TopicPartition
from ackproof_model.explain.epochs import (
    NOTHING,
    AckedRows,
    Bools,
    OffsetFates,
    acked_rows,
    kept_log,
    leader_epochs,
    possible_fates,
    timestamps,
)
from ackproof_model.explain.eras import Era, PastLife, past_lives, union
from ackproof_model.explain.intervals import disturbances, intervals, left_unread
from ackproof_model.replay.account import EXAMPLES, PRESENT, Account
from ackproof_model.replay.observed import SLACK_NS, Life, Observed, learns_ns

_EARLY_MS, _LATE_MS = -2, 1
"""Bounds, in whole milliseconds, of a record's timestamp minus the time of a send, if the record is surely of that
send."""


def explain(observed: Observed, account: Account) -> None:
    """Explain the lost records of every partition with acknowledged rows, and add the results to `account`.

    Rows of a partition that cannot be explained count as not replayed, with the reason. Raises OSError or
    ArrowException for files that cannot be read.
    """
    unread = left_unread(observed.events)
    learns = learns_ns(observed.experiment.cluster, observed.stall_ns)
    for place, rows in acked_rows(observed.run):
        account.count("count", rows.found)
        lives = account.lives.get(place, [])
        why, log = _unfit(observed, lives, place), NOTHING
        alive = lives[-1] if lives and lives[-1].removal is None else None
        if not why and alive is not None:
            replicas = observed.replicas_of(place, alive.topic_id)
            log = kept_log(observed, replicas, alive.history[-1].partition.leader) or NOTHING
            why = "" if log is not NOTHING else "no replica's log could be read"
        if why:
            told = f"{place}: {why}" if observed.records else why
            account.not_replayed.append(told)
            account.count("not_replayed", rows.found)
            continue
        runs, by_interval = intervals(place, rows, disturbances(observed, place, lives, log), unread)
        account.intervals += runs[: EXAMPLES - len(account.intervals)]
        account.count("by_interval", rows.found[by_interval])
        epochs = leader_epochs(alive.history, observed.node_ends, learns) if alive is not None else []
        _Place(account, Era(observed, place, epochs, log), lives, rows, by_interval).explain()


def _unfit(observed: Observed, lives: Sequence[Life], place: TopicPartition) -> str:
    if observed.clocks:
        return observed.clocks
    if not lives:
        return (
            "the metadata log that was read does not have it"
            if observed.records
            else "no election: they are replayed from the controllers' metadata log, which was out of reach"
        )
    if may_compact(observed.planned, place.topic):
        return "the topic is compacted: what was removed there is not replayed"
    return ""


@dataclass(frozen=True)
class _Place:
    """Losses of one partition; `explain` explains them and adds the results to `account`.

    `era`: the incarnation that exists now; it has no leader epochs if the topic is deleted. `lives`: all incarnations.
    `every`: all acknowledged rows. `by_interval`: mask of the rows without an offset that `intervals` has explained.
    """

    account: Account
    era: Era
    lives: Sequence[Life]
    every: AckedRows
    by_interval: Bools

    def explain(self) -> None:
        account, rows = self.account, self.every.take(self.every.offset >= 0)
        account.replayed += len(rows)
        past = past_lives(self._observed, self.era.place, self.lives, rows)
        went = union([one.held_rows for one in past], len(rows))
        earlier = union([one.can for one in past], len(rows))
        ended = not self.era.leader_epochs
        told = possible_fates(self.era.log, self.era.leader_epochs, rows, ended=ended, before=(earlier, went))
        gone, kept = self._settled(rows, told)
        lost, must = rows.found != PRESENT, gone & ~kept
        account.must_be_gone += int((must | told.expired).sum())
        account.either_way += int((gone & kept).sum())
        account.count("explained", rows.found[gone | told.expired])
        rot = self._observed.rotted(self.era.place)
        self._unexplained(rows, rows.missing & ~gone & ~told.expired, rot)
        present = must & ~lost & (not rot)
        account.present += int(present.sum())
        self._examples(rows, present & ~went, "a later leader cut its epoch below it, and it is there")
        self._examples(rows, present & went, "its topic was deleted, and it is there")
        self._truncations(self.era, rows, told, (must | (gone & lost)) & ~went)
        self._deletions(past, rows, told, gone, kept)
        nowhere = ~(gone | kept) & ~told.expired & (told.timely | ~earlier)
        if nowhere.any() and not rot:
            # In an epoch that nobody came after, at an offset that its log does not hold.
            log, state = self.era.log, "the topic is deleted"
            if self.era.leader_epochs:
                last = self.era.leader_epochs[-1]
                state = (
                    f"broker {last.leader} leads in epoch {last.epoch}; log {log.log_start} to {log.log_end}"
                )
            count = int(nowhere.sum())
            what = f": {count} acknowledged offsets are held by no log and no later leader took their place"
            account.forbidden.append(
                self.era.forbidden_step(rows, nowhere, what, f"the log ends at {log.log_end}", state)
            )

    @property
    def _observed(self) -> Observed:
        return self.era.observed

    def _unexplained(self, rows: AckedRows, unexplained: Bools, rot: Sequence[str]) -> None:
        """Add the missing rows that nothing explains to the account: the rows of the mask `unexplained`, and the rows
        without an offset that are not in `by_interval`.

        These rows count as `unexplained`. If faults damaged the partition's files, they count as `not_replayed`. `rot`:
        kinds of these faults, empty: none."""
        every = self.every
        without = every.missing & (every.offset < 0) & ~self.by_interval
        what = "unexplained"
        if rot and (unexplained.any() or without.any()):
            what = "not_replayed"
            lost = f"what files on disk lost ({', '.join(rot)}) is not replayed"
            self.account.not_replayed.append(f"{self.era.place}: {lost}")
        else:
            self._examples(rows, unexplained, "no later leader lacked its offset: no truncation takes it")
            self._examples(every, without, "nothing happened while it was on its way")
        self.account.count(what, rows.found[unexplained])
        self.account.count(what, every.found[without])

    def _settled(self, rows: AckedRows, told: OffsetFates) -> tuple[Bools, Bools]:
        """Return two masks of `rows`: the record can be gone, and the record can be kept. Gone means removed by a later
        leader or a deletion. `told`: the fates that times and leader epochs allow.

        For a row with both fates, the timestamp of the record that is now at its offset shows whether that is its own
        record. An offset that surely holds another row's record does not hold this one. A row that neither decides
        stays in both masks, as all do if timestamps may be times of appends, or no record was read."""
        both = told.gone & told.kept
        if not both.any() or not self._observed.stamped_when_sent(self.era.place.topic):
            return told.gone, told.kept
        offsets, stamps = timestamps(self._observed.final_rows, self.era.place)
        if len(offsets) == 0:
            return told.gone, told.kept
        at = np.clip(np.searchsorted(offsets, rows.offset), 0, len(offsets) - 1)
        seen = offsets[at] == rows.offset
        late = stamps[at] - (rows.sent + self._observed.stamps_from_ns) / 1e6
        # A producer that is held up in between (frozen, say) stamps later, but never after the answer.
        answered = (rows.done + SLACK_NS - rows.sent) / 1e6
        its_own = both & seen & (late >= _EARLY_MS) & (late <= _LATE_MS)
        # The wall clock may have been set back since the run began: then stamps of records that were kept show it.
        known = told.kept & ~told.gone & seen & (rows.found == PRESENT)
        early = min(_EARLY_MS, float(late[known].min(initial=0.0)) - 1)
        anothers = both & seen & ((late < early) | (late > answered))
        gone, kept = told.gone & ~its_own, told.kept & ~anothers
        # One offset holds one record: it is not this one's if it is surely another's.
        taken = np.isin(rows.offset, rows.offset[kept & ~gone])
        return gone, kept & ~(gone & taken)

    def _examples(self, rows: AckedRows, which: Bools, why: str) -> None:
        examples, place = self.account.unexplained, self.era.place
        for at in np.flatnonzero(which)[: max(0, EXAMPLES - len(examples))].tolist():
            code = int(rows.found[at])
            examples.append(
                UnexplainedRecord(
                    anomaly="present" if code == PRESENT else REPLAYED[code],
                    topic=place.topic,
                    partition=place.partition,
                    producer=int(rows.producer[at]),
                    seq=int(rows.seq[at]),
                    offset=int(rows.offset[at]),
                    why=why,
                )
            )

    def _truncations(self, era: Era, rows: AckedRows, told: OffsetFates, gone: Bools) -> None:
        for cut, forbidden in era.truncations(rows, told, gone):
            self.account.truncations.append(cut)
            self.account.forbidden += [forbidden] if forbidden is not None else []

    def _deletions(
        self, past: Sequence[PastLife], rows: AckedRows, told: OffsetFates, gone: Bools, kept: Bools
    ) -> None:
        """Add the deletion of each earlier incarnation (`past`) to the account, with the rows that were deleted with
        it. Add the incarnation's truncations, too. If its log lacked acknowledged records, and no fault may have cut
        logs, also add a forbidden step.

        A row counts as deleted with an incarnation that can have had its record and had not truncated it, if the record
        is gone (`gone`). The row is undecided (`Deletion.either`) if its record can also be kept (`kept`), or another
        incarnation can have had it. It is undecided, too, if a later leader of the present incarnation can have removed
        it (`told`)."""
        for one in past:
            others = union([another.held_rows for another in past if another is not one], len(rows))
            mine = one.held_rows & gone
            either = mine & (kept | others | (told.old_epoch >= 0))
            with_it = mine & ~either & ~one.truncated
            self.account.deletions.append(one.deletion(rows, with_it, either))
            self.account.count("deleted", rows.found[with_it])
            if one.told is None:
                continue
            self._truncations(one.era, rows, one.told, mine & ~either & one.truncated)
            nowhere = one.can & ~one.held_rows & ~others & ~told.timely & ~kept
            if nowhere.any() and not self._observed.cuts:
                self.account.forbidden.append(one.forbidden_step(rows, nowhere))
