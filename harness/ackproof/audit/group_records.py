"""Finds the classes of a group that are about records: undelivered, skipped-by-reset, redelivered, two-owners,
torn-output, doubled-output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from ackproof.audit.group_sources import Event, GroupPartition, GroupSources, find_values, join_keys
from ackproof.audit.outputs import FindingsWriter
from ackproof.audit.planning import GREATEST
from ackproof.ledgers.rows import Bools, Ints, Rows, group_starts
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.arrow import text_array, to_arrow
from ackproof.rundir.groups import CommitResult, MembershipEvent, ProcessingState
from ackproof.rundir.partition import TopicPartition

DELIVERED: Final[Mapping[str, str]] = {
    "member": "i4", "generation": "i4", "offset": "i8", "producer": "i4", "seq": "i8", "processed_ns": "i8",
    "state": "i1",
}  # fmt: skip
_GAPS: Final = 2
"""Identities are numbered by arithmetic on producer and seq if that takes at most this many numbers per row; identities
that do not occur leave gaps. Otherwise they are sorted and numbered without gaps."""
_WHY: Final = (
    "no member was handed it",
    "a member was handed it, and did not process it",
    "members processed it in aborted transactions only",
)


def audit_deliveries(of: GroupPartition, there: Rows, rows: Rows, commits: Rows) -> Counter[str]:
    """Add findings about the group's processing of one partition. Undelivered or skipped by a reset: a record below the
    committed offset that no member processed. Redelivered: members processed a record with effect more than once. Two
    owners: a member processed a record while two members owned the partition and both processed records. Classes that
    cannot be counted are left out.

    Return the numbers `input`, `delivered` and `processed` of `GroupCounts`. `there`: records of the final read, by
    offset. `rows`: the group's deliveries of this partition (schema `DELIVERED`). `commits`: its commits for this
    partition. Raises OSError if the findings cannot be written.
    """
    effective = rows["state"] == ProcessingState.EFFECTIVE
    processed = effective | (rows["state"] == ProcessingState.UNKNOWN)
    if of.counts(Anomaly.UNDELIVERED):
        _find_unprocessed(of, there, rows, processed)
    if of.counts(Anomaly.REDELIVERED):
        _find_repeated(of, rows, effective)
    if of.counts(Anomaly.TWO_OWNERS):
        _find_two_owners(of, rows, processed, _find_owners(of.events, commits))
    return Counter(input=len(there), delivered=len(rows), processed=int(np.count_nonzero(processed)))


def _find_unprocessed(of: GroupPartition, there: Rows, rows: Rows, processed: Bools) -> None:
    offset = there.ints("offset")
    at, taken = find_values(offset, rows.ints("offset"))
    found = taken
    if len(there):
        found = taken & (there["seq"][at] == rows["seq"]) & (there["producer"][at] == rows["producer"])
    done = np.zeros(len(there), np.bool_)
    done[at[found & processed]] = True
    missing = np.flatnonzero(~done & (offset < of.committed))
    if not len(missing):
        return
    last = np.full(len(there), -1, np.int64)
    last[at[found]] = np.flatnonzero(found)
    row = last[missing]
    member, why = np.full(len(missing), -1), np.zeros(len(missing), np.int64)
    if len(rows):
        member = np.where(row >= 0, rows["member"][row], -1)
        why = np.where(row >= 0, 1 + (rows["state"][row] == ProcessingState.ABORTED), 0)
    fork = rows.ints("offset")[taken & ~found].min(initial=GREATEST)
    passed = of.find_passed(offset[missing], int(fork))
    for anomaly, which, prefix in (
        (Anomaly.UNDELIVERED, ~passed, ""),
        (Anomaly.SKIPPED_BY_RESET, passed, "a reset passed over it; "),
    ):
        words = text_array([f"{prefix}{text}; the group committed {of.committed}" for text in _WHY])
        known = Rows({**there.take(missing).columns, "member": member}, len(missing))
        of.report(anomaly, known, np.flatnonzero(which), words.take(to_arrow(why[which])))


def _find_repeated(of: GroupPartition, rows: Rows, effective: Bools) -> None:
    at = np.flatnonzero(effective)
    offset = rows["offset"][at]
    if not len(at) or bool((offset[1:] > offset[:-1]).all()):
        return
    order = np.argsort(offset, kind="stable")
    same = np.diff(offset[order]) == 0
    repeated = order[np.append(same, False) | np.insert(same, 0, False)]
    few = rows.take(at[repeated]).sorted_by("offset", "producer", "seq", "processed_ns", "member")
    starts = group_starts([few["offset"], few["producer"], few["seq"]])
    first = np.repeat(starts, np.diff(starts, append=len(few)))
    further = np.flatnonzero(first != np.arange(len(few)))
    member, generation = few["member"].tolist(), few["generation"].tolist()
    detail = [
        f"processed again by member {member[at]} in generation {generation[at]}, "
        f"first by member {member[begin]} in generation {generation[begin]}"
        for at, begin in zip(further.tolist(), first[further].tolist(), strict=True)
    ]
    of.report(Anomaly.REDELIVERED, few, further, detail)


class _Ownership(NamedTuple):
    """A time in which a member owned a partition: from its assignment to the start of its last accepted commit before
    it gave the partition up (ns since the run's start)."""

    begin: int
    end: int
    member: int


def _find_owners(events: Sequence[Event], commits: Rows) -> list[_Ownership]:
    """Return the times in which members owned a partition, by begin. `events`: events of the partition, and events that
    name no partition, by time. `commits`: the group's commits for the partition. An assignment without an accepted
    commit is left out.

    A commit without a generation counts for no member: the coordinator accepts such a commit from anybody while the
    group is empty, or in a transaction.
    """
    kept = (commits["result"] == CommitResult.ACCEPTED) & (commits["generation"] >= 0)
    accepted = commits.take(kept & (commits["generation_after"] >= 0))
    assigned: dict[int, int] = {}
    spans: list[_Ownership] = []
    for event in events:
        here = event.place.partition >= 0
        over = here and event.event in (
            MembershipEvent.REVOKED, MembershipEvent.LOST, MembershipEvent.ASSIGNED,
        )  # fmt: skip
        if event.member in assigned and (over or event.event == MembershipEvent.CLOSED):
            spans.append(_Ownership(assigned.pop(event.member), event.t_ns, event.member))
        if here and event.event == MembershipEvent.ASSIGNED:
            assigned[event.member] = event.t_ns
    spans += [_Ownership(begin, GREATEST, member) for member, begin in assigned.items()]
    begun = {
        member: np.sort(accepted["begun_ns"][accepted["member"] == member])
        for member in {span.member for span in spans}
    }
    found = []
    for begin, end, member in sorted(spans):
        before = begun[member][: np.searchsorted(begun[member], end, "right")]
        if len(before) and before[-1] >= begin:
            found.append(_Ownership(begin, int(before[-1]), member))
    return found


def _find_two_owners(of: GroupPartition, rows: Rows, processed: Bools, owners: Sequence[_Ownership]) -> None:
    time, other = rows["processed_ns"], np.full(len(rows), -1, np.int64)
    for one, two in _find_overlapping(owners):
        both = np.flatnonzero(processed & (time >= two.begin) & (time <= min(one.end, two.end)))
        mine, theirs = (both[rows["member"][both] == owner.member] for owner in (one, two))
        if len(mine) and len(theirs):
            other[mine], other[theirs] = two.member, one.member
    found = np.flatnonzero(other >= 0)
    few = Rows({**rows.take(found).columns, "other": other[found]}, len(found))
    few = few.sorted_by("offset", "producer", "seq", "processed_ns", "member")
    first = group_starts([few["offset"], few["producer"], few["seq"]])
    members = zip(few["member"][first].tolist(), few["other"][first].tolist(), strict=True)
    detail = [f"processed by member {one} while member {two} owned {of.place} too" for one, two in members]
    of.report(Anomaly.TWO_OWNERS, few, first, detail)


def _find_overlapping(owners: Sequence[_Ownership]) -> Iterator[tuple[_Ownership, _Ownership]]:
    """Yield each pair of ownerships of different members that overlap in time, the one with the earlier begin first.
    `owners`: by begin."""
    for number, one in enumerate(owners):
        for two in owners[number + 1 :]:
            if two.begin > one.end:
                break
            if two.member != one.member:
                yield one, two


# -- output ----------------------------------------------------------------------------------------------------------


def audit_output(
    sources: GroupSources,
    there: Mapping[TopicPartition, Rows],
    copies: Rows,
    events: Mapping[TopicPartition, Sequence[Event]],
    findings: FindingsWriter,
) -> None:
    """Compare the group's input records with their copies in its output topic, by identity (producer, seq), and add
    findings. Copies without an identity are left out. Raises OSError if the findings cannot be written.

    The output of a group that commits in transactions is torn in two cases. A record below the committed offset has no
    copy, and no reset skipped it. A record at or above the committed offset has a copy. The output of any group is
    doubled if it has several copies of an identity, and more than the input has records of it. Classes that cannot be
    counted are left out.

    `there`: input records by partition. `copies`: output records (schema `COPY`). Both must hold all records of each
    identity that occurs in them. `events`: membership events by input partition.
    """
    copies = copies.take((copies["producer"] >= 0) & (copies["seq"] >= 0)).sorted_by("partition", "offset")
    (keys, *of_inputs), length = _number_identities([copies, *there.values()])
    count = np.bincount(keys, minlength=length)
    if Anomaly.TORN_OUTPUT in sources.counted and sources.plan.commit == "transaction":
        for (place, rows), own in zip(there.items(), of_inputs, strict=True):
            of = GroupPartition(sources, place, events.get(place, ()), findings)
            _find_torn(of, rows, count[own] > 0)
    several = np.flatnonzero(count[keys] > 1)
    if Anomaly.DOUBLED_OUTPUT in sources.counted and len(several):
        allowed = np.zeros(length, np.int64)
        for own in of_inputs:
            allowed += np.bincount(own, minlength=length)
        output = GroupPartition(sources, TopicPartition(sources.plan.output, 0), (), findings)
        _find_doubled(output, copies, several, keys[several], np.maximum(allowed[keys[several]], 1))


def _number_identities(tables: Sequence[Rows]) -> tuple[list[Ints], int]:
    """Give each identity (producer, seq) a number from 0. Return the numbers of the rows of each table, and a bound
    that all numbers are below."""
    count = sum(len(rows) for rows in tables)
    if not count:
        return [np.zeros(0, np.int64) for _ in tables], 0
    (least, greatest), (first, last) = (
        (
            min(int(rows[name].min()) for rows in tables if len(rows)),
            max(int(rows[name].max()) for rows in tables if len(rows)),
        )
        for name in ("producer", "seq")
    )
    width = last - first + 1
    length = (greatest - least + 1) * width
    if length <= _GAPS * count:
        return [
            (rows.ints("producer") - least) * width + (rows.ints("seq") - first) for rows in tables
        ], length
    joined = np.concatenate([join_keys(rows, "producer", "seq") for rows in tables])
    distinct, numbers = np.unique(joined, return_inverse=True)
    return np.split(numbers, np.cumsum([len(rows) for rows in tables])[:-1]), len(distinct)


def _find_torn(of: GroupPartition, rows: Rows, copied: Bools) -> None:
    past = rows["offset"] < of.committed
    without = past & ~copied & ~of.find_passed(rows.ints("offset"))
    text = f"the group committed {of.committed}, and its output does not have it"
    of.report(Anomaly.TORN_OUTPUT, rows, np.flatnonzero(without), text)
    text = f"its output has it, and the group committed {of.committed}"
    of.report(Anomaly.TORN_OUTPUT, rows, np.flatnonzero(~past & copied), text)


def _find_doubled(output: GroupPartition, copies: Rows, several: Ints, keys: Ints, allowed: Ints) -> None:
    """Report copies that the output has more often than the input: the last copies, in order of partition and offset.
    `several`: indices of copies whose identity the output has more than once. `keys`, `allowed`: for each of them, the
    number of its identity, and how many copies of the identity the output may have."""
    order = np.argsort(keys, kind="stable")
    starts = group_starts([keys[order]])
    number = np.zeros(len(keys), np.int64)
    number[order] = np.arange(len(keys)) - np.repeat(starts, np.diff(starts, append=len(keys)))
    late, partition = number >= allowed, copies["partition"][several]
    for one in np.unique(partition[late]).tolist():
        here = np.flatnonzero(late & (partition == one))
        detail = [f"copy {number[row] + 1} in the output, and the input has {allowed[row]}" for row in here]
        of = replace(output, place=TopicPartition(output.place.topic, one))
        of.report(Anomaly.DOUBLED_OUTPUT, copies, several[here], detail)
