"""What the observed epochs explain: which acknowledged offsets must be gone, beside what the audit found gone.

Per partition: the epochs and their leaders' times from the replay, the last leader's log, and every acknowledged row.
An offset that can be of two epochs (a deposed leader went on acknowledging) is settled by the record's own timestamp:
the producer stamped it when it was sent, and the final read shows the stamp of what stands there now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ackproof.model.conform_metadata import Replay
from ackproof.model.explain_epochs import (
    SLACK_NS,
    Bools,
    Ints,
    KeptLog,
    Reign,
    Told,
    kept_log,
    learns_ns,
    reigns,
    tell,
)
from ackproof.model.explain_intervals import disturbances, intervals
from ackproof.model.explain_rows import LOSSES, PRESENT, AckedRows, acked_rows, timestamps
from ackproof.model.observed import CUTS_LOGS, Observed, Place
from ackproof.rundir.conformance import ForbiddenStep, Interval, Truncation, Unexplained

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
    count: Counter[str] = field(default_factory=Counter)
    explained: Counter[str] = field(default_factory=Counter)
    by_interval: Counter[str] = field(default_factory=Counter)
    unexplained: Counter[str] = field(default_factory=Counter)
    not_replayed: Counter[str] = field(default_factory=Counter)
    must_be_gone: int = 0
    either_way: int = 0
    present: int = 0
    examples: list[Unexplained] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)
    forbidden: list[ForbiddenStep] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def explain(observed: Observed, replayed: Replay) -> Explanation:
    """Explain every partition that has acknowledged rows."""
    found = Explanation()
    for place, rows in acked_rows(observed.run):
        for number, anomaly in enumerate(LOSSES):
            found.count[anomaly] += int((rows.found == number).sum())
        why = _unfit(observed, replayed, place)
        if why:
            found.reasons.append(f"{place[0]}/{place[1]}: {why}")
            _count(found.not_replayed, rows, np.ones(len(rows), np.bool_))
            continue
        history = replayed.history[place]
        log = kept_log(observed, observed.replicas.get(place, ()), history[-1].partition.leader)
        if log is None:
            found.reasons.append(f"{place[0]}/{place[1]}: no replica's log could be read")
            _count(found.not_replayed, rows, np.ones(len(rows), np.bool_))
            continue
        around = disturbances(history, observed.events)
        runs, by_interval = intervals(place, rows, around)
        found.intervals += runs[: EXAMPLES - len(found.intervals)]
        _count(found.by_interval, rows, by_interval)
        learns = learns_ns(observed.experiment.cluster)
        reign = reigns(history, observed.events, learns)
        _Place(observed, place, rows, log, reign, by_interval).into(found)
    return found


def _unfit(observed: Observed, replayed: Replay, place: Place) -> str:
    topic = observed.experiment.topics.get(place[0])
    if observed.clocks:
        return observed.clocks
    if not replayed.history.get(place):
        return "its leaders and epochs were not observed"
    if place[0] in replayed.removed:
        return "the topic was deleted or made anew: offsets began again"
    if topic is not None and "compact" in topic.config.get("cleanup.policy", "delete"):
        return "the topic is compacted: what was removed there is not replayed"
    return ""


def _count(counts: Counter[str], rows: AckedRows, which: Bools) -> None:
    for number, anomaly in enumerate(LOSSES):
        counts[anomaly] += int((which & (rows.found == number)).sum())


@dataclass(frozen=True)
class _Place:
    """One partition on its way to being explained."""

    observed: Observed
    place: Place
    rows: AckedRows
    log: KeptLog
    reigns: Sequence[Reign]
    by_interval: Bools

    def into(self, found: Explanation) -> None:
        placed = self.rows.offset >= 0
        rows = self.rows.take(placed)
        found.replayed += len(rows)
        told = tell(self.log, self.reigns, rows.offset, rows.sent, rows.done)
        gone, kept = self._settled(rows, told)
        lost = rows.found != PRESENT
        must = gone & ~kept
        found.must_be_gone += int((must | told.expired).sum())
        found.either_way += int((gone & kept).sum())
        _count(found.explained, rows, gone | told.expired)
        unexplained = lost & ~gone & ~told.expired
        rot = sorted(ROT & self.observed.fault_kinds)
        without = (self.rows.found != PRESENT) & (self.rows.offset < 0) & ~self.by_interval
        if rot and (unexplained.any() or without.any()):
            found.reasons.append(f"{self._name}: what files on disk lost ({', '.join(rot)}) is not replayed")
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
        self._examples(rows, present, "a later leader cut its epoch below it, and it is there", found)
        self._truncations(rows, told, must | (gone & lost), found)
        self._above_its_epoch(rows, told, gone | kept, found)

    @property
    def _name(self) -> str:
        return f"{self.place[0]}/{self.place[1]}"

    def _settled(self, rows: AckedRows, told: Told) -> tuple[Bools, Bools]:
        """Of those that can be gone and kept, what the timestamp says of what stands at their offset now."""
        both = told.gone & told.kept
        topic = self.observed.experiment.topics.get(self.place[0])
        stamped = topic is None or topic.config.get("message.timestamp.type", "CreateTime") == "CreateTime"
        if not both.any() or not stamped:
            return told.gone, told.kept
        offsets, stamps = timestamps(self.observed.run, self.place)
        if len(offsets) == 0:
            return told.gone, told.kept
        at = np.clip(np.searchsorted(offsets, rows.offset), 0, len(offsets) - 1)
        seen = offsets[at] == rows.offset
        late = stamps[at] - (rows.sent + self.observed.stamps_from_ns) / 1e6
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
                    topic=self.place[0],
                    partition=self.place[1],
                    producer=int(rows.producer[at]),
                    seq=int(rows.seq[at]),
                    offset=int(rows.offset[at]),
                    why=why,
                )
            )

    def _truncations(self, rows: AckedRows, told: Told, gone: Bools, found: Explanation) -> None:
        for epoch in np.unique(told.old_epoch[gone]).tolist():
            mine = gone & (told.old_epoch == epoch)
            offsets: Ints = rows.offset[mine]
            lowest, highest = int(offsets.min()), int(offsets.max())
            taken = self.log.taken_over(epoch, lowest)
            reign = self._successor(epoch, taken.epoch if taken else -1)
            if reign is None:
                continue
            start = taken.start if taken else lowest
            found.truncations.append(
                Truncation(
                    topic=self.place[0],
                    partition=self.place[1],
                    from_offset=min(start, lowest),
                    to_offset=highest + 1,
                    old_epoch=epoch,
                    new_epoch=reign.epoch,
                    new_leader=reign.leader,
                    why=f"{reign.cause}: broker {reign.leader} led from offset {start} on in epoch {reign.epoch}"
                    + ("" if reign.clean else ", elected from outside of the ISR"),
                    acked=int(mine.sum()),
                )
            )
            self._acks_all(epoch, reign, lowest, int(mine.sum()), found)

    def _successor(self, old: int, new: int) -> Reign | None:
        """The reign of an epoch; of one that left no mark (or had no leader on record), the next after `old`."""
        exact = [reign for reign in self.reigns if reign.epoch == new]
        return next(iter(exact or [reign for reign in self.reigns if reign.epoch > old]), None)

    def _acks_all(self, old: int, new: Reign, offset: int, count: int, found: Explanation) -> None:
        """acks=all acknowledges below the high watermark: clean successors have it, if no disk lost what it had."""
        between = [reign for reign in self.reigns if old < reign.epoch <= new.epoch]
        acks = self.observed.experiment.workload.producers.acks
        cut = any(begin <= new.begin_ns for begin in self.observed.nodes_with(CUTS_LOGS).values())
        if str(acks) not in {"all", "-1"} or cut or not all(reign.clean for reign in between):
            return
        found.forbidden.append(
            ForbiddenStep(
                rule="ack above what its epoch kept",
                text=f"{self._name}: {count} records that acks=all had acknowledged in epoch {old}, from offset "
                f"{offset} on, are above what epoch {old} kept; broker {new.leader} was elected cleanly ({new.cause})",
                state_before=new.before,
                source="KIP-101, KIP-966; Partition.maybeIncrementLeaderHW",
                offset=new.offset,
                t_ns=new.begin_ns,
                topic=self.place[0],
                partition=self.place[1],
            )
        )

    def _above_its_epoch(self, rows: AckedRows, told: Told, somewhere: Bools, found: Explanation) -> None:
        """Acknowledged, in an epoch that nobody came after, at an offset that its log does not hold."""
        nowhere = ~somewhere & ~told.expired
        if not nowhere.any() or ROT & self.observed.fault_kinds:
            return
        at = int(np.flatnonzero(nowhere)[0])
        last = self.reigns[-1]
        found.forbidden.append(
            ForbiddenStep(
                rule="ack above what its epoch kept",
                text=f"{self._name}: {int(nowhere.sum())} acknowledged offsets are held by no log and no later leader "
                f"took their place, the first {int(rows.offset[at])} of producer {int(rows.producer[at])}, seq "
                f"{int(rows.seq[at])}; the log ends at {self.log.log_end}",
                state_before=f"broker {last.leader} leads in epoch {last.epoch}; log {self.log.log_start} to "
                f"{self.log.log_end}",
                source="KIP-101; UnifiedLog.append",
                t_ns=int(rows.done[at]),
                topic=self.place[0],
                partition=self.place[1],
            )
        )
