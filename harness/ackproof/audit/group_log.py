"""The log of `__consumer_offsets` about one group: commits and removals by partition, generations, member epochs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from ackproof.audit.group_sources import (
    GroupSources,
    PlaceSet,
    are_text,
    find_values,
    join_keys,
    pick,
    split_rows,
)
from ackproof.ledgers.rows import Ints, Rows, concat_rows, empty_rows
from ackproof.rundir.arrow import to_numpy
from ackproof.rundir.groups import LogDecision, OffsetsRecord
from ackproof.rundir.partition import TopicPartition

_OFFSETS: Final = {
    "node": "i4", "log_offset": "i8", "offset": "i8", "decision": "i1", "member": "i4", "number": "i8"
}  # fmt: skip
_NO_ROWS: Final = empty_rows(_OFFSETS)


class MemberEpoch(NamedTuple):
    """Member epoch of a member of a KIP-848 group, valid from `position` in the log of `__consumer_offsets` on.
    `epoch`: -1 if the member left at `position`, -2 if it left and is static. `assigned`: partitions that it owns, also
    those that it is to revoke, each with its assignment epoch (-1 before Kafka 4.3)."""

    position: int
    epoch: int
    assigned: dict[TopicPartition, int]


@dataclass
class GroupLog:
    """Records of one consumer group in `__consumer_offsets`.

    `offsets`: offset commits and their removals (tombstones) on every replica, by partition. All other fields are from
    the log of the node `history`, and empty if it is -1 (no log is whole). `members`: epochs of each member by its id,
    in the order of the log. `generations`, `protocols`: ascending rows of two numbers, a position in the log and what
    begins there. In `generations` that is a generation or group epoch (-1: it was deleted); in `protocols` it is 1 for
    a KIP-848 group, 0 for a classic group.
    """

    history: int
    offsets: Mapping[TopicPartition, Rows]
    generations: Ints
    members: Mapping[str, list[MemberEpoch]]
    protocols: Ints

    def rows(self, place: TopicPartition) -> Rows:
        """Return the offset commits and their removals (tombstones) for a partition on every replica of
        `__consumer_offsets`. A removal has offset -1, and no member."""
        return self.offsets.get(place, _NO_ROWS)

    def effective(self, place: TopicPartition) -> Rows:
        """Return the offset commits and removals for a partition in the log of node `history`, by log offset, without
        those of aborted or unfinished transactions. No rows if `history` is -1."""
        rows = self.rows(place)
        kept = (rows["node"] == self.history) & (rows["decision"] == LogDecision.IN_FORCE)
        return rows.take(kept).sorted_by("log_offset")


def read_log(sources: GroupSources, places: PlaceSet) -> GroupLog:
    """Read the group's records from `__consumer_offsets`: commits and removals for these partitions, and its
    generations and members. Raises `UnreadablePart` or `UntrustedStatistics` for a broken file, `Rejected` for a null
    in a column."""
    offsets: dict[TopicPartition, list[Rows]] = defaultdict(list)
    generations: list[tuple[int, int]] = []
    members: dict[str, dict[int, MemberEpoch]] = defaultdict(dict)
    for batch in sources.batches(sources.log, ("record", "member_id", "epoch", *_OFFSETS)):
        of_offset = are_text(batch["record"], OffsetsRecord.COMMIT)
        of_offset |= are_text(batch["record"], OffsetsRecord.REMOVED)
        for place, rows in split_rows(pick(batch, of_offset), _OFFSETS, places):
            offsets[place].append(rows)
        here = to_numpy(batch["node"]) == sources.history
        for row in pick(batch, here & ~of_offset).to_pylist():
            at, epoch = row["log_offset"], row["epoch"]
            if row["record"] == OffsetsRecord.GROUP:
                generations.append((at, epoch))
                continue
            member = members[row["member_id"]].setdefault(at, MemberEpoch(at, epoch, {}))
            if row["partition"] >= 0:
                member.assigned[TopicPartition(row["topic"], row["partition"])] = row["offset"]
    # A group that migrates to the other protocol begins with a tombstone of its generation or group epoch.
    protocols = [(at, 0) for at, epoch in generations if epoch < 0]
    protocols += [(at, 1) for epochs in members.values() for at, one in epochs.items() if one.epoch >= 0]
    return GroupLog(
        sources.history,
        {place: concat_rows(pieces, _OFFSETS) for place, pieces in offsets.items()},
        np.array(sorted(generations), np.int64).reshape(-1, 2),
        {name: [epochs[at] for at in sorted(epochs)] for name, epochs in members.items()},
        np.array(sorted(protocols), np.int64).reshape(-1, 2),
    )


def value_before(history: Ints, position: Ints) -> Ints:
    """Return for each position the value that was in force just before it; -1 if there was none. `history`: array of
    (position at which a value begins, value), ascending."""
    last: Ints = np.append(history[:, 1], -1)[np.searchsorted(history[:, 0], position) - 1]
    return last


def find_commits(commits: Rows, log: Rows) -> Ints:
    """Return for each record of `log` the index in `commits` of the commit that wrote it; -1 for none. The metadata of
    a commit names its member and its number, by which both are matched."""
    if not len(commits):
        return np.full(len(log), -1, np.int64)
    keys = join_keys(commits, "member", "number")
    order = np.argsort(keys, kind="stable")
    at, there = find_values(keys[order], join_keys(log, "member", "number"))
    return np.where(there & (log["member"] >= 0), order[at], -1)
