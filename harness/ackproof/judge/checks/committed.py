"""Committed offsets at the end of a run: do OffsetFetch and the logs of `__consumer_offsets` have the accepted commits?

The last accepted commit of a group and partition must be there, or a later one. Commits without an answer, and those
that the client library may have sent twice, may be applied at any later time: nothing fences them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.experiment.backends import Ability
from ackproof.experiment.case import Case
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, agrees, breaks, lacks, not_judged
from ackproof.rundir.arrow import rows_of
from ackproof.rundir.committed import OFFSETS_TOPIC, GroupOffsets, OffsetsLog
from ackproof.rundir.groups import CommitResult, MembershipEvent
from ackproof.rundir.guarantees import LIBRARIES
from ackproof.rundir.ledger import ledger_rows
from ackproof.rundir.observed import CommittedStart
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import seconds

_RETENTION: Final = "offsets.retention.minutes"
_REQUIRED_ACKS: Final = "offsets.commit.required.acks"
_NONE: Final = -1
_ACCEPTED: Final = int(CommitResult.ACCEPTED)
_LIVE: Final = (ReadPhase.LIVE, ReadPhase.LIVE_COMMITTED)


@dataclass
class _Commits:
    """Commits of one group for one partition. `granted`: accepted commits (begun, done, offset), times in ns since the
    run began. `loose`: offsets whose commit may be applied at any later time. `asked`: offsets of all attempts."""

    granted: list[tuple[int, int, int]] = field(default_factory=list)
    loose: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)

    @property
    def last(self) -> tuple[int, int, int] | None:
        """The accepted commit with the latest answer, as in `granted`; None if no commit was accepted."""
        return max(self.granted, key=lambda one: one[1], default=None)

    def standing(self) -> set[int]:
        """Return the offsets that the coordinator may have after these commits; -1 stands for none."""
        latest = max((begun for begun, _, _ in self.granted), default=0)
        newest = {offset for _, done, offset in self.granted if done >= latest}
        return newest | self.loose | (set() if self.granted else {_NONE})


def check_committed_offsets(facts: Facts) -> Iterator[Opinion]:
    """Check the committed offsets of each group when the run was over.

    Yields a `breaks` opinion (a promise is broken) for a group if OffsetFetch answered an offset that its commits do
    not explain. Yields it, too, if OffsetFetch differs from an in-sync replica's log of `__consumer_offsets`. Yields
    `lacks` (missing evidence) if the coordinator runs and gave no answer; `not judged` if it does not run or if a
    fault, setting or election may have removed commits. One `agrees` stands for all other groups. Yields nothing if no
    committed offsets were requested.
    """
    file = facts.committed
    if file is None:
        return
    if why := _why_not_judged(facts.case, file.t_ns):
        yield not_judged(f"committed offsets: {why}")
        return
    confirmed = 0
    commits = _commits(facts)
    for group in file.groups:
        if group.reason:
            text = f"group {group.group}: no committed offsets could be asked for: {group.reason}"
            running = facts.recovery is None or group.coordinator in facts.recovery.running
            yield lacks(text, subject=group.group) if running else not_judged(text)
            continue
        own = _of_group(commits, group.group)
        loss = _why_losable(facts, group.partition)
        wrong = _wrong(group.group, group.of_partition, own, loss, "when the run was over")
        loose = {place: one.loose for place, one in own.items()}
        found = dict(differing(group, loose, file.logs)) | {
            place: text + _in_logs(group, place, file.logs) for place, text in wrong
        }
        if found:
            yield first_of(found, group.group)
        elif loss:
            yield not_judged(f"whether commits of group {group.group} may be missing: {loss}")
        else:
            confirmed += len(own)
    if confirmed:
        yield agrees(
            f"OffsetFetch and the logs of {OFFSETS_TOPIC} have what was granted: {confirmed} offsets"
        )


def check_committed_starts(facts: Facts) -> Iterator[Opinion]:
    """Check the committed offsets at which readers started. Yields a `breaks` opinion (a promise is broken) for a
    reader if OffsetFetch answered an offset that the group's commits do not explain. Yields another if no earlier
    reader of the group got the last records below that offset. Where commits may be missing, or a replaced coordinator
    may have answered with older offsets, every offset that a client tried to commit is accepted. Yields nothing where
    faults or settings may have removed commits from the logs, and if no committed offsets were requested when the run
    was over."""
    for reader, start in sorted(facts.starts.items()):
        if facts.committed is None or _why_not_judged(facts.case, start.t_ns):
            continue
        gone = deleted_topics(facts)
        offsets = {
            TopicPartition(topic, partition): offset
            for topic, partition, offset in start.offsets
            if topic not in gone
        }
        own = {place: _Commits() for place in offsets} | _of_group(_commits(facts, start.t_ns), start.group)
        partition = next((one.partition for one in facts.committed.groups if one.group == start.group), _NONE)
        loss = _why_losable(facts, partition) or why_stale(facts, partition)
        when = f"when {reader} started at {seconds(start.t_ns)}"
        for found in (
            dict(_wrong(start.group, offsets, own, loss, when)),
            dict(_unhanded(facts, reader, start, offsets)),
        ):
            if found:
                yield first_of(found, reader)


def first_of(found: Mapping[TopicPartition, str], subject: str) -> Opinion:
    """Return a `breaks` opinion on `found` (not empty): the lowest partition's sentence, and the number of all."""
    more = f" ({len(found)} partitions)" if len(found) > 1 else ""
    return breaks(found[min(found)] + more, subject=subject, numbers={"partitions": len(found)})


def _of_group(
    commits: Mapping[tuple[str, TopicPartition], _Commits], group: str
) -> dict[TopicPartition, _Commits]:
    return {place: one for (name, place), one in commits.items() if name == group}


def deleted_topics(facts: Facts) -> set[str]:
    """Return the topics that a fault deletes, or that were deleted: a coordinator removes their committed offsets."""
    topics, faults = facts.case.experiment.topics, facts.case.faults
    return {
        topic for topic in topics if topic in facts.removed or any(fault.drops(topic) for fault in faults)
    }


def _commits(facts: Facts, before_ns: float = math.inf) -> Mapping[tuple[str, TopicPartition], _Commits]:
    """Return the commits that readers sent before `before_ns`, by group and partition, without topics that were
    deleted."""
    readers = facts.case.experiment.workload.consumers
    again = any(Ability.REQUESTS in fault.ASKS for fault in facts.case.faults)
    once_ns = 0.0 if again else LIBRARIES[readers.client.library].single_commit_ns(readers.config)
    gone = deleted_topics(facts)
    found: dict[tuple[str, TopicPartition], _Commits] = defaultdict(_Commits)
    attempts = (one for each in facts.commits.values() for one in each if one.begun_ns < before_ns)
    for attempt in attempts:
        sent_once = attempt.good and attempt.done_ns - attempt.begun_ns < once_ns
        for topic, partition, offset in attempt.offsets:
            if topic in gone:
                continue
            one = found[attempt.group, TopicPartition(topic, partition)]
            one.asked.add(offset)
            if attempt.good:
                one.granted.append((attempt.begun_ns, attempt.done_ns, offset))
            if not sent_once:
                one.loose.add(offset)
    return found


def _wrong(
    group: str,
    answered: Mapping[TopicPartition, int],
    own: Mapping[TopicPartition, _Commits],
    loss: str,
    when: str,
) -> Iterator[tuple[TopicPartition, str]]:
    """Yield (partition, sentence) for each partition for which OffsetFetch gave a wrong answer. `own`: commits of the
    group. `when`: time of the answer in words.

    `loss`: why accepted commits may be missing; '' if they may not. If they may, a missing offset is right, and so is
    any offset that a client tried to commit. If not, only the offsets of `_Commits.standing` are right.
    """
    for place, commits in sorted(own.items()):
        served = answered.get(place, _NONE)
        if served in (commits.asked | {_NONE} if loss else commits.standing()):
            continue
        last = commits.last
        granted = (
            "no commit was granted"
            if last is None
            else f"offset {last[2]} was committed, granted at {seconds(last[1])}"
        )
        asked = "" if served in commits.asked | {_NONE} else ", which no client asked for"
        yield (
            place,
            f"group {group}, {place}: {granted}, and {when} OffsetFetch answered {_text(served)}{asked}",
        )


def _in_logs(group: GroupOffsets, place: TopicPartition, logs: Sequence[OffsetsLog]) -> str:
    """Return the committed offsets in the logs of in-sync replicas, as the end of a sentence; '' if no such log was
    read."""
    held = sorted({log.of_group(group.group).get(place, _NONE) for log in in_sync_logs(group, logs)})
    offsets = ", ".join(map(_text, held))
    return f"; the logs of {OFFSETS_TOPIC}/{group.partition} have {offsets}" if held else ""


def _unhanded(
    facts: Facts, reader: str, start: CommittedStart, offsets: Mapping[TopicPartition, int]
) -> Iterator[tuple[TopicPartition, str]]:
    """Yield (partition, sentence) for each partition with records below the committed offset that lie after all records
    that earlier readers of the group got. Yields no more if a ledger part cannot be read.

    Only records that the final read has count, because offsets of markers and of deleted records reach no reader.
    """
    earlier = {
        client.reader
        for client in facts.clients
        if client.reader is not None
        and (one := facts.starts.get(client.id))
        and one.group == start.group
        and one.t_ns < start.t_ns
    }
    by_earlier = pc.field("reader").isin(pa.array(sorted(earlier), pa.int32()))
    for place, offset in sorted(offsets.items()):
        try:
            handed = _offsets_of(facts, place, _LIVE, offset, by_earlier)
            begins = int(pc.max(handed).as_py() or 0) + 1 if len(handed) else 0
            there = _offsets_of(facts, place, (ReadPhase.FINAL,), offset, pc.field("offset") >= begins)
        except (OSError, pa.ArrowException):
            return  # the audit names a part that cannot be read
        if count := len(pc.unique(there)):
            yield (
                place,
                f"group {start.group}, {place}: {reader} started at the committed offset {offset}, and no reader of "
                f"the group was handed the {count} records from {pc.min(there)} on",
            )


def _offsets_of(
    facts: Facts, place: TopicPartition, phases: Sequence[ReadPhase], below: int, wanted: pc.Expression
) -> pa.ChunkedArray:
    """Return the offsets, below the offset `below`, of a partition's ledger rows of these `phases` that the filter
    `wanted` selects. Raises OSError or ArrowException if they cannot be read."""
    here = (pc.field("topic") == place.topic) & (pc.field("partition") == place.partition)
    here &= pc.field("phase").isin([int(phase) for phase in phases]) & (pc.field("offset") < below)
    return ledger_rows(facts.run.consumed, ["offset"], here & wanted)["offset"]


def differing(
    group: GroupOffsets, loose: Mapping[TopicPartition, Set[int]], logs: Sequence[OffsetsLog]
) -> Iterator[tuple[TopicPartition, str]]:
    """Yield (partition, sentence) where OffsetFetch and the log of an in-sync replica differ, once for each such log.

    `loose`: the partitions to compare, each with offsets that a log may have although OffsetFetch does not: a commit
    whose append timed out at the coordinator may be in the logs only.
    """
    answered = group.of_partition
    for log in in_sync_logs(group, logs):
        held = log.of_group(group.group)
        for place, unsettled in sorted(loose.items()):
            served, logged = answered.get(place, _NONE), held.get(place, _NONE)
            if served != logged and logged not in unsettled:
                yield (
                    place,
                    f"group {group.group}, {place}: OffsetFetch answered {_text(served)}, and the log of "
                    f"{OFFSETS_TOPIC}/{group.partition} on node {log.node}, which is in the ISR, has {_text(logged)}",
                )


def _text(offset: int) -> str:
    return "none" if offset == _NONE else str(offset)


def in_sync_logs(group: GroupOffsets, logs: Sequence[OffsetsLog]) -> list[OffsetsLog]:
    """Return the in-sync replicas' logs of the group's partition that end where the coordinator's log ends; [] if that
    log was not read."""
    own = [log for log in logs if log.partition == group.partition and not log.reason]
    end = max((log.log_end for log in own if log.node == group.coordinator), default=-1)
    return [log for log in own if log.node in group.isr and log.log_end == end]


# -- what may take a commit away --------------------------------------------------------------------------------------


def _why_not_judged(case: Case, t_ns: float) -> str:
    """Return the fault or setting that may explain a difference between commits, OffsetFetch and the logs. '' if none
    may: a difference then proves a broken promise. `t_ns`: time up to which offsets may have expired, ns since the run
    began."""
    return next(
        (fault.UNPREDICTABLE for fault in case.faults if fault.UNPREDICTABLE), ""
    ) or why_logs_touched(case, t_ns)


def why_logs_touched(case: Case, t_ns: float) -> str:
    """Return the fault or setting that may have removed commits from the logs of `__consumer_offsets`; '' if there is
    none. `t_ns`: time up to which offsets may have expired, ns since the run began."""
    for fault in case.faults:
        if Ability.DISKS in fault.ASKS:
            return f"fault {fault.number} ({fault.kind}) may have touched the log of {OFFSETS_TOPIC}"
        if fault.clock_shift:
            return f"fault {fault.number} sets a clock, and offsets expire by clocks"
    return why_expired(case, t_ns)


def why_expired(case: Case, t_ns: float) -> str:
    """Return the lowest `offsets.retention.minutes` of the experiment as text, if it is at most the time `t_ns` (ns
    since the run began); '' if it is longer, or the experiment does not set it."""
    kept = [int(value) for value in broker_values(case, _RETENTION) if value.lstrip("-").isdigit()]
    if any(minutes * 60 <= t_ns / 1e9 for minutes in kept):
        return f"{_RETENTION} is {min(kept)}"
    return ""


def _why_losable(facts: Facts, partition: int) -> str:
    """Return why a granted commit may be missing in the log of its coordinator; '' if it may not.

    The coordinator waits for the whole ISR (acks=all). A commit stays as long as each leader comes from the ISR.
    """
    return why_losable_by_settings(facts, partition) or why_elections_unknown(facts, partition)


def why_losable_by_settings(facts: Facts, partition: int) -> str:
    """Return the setting, deletion or unclean election by which `partition` of the offsets topic may lose an accepted
    commit; '' for none."""
    if any(value != "-1" for value in broker_values(facts.case, _REQUIRED_ACKS)):
        return f"{_REQUIRED_ACKS} does not wait for the ISR"
    place, log = TopicPartition(OFFSETS_TOPIC, partition), facts.metadata_log
    if len(log.states.get(place, ())) > 1:
        return f"{OFFSETS_TOPIC} was deleted and created again"
    if log.elected_uncleanly(place):
        return f"a leader of {place} was elected that was not in the ISR"
    return ""


def why_elections_unknown(facts: Facts, partition: int) -> str:
    """Return why it is not known whether each leader of a partition of `__consumer_offsets` was in the ISR; '' if it
    is known."""
    if facts.zookeeper and facts.case.faults:
        return "with ZooKeeper the elections are not known in full"
    place, log = TopicPartition(OFFSETS_TOPIC, partition), facts.metadata_log
    if log.hole or place not in log.states:
        return log.hole or f"the metadata log says nothing of {place}"
    return ""


def why_stale(facts: Facts, partition: int) -> str:
    """Return why a deposed coordinator may have given OffsetFetch old offsets, which lack later commits; '' if the
    partition of `__consumer_offsets` never changed its leader."""
    place = TopicPartition(OFFSETS_TOPIC, partition)
    return f"the leader of {place} changed" if any(facts.metadata_log.elections(place)) else ""


def broker_values(case: Case, name: str) -> list[str]:
    """Return the experiment's values of a broker setting, for all brokers or for single ones; [] if it has none."""
    cluster = case.experiment.cluster
    configs = (cluster.config, *cluster.broker_config.values())
    return [config[name] for config in configs if name in config]


def first_election_ns(facts: Facts, partition: int) -> float:
    """Return the earliest time, in ns since the run began, at which another leader of a partition of
    `__consumer_offsets` may have been elected; infinite if none was."""
    elections = facts.metadata_log.elections(TopicPartition(OFFSETS_TOPIC, partition))
    return min((facts.wall.written_within(one.timestamp_ms)[0] for one, _ in elections), default=math.inf)


def find_forgotten(
    commits: pa.Table, membership: pa.Table, rest: GroupOffsets, until: float
) -> Set[TopicPartition]:
    """Return the partitions for which OffsetFetch gave a lower offset than the last commit accepted before the request.
    A member requests offsets after its assignment, the harness at the end (`rest`; it may have got no answer). Only
    commits accepted before `until` count: ns from the start of the run to the first election of another coordinator.
    Every coordinator has these, even a deposed one. `commits`, `membership`: ledgers of the group."""
    accepted = commits.filter((pc.field("result") == _ACCEPTED) & (pc.field("done_ns") < until))
    told: list[tuple[float, bool, TopicPartition, int]] = [
        (done, False, TopicPartition(topic, partition), offset)
        for topic, partition, offset, done in rows_of(accepted, "topic", "partition", "offset", "done_ns")
    ]
    assigned: dict[tuple[int, TopicPartition], int] = {}
    for row in membership.sort_by("t_ns").to_pylist():
        place = TopicPartition(row["topic"], row["partition"])
        if row["event"] == MembershipEvent.ASSIGNED:
            assigned[row["member"], place] = row["t_ns"]
        elif row["event"] == MembershipEvent.POSITION and (row["member"], place) in assigned:
            told.append((assigned[row["member"], place], True, place, row["offset"]))
    places = set[TopicPartition]() if rest.reason else {one[2] for one in told}
    told += [(math.inf, True, place, rest.of_partition.get(place, _NONE)) for place in places]
    known: dict[TopicPartition, int] = {}
    forgotten: set[TopicPartition] = set()
    for _, is_answer, place, offset in sorted(told):
        if not is_answer:
            known[place] = offset
        elif offset < known.get(place, _NONE):
            forgotten.add(place)
    return forgotten
