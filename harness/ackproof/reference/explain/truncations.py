"""Which offsets of which epochs a later leader did not have: the truncations that took acknowledged records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ackproof.reference.explain.epochs import Bools, Ints, KeptLog, LeaderEpoch, OffsetFates
from ackproof.reference.explain.rows import AckedRows
from ackproof.reference.replay.observed import CUTS_LOGS, Observed
from ackproof.rundir.conformance import ForbiddenStep, Truncation
from ackproof.rundir.partition import TopicPartition


@dataclass(frozen=True)
class Era:
    """One life of a partition: who led it when, and its log as the last of them had it."""

    observed: Observed
    place: TopicPartition
    leader_epochs: Sequence[LeaderEpoch]
    log: KeptLog

    @property
    def name(self) -> str:
        """The partition, to be told."""
        return f"{self.place[0]}/{self.place[1]}"

    def truncations(
        self, rows: AckedRows, told: OffsetFates, gone: Bools
    ) -> Iterator[tuple[Truncation, ForbiddenStep | None]]:
        """By epoch, those that took the rows that are `gone`; with the step that this makes forbidden, if it does."""
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
                topic=self.place[0],
                partition=self.place[1],
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
        """This leader epoch; of one that left no mark (or had no leader on record), the next after `old`."""
        exact = [one for one in self.leader_epochs if one.epoch == new]
        return next(iter(exact or [one for one in self.leader_epochs if one.epoch > old]), None)

    def _acks_all(self, old: int, new: LeaderEpoch, offset: int, count: int) -> ForbiddenStep | None:
        """acks=all acknowledges below the high watermark: clean successors have it, if no disk lost what it had."""
        between = [
            leader_epoch for leader_epoch in self.leader_epochs if old < leader_epoch.epoch <= new.epoch
        ]
        acks = self.observed.experiment.workload.producers.acks
        cut = any(begin <= new.begin_ns for begin in self.observed.nodes_with(CUTS_LOGS).values())
        if str(acks) not in {"all", "-1"} or cut or not all(leader_epoch.clean for leader_epoch in between):
            return None
        return ForbiddenStep(
            rule="ack above what its epoch kept",
            text=f"{self.name}: {count} records that acks=all had acknowledged in epoch {old}, from offset "
            f"{offset} on, are above what epoch {old} kept; broker {new.leader} was elected cleanly ({new.cause})",
            state_before=new.before,
            source="KIP-101, KIP-966; Partition.maybeIncrementLeaderHW",
            offset=new.offset,
            t_ns=new.begin_ns,
            topic=self.place[0],
            partition=self.place[1],
        )
