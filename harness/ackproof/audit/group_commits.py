"""Commits of a group for one partition: lost-commit, regressed-commit, zombie-commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from ackproof.audit.group_log import GroupLog, find_commits
from ackproof.audit.group_regress import find_regressions
from ackproof.audit.group_sources import Event, GroupSources
from ackproof.audit.outputs import FindingsWriter
from ackproof.ledgers.rows import Ints, Rows
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.arrow import text_array
from ackproof.rundir.groups import CommitResult, LogDecision
from ackproof.rundir.partition import TopicPartition

COMMITTED: Final[Mapping[str, str]] = {
    "member": "i4", "number": "i8", "generation": "i4", "generation_after": "i4", "offset": "i8",
    "begun_ns": "i8", "done_ns": "i8", "result": "i1", "transaction": "?",
}  # fmt: skip
_LEFT: Final = -1


def audit_commits(
    sources: GroupSources,
    place: TopicPartition,
    rows: Rows,
    events: Sequence[Event],
    every_event: Sequence[Event],
    log: GroupLog,
    findings: FindingsWriter,
) -> Counter[str]:
    """Find commits that the coordinator lost, or accepted wrongly. Return numbers of `GroupCounts` by name.

    `rows`: commits of the partition (`COMMITTED`). `events`: of the partition; `every_event`: of all of them. Raises
    OSError.
    """
    accepted = rows.take(rows["result"] == CommitResult.ACCEPTED)
    if Anomaly.LOST_COMMIT in sources.counted:
        lost = [(commit, ", and no log has it") for commit in _find_lost(accepted, log.rows(place))]
        _report(findings, place, Anomaly.LOST_COMMIT, accepted, lost)
    if Anomaly.REGRESSED_COMMIT in sources.counted:
        found = find_regressions(sources, place, rows, accepted, events, log)
        _report(
            findings, place, Anomaly.REGRESSED_COMMIT, accepted, [(at, f", and {how}") for at, how in found]
        )
    if Anomaly.ZOMBIE_COMMIT in sources.counted:
        zombies = dict(_find_zombies(sources, place, rows, every_event, log))
        _report(findings, place, Anomaly.ZOMBIE_COMMIT, rows, list(zombies.items()))
    return Counter({result.name.lower(): int((rows["result"] == result).sum()) for result in CommitResult})


def _report(
    findings: FindingsWriter,
    place: TopicPartition,
    anomaly: Anomaly,
    rows: Rows,
    found: Sequence[tuple[int, str]],
) -> None:
    """Add findings about commits. `found`: index in `rows`, and the end of a sentence."""
    which = np.array([commit for commit, _ in found], np.int64)
    detail = [
        f"commit {rows['number'][at]} of member {rows['member'][at]} was accepted{end}" for at, end in found
    ]
    findings.add(place, anomaly, rows, which, detail=text_array(detail))


def _find_lost(accepted: Rows, log: Rows) -> list[int]:
    kept = log.take(log["decision"] != LogDecision.ABORTED)
    # A commit without metadata may be any commit of its offset.
    there = np.isin(accepted["offset"], kept["offset"][kept["member"] < 0], kind="sort")
    writer = find_commits(accepted, kept)
    there[writer[writer >= 0]] = True
    lost: list[int] = np.flatnonzero(~there).tolist()
    return lost


def _find_zombies(
    sources: GroupSources, place: TopicPartition, rows: Rows, events: Sequence[Event], log: GroupLog
) -> Iterator[tuple[int, str]]:
    """Yield commits that the coordinator's rules refuse. `events`: of all partitions.

    A plain commit has the newest generation that its member can have sent. A member that joined again during the call
    has a lower one, and shows nothing.
    """
    records = log.effective(place)
    row = find_commits(rows, records)
    before, after = rows.ints("generation"), rows.ints("generation_after")
    sent = np.where(rows.flags("transaction"), before, np.where(after >= before, after, -1))[row]
    known = (row >= 0) & (sent >= 0)
    row, sent, position = row[known], sent[known], records.ints("log_offset")[known]
    if sources.plan.protocol == "consumer":
        found = _find_epochs_over(sources, place, rows, events, log, (row, sent, position))
    else:
        last = np.searchsorted(log.generations[:, 0], position) - 1
        newest = np.append(log.generations[:, 1], -1)[last]
        over = np.flatnonzero(sent < newest)
        found = ((at, f"generation {newest[at]} had begun") for at in over.tolist())
    for at, why in found:
        yield int(row[at]), f" in generation {sent[at]}, after {why}"


def _find_epochs_over(
    sources: GroupSources,
    place: TopicPartition,
    rows: Rows,
    events: Sequence[Event],
    log: GroupLog,
    sent_commits: tuple[Ints, Ints, Ints],
) -> Iterator[tuple[int, str]]:
    """Yield commits whose member epoch was over. A commit counts if its member had one member id during the call.

    `sent_commits`: index in `rows`, epoch, and position in the log."""
    row, sent, position = sent_commits
    for member in np.unique(rows["member"][row]).tolist():
        named = [event for event in events if event.member == member and event.member_id]
        times, names = [event.t_ns for event in named], ["", *(event.member_id for event in named)]
        own = np.flatnonzero((rows["member"][row] == member) & (rows["done_ns"][row] >= 0))
        begin, end = (
            np.array(names)[np.searchsorted(times, rows[name][row[own]], "right")]
            for name in ("begun_ns", "done_ns")
        )
        for name in sorted(set(names) & log.members.keys()):
            epochs = log.members[name]
            mine = own[(begin == name) & (end == name)]
            last = np.searchsorted([epoch.position for epoch in epochs], position[mine]) - 1
            epoch = np.array([*(epoch.epoch for epoch in epochs), _LEFT - 1])[last]
            for which in np.flatnonzero((epoch == _LEFT) | (sent[mine] < epoch)).tolist():
                at = int(mine[which])
                if epoch[which] == _LEFT:
                    yield at, "its member had left"
                elif not (
                    sources.plan.assignment_epochs
                    and _may_commit(place, name, log, int(last[which]), int(position[at]), int(sent[at]))
                ):
                    yield at, f"its member had epoch {epoch[which]}"


def _may_commit(
    place: TopicPartition, name: str, log: GroupLog, number: int, position: int, sent: int
) -> bool:
    """Return True if Kafka 4.3 accepts an older epoch: it is not older than the assignment of the partition.

    The log does not show partitions that a member has yet to revoke: a partition that it does not have any more counts
    as its own until another member has it. `number`: of its last record before `position`.
    """
    epochs = log.members[name]
    last = next((epoch for epoch in epochs[number::-1] if place in epoch.assigned), None)
    if last is None or last.assigned[place] > sent:
        return False
    return last is epochs[number] or not any(
        last.position < epoch.position < position and place in epoch.assigned
        for other, its in log.members.items()
        if other != name
        for epoch in its
    )
