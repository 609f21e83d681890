"""Deliveries of one partition to a group: undelivered, skipped-by-reset, redelivered, two-owners."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ackproof.audit.group_sources import Event, GroupSources, Places
from ackproof.audit.outputs import FindingsWriter
from ackproof.ledgers.rows import Bools, Ints, Rows, group_starts
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.arrow import text_array, to_arrow
from ackproof.rundir.groups import CommitResult, MembershipEvent, ProcessingState
from ackproof.rundir.partition import TopicPartition

DELIVERED: Mapping[str, str] = {
    "member": "i4",
    "generation": "i4",
    "offset": "i8",
    "producer": "i4",
    "seq": "i8",
    "processed_ns": "i8",
    "state": "i1",
}
BEGUN: Mapping[str, str] = {"member": "i4", "begun_ns": "i8", "result": "i1"}
_WHY = (
    "no member was handed it",
    "a member was handed it, and did not process it",
    "members processed it in aborted transactions only",
)


def find_passed(events: Sequence[Event], offset: Ints) -> Bools:
    """Return True for each offset that a reset passed over. `events`: of its partition."""
    passed = np.zeros(len(offset), np.bool_)
    for event in events:
        if event.event == MembershipEvent.RESET:
            passed |= (offset >= event.from_offset) & (offset < event.position)
    return passed


def audit_deliveries(
    sources: GroupSources,
    place: TopicPartition,
    there: Rows,
    rows: Rows,
    events: Sequence[Event],
    commits: Callable[[], Rows],
    findings: FindingsWriter,
) -> Counter[str]:
    """Find what members did not process, or processed more than once. Return numbers of `GroupCounts` by name.

    `there`: records of the final read, by offset. `rows`: deliveries (`DELIVERED`). `events`: of the partition.
    `commits`: reads its commits (`BEGUN`). Raises OSError.
    """
    effective = rows["state"] == ProcessingState.EFFECTIVE
    processed = effective | (rows["state"] == ProcessingState.UNKNOWN)
    if Anomaly.UNDELIVERED in sources.counted:
        _find_unprocessed(sources, place, there, rows, processed, events, findings)
    if Anomaly.REDELIVERED in sources.counted:
        _find_repeated(place, rows.take(np.flatnonzero(effective)), findings)
    if Anomaly.TWO_OWNERS in sources.counted:
        _find_two_owners(place, rows.take(np.flatnonzero(processed)), events, commits, findings)
    return Counter(delivered=len(rows), processed=int(np.count_nonzero(processed)))


def _find_unprocessed(
    sources: GroupSources,
    place: TopicPartition,
    there: Rows,
    rows: Rows,
    processed: Bools,
    events: Sequence[Event],
    findings: FindingsWriter,
) -> None:
    committed = (sources.committed or {}).get(place, 0)
    offset = there.ints("offset")
    at, found = Places(offset).find(rows.ints("offset"))
    if len(there):
        found &= (there["seq"][at] == rows["seq"]) & (there["producer"][at] == rows["producer"])
    done = np.zeros(len(there), np.bool_)
    done[at[found & processed]] = True
    missing = np.flatnonzero(~done & (offset < committed))
    if not len(missing):
        return
    last = np.full(len(there), -1, np.int64)
    last[at[found]] = np.flatnonzero(found)
    row = last[missing]
    handed = row >= 0
    member, why = np.full(len(missing), -1), np.zeros(len(missing), np.int64)
    member[handed] = rows["member"][row[handed]]
    why[handed] = 1 + (rows["state"][row[handed]] == ProcessingState.ABORTED)
    passed = find_passed(events, offset[missing])
    for anomaly, which, prefix in (
        (Anomaly.UNDELIVERED, ~passed, ""),
        (Anomaly.SKIPPED_BY_RESET, passed, "a reset passed over it; "),
    ):
        chosen = missing[which]
        words = text_array([f"{prefix}{text}; the group committed {committed}" for text in _WHY])
        known = {**there.take(chosen).columns, "member": member[which]}
        findings.add(place, anomaly, Rows(known, len(chosen)), detail=words.take(to_arrow(why[which])))


def _find_repeated(place: TopicPartition, rows: Rows, findings: FindingsWriter) -> None:
    offset = rows["offset"]
    if len(rows) < 2 or bool((offset[1:] > offset[:-1]).all()):
        return
    order = np.argsort(offset, kind="stable")
    ordered = offset[order]
    same = ordered[1:] == ordered[:-1]
    if not same.any():
        return
    again = np.zeros(len(rows), np.bool_)
    again[1:] |= same
    again[:-1] |= same
    few = rows.take(order[again]).sorted_by("offset", "producer", "seq", "processed_ns", "member")
    starts = group_starts([few["offset"], few["producer"], few["seq"]])
    first = np.repeat(starts, np.diff(starts, append=len(few)))
    further = np.flatnonzero(first != np.arange(len(few)))
    member, generation = few["member"].tolist(), few["generation"].tolist()
    detail = [
        f"processed again by member {member[at]} in generation {generation[at]}, "
        f"first by member {member[begin]} in generation {generation[begin]}"
        for at, begin in zip(further.tolist(), first[further].tolist(), strict=True)
    ]
    findings.add(place, Anomaly.REDELIVERED, few, further, detail=text_array(detail))


@dataclass(frozen=True)
class Ownership:
    """A time in which a member owned a partition: from its assignment to the begin of its last accepted commit."""

    member: int
    begin: int
    end: int


def find_assignments(events: Sequence[Event]) -> Iterator[tuple[int, int, int]]:
    """Yield (member, begin, end) of each assignment of a partition. `events`: of the partition, and those without one,
    by time. An assignment that nothing ends has the greatest time as its end."""
    open_: dict[int, int] = {}
    for event in events:
        here = event.place.partition >= 0
        ends = event.event == MembershipEvent.CLOSED or (
            here and event.event in (MembershipEvent.REVOKED, MembershipEvent.LOST, MembershipEvent.ASSIGNED)
        )
        if ends and event.member in open_:
            yield event.member, open_.pop(event.member), event.t_ns
        if here and event.event == MembershipEvent.ASSIGNED:
            open_[event.member] = event.t_ns
    for member, begin in open_.items():
        yield member, begin, np.iinfo(np.int64).max


def _find_two_owners(
    place: TopicPartition,
    rows: Rows,
    events: Sequence[Event],
    commits: Callable[[], Rows],
    findings: FindingsWriter,
) -> None:
    assignments = sorted(find_assignments(events), key=lambda span: span[1])
    ends = np.maximum.accumulate([end for _, _, end in assignments]) if assignments else np.empty(0)
    if not any(begin <= end for (_, begin, _), end in zip(assignments[1:], ends[:-1], strict=True)):
        return
    owned = _bound_by_commits(assignments, commits())
    time, taken = rows["processed_ns"], np.zeros(len(rows), np.bool_)
    other = np.full(len(rows), -1, np.int64)
    for one, two in _find_overlapping(owned):
        begin, end = two.begin, min(one.end, two.end)
        both = (time >= begin) & (time <= end)
        mine, theirs = both & (rows["member"] == one.member), both & (rows["member"] == two.member)
        if mine.any() and theirs.any():
            taken |= mine | theirs
            other[mine], other[theirs] = two.member, one.member
    found = np.flatnonzero(taken)
    if not len(found):
        return
    few = Rows({**rows.take(found).columns, "other": other[found]}, len(found))
    few = few.sorted_by("offset", "producer", "seq", "processed_ns", "member")
    first = group_starts([few["offset"], few["producer"], few["seq"]])
    members = zip(few["member"][first].tolist(), few["other"][first].tolist(), strict=True)
    detail = text_array(
        [f"processed by member {one} while member {two} owned {place} too" for one, two in members]
    )
    findings.add(place, Anomaly.TWO_OWNERS, few, first, detail=detail)


def _find_overlapping(owned: Sequence[Ownership]) -> Iterator[tuple[Ownership, Ownership]]:
    """Yield each two ownerships of different members that overlap, the earlier first."""
    ordered = sorted(owned, key=lambda span: span.begin)
    for number, one in enumerate(ordered):
        for two in ordered[number + 1 :]:
            if two.begin > one.end:
                break
            if two.member != one.member:
                yield one, two


def _bound_by_commits(assignments: Sequence[tuple[int, int, int]], commits: Rows) -> list[Ownership]:
    begun: dict[int, Ints] = {}
    accepted = commits.take(np.flatnonzero(commits["result"] == CommitResult.ACCEPTED))
    for member in {member for member, _, _ in assignments}:
        begun[member] = np.sort(accepted["begun_ns"][accepted["member"] == member])
    found: list[Ownership] = []
    for member, begin, end in assignments:
        own = begun[member]
        last = int(np.searchsorted(own, end, "right")) - 1
        if last >= 0 and own[last] >= begin:
            found.append(Ownership(member, begin, int(own[last])))
    return found


def group_events(events: Sequence[Event]) -> dict[TopicPartition, list[Event]]:
    """Return the events by partition. Those without a partition have partition -1."""
    found: dict[TopicPartition, list[Event]] = defaultdict(list)
    for event in events:
        found[event.place if event.place.partition >= 0 else NOWHERE].append(event)
    return found


NOWHERE = TopicPartition("", -1)
