"""What the observed epochs explain: which acknowledged offsets must be gone, beside what the audit found gone.

Per partition: the epochs and their leaders' times from the replay, the last leader's log, and every acknowledged row.
An offset that can be of two epochs (a deposed leader went on acknowledging) is settled by the record's own timestamp:
the producer stamped it when it was sent, and the final read shows the stamp of what stands there now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ackproof.reference.explain.epochs import (
    NOTHING,
    SLACK_NS,
    Before,
    Bools,
    KeptLog,
    OffsetFates,
    kept_log,
    leader_epochs,
    tell,
)
from ackproof.reference.explain.intervals import disturbances, intervals, left_unread
from ackproof.reference.explain.past_lives import PastLife, past_lives, union
from ackproof.reference.explain.rows import LOSSES, PRESENT, AckedRows, acked_rows, timestamps
from ackproof.reference.explain.truncations import Era
from ackproof.reference.replay.lives import Life, learns_ns
from ackproof.reference.replay.observed import CUTS_LOGS, Observed
from ackproof.rundir.conformance import Deletion, ForbiddenStep, Interval, Truncation, Unexplained
from ackproof.rundir.partition import TopicPartition

EXAMPLES: Final = 20
ROT: Final = CUTS_LOGS - {"power_loss"}
"""Files on disk that change by themselves: what a broker then reads back no protocol says."""
_EARLY_MS, _LATE_MS = -2, 1
"""A record's timestamp beside its send, cut to milliseconds."""


@dataclass
class Explanation:
    """What came of it, over all partitions."""

    replayed: int = 0
    truncations: list[Truncation] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    count: Counter[str] = field(default_factory=Counter)
    explained: Counter[str] = field(default_factory=Counter)
    by_interval: Counter[str] = field(default_factory=Counter)
    unexplained: Counter[str] = field(default_factory=Counter)
    not_replayed: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)
    must_be_gone: int = 0
    either_way: int = 0
    present: int = 0
    examples: list[Unexplained] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)
    forbidden: list[ForbiddenStep] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def explain(observed: Observed, replayed: Mapping[TopicPartition, Sequence[Life]]) -> Explanation:
    """Explain every partition that has acknowledged rows. `replayed`: the lives of each, oldest first."""
    found = Explanation()
    unread = left_unread(observed.events)
    for place, rows in acked_rows(observed.run):
        for number, anomaly in enumerate(LOSSES):
            found.count[anomaly] += int((rows.found == number).sum())
        why = _unfit(observed, replayed, place)
        if why:
            found.reasons.append(f"{place[0]}/{place[1]}: {why}")
            _count(found.not_replayed, rows, np.ones(len(rows), np.bool_))
            continue
        lives = replayed[place]
        alive = lives[-1] if lives[-1].removal is None else None
        log: KeptLog | None = NOTHING
        if alive is not None:
            replicas = observed.replicas_of(place, alive.topic_id)
            log = kept_log(observed, replicas, alive.history[-1].partition.leader)
        if log is None:
            found.reasons.append(f"{place[0]}/{place[1]}: no replica's log could be read")
            _count(found.not_replayed, rows, np.ones(len(rows), np.bool_))
            continue
        around = disturbances(lives, observed.events)
        runs, by_interval = intervals(place, rows, around, unread)
        found.intervals += runs[: EXAMPLES - len(found.intervals)]
        _count(found.by_interval, rows, by_interval)
        learns = learns_ns(observed.experiment.cluster, observed.stall_ns)
        leader_epoch = leader_epochs(alive.history, observed.events, learns) if alive is not None else []
        _Place(Era(observed, place, leader_epoch, log), lives, rows, by_interval).into(found)
    return found


def _unfit(
    observed: Observed, replayed: Mapping[TopicPartition, Sequence[Life]], place: TopicPartition
) -> str:
    topic = observed.experiment.topics.get(place[0])
    if observed.clocks:
        return observed.clocks
    if not replayed.get(place):
        return "its leaders and epochs were not observed"
    if topic is not None and "compact" in topic.config.get("cleanup.policy", "delete"):
        return "the topic is compacted: what was removed there is not replayed"
    return ""


def _count(counts: Counter[str], rows: AckedRows, which: Bools) -> None:
    for number, anomaly in enumerate(LOSSES):
        counts[anomaly] += int((which & (rows.found == number)).sum())


@dataclass(frozen=True)
class _Place:
    """One partition on its way to being explained. `era`: its present life; without epochs when its topic is gone."""

    era: Era
    lives: Sequence[Life]
    rows: AckedRows
    by_interval: Bools

    def into(self, found: Explanation) -> None:
        placed = self.rows.offset >= 0
        rows = self.rows.take(placed)
        found.replayed += len(rows)
        past = past_lives(self._observed, self.era.place, self.lives, rows)
        before = Before(
            union([one.can for one in past], len(rows)), went := union([one.held for one in past], len(rows))
        )
        told = tell(
            self.era.log,
            self.era.leader_epochs,
            rows.offset,
            rows.sent,
            rows.done,
            ended=not self.era.leader_epochs,
            before=before,
        )
        gone, kept = self._settled(rows, told)
        lost = rows.found != PRESENT
        must = gone & ~kept
        found.must_be_gone += int((must | told.expired).sum())
        found.either_way += int((gone & kept).sum())
        _count(found.explained, rows, gone | told.expired)
        unexplained = lost & ~gone & ~told.expired
        rot = sorted(ROT & self._observed.fault_kinds)
        without = (self.rows.found != PRESENT) & (self.rows.offset < 0) & ~self.by_interval
        if rot and (unexplained.any() or without.any()):
            found.reasons.append(
                f"{self.era.name}: what files on disk lost ({', '.join(rot)}) is not replayed"
            )
            _count(found.not_replayed, rows, unexplained)
            _count(found.not_replayed, self.rows, without)
        else:
            _count(found.unexplained, rows, unexplained)
            _count(found.unexplained, self.rows, without)
            self._examples(
                rows, unexplained, "no later leader lacked its offset: no truncation takes it", found
            )
            self._examples(self.rows, without, "nothing happened while it was on its way", found)
        present = must & ~lost & (not rot)
        found.present += int(present.sum())
        self._examples(rows, present & ~went, "a later leader cut its epoch below it, and it is there", found)
        self._examples(rows, present & went, "its topic was deleted, and it is there", found)
        self._truncations(self.era, rows, told, (must | (gone & lost)) & ~went, found)
        self._deletions(past, rows, told, gone, kept, found)
        self._above_its_epoch(rows, told, gone | kept, before.can, found)

    @property
    def _observed(self) -> Observed:
        return self.era.observed

    def _settled(self, rows: AckedRows, told: OffsetFates) -> tuple[Bools, Bools]:
        """Of those that can be gone and kept, what the timestamp says of what stands at their offset now."""
        both = told.gone & told.kept
        if not both.any() or not self._observed.stamped_when_sent(self.era.place[0]):
            return told.gone, told.kept
        offsets, stamps = timestamps(self._observed.run, self.era.place)
        if len(offsets) == 0:
            return told.gone, told.kept
        at = np.clip(np.searchsorted(offsets, rows.offset), 0, len(offsets) - 1)
        seen = offsets[at] == rows.offset
        late = stamps[at] - (rows.sent + self._observed.stamps_from_ns) / 1e6
        # A producer that is held up in between (frozen, say) stamps later, but never after the answer.
        answered = (rows.done + SLACK_NS - rows.sent) / 1e6
        its_own = both & seen & (late >= _EARLY_MS) & (late <= _LATE_MS)
        anothers = both & seen & ((late < _EARLY_MS) | (late > answered))
        gone, kept = told.gone & ~its_own, told.kept & ~anothers
        # One offset holds one record: it is not this one's if it is surely another's.
        taken = np.isin(rows.offset, rows.offset[kept & ~gone])
        return gone, kept & ~(gone & taken)

    def _examples(self, rows: AckedRows, which: Bools, why: str, found: Explanation) -> None:
        for at in np.flatnonzero(which)[: max(0, EXAMPLES - len(found.examples))].tolist():
            code = int(rows.found[at])
            found.examples.append(
                Unexplained(
                    anomaly="present" if code == PRESENT else LOSSES[code],
                    topic=self.era.place[0],
                    partition=self.era.place[1],
                    producer=int(rows.producer[at]),
                    seq=int(rows.seq[at]),
                    offset=int(rows.offset[at]),
                    why=why,
                )
            )

    def _truncations(
        self, era: Era, rows: AckedRows, told: OffsetFates, gone: Bools, found: Explanation
    ) -> None:
        for cut, forbidden in era.truncations(rows, told, gone):
            found.truncations.append(cut)
            found.forbidden += [forbidden] if forbidden is not None else []

    def _deletions(
        self,
        past: Sequence[PastLife],
        rows: AckedRows,
        told: OffsetFates,
        gone: Bools,
        kept: Bools,
        found: Explanation,
    ) -> None:
        """What earlier incarnations took with them, each for itself."""
        for one in past:
            others = union([another.held for another in past if another is not one], len(rows))
            mine = one.held & gone
            either = mine & (kept | others | (told.old_epoch >= 0))
            with_it = mine & ~either & ~one.truncated
            found.deletions.append(one.deletion(rows, with_it, either))
            _count(found.deleted, rows, with_it)
            if one.told is None:
                continue
            self._truncations(one.era, rows, one.told, mine & ~either & one.truncated, found)
            nowhere = one.can & ~one.held & ~others & ~told.timely & ~kept
            if nowhere.any() and not CUTS_LOGS & self._observed.fault_kinds:
                found.forbidden.append(one.above(rows, nowhere))

    def _above_its_epoch(
        self, rows: AckedRows, told: OffsetFates, somewhere: Bools, earlier: Bools, found: Explanation
    ) -> None:
        """Acknowledged, in an epoch that nobody came after, at an offset that its log does not hold."""
        nowhere = ~somewhere & ~told.expired & (told.timely | ~earlier)
        if not nowhere.any() or ROT & self._observed.fault_kinds:
            return
        at, log = int(np.flatnonzero(nowhere)[0]), self.era.log
        before = "the topic is deleted"
        if self.era.leader_epochs:
            last = self.era.leader_epochs[-1]
            before = f"broker {last.leader} leads in epoch {last.epoch}; log {log.log_start} to {log.log_end}"
        found.forbidden.append(
            ForbiddenStep(
                rule="ack above what its epoch kept",
                text=f"{self.era.name}: {int(nowhere.sum())} acknowledged offsets are held by no log and no later "
                f"leader took their place, the first {int(rows.offset[at])} of producer {int(rows.producer[at])}, seq "
                f"{int(rows.seq[at])}; the log ends at {log.log_end}",
                state_before=before,
                source="KIP-101; UnifiedLog.append",
                t_ns=int(rows.done[at]),
                topic=self.era.place[0],
                partition=self.era.place[1],
            )
        )
