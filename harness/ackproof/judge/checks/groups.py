"""Checks of consumer groups: is there enough evidence to judge them, and do the sources of their offsets agree?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.experiment.client import COMMAND
from ackproof.experiment.group_promises import Condition
from ackproof.judge.checks.committed import deleted_topics, differing, first_of, in_sync_logs
from ackproof.judge.facts import Facts
from ackproof.judge.groups import GroupFacts, read_groups
from ackproof.judge.opinion import Opinion, agrees, lacks, not_judged
from ackproof.rundir.anomalies import GROUP_CLASSES, Anomaly
from ackproof.rundir.committed import OFFSETS_TOPIC, OffsetsLog
from ackproof.rundir.groups import CommitResult, MemberEnd, MembershipEvent, OffsetsRecord
from ackproof.rundir.layout import client_folder
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import has_end

_NONE: Final = -1


def check_groups(facts: Facts) -> Iterator[Opinion]:
    """Yield a `lacks` opinion for each gap in the evidence of consumer groups: no `groups.json`, or a group
    that it does not name; a member that ended by itself or with an error, broke the contract of docs/clients.md
    or did not close its ledger; unknown committed offsets; an output topic that could not be read to its end; a
    group that had not caught up with its input although it is not stalled; a group that the audit did not count.
    Yields `not judged` for classes that the audit could not count. Nothing is yielded without groups. Raises
    `BadInput` for a broken file."""
    specs = facts.case.experiment.workload.groups
    if not specs:
        return
    file = facts.groups
    if file is None:
        yield lacks("the run has no file of what became of its consumer groups: observed/groups.json")
        return
    for name in sorted(specs.keys() - {end.group for end in file.groups}):
        yield lacks(f"group {name}: the run does not say what became of it", subject=f"group {name}")
    yield from opinions_on_members(file.members, facts.run.deliveries)
    for client, breach in file.breaches:
        yield lacks(f"member {client} breaks the contract of docs/clients.md: {breach}", subject=client)
    for group in read_groups(facts):
        yield from (lacks(text, subject=f"group {group.name}") for text in _ends(group))
        yield from _uncounted(group)


def opinions_on_members(members: Sequence[MemberEnd], ledger: Path) -> Iterator[Opinion]:
    """Yield a `lacks` opinion (evidence is missing) for each member that ended by itself or with a status other than 0.
    Yield one, too, for each that did not close its folder in the ledger. Members that a fault killed are left out."""
    for one in members:
        name = f"member {one.client} of group {one.group}"
        words = f": {one.last_words.splitlines()[-1]}" if one.last_words.strip() else ""
        if one.killed:
            continue
        if not one.asked:
            yield lacks(f"{name} ended by itself with status {one.status}{words}", subject=one.client)
        elif one.status:
            text = f"{name} was asked to stop and ended with status {one.status}{words}"
            yield lacks(text, subject=one.client)
        elif not has_end(ledger / client_folder(one.client)):
            text = f"{name} was not killed, and its ledger does not say that it closed"
            yield lacks(text, subject=one.client)


def _ends(group: GroupFacts) -> Iterator[str]:
    end, recovery = group.end, group.facts.recovery
    if end.committed.reason:
        yield f"group {group.name}: no committed offsets could be asked for: {end.committed.reason}"
    if end.problem:
        yield f"group {group.name}: its output could not be read whole: {end.problem}"
    stalled = recovery is not None and any(
        one.group == group.name for one in recovery.of_class(Anomaly.STALLED)
    )
    if not end.caught_up and not stalled:
        yield (
            f"group {group.name} had not caught up after {end.waited_s:.0f} s: {sum(end.lags.values()):,} offsets "
            "remain; give it more time with settle, more members, or a shorter record_time"
        )


def _uncounted(group: GroupFacts) -> Iterator[Opinion]:
    subject = f"group {group.name}"
    if group.counts is None:
        yield lacks(f"{subject}: the audit did not count it; write it again: ackproof audit", subject=subject)
        return
    missing = [name for name in GROUP_CLASSES if name not in group.counts.counts]
    for reason in group.counts.reasons or ([f"{', '.join(missing)}: not counted"] if missing else []):
        yield not_judged(f"{subject}: {reason}", subject=subject)


# -- witnesses of committed offsets ---------------------------------------------------------------------------------


def check_group_offsets(facts: Facts) -> Iterator[Opinion]:
    """Compare committed offsets after the load with the logs of in-sync replicas, and with what members committed.

    Yields a `breaks` opinion (a promise is broken) for a group if OffsetFetch differs from the last commit in a log.
    Yields it, too, if the coordinator returned or wrote an offset that no member committed. Yields `not judged` under
    the conditions `outside` and `unsure`: a disk fault, a clock or a user's command may have changed the group's
    commits, or elections are not known. One `agrees` stands for all partitions without a difference. A group whose
    coordinator did not answer, and deleted topics, are left out.

    A follower may lag, so only logs that end at the coordinator's log end offset are compared. A commit without an
    answer may be in the logs only, so its offset is no difference there. An operator, a program of the user, or
    automatic commits may commit what no ledger has: such groups are compared with the logs only.
    """
    confirmed = 0
    for group in read_groups(facts):
        answer, subject, conditions = group.end.committed, f"group {group.name}", group.conditions
        if why := conditions.get(Condition.OUTSIDE) or conditions.get(Condition.UNSURE, ""):
            yield not_judged(f"group {group.name}: witnesses of its offsets: {why}", subject=subject)
        if answer.reason or why:
            continue
        gone = deleted_topics(facts)
        unanswered = _find_offsets(group.commits.filter(pc.field("result") == int(CommitResult.UNKNOWN)))
        logs = _last_offsets(facts, group)
        places = {place for log in logs for place in log.of_group(group.name)} | answer.of_partition.keys()
        loose = {place: unanswered[place] for place in places if place.topic not in gone}
        found = dict(differing(answer, loose, logs))
        if not found and Condition.OPERATOR not in conditions:
            found = dict(_find_strange(group, gone))
        if found:
            yield first_of(found, subject)
        elif in_sync_logs(answer, logs):
            confirmed += len(loose)
    if confirmed:
        yield agrees(
            f"OffsetFetch and the logs of {OFFSETS_TOPIC} have the same offsets of groups: {confirmed} partitions"
        )


def _last_offsets(facts: Facts, group: GroupFacts) -> list[OffsetsLog]:
    """Return the last committed offsets of a group in each replica's log of the group's partition of
    `__consumer_offsets`; [] if the run did not read these logs.

    If commits of two transactions overlap, the commit that was appended later counts, as in the coordinator
    (OffsetMetadataManager.replayEndTransactionMarker). A tombstone removes an offset.
    """
    assert facts.groups is not None
    partition, key = group.end.committed.partition, ["node", "topic", "partition"]
    rows = group.read_log(pc.field("log_partition") == partition)
    offsets: dict[int, list[tuple[str, str, int, int]]] = defaultdict(list)
    for row in rows.group_by(key, use_threads=False).aggregate([("offset", "last")]).to_pylist():
        if row["offset_last"] != _NONE:
            offsets[row["node"]].append((group.name, row["topic"], row["partition"], row["offset_last"]))
    return [
        OffsetsLog(
            node=one.node,
            partition=partition,
            log_end=one.log_end,
            offsets=tuple(sorted(offsets[one.node])),
            reason=one.reason,
        )
        for one in (facts.groups.histories if facts.run.offsets_log.exists() else ())
        if one.partition == partition
    ]


def _find_strange(group: GroupFacts, gone: set[str]) -> Iterator[tuple[TopicPartition, str]]:
    """Yield (partition, sentence) for each offset that no member asked to commit, although the coordinator
    returned it or a log of `__consumer_offsets` has it. Yields nothing if others may commit too: on an
    attached cluster, for a program of the user, and with automatic commits.

    A member records each commit just before it sends it, so the ledger of a killed member has them all. A
    member's commits have its number as metadata, and commits of an operator have none. `gone`: deleted
    topics, which are left out.
    """
    foreign = group.facts.case.experiment.ground.foreign  # an earlier run may have left offsets there
    if foreign or group.spec.client.library == COMMAND or group.spec.commit == "auto":
        return
    for row in group.read_log(pc.field("member") < 0).to_pylist():
        place = TopicPartition(row["topic"], row["partition"])
        if row["record"] == OffsetsRecord.COMMIT and place.topic not in gone:
            where = f"offset {row['log_offset']} of {OFFSETS_TOPIC} on node {row['node']}"
            yield (
                place,
                f"group {group.name}, {place}: no member wrote the commit of {row['offset']} at {where}",
            )
    asked = _find_offsets(group.commits)
    told = [
        (place, offset, f"OffsetFetch answered {offset} at rest, which")
        for place, offset in sorted(group.end.committed.of_partition.items())
    ]
    for row in group.events(MembershipEvent.POSITION).to_pylist():
        place, offset = TopicPartition(row["topic"], row["partition"]), row["offset"]
        if offset != _NONE:
            words = f"the coordinator told g{row['member']} the committed offset {offset}, which"
            told.append((place, offset, words))
    for place, offset, words in told:
        if place.topic not in gone and offset not in asked[place]:
            yield place, f"group {group.name}, {place}: {words} no member asked for"


def _find_offsets(commits: pa.Table) -> Mapping[TopicPartition, set[int]]:
    """Return the set of committed offsets in these rows, for each partition; empty for a partition without rows."""
    found: dict[TopicPartition, set[int]] = defaultdict(set)
    key = ["topic", "partition", "offset"]
    for row in commits.group_by(key).aggregate([]).to_pylist():
        found[TopicPartition(row["topic"], row["partition"])].add(row["offset"])
    return found
