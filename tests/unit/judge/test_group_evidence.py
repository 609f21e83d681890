"""Tests of consumer groups: missing evidence, witnesses of offsets, coherence, liveness and expectations."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ackproof.experiment.backends import Ability
from ackproof.experiment.group_promises import (
    HEALTHY,
    PROMISES,
    Condition,
    find_promise,
)
from ackproof.judge.checks.groups import check_group_offsets, check_groups
from ackproof.judge.coherence.groups import check_group_members
from ackproof.judge.facts import Facts
from ackproof.judge.groups import judge_class, opinions_on_groups
from ackproof.judge.liveness import judge_liveness
from ackproof.plan.cases import cases, load
from ackproof.rundir.anomalies import GROUP_CLASSES, Anomaly
from ackproof.rundir.documents import GroupCounts
from ackproof.rundir.groups import CommitResult, GroupsFile, MembershipEvent
from ackproof.rundir.observed import RecoveryFile, Unrecovered
from ackproof.rundir.outcome import Says
from planted_groups import PlantedGroups
from planted_judgement import (
    RESET,
    Run,
    fault,
    leaders,
    planted_group,
)
from written_group import LOG_PARTITION, START, TOPIC

# -- evidence -------------------------------------------------------------------------------------------------------


def said(facts: Facts, says: Says) -> list[str]:
    checks = (check_groups, check_group_offsets, check_group_members)
    return [one.text for check in checks for one in check(facts) if one.kind is says]


@pytest.mark.parametrize("commit", ["before", "after", "timed", "auto", "transaction"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_healthy_group_with_refused_commits_has_no_finding(
    tmp_path: Path, commit: str, protocol: str
) -> None:
    planted = planted_group(commit=commit, protocol=protocol)
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
    (lack,) = said(Run(tmp_path, planted_group(), change=change).facts(), Says.LACKS)
    assert lack.startswith(text)


def test_without_an_answer_of_the_coordinator_nothing_is_shown(tmp_path: Path) -> None:
    facts = Run(tmp_path, planted_group(unanswered="timed out")).facts()
    assert said(facts, Says.LACKS) == ["group billing: no committed offsets could be asked for: timed out"]


def test_without_the_file_of_groups_nothing_is_shown(tmp_path: Path) -> None:
    facts = Run(tmp_path, planted_group()).facts()
    facts.run.groups.unlink()
    (lack,) = said(facts, Says.LACKS)
    assert "observed/groups.json" in lack


def test_a_member_that_was_not_killed_closes_its_ledger(tmp_path: Path) -> None:
    facts = Run(tmp_path, planted_group(), killed=("g1",)).facts()
    for folder in facts.run.deliveries.glob("client=*"):
        next(folder.glob("_END*")).unlink()
    assert said(facts, Says.LACKS) == [
        "member g0 of group billing was not killed, and its ledger does not say that it closed"
    ]


def test_what_the_audit_could_not_count_is_not_judged(tmp_path: Path) -> None:
    facts = Run(tmp_path, planted_group()).facts()
    counts = {name: 0 for name in GROUP_CLASSES if name != Anomaly.LOST_COMMIT}
    group = GroupCounts(group="billing", counts=counts, reasons=("lost-commit: logs were cleaned",))
    object.__setattr__(facts, "audit", facts.audit.model_copy(update={"groups": (group,)}))
    assert said(facts, Says.NOT_JUDGED) == ["group billing: lost-commit: logs were cleaned"]
    assert judge_class(facts, Anomaly.LOST_COMMIT) == []


# -- witnesses against each other ------------------------------------------------------------------------------------


def test_offsetfetch_that_differs_from_the_log_is_a_finding(tmp_path: Path) -> None:
    planted = planted_group()
    planted.committed[1] = 50
    (text,) = said(Run(tmp_path, planted).facts(), Says.BREAKS)
    assert text == (
        "group billing, orders/1: OffsetFetch answered 50, and the log of __consumer_offsets/7 on node 3, which is in "
        "the ISR, has 60"
    )


def test_an_offset_that_no_member_asked_for_is_a_finding(tmp_path: Path) -> None:
    planted = planted_group()
    planted.committed[1] = 110
    planted.log_record(planted.log_end, "commit", topic=TOPIC, partition=1, offset=110)
    (text,) = said(Run(tmp_path, planted).facts(), Says.BREAKS)
    assert text == "group billing, orders/1: OffsetFetch answered 110 at rest, which no member asked for"


def test_a_commit_of_nobody_is_a_finding_even_of_an_offset_that_a_member_asked_for(tmp_path: Path) -> None:
    """OffsetFetch and the logs agree on an offset that somebody else set back to that of an earlier commit."""
    planted = planted_group()
    planted.committed[1] = 50
    planted.log_record(planted.log_end, "commit", topic=TOPIC, partition=1, offset=50)
    (text,) = said(Run(tmp_path, planted).facts(), Says.BREAKS)
    assert text.startswith("group billing, orders/1: no member wrote the commit of 50 at offset ")


def test_a_position_that_no_member_asked_for_is_a_finding(tmp_path: Path) -> None:
    planted = planted_group()
    planted.member_event(MembershipEvent.POSITION, 1, 0, START, offset=7)
    (text,) = said(Run(tmp_path, planted).facts(), Says.BREAKS)
    assert text == (
        "group billing, orders/0: the coordinator told g1 the committed offset 7, which no member asked for"
    )


@pytest.mark.parametrize("changes", [{"faults": (RESET,)}, {"faults": (fault("wipe_disk", Ability.DISKS),)}])
def test_an_operator_or_a_disk_explains_strange_offsets(tmp_path: Path, changes: dict[str, Any]) -> None:
    planted = planted_group()
    planted.committed[1] = 7
    planted.log_record(planted.log_end, "commit", topic=TOPIC, partition=1, offset=7)
    assert not said(Run(tmp_path, planted, **changes).facts(), Says.BREAKS)


def test_a_tombstone_removes_an_offset(tmp_path: Path) -> None:
    planted = planted_group()
    planted.log_record(planted.log_end, "removed", topic=TOPIC, partition=1)
    (text,) = said(Run(tmp_path, planted).facts(), Says.BREAKS)
    assert "orders/1: OffsetFetch answered 60, and the log" in text and text.endswith("has none")


def test_a_commit_without_an_answer_may_be_in_the_log_alone(tmp_path: Path) -> None:
    planted = planted_group()
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
    planted = planted_group()
    plant(planted)
    (text,) = said(Run(tmp_path, planted).facts(), Says.CONTRADICTS)
    assert words in text and text.startswith("member g0: 1 rows of")


def test_ledgers_of_members_that_are_not_listed(tmp_path: Path) -> None:
    def change(file: GroupsFile) -> GroupsFile:
        return file.model_copy(update={"members": file.members[1:]})

    texts = said(Run(tmp_path, planted_group(), change=change).facts(), Says.CONTRADICTS)
    assert len(texts) == 3 and all("a member that groups.json does not list" in text for text in texts)


def test_more_deliveries_than_the_final_read_has(tmp_path: Path) -> None:
    planted = planted_group()
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
        ("", 50, {"log": leaders((1, (1, 2)), (-1, (1,)))}, "has no leader"),
        (
            "",
            50,
            {"config": {"min.insync.replicas": "2"}, "log": leaders((1, (1, 2)), (1, (1,)))},
            "in-sync",
        ),
        ("", 50, {}, ""),
    ],
)
def test_a_group_that_is_slow_is_not_stalled(
    tmp_path: Path, spec: str, committed: int, changes: dict[str, Any], why: str
) -> None:
    planted = planted_group(
        **({"commit": "timed", "spec": "commit_every: 20s"} if "timed" in spec else {"spec": spec})
    )
    planted.committed[0] = committed
    facts = Run(tmp_path, planted, change=_end(caught_up=False, idle_s=15.0), **changes).facts()
    forbidden, text = _stalled(facts)
    assert forbidden is (not why) and why in text
    assert not [one for one in said(facts, Says.LACKS) if "caught up" in one]


@pytest.mark.parametrize("topic", ["copies", "__transaction_state"])
@pytest.mark.parametrize("leader", [-1, 1])
def test_a_transactional_group_needs_its_output_and_its_coordinator(
    tmp_path: Path, topic: str, leader: int
) -> None:
    log = leaders((1, (1, 2)), (leader, (1,)), topic=topic)
    planted = planted_group(commit="transaction")
    facts = Run(tmp_path, planted, change=_end(caught_up=False, idle_s=15.0), log=log).facts()
    forbidden, text = _stalled(facts)
    assert forbidden is (leader == 1)
    assert (f"{topic}/{LOG_PARTITION} has no leader" in text) is (leader == -1)


# -- the table -------------------------------------------------------------------------------------------------------


def test_every_group_has_a_row_for_every_class(tmp_path: Path) -> None:
    for commit in ("before", "after", "timed", "auto", "transaction"):
        for client in ("librdkafka", "java", "{command: [x]}"):
            planted = planted_group(commit=commit, spec=f"client: {client}")
            path = tmp_path / re.sub(r"\W", "_", commit + client)
            spec = Run(path, planted).facts().case.experiment.workload.groups["billing"]
            for anomaly in GROUP_CLASSES:
                assert find_promise(anomaly, spec, frozenset()).anomaly == anomaly


def test_every_class_has_healthy_behaviour_that_looks_like_it() -> None:
    assert {anomaly for anomaly, *_ in HEALTHY} == {*GROUP_CLASSES, Anomaly.STALLED}
    assert {row.anomaly for row in PROMISES} == set(GROUP_CLASSES)
    assert {one for row in PROMISES for one in row.conditions} == set(Condition)
