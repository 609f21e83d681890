"""Committed offsets at the end: what OffsetFetch and the logs of `__consumer_offsets` have of what was granted.

The last granted commit of a group and partition must be there, or a later one. Commits without an answer, and those
that the client library may have sent twice, may be applied at any later time: nothing fences them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ackproof.experiment.backends import Ability
from ackproof.experiment.case import Case
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, agrees, breaks, lacks, not_judged
from ackproof.rundir.committed import OFFSETS_TOPIC, CommittedFile, GroupOffsets, OffsetsLog
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import seconds

_SENT_ONCE_NS: Final = 80_000_000
"""A commit that was answered within this time was sent once: librdkafka sends again after 80 % of retry.backoff.ms
(100 ms) at the earliest, as `clients.librdkafka.adapter.resend_after_s` says."""
_BACKOFF: Final = "retry.backoff.ms"
_RETENTION: Final = "offsets.retention.minutes"
_REQUIRED_ACKS: Final = "offsets.commit.required.acks"
_NONE: Final = -1


@dataclass
class _Commits:
    """Commits of one group for one partition, in the order of their begin."""

    granted: list[tuple[int, int, int]] = field(default_factory=list)
    """(begun, done, offset); times in ns."""
    loose: set[int] = field(default_factory=set)
    """Offsets whose commit may be applied at any later time."""
    asked: set[int] = field(default_factory=set)

    @property
    def last(self) -> tuple[int, int, int] | None:
        """The granted commit with the latest answer; None if none was granted."""
        return max(self.granted, key=lambda one: one[1], default=None)

    def standing(self) -> set[int]:
        """Return the offsets that may be the group's now: -1 stands for none."""
        latest = max((begun for begun, _, _ in self.granted), default=0)
        newest = {offset for _, done, offset in self.granted if done >= latest}
        return newest | self.loose | (set() if self.granted else {_NONE})


def check_committed_offsets(facts: Facts) -> Iterator[Opinion]:
    """Check that each group's committed offsets are those that were granted last, and that the logs agree."""
    file = facts.committed
    if file is None:
        return
    if why := _why_not_judged(facts.case, file):
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
        own = {place: one for (name, place), one in commits.items() if name == group.group}
        loss = _why_losable(facts, group.partition)
        found = {**dict(_differing(group, own, file.logs)), **dict(_wrong(group, own, file.logs, loss))}
        if found:
            more = f" ({len(found)} partitions)" if len(found) > 1 else ""
            yield breaks(found[min(found)] + more, subject=group.group, numbers={"partitions": len(found)})
        elif loss:
            yield not_judged(f"whether commits of group {group.group} may be missing: {loss}")
        else:
            confirmed += len(own)
    if confirmed:
        yield agrees(
            f"OffsetFetch and the logs of {OFFSETS_TOPIC} have what was granted: {confirmed} offsets"
        )


def _commits(facts: Facts) -> Mapping[tuple[str, TopicPartition], _Commits]:
    """Return what clients asked for by group and partition, without topics that were deleted."""
    spec = facts.case.experiment
    again = any(Ability.REQUESTS in fault.ASKS for fault in facts.case.faults)
    again |= _BACKOFF in spec.workload.consumers.config
    gone = facts.removed | {
        topic for topic in spec.topics if any(fault.drops(topic) for fault in facts.case.faults)
    }
    found: dict[tuple[str, TopicPartition], _Commits] = defaultdict(_Commits)
    for attempt in (one for attempts in facts.commits.values() for one in attempts):
        sent_once = attempt.good and attempt.done_ns - attempt.begun_ns < _SENT_ONCE_NS and not again
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
    group: GroupOffsets, own: Mapping[TopicPartition, _Commits], logs: Sequence[OffsetsLog], loss: str
) -> Iterator[tuple[TopicPartition, str]]:
    """Yield each partition for which OffsetFetch answers what cannot be the group's offset, with a sentence.

    `loss`: why granted commits may be missing; then only an offset that nobody asked for is wrong.
    """
    answered = group.of_partition
    for place, commits in sorted(own.items()):
        served = answered.get(place, _NONE)
        allowed = commits.asked | {_NONE} if loss else commits.standing()
        if served in allowed:
            continue
        last = commits.last
        granted = (
            "no commit was granted"
            if last is None
            else f"offset {last[2]} was committed, granted at {seconds(last[1])}"
        )
        asked = "" if served in commits.asked | {_NONE} else ", which no client asked for"
        held = sorted({log.of_group(group.group).get(place, _NONE) for log in _of_in_sync(group, logs)})
        in_logs = ", ".join(map(_text, held))
        answer = f"when the run was over OffsetFetch answered {_text(served)}{asked}"
        text = f"group {group.group}, {place}: {granted}, and {answer}"
        yield (
            place,
            text + (f"; the logs of {OFFSETS_TOPIC}/{group.partition} have {in_logs}" if held else ""),
        )


def _differing(
    group: GroupOffsets, own: Mapping[TopicPartition, _Commits], logs: Sequence[OffsetsLog]
) -> Iterator[tuple[TopicPartition, str]]:
    """Yield each partition for which OffsetFetch and an in-sync replica's log differ, with a sentence.

    A commit whose append timed out at the coordinator may be in the logs alone: it is loose.
    """
    answered = group.of_partition
    for log in _of_in_sync(group, logs):
        held = log.of_group(group.group)
        for place, commits in sorted(own.items()):
            served, logged = answered.get(place, _NONE), held.get(place, _NONE)
            if served != logged and logged not in commits.loose:
                yield (
                    place,
                    f"group {group.group}, {place}: OffsetFetch answered {_text(served)}, and the log of "
                    f"{OFFSETS_TOPIC}/{group.partition} on node {log.node}, which is in the ISR, has {_text(logged)}",
                )


def _text(offset: int) -> str:
    return "none" if offset == _NONE else str(offset)


def _of_in_sync(group: GroupOffsets, logs: Sequence[OffsetsLog]) -> list[OffsetsLog]:
    """Return the logs of in-sync replicas that end where the coordinator's own log ends."""
    own = [log for log in logs if log.partition == group.partition and not log.reason]
    end = max((log.log_end for log in own if log.node == group.coordinator), default=-1)
    return [log for log in own if log.node in group.isr and log.log_end == end]


# -- what may take a commit away --------------------------------------------------------------------------------------


def _why_not_judged(case: Case, file: CommittedFile) -> str:
    """Return why neither a missing offset nor a difference of the witnesses proves anything; '' if they do."""
    for fault in case.faults:
        if fault.UNPREDICTABLE:
            return fault.UNPREDICTABLE
        if Ability.DISKS in fault.ASKS:
            return f"fault {fault.number} ({fault.kind}) may have touched the log of {OFFSETS_TOPIC}"
        if fault.clock_shift:
            return f"fault {fault.number} sets a clock, and offsets expire by clocks"
    kept = [int(value) for value in _values(case, _RETENTION) if value.lstrip("-").isdigit()]
    if any(minutes * 60 <= file.t_ns / 1e9 for minutes in kept):
        return f"{_RETENTION} is {min(kept)}"
    return ""


def _why_losable(facts: Facts, partition: int) -> str:
    """Return why a granted commit may be missing in the log of its coordinator; '' if it may not.

    The coordinator waits for the whole ISR (acks=all). A commit stays as long as each leader comes from the ISR.
    """
    if any(value != "-1" for value in _values(facts.case, _REQUIRED_ACKS)):
        return f"{_REQUIRED_ACKS} does not wait for the ISR"
    if facts.zookeeper and facts.case.faults:
        return "with ZooKeeper the elections are not known in full"
    place, log = TopicPartition(OFFSETS_TOPIC, partition), facts.metadata_log
    if log.hole or place not in log.states:
        return log.hole or f"the metadata log says nothing of {place}"
    if len(log.states[place]) > 1:
        return f"{OFFSETS_TOPIC} was deleted and created again"
    if any(clean is not True for _, clean in log.elections(place)):
        return f"a leader of {place} was elected that was not in the ISR"
    return ""


def _values(case: Case, name: str) -> list[str]:
    """Return the values of a broker setting that the experiment names."""
    cluster = case.experiment.cluster
    configs = (cluster.config, *cluster.broker_config.values())
    return [config[name] for config in configs if name in config]
