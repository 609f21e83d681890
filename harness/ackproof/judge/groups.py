"""Consumer groups of a run as the judge sees them: what holds for each of them, and the ruling on each of its classes.

A finding counts against Kafka only if the table of promises (`experiment.group_promises`) forbids its class under all
conditions that hold. Conditions are facts of the run. Each is found so that a doubt makes it hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.experiment.group import GroupSpec
from ackproof.experiment.group_promises import Condition, conditions_of, rule_group
from ackproof.experiment.promises import Promises, Ruling
from ackproof.faults.groups.offsets import ResetOffsets
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
from ackproof.rundir.committed import OFFSETS_TOPIC
from ackproof.rundir.documents import ClassJudgement, GroupCounts
from ackproof.rundir.groups import (
    COMMITS,
    MEMBERSHIP,
    CommitResult,
    GroupEnd,
    LogDecision,
    MembershipEvent,
    OffsetsRecord,
)
from ackproof.rundir.ledger import parts
from ackproof.rundir.model import GRAVEST_FIRST, Chance, PredictedGroupClass
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import GROUP_FINDINGS

_SAMPLES: Final = 3
_FORGERS: Final = frozenset({"answer_request"})
"""Kinds of faults that answer requests in the place of a broker: an accepted commit may never have reached one."""
_FORBIDDEN: Final = {Chance.IMPOSSIBLE: True, Chance.POSSIBLE: False, Chance.UNKNOWN: None}


@dataclass(frozen=True)
class GroupFacts:
    """Facts of one group of a run. `counts`: of the audit; None if it counted nothing of the group."""

    facts: Facts
    name: str
    spec: GroupSpec
    end: GroupEnd
    counts: GroupCounts | None

    @property
    def topics(self) -> tuple[str, ...]:
        """Input topics: those whose ends were asked, else those of the file, else all of the case."""
        found = tuple(dict.fromkeys(topic for topic, _, _ in self.end.ends)) or self.spec.topics or ()
        known = self.facts.case.experiment.topics
        return tuple(topic for topic in found if topic in known) or tuple(known)

    @cached_property
    def run_ns(self) -> int:
        return max((event.t_ns for event in self.facts.events), default=0)

    @cached_property
    def conditions(self) -> Mapping[Condition, str]:
        """Conditions that hold for all classes, each with its cause in words; '' if that needs no words.

        Raises OSError or ArrowException if a ledger cannot be read.
        """
        case = self.facts.case
        release = self.spec.client.release_for(case.experiment.cluster.kafka)
        found = conditions_of(self.spec, release)
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
        return found | {condition: why for condition, why in causes.items() if why}

    def conditions_for(self, anomaly: str) -> Mapping[Condition, str]:
        """Return the conditions that hold for a class with findings: those of `conditions`, and those that the
        findings and ledgers of the class decide."""
        more: dict[Condition, str] = {}
        if outsiders := self._outsiders:
            member, number = min(outsiders)
            more[Condition.OUTSIDER] = f"commit {number} of member g{member}"
        resets = self.resets
        if anomaly in (Anomaly.REDELIVERED, Anomaly.DOUBLED_OUTPUT):
            back = resets.filter(pc.field("offset") < pc.field("from_offset"))
            if len(back):
                more[Condition.RESET] = _describe_reset(back)
        if anomaly == Anomaly.SKIPPED_BY_RESET and Condition.INPUT not in self.conditions:
            forward = resets.filter(pc.field("offset") > pc.field("from_offset"))
            within = [row for row in forward.to_pylist() if self._is_in_log(row)]
            if within:
                more[Condition.IN_LOG] = _describe_reset(pa.Table.from_pylist(within, schema=MEMBERSHIP))
        if anomaly == Anomaly.REGRESSED_COMMIT:
            more |= self._explained_regressions()
        return {**self.conditions, **more}

    def find_samples(self, anomaly: str) -> pa.Table:
        """Return the findings of a class in this group, as `GROUP_FINDINGS`. Raises OSError, ArrowException."""
        wanted = (pc.field("class") == anomaly) & (pc.field("group") == self.name)
        paths = self.facts.run.finding_parts
        return storage.read_rows(paths, GROUP_FINDINGS.names, wanted, GROUP_FINDINGS)

    @cached_property
    def resets(self) -> pa.Table:
        """Resets of members' positions, as `MEMBERSHIP`."""
        wanted = (pc.field("event") == MembershipEvent.RESET.value) & (pc.field("group") == self.name)
        return storage.read_rows(parts(self.facts.run.membership), MEMBERSHIP.names, wanted, MEMBERSHIP)

    @cached_property
    def commits(self) -> pa.Table:
        """Commits of members, as `COMMITS`. Raises OSError or ArrowException."""
        wanted = pc.field("group") == self.name
        return storage.read_rows(parts(self.facts.run.commits_ledger), COMMITS.names, wanted, COMMITS)

    @cached_property
    def _outsiders(self) -> set[tuple[int, int]]:
        """(member, number) of commits that may have been accepted without a generation.

        A library that was thrown out forgets member and generation before it tells the application, and sends neither
        (librdkafka: rd_kafka_cgrp_set_member_id).
        """
        result, before, after = (pc.field(name) for name in ("result", "generation", "generation_after"))
        accepted = result == int(CommitResult.ACCEPTED)
        sent = (before < 0) & (result != int(CommitResult.REFUSED))
        return _committers(self.commits.filter(sent | (accepted & (after < 0))))

    def _operator(self) -> str:
        for fault in self.facts.case.faults:
            if isinstance(fault, ResetOffsets) and fault.group == self.name:
                return f"fault {fault.number} ({fault.kind})"
        gone = deleted_topics(self.facts) & set(self.topics)
        return f"{', '.join(sorted(gone))} was deleted, and its offsets with it" if gone else ""

    def _input(self) -> str:
        for topic in self.topics:
            if why := why_unread(self.facts, topic):
                return f"{topic}: {why}"
            # Members read below the high watermark: what they were handed is gone only where `vanished` is possible.
            found = self.facts.prediction.find_class(Anomaly.VANISHED, topic)
            durable = Promises.from_experiment(self.facts.case.planned, topic).durable
            if found is not None and (
                found.chance is Chance.POSSIBLE or (found.chance is Chance.UNKNOWN and not durable)
            ):
                return f"{topic}: records that a reader was handed may vanish: {found.why}"
        return ""

    def _durability(self) -> tuple[str, str]:
        """Return why the offsets topic may lose commits, and why it is not known whether it may."""
        case, partition = self.facts.case, self.end.committed.partition
        if why := why_losable_by_settings(self.facts, partition) or why_expired(case, self.run_ns):
            return why, ""
        if forger := next((fault for fault in case.faults if fault.kind in _FORGERS), None):
            return "", f"fault {forger.number} ({forger.kind}) answers requests"
        touched = why_logs_touched(case, self.run_ns)
        lives = self.facts.metadata_log.states.get(TopicPartition(OFFSETS_TOPIC, partition))
        if touched and lives and len(lives[-1][-1].replicas) == 1:
            return f"{touched}, and {OFFSETS_TOPIC}/{partition} has one replica", ""
        return "", touched or why_elections_unknown(self.facts, partition)

    def _is_in_log(self, row: Mapping[str, object]) -> bool:
        reads = self.facts.final_read.partitions if self.facts.final_read is not None else ()
        old, place = row["from_offset"], (row["topic"], row["partition"])
        assert isinstance(old, int)
        return old >= 0 and any(
            (read.topic, read.partition) == place and read.start <= old < read.end for read in reads
        )

    def _explained_regressions(self) -> dict[Condition, str]:
        """Return conditions that explain offsets which went back on every partition with a finding.

        A client library repeats a commit whose answer it did not get, and OffsetCommit has no sequence number: the
        first copy, or a commit without an answer, may be applied after later ones (shown: coordinator paused 3 s).
        """
        found = self.find_samples(Anomaly.REGRESSED_COMMIT)
        places = {
            TopicPartition(topic, partition)
            for topic, partition in zip(
                found["topic"].to_pylist(), found["partition"].to_pylist(), strict=True
            )
        }
        loose, lowered = self._lowered(places)
        moved = why_stale(self.facts, self.end.committed.partition) if self._has_log else ""
        if moved:
            lowered |= self._forgotten()
        if places and all(place in loose or (moved and place not in lowered) for place in places):
            if loose:
                place = min(loose)
                return {Condition.REPEATED: f"{place}: offset {loose[place]} was applied late"}
            return {Condition.STALE: moved}
        return {}

    def _forgotten(self) -> Set[TopicPartition]:
        """Return the partitions for which a member was told less than a deposed coordinator may tell it."""
        if (
            self.spec.isolation == "read_uncommitted"
        ):  # a transaction may be complete before its offsets are in force
            return set()
        wanted = pc.field("group") == self.name
        membership = storage.read_rows(parts(self.facts.run.membership), MEMBERSHIP.names, wanted, MEMBERSHIP)
        end = self.end.committed
        return find_forgotten(self.commits, membership, end, first_election_ns(self.facts, end.partition))

    @property
    def _has_log(self) -> bool:
        place = TopicPartition(OFFSETS_TOPIC, self.end.committed.partition)
        return place in self.facts.metadata_log.states and self.facts.run.offsets_log.exists()

    def _lowered(self, places: set[TopicPartition]) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
        """Return the partitions where a commit that nothing fences lowered the offset in the log, with that offset,
        and those where anything did."""
        loose: dict[TopicPartition, int] = {}
        lowered: set[TopicPartition] = set()
        if not self.facts.run.offsets_log.exists():
            return loose, lowered
        unknown = self.commits.filter(pc.field("result") == int(CommitResult.UNKNOWN))
        unfenced = _committers(unknown) | self._outsiders
        columns = ["node", "log_offset", "record", "topic", "partition", "offset", "member", "number"]
        wanted = (pc.field("group") == self.name) & (pc.field("decision") == int(LogDecision.IN_FORCE))
        rows = storage.read_rows([self.facts.run.offsets_log], columns, wanted)
        last: dict[tuple[int, TopicPartition], int] = {}
        seen: set[tuple[int, TopicPartition, int, int]] = set()
        for row in rows.sort_by([("node", "ascending"), ("log_offset", "ascending")]).to_pylist():
            place, node = TopicPartition(row["topic"], row["partition"]), row["node"]
            if place not in places:
                continue
            if row["record"] != OffsetsRecord.COMMIT:
                last.pop((node, place), None)
                continue
            who = (node, place, row["member"], row["number"])
            if row["offset"] < last.get((node, place), -1):
                lowered.add(place)
                if row["member"] >= 0 and (who in seen or who[2:] in unfenced):
                    loose[place] = row["offset"]
            last[node, place] = row["offset"]
            seen.add(who)
        return loose, lowered


def read_groups(facts: Facts) -> list[GroupFacts]:
    """Return the groups of a case that have an end in `observed/groups.json`. Raises `BadInput`."""
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
    """Return the ruling of the table, refined by a prediction about the group and class.

    What the prediction finds possible, with steps that lead there, is allowed. What it finds impossible stays forbidden
    where the table forbids it, and undecided where the table is. An unknown prediction changes nothing.
    """
    if found is None:
        return usual
    if found.chance is Chance.POSSIBLE and found.steps:
        cause = usual.why if usual.chance is Chance.POSSIBLE else found.why
        return Ruling(Chance.POSSIBLE, f"{cause} (model: {len(found.steps)} steps)", Chance.POSSIBLE)
    if found.chance is Chance.IMPOSSIBLE and usual.chance is Chance.IMPOSSIBLE:
        return Ruling(usual.chance, f"{usual.why}; predicted impossible: {found.why}", found.chance)
    return usual


@dataclass(frozen=True)
class GroupJudgement:
    """The ruling on one class for one group, with its findings. `samples`: the first of them, in words."""

    group: str
    anomaly: str
    count: int
    ruling: Ruling
    samples: str = ""

    @property
    def judgement(self) -> ClassJudgement:
        """The ruling as `verdict.json` has it."""
        return ClassJudgement(
            anomaly=self.anomaly,
            count=self.count,
            forbidden=_FORBIDDEN[self.ruling.chance],
            why=self.ruling.why,
            predicted=self.ruling.predicted or "",
            group=self.group,
        )

    @property
    def text(self) -> str:
        at = f" ({self.samples})" if self.samples else ""
        return f"group {self.group}: {count_text(self.count, self.anomaly)}{at}"


def judge_class(facts: Facts, anomaly: str) -> list[GroupJudgement]:
    """Return the judgement on a class for each group that the audit counted it for. Raises `BadInput`, OSError or
    ArrowException for files that cannot be read."""
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
        samples = _describe_samples(group.find_samples(anomaly)) if count else ""
        found.append(GroupJudgement(group.name, anomaly, count, refine(usual, predicted), samples))
    return found


def combine(anomaly: str, count: int, judged: Sequence[GroupJudgement]) -> ClassJudgement:
    """Judge a class over all groups: forbidden if any group with findings forbids it. `count`: of the audit.

    Findings that no group accounts for leave the class undecided.
    """
    mine = [one for one in judged if one.count] or list(judged)
    if not mine:
        why = "the audit counted it for no group"
        chance = Chance.UNKNOWN if count else ""
        return ClassJudgement(anomaly=anomaly, count=count, forbidden=None, why=why, predicted=chance)
    worst = max(mine, key=lambda one: GRAVEST_FIRST.index(one.ruling.chance)).ruling
    forbidden = _FORBIDDEN[worst.chance]
    predicted = worst.predicted or ""
    if count > sum(one.count for one in judged) and forbidden is not True:
        forbidden, predicted = None, Chance.UNKNOWN
    words = [
        f"{one.text}: {one.ruling.why}" if one.count else f"group {one.group}: {one.ruling.why}"
        for one in mine
    ]
    return ClassJudgement(
        anomaly=anomaly, count=count, forbidden=forbidden, why="; ".join(words), predicted=predicted
    )


def opinions_on_groups(judged: Iterable[GroupJudgement]) -> Iterator[Opinion]:
    """Yield an opinion of kind `breaks` for each group and class with findings that is forbidden, and of kind `open`
    for each that is neither forbidden nor allowed."""
    for one in judged:
        numbers = {"count": one.count}
        if one.count and one.ruling.chance is Chance.IMPOSSIBLE:
            text, proven = f"{one.text}. Forbidden: {one.ruling.why}", TABLE[one.anomaly].proves
            yield breaks(text, proven=proven, subject=one.anomaly, numbers=numbers)
        elif one.count and one.ruling.chance is Chance.UNKNOWN:
            text = f"{one.text}. Neither forbidden nor allowed: {one.ruling.why}"
            yield stays_open(text, subject=one.anomaly, numbers=numbers)


def _committers(rows: pa.Table) -> set[tuple[int, int]]:
    """Return (member, number) of commits, as `COMMITS`."""
    return set(zip(rows["member"].to_pylist(), rows["number"].to_pylist(), strict=True))


def _describe_samples(found: pa.Table) -> str:
    """Return the first findings as text: `orders/0 at 13, orders/1 at 110: detail, …`."""
    names = []
    for row in found.slice(0, _SAMPLES).to_pylist():
        detail = f": {row['detail']}" if row["detail"] else ""
        names.append(f"{row['topic']}/{row['partition']} at {row['offset']}{detail}")
    return ", ".join([*names, *(["…"] if len(found) > _SAMPLES else [])])


def _describe_reset(rows: pa.Table) -> str:
    row = rows.slice(0, 1).to_pylist()[0]
    return (
        f"g{row['member']} went from {row['from_offset']} to {row['offset']} of {row['topic']}/{row['partition']}"
        f" ({row['why']})"
    )
