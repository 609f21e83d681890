"""Consumer groups: each promise attacked by a planted run, what healthy groups show, and evidence that is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.planted_groups import PlantedGroups
from tests.support.written_group import LOG_PARTITION, START, TOPIC

from ackproof.experiment.backends import Ability
from ackproof.experiment.group_promises import (
    HEALTHY,
    PROMISES,
    Condition,
    find_promise,
    markdown,
)
from ackproof.judge.checks.groups import check_group_offsets, check_groups
from ackproof.judge.coherence.groups import check_groups as check_coherence
from ackproof.judge.facts import Facts
from ackproof.judge.groups import combine, judge_class, opinions_on_groups
from ackproof.judge.liveness import judge_liveness
from ackproof.judge.opinion import Says
from ackproof.plan.cases import cases, load
from ackproof.quantities.metadata_log import MetadataLog
from ackproof.rundir.anomalies import GROUP_CLASSES, Anomaly
from ackproof.rundir.documents import AuditFile, FinalReadFile, GroupCounts, PartitionRead, RecordCounts
from ackproof.rundir.groups import CommitResult, GroupsFile, MembershipEvent
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import LogEnded, PartitionChanged
from ackproof.rundir.model import Chance, ConformanceFile, PredictedClass, PredictedGroupClass, PredictionFile
from ackproof.rundir.observed import RecoveryFile, Unrecovered
from ackproof.rundir.parts import mark_end
from ackproof.rundir.schema import GROUP_FINDINGS

DOCS = Path(__file__).parents[3] / "docs" / "group-promises.md"


def _leaders(*leaders: tuple[int, tuple[int, ...]], replicas: tuple[int, ...] = (1, 2, 3)) -> MetadataLog:
    """Return the metadata log of the group's offsets partition: a leader and its ISR for each epoch."""
    records: list[Any] = [
        PartitionChanged(
            offset=at, epoch=1, timestamp_ms=at, topic="__consumer_offsets", partition=LOG_PARTITION,
            leader=leader, leader_epoch=at, partition_epoch=at, replicas=replicas, isr=isr,
        )
        for at, (leader, isr) in enumerate(leaders)
    ]  # fmt: skip
    ended = LogEnded(offset=len(records), epoch=1, timestamp_ms=0, records=len(records))
    return MetadataLog.from_records([*records, ended], simulated=False, kraft=True)


QUIET = ((1, (1, 2, 3)),)
MOVED = (*QUIET, (2, (2, 3)))
UNCLEAN = ((1, (1,)), (2, (2,)))


def _fault(kind: str = "kill", *asks: Ability, unpredictable: str = "") -> Any:
    return SimpleNamespace(
        kind=kind, number=1, ASKS=frozenset(asks), UNPREDICTABLE=unpredictable, clock_shift=0.0,
        drops=lambda _: False,
    )  # fmt: skip


@dataclass
class Run:
    """A planted run, and what the audit found in it."""

    path: Path
    planted: PlantedGroups
    found: dict[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Findings by class: (partition, offset)."""
    log: MetadataLog = field(default_factory=lambda: _leaders(*QUIET))
    faults: tuple[Any, ...] = ()
    killed: tuple[str, ...] = ()
    config: dict[str, str] = field(default_factory=dict)
    prediction: PredictionFile = field(default_factory=PredictionFile)
    change: Callable[[GroupsFile], GroupsFile] = lambda file: file

    def facts(self) -> Facts:
        run = self.planted.write(self.path)
        for folder in run.deliveries.glob("client=*"):
            mark_end(folder)
        file = GroupsFile.load(run.groups)
        members = tuple(
            one.model_copy(update={"killed": True, "status": -9} if one.client in self.killed else {})
            for one in file.members
        )
        self.change(file.model_copy(update={"members": members})).save(run.groups)
        self._audit(run)
        ConformanceFile().save(run.conformance_json)
        self.prediction.save(run.prediction_json)
        run.timeline.write_text("")
        reads = tuple(
            PartitionRead(
                topic=TOPIC, partition=number, start=0, end=self.planted.records, epoch=0, epoch_after=0,
                position=self.planted.records, complete=True,
            )
            for number in range(self.planted.partitions)
        )  # fmt: skip
        FinalReadFile(complete=True, partitions=reads).save(run.final_read)
        facts = Facts.read(run)
        facts.__dict__["metadata_log"] = self.log
        cluster = facts.case.experiment.cluster
        cluster = cluster.model_copy(update={"config": {**cluster.config, **self.config}})
        spec = facts.case.experiment.model_copy(update={"cluster": cluster})
        case = SimpleNamespace(experiment=spec, planned=facts.case.planned, faults=self.faults)
        object.__setattr__(facts, "case", case)
        return facts

    def _audit(self, run: CaseDir) -> None:
        rows = [
            {
                "class": name, "topic": TOPIC, "partition": partition, "producer": 0, "offset": offset,
                "seq": offset, "detail": "", "group": self.planted.group, "member": 0,
            }
            for name, places in self.found.items()
            for partition, offset in places
        ]  # fmt: skip
        run.findings.mkdir()
        pq.write_table(pa.Table.from_pylist(rows, GROUP_FINDINGS), run.findings / "part-0.parquet")
        counts = {name: len(self.found.get(name, ())) for name in GROUP_CLASSES}
        group = GroupCounts(group=self.planted.group, counts=counts)
        AuditFile(
            counts=counts,
            records=RecordCounts(),
            complete=True,
            groups=(group,),
            findings=("part-0.parquet",),
        ).save(run.audit_json)


def _planted(**changes: Any) -> PlantedGroups:
    return PlantedGroups(records=60, partitions=2, **changes)


def ruled(run: Run, anomaly: str) -> tuple[Chance, str]:
    """Return the ruling on a class, and the sentence of its opinion; '' if it is allowed."""
    (one,) = judge_class(run.facts(), anomaly)
    texts = [opinion.text for opinion in opinions_on_groups([one])]
    return one.ruling.chance, texts[0] if texts else ""


AT: Sequence[tuple[int, int]] = ((0, 13),)
FORBIDDEN, ALLOWED, OPEN = Chance.IMPOSSIBLE, Chance.POSSIBLE, Chance.UNKNOWN
COMMAND = "client: {command: [x]}"
JAVA = "client: java"
EARLY = 'client: {java: "3.9.2"}'


def test_the_page_is_that_of_the_table() -> None:
    assert DOCS.read_text() == markdown()


def test_a_finding_is_told_with_group_count_samples_promise_and_source(tmp_path: Path) -> None:
    found = {Anomaly.UNDELIVERED: [(0, offset) for offset in range(13, 18)]}
    facts = Run(tmp_path, _planted(), found).facts()
    (opinion,) = opinions_on_groups(judge_class(facts, Anomaly.UNDELIVERED))
    assert (opinion.says, opinion.subject, opinion.proven) == (Says.BREAKS, "undelivered", False)
    assert opinion.text == (
        "group billing: 5 records that no member processed (orders/0 at 13, orders/0 at 14, orders/0 at 15, …). "
        "Forbidden: commit: after: commits come after processing: at least once (KafkaConsumer javadoc, "
        '"Manual Offset Control")'
    )


@pytest.mark.parametrize(
    ("anomaly", "changes", "expected"),
    [
        (Anomaly.UNDELIVERED, {"commit": "before"}, ALLOWED),
        (Anomaly.UNDELIVERED, {"commit": "after"}, FORBIDDEN),
        (Anomaly.UNDELIVERED, {"commit": "timed"}, FORBIDDEN),
        (Anomaly.UNDELIVERED, {"commit": "auto"}, FORBIDDEN),
        (Anomaly.UNDELIVERED, {"commit": "auto", "spec": JAVA}, FORBIDDEN),
        (Anomaly.UNDELIVERED, {"commit": "auto", "spec": EARLY}, FORBIDDEN),
        (Anomaly.UNDELIVERED, {"commit": "auto", "spec": EARLY, "protocol": "consumer"}, ALLOWED),
        (Anomaly.UNDELIVERED, {"commit": "auto", "spec": COMMAND}, OPEN),
        (Anomaly.UNDELIVERED, {"commit": "after", "spec": COMMAND}, FORBIDDEN),
        (Anomaly.UNDELIVERED, {"commit": "transaction"}, FORBIDDEN),
        (Anomaly.UNDELIVERED, {"commit": "transaction", "group_metadata": False}, ALLOWED),
        (Anomaly.SKIPPED_BY_RESET, {}, FORBIDDEN),
        (Anomaly.SKIPPED_BY_RESET, {"spec": "start: committed, reset: error"}, FORBIDDEN),
        (Anomaly.SKIPPED_BY_RESET, {"spec": "start: latest"}, ALLOWED),
        (Anomaly.SKIPPED_BY_RESET, {"spec": "reset: latest"}, ALLOWED),
        (Anomaly.REDELIVERED, {"commit": "before"}, FORBIDDEN),
        (Anomaly.REDELIVERED, {"commit": "before", "spec": COMMAND}, OPEN),
        (Anomaly.REDELIVERED, {"commit": "after"}, ALLOWED),
        (Anomaly.REDELIVERED, {"commit": "auto"}, ALLOWED),
        (Anomaly.REDELIVERED, {"commit": "transaction"}, FORBIDDEN),
        (Anomaly.REDELIVERED, {"commit": "transaction", "group_metadata": False}, ALLOWED),
        (Anomaly.TORN_OUTPUT, {"commit": "transaction"}, FORBIDDEN),
        (Anomaly.TORN_OUTPUT, {"commit": "transaction", "group_metadata": False}, ALLOWED),
        (Anomaly.TORN_OUTPUT, {"commit": "after", "output": True}, OPEN),
        (Anomaly.DOUBLED_OUTPUT, {"commit": "transaction"}, FORBIDDEN),
        (Anomaly.DOUBLED_OUTPUT, {"commit": "transaction", "group_metadata": False}, ALLOWED),
        (Anomaly.DOUBLED_OUTPUT, {"commit": "after", "output": True}, ALLOWED),
        (Anomaly.DOUBLED_OUTPUT, {"commit": "before", "output": True}, OPEN),
        (Anomaly.LOST_COMMIT, {}, FORBIDDEN),
        (Anomaly.LOST_COMMIT, {"spec": COMMAND}, OPEN),
        (Anomaly.REGRESSED_COMMIT, {}, FORBIDDEN),
        (Anomaly.REGRESSED_COMMIT, {"spec": COMMAND}, OPEN),
        (Anomaly.REGRESSED_COMMIT, {"commit": "auto", "spec": COMMAND}, OPEN),
        (Anomaly.REGRESSED_COMMIT, {"commit": "transaction", "group_metadata": False}, ALLOWED),
        (Anomaly.ZOMBIE_COMMIT, {}, FORBIDDEN),
        (Anomaly.ZOMBIE_COMMIT, {"spec": COMMAND}, OPEN),
        (Anomaly.ZOMBIE_COMMIT, {"commit": "transaction", "group_metadata": False}, ALLOWED),
        (Anomaly.TWO_OWNERS, {}, FORBIDDEN),
        (Anomaly.TWO_OWNERS, {"spec": COMMAND}, OPEN),
        (Anomaly.TWO_OWNERS, {"commit": "transaction", "group_metadata": False}, ALLOWED),
    ],
)
def test_the_configuration_decides(
    tmp_path: Path, anomaly: str, changes: dict[str, Any], expected: Chance
) -> None:
    chance, text = ruled(Run(tmp_path, _planted(**changes), {anomaly: AT}), anomaly)
    assert chance is expected
    words = {FORBIDDEN: ". Forbidden: ", OPEN: ". Neither forbidden nor allowed: "}
    assert words[expected] in text if expected in words else not text


STRICT: dict[str, dict[str, Any]] = {
    Anomaly.UNDELIVERED: {},
    Anomaly.SKIPPED_BY_RESET: {},
    Anomaly.REDELIVERED: {"commit": "transaction"},
    Anomaly.TORN_OUTPUT: {"commit": "transaction"},
    Anomaly.DOUBLED_OUTPUT: {"commit": "transaction"},
    Anomaly.LOST_COMMIT: {},
    Anomaly.REGRESSED_COMMIT: {},
    Anomaly.ZOMBIE_COMMIT: {},
    Anomaly.TWO_OWNERS: {},
}
"""For each class a configuration that forbids it in a quiet run."""
CAUSES: dict[str, dict[str, Any]] = {
    "command": {"faults": (_fault("command", unpredictable="the effect of a command is unknown"),)},
    "operator": {"faults": (_fault("reset_offsets"),)},
    "required acks": {"config": {"offsets.commit.required.acks": "1"}},
    "unclean": {"log": _leaders(*UNCLEAN)},
    "expiry": {"config": {"offsets.retention.minutes": "0"}},
    "disk": {"faults": (_fault("wipe_disk", Ability.DISKS),)},
    "disk of the only replica": {
        "faults": (_fault("wipe_disk", Ability.DISKS),),
        "log": _leaders((1, (1,)), replicas=(1,)),
    },
    "no metadata log": {"log": MetadataLog.from_records([], simulated=False, kraft=True)},
    "forged answers": {"faults": (_fault("answer_request"),)},
    "vanished": {
        "prediction": PredictionFile(
            classes=(PredictedClass(anomaly="vanished", chance=Chance.POSSIBLE, why="unclean election"),)
        )
    },
    "killed": {"killed": ("g0",)},
    "moved": {"log": _leaders(*MOVED)},
}
_OFFSETS = {
    "required acks": ALLOWED,
    "unclean": ALLOWED,
    "expiry": ALLOWED,
    "disk of the only replica": ALLOWED,
}
_UNSURE = {"disk": OPEN, "no metadata log": OPEN, "forged answers": OPEN}
_ALL = {"command": OPEN, "operator": ALLOWED}
EXPECTED: dict[str, dict[str, Chance]] = {
    Anomaly.UNDELIVERED: {**_ALL, "vanished": OPEN},
    Anomaly.SKIPPED_BY_RESET: _ALL,
    **{
        name: {**_ALL, **_OFFSETS, **_UNSURE, "vanished": OPEN}
        for name in (Anomaly.REDELIVERED, Anomaly.TORN_OUTPUT, Anomaly.DOUBLED_OUTPUT)
    },
    Anomaly.LOST_COMMIT: {"command": OPEN, **_OFFSETS, **_UNSURE},
    Anomaly.REGRESSED_COMMIT: {**_ALL, **_OFFSETS, **_UNSURE, "moved": OPEN},
    Anomaly.ZOMBIE_COMMIT: {},
    Anomaly.TWO_OWNERS: {},
}
"""What each cause makes of a class that is forbidden else."""


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("anomaly", STRICT)
def test_facts_of_the_run_decide(tmp_path: Path, anomaly: str, cause: str) -> None:
    run = Run(tmp_path, _planted(**STRICT[anomaly]), {anomaly: AT}, **CAUSES[cause])
    assert ruled(run, anomaly)[0] is EXPECTED[anomaly].get(cause, FORBIDDEN)


def test_librdkafka_may_commit_ahead_of_a_killed_member(tmp_path: Path) -> None:
    run = Run(tmp_path, _planted(commit="auto"), {Anomaly.UNDELIVERED: AT}, killed=("g1",))
    assert ruled(run, Anomaly.UNDELIVERED)[0] is ALLOWED


def test_a_killed_member_is_no_excuse_at_least_once(tmp_path: Path) -> None:
    run = Run(tmp_path, _planted(commit="auto", spec=JAVA), {Anomaly.UNDELIVERED: AT}, killed=("g1",))
    assert ruled(run, Anomaly.UNDELIVERED)[0] is FORBIDDEN


@pytest.mark.parametrize("anomaly", [Anomaly.REDELIVERED, Anomaly.DOUBLED_OUTPUT])
@pytest.mark.parametrize(("old", "new", "expected"), [(40, 0, OPEN), (-1, 0, FORBIDDEN), (10, 40, FORBIDDEN)])
def test_only_a_reset_backward_explains_what_is_processed_again(
    tmp_path: Path, anomaly: str, old: int, new: int, expected: Chance
) -> None:
    planted = _planted(commit="transaction")
    planted.member_event(
        MembershipEvent.RESET, 0, 0, START, from_offset=old, offset=new, why="OFFSET_OUT_OF_RANGE"
    )
    assert ruled(Run(tmp_path, planted, {anomaly: AT}), anomaly)[0] is expected


def test_a_reset_of_an_offset_that_is_in_the_log_stays_open(tmp_path: Path) -> None:
    planted = _planted(spec="reset: latest")
    planted.plant_reset(0, 10, 30)
    chance, text = ruled(Run(tmp_path, planted, {Anomaly.SKIPPED_BY_RESET: AT}), Anomaly.SKIPPED_BY_RESET)
    assert chance is OPEN
    assert "g0 went from 10 to 30 of orders/0 (OFFSET_OUT_OF_RANGE)" in text


def test_an_offset_that_went_back_in_the_log_is_forbidden_whoever_led(tmp_path: Path) -> None:
    planted = _planted()
    planted.plant_regressed_log(0, 2)
    run = Run(tmp_path, planted, {Anomaly.REGRESSED_COMMIT: [(0, 30)]}, log=_leaders(*MOVED))
    assert ruled(run, Anomaly.REGRESSED_COMMIT)[0] is FORBIDDEN


def _plant_late_copy(planted: PlantedGroups, *, unanswered: bool) -> None:
    """The commit of batch 1 of orders/0 is in the log again behind that of batch 2; or only there, and unanswered."""
    row = planted.commits.row(1)
    (early,) = planted.log.find(member=row["member"], number=row["number"])
    (late,) = planted.log.find(
        member=planted.commits.row(2)["member"], number=planted.commits.row(2)["number"]
    )
    copy = {**planted.log.row(early), "log_offset": planted.log.row(late)["log_offset"] + 1}
    planted.log.extra.append(copy)
    if unanswered:
        planted.log.there[early] = False
        planted.commits.there[1] = False
        planted.commits.extra.append({**row, "result": int(CommitResult.UNKNOWN), "done_ns": -1})


@pytest.mark.parametrize("unanswered", [False, True])
def test_a_commit_that_was_applied_late_is_no_fault_of_kafka(tmp_path: Path, unanswered: bool) -> None:
    planted = _planted()
    _plant_late_copy(planted, unanswered=unanswered)
    run = Run(tmp_path, planted, {Anomaly.REGRESSED_COMMIT: [(0, 30)]})
    chance, text = ruled(run, Anomaly.REGRESSED_COMMIT)
    assert chance is OPEN
    assert "orders/0: offset 20 was applied late" in text


def test_a_late_commit_explains_its_own_partition_alone(tmp_path: Path) -> None:
    planted = _planted()
    _plant_late_copy(planted, unanswered=False)
    run = Run(tmp_path, planted, {Anomaly.REGRESSED_COMMIT: [(0, 30), (1, 30)]})
    assert ruled(run, Anomaly.REGRESSED_COMMIT)[0] is FORBIDDEN


@pytest.mark.parametrize(
    ("chance", "steps", "commit", "expected"),
    [
        (Chance.POSSIBLE, ("a", "b"), "transaction", ALLOWED),
        (Chance.POSSIBLE, (), "transaction", FORBIDDEN),
        (Chance.IMPOSSIBLE, (), "transaction", FORBIDDEN),
        (Chance.UNKNOWN, (), "transaction", FORBIDDEN),
        (Chance.IMPOSSIBLE, (), "after", ALLOWED),
    ],
)
def test_a_prediction_refines_the_table(
    tmp_path: Path, chance: Chance, steps: tuple[str, ...], commit: str, expected: Chance
) -> None:
    answer = PredictedGroupClass(
        group="billing", anomaly=Anomaly.REDELIVERED, chance=chance, why="as planted", steps=steps
    )
    other = answer.model_copy(update={"group": "other", "chance": Chance.POSSIBLE, "steps": ("a",)})
    run = Run(
        tmp_path,
        _planted(commit=commit),
        {Anomaly.REDELIVERED: AT},
        prediction=PredictionFile(groups=(other, answer)),
    )
    assert ruled(run, Anomaly.REDELIVERED)[0] is expected


def test_a_class_is_forbidden_if_one_group_forbids_it(tmp_path: Path) -> None:
    facts = Run(tmp_path, _planted(), {Anomaly.UNDELIVERED: AT, Anomaly.REDELIVERED: AT}).facts()
    one = combine(Anomaly.UNDELIVERED, 1, judge_class(facts, Anomaly.UNDELIVERED))
    assert (one.forbidden, one.count) == (True, 1)
    assert one.why.startswith(
        "group billing: 1 record that no member processed (orders/0 at 13): commit: after"
    )
    allowed = combine(Anomaly.REDELIVERED, 1, judge_class(facts, Anomaly.REDELIVERED))
    assert allowed.forbidden is False
    more = combine(Anomaly.REDELIVERED, 2, judge_class(facts, Anomaly.REDELIVERED))
    assert (more.forbidden, more.predicted) == (None, Chance.UNKNOWN)
    unseen = combine(Anomaly.LOST_COMMIT, 0, judge_class(facts, Anomaly.LOST_COMMIT))
    assert unseen.forbidden is True
    assert combine(Anomaly.LOST_COMMIT, 1, []).forbidden is None


# -- evidence -------------------------------------------------------------------------------------------------------


def said(facts: Facts, says: Says) -> list[str]:
    checks = (check_groups, check_group_offsets, check_coherence)
    return [one.text for check in checks for one in check(facts) if one.says is says]


@pytest.mark.parametrize("commit", ["before", "after", "timed", "auto", "transaction"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_healthy_group_with_refused_commits_has_no_finding(
    tmp_path: Path, commit: str, protocol: str
) -> None:
    planted = _planted(commit=commit, protocol=protocol)
    refused = {
        **planted.commits.row(3), "number": 999, "offset": 20, "result": int(CommitResult.REFUSED),
        "error": "REBALANCE_IN_PROGRESS",
    }  # fmt: skip
    planted.commits.extra.append(refused)
    facts = Run(tmp_path, planted).facts()
    assert not said(facts, Says.LACKS) and not said(facts, Says.BREAKS) and not said(facts, Says.CONTRADICTS)
    assert not [one for name in GROUP_CLASSES for one in opinions_on_groups(judge_class(facts, name))]
    assert said(facts, Says.AGREES) == [
        "OffsetFetch and the logs of __consumer_offsets have the same offsets of groups: 2 partitions"
    ]


def _member(**changes: Any) -> Callable[[GroupsFile], GroupsFile]:
    def change(file: GroupsFile) -> GroupsFile:
        return file.model_copy(
            update={"members": (file.members[0].model_copy(update=changes), *file.members[1:])}
        )

    return change


def _end(**changes: Any) -> Callable[[GroupsFile], GroupsFile]:
    def change(file: GroupsFile) -> GroupsFile:
        return file.model_copy(update={"groups": (file.groups[0].model_copy(update=changes),)})

    return change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            _member(asked=False, status=1, last_words="a\nb"),
            "member g0 of group billing ended by itself with status 1: b",
        ),
        (_member(status=3), "member g0 of group billing was asked to stop and ended with status 3"),
        (_end(caught_up=False, waited_s=30), "group billing had not caught up after 30 s: 0 offsets remain"),
        (_end(problem="short"), "group billing: its output could not be read whole: short"),
        (
            lambda file: file.model_copy(update={"groups": ()}),
            "group billing: the run does not say what became of it",
        ),
        (
            lambda file: file.model_copy(update={"breaches": (("g0", "no t"),)}),
            "member g0 breaks the contract of docs/clients.md: no t",
        ),
    ],
)
def test_evidence_that_is_missing(
    tmp_path: Path, change: Callable[[GroupsFile], GroupsFile], text: str
) -> None:
    (lack,) = said(Run(tmp_path, _planted(), change=change).facts(), Says.LACKS)
    assert lack.startswith(text)


def test_without_an_answer_of_the_coordinator_nothing_is_shown(tmp_path: Path) -> None:
    facts = Run(tmp_path, _planted(unanswered="timed out")).facts()
    assert said(facts, Says.LACKS) == ["group billing: no committed offsets could be asked for: timed out"]


def test_without_the_file_of_groups_nothing_is_shown(tmp_path: Path) -> None:
    facts = Run(tmp_path, _planted()).facts()
    facts.run.groups.unlink()
    (lack,) = said(facts, Says.LACKS)
    assert "observed/groups.json" in lack


def test_a_member_that_was_not_killed_closes_its_ledger(tmp_path: Path) -> None:
    facts = Run(tmp_path, _planted(), killed=("g1",)).facts()
    for folder in facts.run.deliveries.glob("client=*"):
        next(folder.glob("_END*")).unlink()
    assert said(facts, Says.LACKS) == [
        "member g0 of group billing was not killed, and its ledger does not say that it closed"
    ]


def test_what_the_audit_could_not_count_is_not_judged(tmp_path: Path) -> None:
    facts = Run(tmp_path, _planted()).facts()
    counts = {name: 0 for name in GROUP_CLASSES if name != Anomaly.LOST_COMMIT}
    group = GroupCounts(group="billing", counts=counts, reasons=("lost-commit: logs were cleaned",))
    object.__setattr__(facts, "audit", facts.audit.model_copy(update={"groups": (group,)}))
    assert said(facts, Says.NOT_JUDGED) == ["group billing: lost-commit: logs were cleaned"]
    assert judge_class(facts, Anomaly.LOST_COMMIT) == []


# -- witnesses against each other ------------------------------------------------------------------------------------


def test_offsetfetch_that_differs_from_the_log_is_a_finding(tmp_path: Path) -> None:
    planted = _planted()
    planted.committed[1] = 50
    (text,) = said(Run(tmp_path, planted).facts(), Says.BREAKS)
    assert text == (
        "group billing, orders/1: OffsetFetch answered 50, and the log of __consumer_offsets/7 on node 3, which is in "
        "the ISR, has 60"
    )


def test_an_offset_that_no_member_asked_for_is_a_finding(tmp_path: Path) -> None:
    planted = _planted()
    planted.committed[1] = 110
    planted.log_record(planted.log_end, "commit", topic=TOPIC, partition=1, offset=110)
    (text,) = said(Run(tmp_path, planted).facts(), Says.BREAKS)
    assert text == "group billing, orders/1: OffsetFetch answered 110 at rest, which no member asked for"


def test_a_position_that_no_member_asked_for_is_a_finding(tmp_path: Path) -> None:
    planted = _planted()
    planted.member_event(MembershipEvent.POSITION, 1, 0, START, offset=7)
    (text,) = said(Run(tmp_path, planted).facts(), Says.BREAKS)
    assert text == (
        "group billing, orders/0: the coordinator told g1 the committed offset 7, which no member asked for"
    )


@pytest.mark.parametrize(
    "changes", [{"faults": (_fault("reset_offsets"),)}, {"faults": (_fault("wipe_disk", Ability.DISKS),)}]
)
def test_an_operator_or_a_disk_explains_strange_offsets(tmp_path: Path, changes: dict[str, Any]) -> None:
    planted = _planted()
    planted.committed[1] = 7
    planted.log_record(planted.log_end, "commit", topic=TOPIC, partition=1, offset=7)
    assert not said(Run(tmp_path, planted, **changes).facts(), Says.BREAKS)


def test_a_tombstone_removes_an_offset(tmp_path: Path) -> None:
    planted = _planted()
    planted.log_record(planted.log_end, "removed", topic=TOPIC, partition=1)
    (text,) = said(Run(tmp_path, planted).facts(), Says.BREAKS)
    assert "orders/1: OffsetFetch answered 60, and the log" in text and text.endswith("has none")


def test_a_commit_without_an_answer_may_be_in_the_log_alone(tmp_path: Path) -> None:
    planted = _planted()
    row = planted.commits.row(planted.batches - 1)
    planted.commits.extra.append({**row, "number": 999, "offset": 55, "result": 2, "done_ns": -1})
    planted.log_record(planted.log_end, "commit", topic=TOPIC, partition=0, offset=55, member=0, number=999)
    assert not said(Run(tmp_path, planted).facts(), Says.BREAKS)


# -- coherence -------------------------------------------------------------------------------------------------------


def _plant_early(planted: PlantedGroups) -> None:
    planted.deliveries.columns["processed_ns"][3] = 1


def _plant_unanswered(planted: PlantedGroups) -> None:
    planted.commits.columns["done_ns"][3] = -1


def _plant_unprocessed(planted: PlantedGroups) -> None:
    planted.deliveries.columns["processed_ns"][3] = -1


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (_plant_early, "were processed before they were delivered"),
        (_plant_unprocessed, "were processed at no time"),
        (_plant_unanswered, "were accepted without an answer"),
    ],
)
def test_a_ledger_that_contradicts_itself(
    tmp_path: Path, plant: Callable[[PlantedGroups], None], words: str
) -> None:
    planted = _planted()
    plant(planted)
    (text,) = said(Run(tmp_path, planted).facts(), Says.CONTRADICTS)
    assert words in text and text.startswith("member g0: 1 rows of")


def test_ledgers_of_members_that_are_not_listed(tmp_path: Path) -> None:
    def change(file: GroupsFile) -> GroupsFile:
        return file.model_copy(update={"members": file.members[1:]})

    texts = said(Run(tmp_path, _planted(), change=change).facts(), Says.CONTRADICTS)
    assert len(texts) == 3 and all("a member that groups.json does not list" in text for text in texts)


def test_more_deliveries_than_the_final_read_has(tmp_path: Path) -> None:
    planted = _planted()
    row = planted.deliveries.row(0)
    planted.deliveries.extra.append({**row, "offset": 60})
    (text,) = said(Run(tmp_path, planted).facts(), Says.CONTRADICTS)
    assert text == "group billing was handed offset 60 of orders/0, and the final read ends at 60"


# -- expectations ----------------------------------------------------------------------------------------------------

_KILL = "{kill: {target: leader(orders/0)}, at: 1s, restart_after: 1s}"
_CASE = """\
name: t
topics: {{orders: {{partitions: 1, replication_factor: 3}}}}
workload: {{groups: {{billing: {{{spec}}}}}}}
faults: [{faults}]
expect:
  - {expect}
"""


@pytest.mark.parametrize(
    ("spec", "faults", "expect", "good"),
    [
        ("commit: after, output: copies", "", 'doubled-output: ">= 1"', True),
        ("commit: transaction, output: copies", "", 'redelivered: ">= 1"', False),
        ("commit: transaction, output: copies", _KILL, 'redelivered: ">= 1"', True),
        ("commit: after", _KILL, 'zombie-commit: ">= 1"', False),
        ("commit: transaction, output: copies, group_metadata: false", "", 'doubled-output: ">= 1"', True),
        ("commit: after", "", 'zombie-commit: ">= 1"', False),
        ("commit: after", "", "zombie-commit: 0", True),
        ("commit: after", "", 'undelivered: "<= 5"', False),
        ("commit: before", "", 'undelivered: ">= 1"', True),
        ("commit: after", "", 'two-owners: ">= 1"', False),
    ],
)
def test_what_every_group_promises_cannot_be_expected(
    tmp_path: Path, spec: str, faults: str, expect: str, good: bool
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(_CASE.format(spec=spec, faults=faults, expect=expect))
    if good:
        assert cases(load(file))
    else:
        with pytest.raises(Exception, match="only 0 can be expected"):
            cases(load(file))


def _stalled(facts: Facts, **changes: Any) -> tuple[bool | None, str]:
    one = Unrecovered(
        anomaly=Anomaly.STALLED, topic=TOPIC, partition=0, group="billing", seen="billing stands still on orders/0",
        for_s=15.0,
    ).model_copy(update=changes)  # fmt: skip
    object.__setattr__(
        facts, "recovery", RecoveryFile(bounds={}, waited_s=30, running=(1, 2, 3), unrecovered=(one,))
    )
    judged = judge_liveness(facts, Anomaly.STALLED, 1)
    return judged.forbidden, judged.why


@pytest.mark.parametrize(
    ("spec", "committed", "changes", "why"),
    [
        ("record_time: 1s", 10, {}, "it is slow"),
        ("record_time: 2s, settle: 600s", 50, {}, "it is slow"),
        ("commit_every: 20s, commit: timed", 50, {}, "it commits every 20 s"),
        ("", 50, {"log": _leaders((1, (1, 2)), (-1, (1,)))}, "has no leader"),
        (
            "",
            50,
            {"config": {"min.insync.replicas": "2"}, "log": _leaders((1, (1, 2)), (1, (1,)))},
            "in-sync",
        ),
        ("", 50, {}, ""),
    ],
)
def test_a_group_that_is_slow_is_not_stalled(
    tmp_path: Path, spec: str, committed: int, changes: dict[str, Any], why: str
) -> None:
    planted = _planted(
        **({"commit": "timed", "spec": "commit_every: 20s"} if "timed" in spec else {"spec": spec})
    )
    planted.committed[0] = committed
    facts = Run(tmp_path, planted, change=_end(caught_up=False, idle_s=15.0), **changes).facts()
    forbidden, text = _stalled(facts)
    assert forbidden is (not why) and why in text
    assert not [one for one in said(facts, Says.LACKS) if "caught up" in one]


# -- the table -------------------------------------------------------------------------------------------------------


def test_every_group_has_a_row_for_every_class(tmp_path: Path) -> None:
    for commit in ("before", "after", "timed", "auto", "transaction"):
        for client in ("librdkafka", "java", COMMAND.removeprefix("client: ")):
            planted = _planted(commit=commit, spec=f"client: {client}")
            path = tmp_path / re.sub(r"\W", "_", commit + client)
            spec = Run(path, planted).facts().case.experiment.workload.groups["billing"]
            for anomaly in GROUP_CLASSES:
                assert find_promise(anomaly, spec, frozenset()).anomaly == anomaly


def test_every_class_has_healthy_behaviour_that_looks_like_it() -> None:
    assert {anomaly for anomaly, *_ in HEALTHY} == {*GROUP_CLASSES, Anomaly.STALLED}
    assert {row.anomaly for row in PROMISES} == set(GROUP_CLASSES)
    assert {one for row in PROMISES for one in row.conditions} == set(Condition)
