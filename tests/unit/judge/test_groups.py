"""Tests of consumer groups: the promise about each class, and the facts of a run that explain findings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ackproof.experiment.backends import Ability
from ackproof.experiment.group_promises import (
    markdown,
)
from ackproof.judge.groups import combine, judge_class, opinions_on_groups
from ackproof.quantities.metadata_log import MetadataLog
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.groups import CommitResult, GroupsFile, MembershipEvent
from ackproof.rundir.model import Chance, PredictedClass, PredictedGroupClass, PredictionFile
from ackproof.rundir.outcome import Says
from planted_groups import PlantedGroups
from planted_judgement import (
    MOVED,
    RESET,
    UNCLEAN,
    Run,
    fault,
    leaders,
    planted_group,
    ruled,
)
from written_group import MS, START, WALL_MS

DOCS = Path(__file__).parents[3] / "docs" / "group-promises.md"


AT: Sequence[tuple[int, int]] = ((0, 13),)
FORBIDDEN, ALLOWED, OPEN = Chance.IMPOSSIBLE, Chance.POSSIBLE, Chance.UNKNOWN
COMMAND = "client: {command: [x]}"
JAVA = "client: java"


def test_the_page_is_that_of_the_table() -> None:
    assert DOCS.read_text() == markdown()


def test_a_finding_is_told_with_group_count_samples_promise_and_source(tmp_path: Path) -> None:
    found = {Anomaly.UNDELIVERED: [(0, offset) for offset in range(13, 18)]}
    facts = Run(tmp_path, planted_group(), found).facts()
    (opinion,) = opinions_on_groups(judge_class(facts, Anomaly.UNDELIVERED))
    assert (opinion.kind, opinion.subject, opinion.proven) == (Says.BREAKS, "undelivered", False)
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
    chance, text = ruled(Run(tmp_path, planted_group(**changes), {anomaly: AT}), anomaly)
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
"""By class, changes of the run's configuration under which the class is forbidden in a run without faults."""
CAUSES: dict[str, dict[str, Any]] = {
    "command": {"faults": (fault("command", unpredictable="the effect of a command is unknown"),)},
    "operator": {"faults": (RESET,)},
    "operator of another group": {"faults": (RESET.model_copy(update={"group": "other"}),)},
    "required acks": {"config": {"offsets.commit.required.acks": "1"}},
    "unclean": {"log": leaders(*UNCLEAN)},
    "expiry": {"config": {"offsets.retention.minutes": "0"}},
    "disk": {"faults": (fault("wipe_disk", Ability.DISKS),)},
    "disk of the only replica": {
        "faults": (fault("wipe_disk", Ability.DISKS),),
        "log": leaders((1, (1,)), replicas=(1,)),
    },
    "no metadata log": {"log": MetadataLog.from_records([], simulated=False, kraft=True)},
    "forged answers": {"faults": (fault("answer_request"),)},
    "vanished": {
        "prediction": PredictionFile(
            classes=(PredictedClass(anomaly="vanished", chance=Chance.POSSIBLE, why="unclean election"),)
        )
    },
    "killed": {"killed": ("g0",)},
    "moved": {"log": leaders(*MOVED)},
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
"""By class and cause (`CAUSES`), the ruling in place of "forbidden". Causes that are not listed change nothing."""


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("anomaly", STRICT)
def test_facts_of_the_run_decide(tmp_path: Path, anomaly: str, cause: str) -> None:
    run = Run(tmp_path, planted_group(**STRICT[anomaly]), {anomaly: AT}, **CAUSES[cause])
    assert ruled(run, anomaly)[0] is EXPECTED[anomaly].get(cause, FORBIDDEN)


def test_librdkafka_may_commit_ahead_of_a_killed_member(tmp_path: Path) -> None:
    run = Run(tmp_path, planted_group(commit="auto"), {Anomaly.UNDELIVERED: AT}, killed=("g1",))
    assert ruled(run, Anomaly.UNDELIVERED)[0] is ALLOWED


def test_a_killed_member_is_no_excuse_at_least_once(tmp_path: Path) -> None:
    run = Run(tmp_path, planted_group(commit="auto", spec=JAVA), {Anomaly.UNDELIVERED: AT}, killed=("g1",))
    assert ruled(run, Anomaly.UNDELIVERED)[0] is FORBIDDEN


@pytest.mark.parametrize("anomaly", [Anomaly.REDELIVERED, Anomaly.DOUBLED_OUTPUT])
@pytest.mark.parametrize(("old", "new", "expected"), [(40, 0, OPEN), (-1, 0, FORBIDDEN), (10, 40, FORBIDDEN)])
def test_only_a_reset_backward_explains_what_is_processed_again(
    tmp_path: Path, anomaly: str, old: int, new: int, expected: Chance
) -> None:
    planted = planted_group(commit="transaction")
    planted.member_event(
        MembershipEvent.RESET, 0, 0, START, from_offset=old, offset=new, why="OFFSET_OUT_OF_RANGE"
    )
    assert ruled(Run(tmp_path, planted, {anomaly: AT}), anomaly)[0] is expected


def test_a_reset_of_an_offset_that_is_in_the_log_stays_open(tmp_path: Path) -> None:
    planted = planted_group(spec="reset: latest")
    planted.plant_reset(0, 10, 30)
    chance, text = ruled(Run(tmp_path, planted, {Anomaly.SKIPPED_BY_RESET: AT}), Anomaly.SKIPPED_BY_RESET)
    assert chance is OPEN
    assert "g0 went from 10 to 30 of orders/0 (OFFSET_OUT_OF_RANGE)" in text


def test_an_offset_that_went_back_in_the_log_is_forbidden_whoever_led(tmp_path: Path) -> None:
    planted = planted_group()
    planted.plant_regressed_log(0, 2)
    run = Run(tmp_path, planted, {Anomaly.REGRESSED_COMMIT: [(0, 30)]}, log=leaders(*MOVED))
    assert ruled(run, Anomaly.REGRESSED_COMMIT)[0] is FORBIDDEN


@pytest.mark.parametrize(("moved_ms", "chance"), [(20, OPEN), (60, FORBIDDEN)])
def test_a_coordinator_that_was_deposed_later_knew_the_commit(
    tmp_path: Path, moved_ms: int, chance: Chance
) -> None:
    """The coordinator answers a member 27 after it accepted a commit of 30, 36 ms after the first delivery."""
    planted = planted_group()
    planted.plant_regressed_position(0, 2)
    log = leaders(*MOVED, at_ms=WALL_MS + START // MS + moved_ms)
    run = Run(tmp_path, planted, {Anomaly.REGRESSED_COMMIT: [(0, 30)]}, log=log)
    assert ruled(run, Anomaly.REGRESSED_COMMIT)[0] is chance


@pytest.mark.parametrize(("offset", "chance"), [(50, OPEN), (9, FORBIDDEN)])
def test_a_last_answer_below_what_every_coordinator_knew(tmp_path: Path, offset: int, chance: Chance) -> None:
    planted = planted_group()
    planted.committed[0] = offset
    log = leaders(*MOVED, at_ms=WALL_MS + START // MS + 20)
    run = Run(tmp_path, planted, {Anomaly.REGRESSED_COMMIT: [(0, 60)]}, log=log)
    assert ruled(run, Anomaly.REGRESSED_COMMIT)[0] is chance


def test_a_coordinator_that_did_not_answer_at_the_end_forgot_nothing(tmp_path: Path) -> None:
    def unanswered(file: GroupsFile) -> GroupsFile:
        (end,) = file.groups
        answer = end.committed.model_copy(update={"offsets": (), "reason": "broker 1 does not run"})
        return file.model_copy(update={"groups": (end.model_copy(update={"committed": answer}),)})

    log = leaders(*MOVED, at_ms=WALL_MS + START // MS + 20)
    run = Run(tmp_path, planted_group(), {Anomaly.REGRESSED_COMMIT: [(0, 60)]}, log=log, change=unanswered)
    assert ruled(run, Anomaly.REGRESSED_COMMIT)[0] is OPEN


def _plant_late_copy(planted: PlantedGroups, *, unanswered: bool) -> None:
    """Plant a second copy of the commit of batch 1 of orders/0 in the log, after the commit of batch 2. `unanswered`:
    the copy is the only one, and the commit has no answer."""
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


OUTSIDER = {
    Anomaly.REDELIVERED: OPEN,
    Anomaly.TORN_OUTPUT: OPEN,
    Anomaly.DOUBLED_OUTPUT: OPEN,
    Anomaly.REGRESSED_COMMIT: FORBIDDEN,
}


@pytest.mark.parametrize("column", ["generation", "generation_after"])
@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("anomaly", STRICT)
def test_a_commit_without_a_generation_is_no_members(
    tmp_path: Path, anomaly: str, column: str, refused: bool
) -> None:
    planted = planted_group(**STRICT[anomaly])
    planted.commits.columns[column][3] = -1
    if refused:
        planted.commits.columns["result"][3] = int(CommitResult.REFUSED)
    chance, text = ruled(Run(tmp_path, planted, {anomaly: AT}), anomaly)
    assert chance is (FORBIDDEN if refused else OUTSIDER.get(anomaly, FORBIDDEN))
    assert ("commit 3 of member g0" in text) is (chance is OPEN)


def test_a_commit_without_a_generation_may_lower_the_offset(tmp_path: Path) -> None:
    """The coordinator accepts a commit without a generation while the group has no members."""
    planted = planted_group()
    planted.plant_regressed_log(0, 2)
    planted.commits.extra[-1]["generation"] = planted.commits.extra[-1]["generation_after"] = -1
    run = Run(tmp_path, planted, {Anomaly.REGRESSED_COMMIT: [(0, 30)]})
    assert ruled(run, Anomaly.REGRESSED_COMMIT)[0] is OPEN


@pytest.mark.parametrize("unanswered", [False, True])
def test_a_commit_that_was_applied_late_is_no_fault_of_kafka(tmp_path: Path, unanswered: bool) -> None:
    planted = planted_group()
    _plant_late_copy(planted, unanswered=unanswered)
    run = Run(tmp_path, planted, {Anomaly.REGRESSED_COMMIT: [(0, 30)]})
    chance, text = ruled(run, Anomaly.REGRESSED_COMMIT)
    assert chance is OPEN
    assert "orders/0: offset 20 was applied late" in text


def test_a_late_commit_explains_its_own_partition_alone(tmp_path: Path) -> None:
    planted = planted_group()
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
        planted_group(commit=commit),
        {Anomaly.REDELIVERED: AT},
        prediction=PredictionFile(groups=(other, answer)),
    )
    assert ruled(run, Anomaly.REDELIVERED)[0] is expected


def test_a_class_is_forbidden_if_one_group_forbids_it(tmp_path: Path) -> None:
    facts = Run(tmp_path, planted_group(), {Anomaly.UNDELIVERED: AT, Anomaly.REDELIVERED: AT}).facts()
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
