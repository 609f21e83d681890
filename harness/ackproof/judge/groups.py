"""Consumer groups of a run as the judge sees them: the conditions that hold for each, and the ruling on each
of its classes.

A finding counts against Kafka only if the table of promises (`experiment.group_promises`) forbids its class
under all conditions that hold. Conditions are facts of the run. In doubt, a condition counts as holding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.experiment.group import GroupSpec
from ackproof.experiment.group_promises import Condition, conditions_of, rule_group
from ackproof.experiment.promises import Promises, Ruling
from ackproof.faults.groups.kinds import ResetOffsets
from ackproof.judge.checks.committed import (
    deleted_topics,
    find_forgotten,
    first_election_ns,
    why_elections_unknown,
    why_expired,
    why_logs_touched,
    why_losable_by_settings,
    why_stale,
)
from ackproof.judge.checks.service import why_unread
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, breaks, stays_open
from ackproof.rundir import storage
from ackproof.rundir.anomalies import TABLE, Anomaly, count_text
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.arrow import group_rows, rows_of
from ackproof.rundir.committed import OFFSETS_TOPIC
from ackproof.rundir.documents import ClassJudgement, GroupCounts
from ackproof.rundir.groups import (
    COMMITS,
    MEMBERSHIP,
    OFFSETS_LOG,
    CommitResult,
    GroupEnd,
    LogDecision,
    MembershipEvent,
    OffsetsRecord,
)
from ackproof.rundir.ledger import parts
from ackproof.rundir.model import PredictedGroupClass
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import GROUP_FINDINGS

_SAMPLES: Final = 3
_EVERY: Final = pc.scalar(True)
_FORGERS: Final = frozenset({"answer_request"})
"""Kinds of faults that answer requests in the place of a broker: an accepted commit may never have reached one."""


@dataclass(frozen=True)
class GroupFacts:
    """Facts of one consumer group of a run, from which `judge_class` rules on its anomaly classes. `end`: its state at
    the end (`groups.json`). `counts`: counts of the audit; None if the audit did not count this group."""

    facts: Facts
    name: str
    spec: GroupSpec
    end: GroupEnd
    counts: GroupCounts | None

    @cached_property
    def conditions(self) -> Mapping[Condition, str]:
        """Conditions of the table of promises (`experiment.group_promises`) that hold for all anomaly classes of the
        group, each with its cause in words. A condition is a fact of the run on which a promise of Kafka to the group
        depends, such as a killed member. Raises `BadInput` for a broken metadata log."""
        case = self.facts.case
        members = self.facts.groups.members if self.facts.groups is not None else ()
        killed = [one.client for one in members if one.group == self.name and one.killed]
        offsets, unsure = self._durability()
        causes = {
            Condition.KILLED: f"{', '.join(killed)} was killed" if killed else "",
            Condition.OPERATOR: self._operator(),
            Condition.INPUT: self._input(),
            Condition.OUTSIDE: next((one.UNPREDICTABLE for one in case.faults if one.UNPREDICTABLE), ""),
            Condition.OFFSETS: offsets,
            Condition.UNSURE: unsure,
        }
        return conditions_of(self.spec) | {condition: why for condition, why in causes.items() if why}

    def conditions_for(self, anomaly: str) -> Mapping[Condition, str]:
        """Return the conditions that hold for an anomaly class with findings: `conditions`, and those that depend on
        the class, its findings or the group's ledgers. Raises OSError or ArrowException if one cannot be read,
        `BadInput` as `conditions` does."""
        more: dict[Condition, str] = {}
        if outsiders := self._outsiders:
            member, number = min(outsiders)
            more[Condition.OUTSIDER] = f"commit {number} of member g{member}"
        resets = self.events(MembershipEvent.RESET).to_pylist()
        back = [row for row in resets if row["offset"] < row["from_offset"]]
        if back and anomaly in (Anomaly.REDELIVERED, Anomaly.DOUBLED_OUTPUT):
            more[Condition.RESET] = _describe_reset(back[0])
        if anomaly == Anomaly.SKIPPED_BY_RESET and Condition.INPUT not in self.conditions:
            forward = [row for row in resets if row["offset"] > row["from_offset"] and self._is_in_log(row)]
            if forward:
                more[Condition.IN_LOG] = _describe_reset(forward[0])
        if anomaly == Anomaly.REGRESSED_COMMIT:
            more |= self._explained_regressions()
        return {**self.conditions, **more}

    def find_samples(self, anomaly: str) -> pa.Table:
        """Return the findings of an anomaly class in this group (schema `GROUP_FINDINGS`). Raises OSError or
        ArrowException for a broken file."""
        return self._read(self.facts.run.finding_parts, GROUP_FINDINGS, pc.field("class") == anomaly)

    def events(self, event: MembershipEvent) -> pa.Table:
        """Return the membership events of one kind in this group (schema `MEMBERSHIP`). Raises OSError or
        ArrowException for a broken ledger."""
        return self._read(parts(self.facts.run.membership), MEMBERSHIP, pc.field("event") == event.value)

    @cached_property
    def commits(self) -> pa.Table:
        """Commits of the group's members (schema `COMMITS`). Raises OSError or ArrowException for a broken ledger."""
        return self._read(parts(self.facts.run.commits_ledger), COMMITS)

    def read_log(self, wanted: pc.Expression = _EVERY) -> pa.Table:
        """Return the commits and removals of offsets that are in force in the logs of `__consumer_offsets` (schema
        `OFFSETS_LOG`), sorted by node and log offset. `wanted`: filter for them. Empty if the run has no such file.
        Raises OSError or ArrowException if it cannot be read."""
        path = self.facts.run.offsets_log
        kinds = [OffsetsRecord.COMMIT.value, OffsetsRecord.REMOVED.value]
        wanted &= pc.field("record").isin(kinds) & (pc.field("decision") == int(LogDecision.IN_FORCE))
        rows = self._read([path] if path.exists() else [], OFFSETS_LOG, wanted)
        return rows.sort_by([("node", "ascending"), ("log_offset", "ascending")])

    def _read(self, paths: Sequence[Path], schema: pa.Schema, wanted: pc.Expression = _EVERY) -> pa.Table:
        return storage.read_rows(paths, schema.names, wanted & (pc.field("group") == self.name), schema)

    @cached_property
    def _outsiders(self) -> set[tuple[int, int]]:
        """(member, number) of commits that may have been accepted without a generation. A library whose member was
        removed from the group forgets member id and generation before it informs the application, and sends commits
        without them (librdkafka: rd_kafka_cgrp_set_member_id)."""
        result = pc.field("result")
        sent = (pc.field("generation") < 0) & (result != int(CommitResult.REFUSED))
        answered = (pc.field("generation_after") < 0) & (result == int(CommitResult.ACCEPTED))
        return _committers(self.commits.filter(sent | answered))

    def _operator(self) -> str:
        for fault in self.facts.case.faults:
            if isinstance(fault, ResetOffsets) and fault.group == self.name:
                return f"fault {fault.number} ({fault.kind})"
        gone = deleted_topics(self.facts) & set(self.facts.case.experiment.input_of(self.name))
        return f"{', '.join(sorted(gone))} was deleted, and its offsets with it" if gone else ""

    def _input(self) -> str:
        for topic in self.facts.case.experiment.input_of(self.name):
            if why := why_unread(self.facts, topic):
                return f"{topic}: {why}"
            # Members read below the high watermark: records that they got are gone only where `vanished` is possible.
            found = self.facts.prediction.find_class(Anomaly.VANISHED, topic)
            durable = Promises.from_experiment(self.facts.case.planned, topic).durable
            if found is not None and (
                found.chance is Chance.POSSIBLE or (found.chance is Chance.UNKNOWN and not durable)
            ):
                return f"{topic}: records that a reader was handed may vanish: {found.why}"
        return ""

    def _durability(self) -> tuple[str, str]:
        """Return two texts, at most one of which is not ''. The first says why the offsets topic may lose commits. The
        second says why it is not known whether the offsets topic may lose commits."""
        case, partition = self.facts.case, self.end.committed.partition
        run_ns = max((event.t_ns for event in self.facts.events), default=0)
        if why := why_losable_by_settings(self.facts, partition) or why_expired(case, run_ns):
            return why, ""
        if forger := next((fault for fault in case.faults if fault.kind in _FORGERS), None):
            return "", f"fault {forger.number} ({forger.kind}) answers requests"
        touched = why_logs_touched(case, run_ns)
        lives = self.facts.metadata_log.states.get(TopicPartition(OFFSETS_TOPIC, partition))
        if touched and lives and len(lives[-1][-1].replicas) == 1:
            return f"{touched}, and {OFFSETS_TOPIC}/{partition} has one replica", ""
        return "", touched or why_elections_unknown(self.facts, partition)

    def _is_in_log(self, row: Mapping[str, Any]) -> bool:
        reads = self.facts.final_read.partitions if self.facts.final_read is not None else ()
        return any(
            (read.topic, read.partition) == (row["topic"], row["partition"])
            and max(read.start, 0) <= row["from_offset"] < read.end
            for read in reads
        )

    def _explained_regressions(self) -> dict[Condition, str]:
        """Return the condition that explains why committed offsets went back, with its cause in words; {} if a
        partition with such a finding stays unexplained.

        A client library repeats a commit whose answer it did not get, and OffsetCommit has no sequence number. So the
        first copy, or a commit without an answer, may be applied after later commits (`REPEATED`). This was observed
        with a coordinator that was paused for 3 s. A deposed coordinator may answer OffsetFetch with offsets from
        before later commits (`STALE`).
        """
        found = self.find_samples(Anomaly.REGRESSED_COMMIT).group_by(["topic", "partition"]).aggregate([])
        places = {TopicPartition(row["topic"], row["partition"]) for row in found.to_pylist()}
        late, lowered = self._find_lowered()
        partition = TopicPartition(OFFSETS_TOPIC, self.end.committed.partition)
        moved = ""
        if partition in self.facts.metadata_log.states and self.facts.run.offsets_log.exists():
            moved = why_stale(self.facts, partition.partition)
        if moved:
            lowered |= self._find_forgotten(partition.partition)
        if not all(place in late or (moved and place not in lowered) for place in places):
            return {}
        if explained := sorted(places & late.keys()):
            place = explained[0]
            return {Condition.REPEATED: f"{place}: offset {late[place]} was applied late"}
        return {Condition.STALE: moved} if places else {}

    def _find_forgotten(self, partition: int) -> Set[TopicPartition]:
        """Return the partitions whose committed offset came back lower than the last one accepted before another
        coordinator was elected. A member, or the harness at the end, got the lower offset. Every coordinator has the
        commits from before that election, so that not even a deposed one explains the lower offset (`find_forgotten`).

        The set is empty if members read at read_uncommitted. `partition`: the group's partition of
        `__consumer_offsets`.
        """
        if self.spec.isolation == "read_uncommitted":
            return set()  # a transaction may be complete before its offsets are in force
        membership = self._read(parts(self.facts.run.membership), MEMBERSHIP)
        until = first_election_ns(self.facts, partition)
        return find_forgotten(self.commits, membership, self.end.committed, until)

    def _find_lowered(self) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
        """Return (late, lowered): partitions in which a log of `__consumer_offsets` has a lower offset right after a
        higher one. `lowered` has all of them. `late` has those where the lower offset is of a commit that may be
        applied at any time, and this offset. Such a commit was written twice, has no answer, or had no generation."""
        late: dict[TopicPartition, int] = {}
        lowered: set[TopicPartition] = set()
        unfenced = self._outsiders | _committers(
            self.commits.filter(pc.field("result") == int(CommitResult.UNKNOWN))
        )
        key = ["node", "topic", "partition"]
        for (_, topic, partition), rows in group_rows(self.read_log(), key).items():
            place, last, seen = TopicPartition(str(topic), int(str(partition))), -1, set()
            for offset, member, number in rows_of(rows, "offset", "member", "number"):
                if 0 <= offset < last:
                    lowered.add(place)
                    if member >= 0 and ((member, number) in seen or (member, number) in unfenced):
                        late[place] = offset
                last = offset
                seen.add((member, number))
        return late, lowered


def read_groups(facts: Facts) -> list[GroupFacts]:
    """Return the groups of a case that `observed/groups.json` describes; [] without that file. Raises `BadInput` for a
    broken file."""
    if facts.groups is None:
        return []
    ends = {end.group: end for end in facts.groups.groups}
    counts = {one.group: one for one in facts.audit.groups}
    specs = facts.case.experiment.workload.groups
    return [
        GroupFacts(facts, name, spec, ends[name], counts.get(name))
        for name, spec in specs.items()
        if name in ends
    ]


def refine(usual: Ruling, found: PredictedGroupClass | None) -> Ruling:
    """Return the ruling `usual` of the table of promises (`experiment.group_promises`), refined by a prediction about
    the group and class. If the prediction finds the class possible, with steps that lead there, the class is allowed.
    If it finds the class impossible, a forbidden class stays forbidden, with that as a further reason. In all other
    cases, and without a prediction (None), the ruling does not change."""
    if found is None:
        return usual
    if found.chance is Chance.POSSIBLE and found.steps:
        cause = usual.why if usual.chance is Chance.POSSIBLE else found.why
        return Ruling(Chance.POSSIBLE, f"{cause} (model: {len(found.steps)} steps)", Chance.POSSIBLE)
    if found.chance is Chance.IMPOSSIBLE and usual.chance is Chance.IMPOSSIBLE:
        return Ruling(usual.chance, f"{usual.why}; predicted impossible: {found.why}", found.chance)
    return usual


GroupJudgement: TypeAlias = tuple[str, ClassJudgement]
"""(text, ruling): a group with the number and the first of its findings of one class; and the ruling on them."""


def judge_class(facts: Facts, anomaly: str) -> list[GroupJudgement]:
    """Return the ruling on an anomaly class for each group for which the audit counted that class, even as 0. Raises
    `BadInput`, OSError or ArrowException for files that cannot be read."""
    found = []
    for group in read_groups(facts):
        count = group.counts.counts.get(anomaly) if group.counts is not None else None
        if count is None:
            continue
        conditions = group.conditions_for(anomaly) if count else group.conditions
        usual = rule_group(anomaly, group.spec, conditions)
        predicted = next(
            (one for one in facts.prediction.groups if (one.group, one.anomaly) == (group.name, anomaly)),
            None,
        )
        ruling, name = refine(usual, predicted), f"group {group.name}"
        if count:
            samples = _describe_samples(group.find_samples(anomaly))
            name += f": {count_text(count, anomaly)}" + (f" ({samples})" if samples else "")
        judgement = ClassJudgement(
            anomaly=anomaly,
            count=count,
            forbidden=ruling.forbidden,
            why=ruling.why,
            predicted=ruling.predicted or "",
            group=group.name,
        )
        found.append((name, judgement))
    return found


def combine(anomaly: str, count: int, judged: Sequence[GroupJudgement]) -> ClassJudgement:
    """Return the judgement of an anomaly class over all groups: the strictest ruling of the groups with findings, or of
    all groups if none has any; undecided if `judged` is empty. `count`: number of findings in the audit. Findings that
    belong to no group leave the class undecided, unless it is forbidden."""
    mine = [(name, one) for name, one in judged if one.count] or list(judged)
    if not mine:
        why = "the audit counted it for no group"
        chance = Chance.UNKNOWN if count else ""
        return ClassJudgement(anomaly=anomaly, count=count, forbidden=None, why=why, predicted=chance)
    worst = max((one for _, one in mine), key=lambda one: (False, None, True).index(one.forbidden))
    forbidden, predicted = worst.forbidden, worst.predicted
    if count > sum(one.count for _, one in judged) and forbidden is not True:
        forbidden, predicted = None, Chance.UNKNOWN
    why = "; ".join(f"{name}: {one.why}" for name, one in mine)
    return ClassJudgement(anomaly=anomaly, count=count, forbidden=forbidden, why=why, predicted=predicted)


def opinions_on_groups(judged: Iterable[GroupJudgement]) -> Iterator[Opinion]:
    """Yield an opinion for each group and class with findings: `breaks` (a promise is broken) if it is forbidden,
    `open` (undecided) if it is neither forbidden nor allowed."""
    for name, one in judged:
        subject, numbers = one.anomaly, {"count": one.count}
        if one.count and one.forbidden:
            text, proven = f"{name}. Forbidden: {one.why}", TABLE[subject].proves
            yield breaks(text, proven=proven, subject=subject, numbers=numbers)
        elif one.count and one.forbidden is None:
            text = f"{name}. Neither forbidden nor allowed: {one.why}"
            yield stays_open(text, subject=subject, numbers=numbers)


def _committers(rows: pa.Table) -> set[tuple[int, int]]:
    return set(rows_of(rows, "member", "number"))


def _describe_samples(found: pa.Table) -> str:
    """Return the first three findings as text, such as `orders/0 at 13, orders/1 at 110: detail, …`. A final `…` stands
    for more."""
    names = []
    for row in found.slice(0, _SAMPLES).to_pylist():
        detail = f": {row['detail']}" if row["detail"] else ""
        names.append(f"{row['topic']}/{row['partition']} at {row['offset']}{detail}")
    return ", ".join([*names, *(["…"] if len(found) > _SAMPLES else [])])


def _describe_reset(row: Mapping[str, object]) -> str:
    where = f"{row['topic']}/{row['partition']}"
    return f"g{row['member']} went from {row['from_offset']} to {row['offset']} of {where} ({row['why']})"
