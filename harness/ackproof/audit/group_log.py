"""The log of `__consumer_offsets` about one group: commits and removals by partition, generations, member epochs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ackproof.audit.group_sources import ALL_PLACES, GroupSources, PlaceSet, number_words, pick
from ackproof.ledgers.load import distinct_strings, split_by_place
from ackproof.ledgers.rows import Bools, Ints, Rows, concat_rows, empty_rows
from ackproof.rundir.arrow import to_numpy
from ackproof.rundir.groups import LogDecision, OffsetsRecord
from ackproof.rundir.partition import TopicPartition

_COMMITTED = {
    "node": "i4",
    "log_offset": "i8",
    "offset": "i8",
    "decision": "i1",
    "member": "i4",
    "number": "i8",
}
_NUMBERS = ("node", "log_offset", "partition", "offset", "epoch", "decision", "member", "number")
_NO_ROWS = empty_rows({**_COMMITTED, "removed": "?"})


def commit_keys(rows: Rows) -> Ints:
    """Return one number for each (member, number)."""
    return (rows.ints("member") << 40) | (rows.ints("number") & ((1 << 40) - 1))


@dataclass
class MemberEpochs:
    """Epochs of one member of a KIP-848 group, in the order of the log: at `positions` it got `epochs` and owned
    `assigned`, the assignment epoch by partition."""

    positions: list[int] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    assigned: list[dict[TopicPartition, int]] = field(default_factory=list)


@dataclass
class GroupLog:
    """Records of one group. `commits`: of every replica, by partition (`offset`, `decision`, `member`, `number`;
    `removed` for a tombstone). The rest is from the log of the node `history`."""

    history: int
    commits: dict[TopicPartition, Rows]
    generations: tuple[Ints, Ints]
    """Log offsets, and the generation that begins at each."""
    members: dict[str, MemberEpochs]
    living: tuple[Ints, Ints]
    """Log offsets, and the number of members with a member epoch from each on."""

    def rows(self, place: TopicPartition) -> Rows:
        return self.commits.get(place, _NO_ROWS)

    def effective(self, place: TopicPartition) -> Rows:
        """Return commits and removals in force, by log offset; none without a whole history."""
        rows = self.rows(place)
        kept = (rows["node"] == self.history) & (rows["decision"] == LogDecision.IN_FORCE)
        return rows.take(np.flatnonzero(kept)).sorted_by("log_offset")


def read_log(sources: GroupSources, places: PlaceSet) -> GroupLog:
    """Read the records of these partitions, generations and members. Raises as `GroupSources.tables` does."""
    commits: dict[TopicPartition, list[Rows]] = defaultdict(list)
    generations: list[tuple[int, int]] = []
    assigned: dict[tuple[int, str], tuple[int, dict[TopicPartition, int]]] = {}
    for batch in sources.tables(sources.log, ("record", "member_id", *_NUMBERS), ALL_PLACES):
        words, code = distinct_strings(batch["record"])
        removed = number_words(words, OffsetsRecord.REMOVED, code)
        of_offset = removed | number_words(words, OffsetsRecord.COMMIT, code)
        if of_offset.any():
            for place, rows in _split(batch, of_offset, removed):
                if place in places:
                    commits[place].append(rows)
        here = to_numpy(batch["node"]) == sources.history
        begins = pick(batch, here & number_words(words, OffsetsRecord.GROUP, code))
        generations += zip(begins["log_offset"].to_pylist(), begins["epoch"].to_pylist(), strict=True)
        member = pick(batch, here & number_words(words, OffsetsRecord.MEMBER, code))
        names = ("log_offset", "member_id", "epoch", "topic", "partition", "offset")
        for at, who, epoch, topic, partition, since in zip(
            *(member[name].to_pylist() for name in names), strict=True
        ):
            _, owned = assigned.setdefault((at, who), (epoch, {}))
            if partition >= 0:
                owned[TopicPartition(topic, partition)] = since
    generations.sort(key=lambda entry: entry[0])
    pairs = np.array(generations, np.int64).reshape(-1, 2)
    members, living = _follow_members(assigned)
    schema = {**_COMMITTED, "removed": "?"}
    return GroupLog(
        sources.history,
        {place: concat_rows(pieces, schema) for place, pieces in commits.items()},
        (pairs[:, 0], pairs[:, 1]),
        members,
        living,
    )


def _split(batch: pa.RecordBatch, which: Bools, removed: Bools) -> list[tuple[TopicPartition, Rows]]:
    kept = pick(batch, which)
    topics, topic = distinct_strings(kept["topic"])
    columns = {name: to_numpy(kept[name]).astype(type_, copy=False) for name, type_ in _COMMITTED.items()}
    columns["removed"] = removed[which]
    return list(split_by_place(columns, topics, topic, to_numpy(kept["partition"])))


def _follow_members(
    assigned: dict[tuple[int, str], tuple[int, dict[TopicPartition, int]]],
) -> tuple[dict[str, MemberEpochs], tuple[Ints, Ints]]:
    members: dict[str, MemberEpochs] = defaultdict(MemberEpochs)
    alive: set[str] = set()
    counts: list[tuple[int, int]] = []
    for (at, who), (epoch, owned) in sorted(assigned.items(), key=lambda entry: entry[0][0]):
        found = members[who]
        found.positions.append(at)
        found.epochs.append(epoch)
        found.assigned.append(owned)
        (alive.discard if epoch < 0 else alive.add)(who)
        counts.append((at, len(alive)))
    pairs = np.array(counts, np.int64).reshape(-1, 2)
    return dict(members), (pairs[:, 0], pairs[:, 1])
