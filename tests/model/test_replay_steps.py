"""Tests of the KRaft steps that explain an observed change: every cause that makes it, and no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackproof.rundir.model import ConformanceFile
from ackproof_model.replay.steps import AppendContext, same, steps, steps_from_image
from ackproof_reference.metadata import NO_LEADER, Metadata, Partition, Registration
from ackproof_reference.rules import Rules, rules_of
from observed_run import ObservedRun, broker, metadata, partition

BEFORE = Partition(replicas=(1, 2, 3), leader=1, leader_epoch=4, epoch=9, isr=(1, 2, 3))
RULES = replace(rules_of("4.1"), min_insync=2)
NONE = AppendContext()


def causes(
    after: Partition,
    beside: AppendContext = NONE,
    before: Partition = BEFORE,
    rules: Rules = RULES,
    **brokers: dict[str, Any],
) -> dict[str, bool]:
    """Return cause → clean for each step that leads to `after`. `beside`: other changes in the same append of the
    metadata log. `brokers`: fields of the registrations b1 to b4 that differ from an active broker's."""
    known = tuple(Registration(node, 10 + node, **brokers.get(f"b{node}", {})) for node in (1, 2, 3, 4))
    made = steps(Metadata(before, known), after, beside, rules)
    return {step.cause: step.clean for step in made if same(step.partition, after)}


def after(before: Partition = BEFORE, **changes: Any) -> Partition:
    return before._replace(**{"epoch": before.epoch + 1, **changes})


DEPOSED = after(leader=2, leader_epoch=5, isr=(2, 3))
ALONE = BEFORE._replace(isr=(1,))
NOBODY = BEFORE._replace(leader=NO_LEADER, isr=(1,))
TAKEN = after(NOBODY, leader=2, leader_epoch=5, isr=(2,), recovering=True)
UNCLEAN = replace(RULES, unclean_election=True)
OLD = replace(rules_of("3.9"), min_insync=2)
"""Rules of 3.9, without eligible leader replicas."""
BACK = BEFORE._replace(leader=2)


@pytest.mark.parametrize(
    ("beside", "cause"),
    [
        (AppendContext(fenced=(1,)), "broker 1 fenced"),
        (AppendContext(stopping=(1,)), "broker 1 in controlled shutdown"),
        (AppendContext(without_dir=(1,)), "log dir of broker 1 failed"),
        (AppendContext(registered=(1,)), "broker 1 back from an unclean stop"),
        (AppendContext(fenced=(3,)), None),
        (AppendContext(stopping=(3,)), None),
        (AppendContext(without_dir=(2,)), None),
        (AppendContext(unfenced=(1,)), None),
        (NONE, None),
    ],
)
def test_a_leader_that_goes_is_followed_by_the_next_of_the_isr(
    beside: AppendContext, cause: str | None
) -> None:
    assert causes(DEPOSED, beside) == ({cause: True} if cause else {})


@pytest.mark.parametrize("node", [1, 3])
def test_a_member_whose_broker_goes_leaves_the_isr(node: int) -> None:
    isr = tuple(one for one in BEFORE.isr if one != 3)
    seen = after(isr=isr, elr=())
    made = causes(seen, AppendContext(fenced=(node,)))
    assert ("broker 3 fenced" in made) is (node == 3)
    assert "ISR shrunk by its leader" in made


@pytest.mark.parametrize(
    ("seen", "before", "cause"),
    [
        (after(isr=(1, 2)), BEFORE, "ISR shrunk by its leader"),
        (
            after(BEFORE._replace(isr=(1, 2)), isr=(1, 2, 3)),
            BEFORE._replace(isr=(1, 2)),
            "ISR grown by its leader",
        ),
        (
            after(BEFORE._replace(isr=(1, 2)), isr=(1, 3)),
            BEFORE._replace(isr=(1, 2)),
            "ISR changed by its leader",
        ),
    ],
)
def test_what_a_leader_asks_for(seen: Partition, before: Partition, cause: str) -> None:
    assert cause in causes(seen, before=before)


def test_no_leader_asks_for_a_broker_that_is_fenced_or_has_no_replica() -> None:
    smaller = BEFORE._replace(isr=(1, 2))
    assert causes(after(smaller, isr=(1, 2, 3)), before=smaller, b3={"fenced": True}) == {}
    assert causes(after(smaller, isr=(1, 2, 4)), before=smaller) == {}
    assert causes(after(smaller, isr=(1, 2, 9)), before=smaller) == {}
    assert causes(after(NOBODY, isr=(1, 2)), before=NOBODY) == {}


def test_the_first_of_the_assignment_is_made_leader_by_a_preferred_election() -> None:
    assert "preferred election" in causes(after(BACK, leader=1, leader_epoch=5), before=BACK)
    assert "preferred election" not in causes(after(BACK, leader=3, leader_epoch=5), before=BACK)


def test_where_nobody_led_whoever_is_back_and_in_sync_is_elected() -> None:
    seen = after(NOBODY, leader=1, leader_epoch=5)
    made = causes(seen, AppendContext(unfenced=(1,)), before=NOBODY, b1={"fenced": True})
    assert made == {"broker 1 unfenced": True}
    assert "election" in causes(seen, before=NOBODY)


@pytest.mark.parametrize(
    ("beside", "rules", "asked"),
    [
        (NONE, OLD, False),
        (AppendContext(unclean_asked=True), OLD, True),
        (NONE, replace(OLD, unclean_election=True), True),
    ],
)
def test_somebody_out_of_the_isr_is_elected_where_that_is_on_or_asked_for(
    beside: AppendContext, rules: Rules, asked: bool
) -> None:
    made = causes(TAKEN, beside, before=NOBODY, rules=rules, b1={"fenced": True})
    assert made.get("unclean election") is (False if asked else None)
    assert bool(made) is asked


def test_an_election_from_the_elr_is_clean_where_nobody_is_in_sync() -> None:
    before = NOBODY._replace(isr=(), elr=(2,))
    seen = after(before, leader=2, leader_epoch=5, isr=(2,), elr=())
    made = causes(seen, AppendContext(unfenced=(2,)), before=before, b2={"fenced": True})
    assert made == {"broker 2 unfenced": True}


def test_moves_begin_and_are_called_off() -> None:
    moving = after(replicas=(1, 2, 4, 3), adding=(4,), removing=(3,))
    assert causes(moving) == {"reassigned": True}
    back = after(moving, replicas=(1, 2, 3), leader_epoch=5, adding=(), removing=())
    assert "reassignment cancelled" in causes(back, before=moving)
    assert "reassignment cancelled" not in causes(moving)


def test_who_leaves_with_a_move_leaves_the_isr_when_the_new_one_has_joined() -> None:
    moving = BEFORE._replace(replicas=(1, 2, 4, 3), adding=(4,), removing=(3,))
    done = after(moving, replicas=(1, 2, 4), leader_epoch=5, isr=(1, 2, 4), adding=(), removing=())
    assert "ISR grown by its leader" in causes(done, before=moving)


def test_who_may_be_elected_is_forgotten_with_the_setting_or_an_old_release() -> None:
    before = ALONE._replace(elr=(2,))
    seen = after(before, elr=())
    configured = "eligible replicas cleared with min.insync.replicas"
    forgotten = "log dirs of replicas, eligible replicas forgotten"
    assert configured not in causes(seen, before=before)
    assert configured in causes(seen, AppendContext(configured=True), before=before)
    assert forgotten not in causes(seen, before=before)
    assert forgotten in causes(seen, AppendContext(eligible_cleared=True), before=before)


def test_the_order_of_members_means_nothing_and_all_else_does() -> None:
    full = BEFORE._replace(elr=(1, 2), adding=(1, 2), removing=(2, 3))
    other = full._replace(isr=(3, 1, 2), elr=(2, 1), adding=(2, 1), removing=(3, 2))
    assert same(full, other)
    for field, value in full._asdict().items():
        changed = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else (7,)
        assert not same(full, full._replace(**{field: changed})), field


STOPPING_WITHOUT_DIR = AppendContext(stopping=(1,), without_dir=(1,), offline=frozenset())
"""A heartbeat in which broker 1 asks to stop and reports a failed log dir."""
STOPPED = DEPOSED
TWICE = STOPPED._replace(leader_epoch=STOPPED.leader_epoch + 1, epoch=STOPPED.epoch + 1)


def causes_from_image(seen: Partition, beside: AppendContext = STOPPING_WITHOUT_DIR) -> set[str]:
    """Return the causes that lead from `STOPPED` to `seen` by a record that was computed from the image before it."""
    known = tuple(Registration(node, 10 + node) for node in (1, 2, 3))
    made = steps_from_image(Metadata(BEFORE, known), STOPPED, beside, RULES)
    return {step.cause for step in made if same(step.partition, seen)}


def test_one_heartbeat_writes_a_second_record_from_the_image_before_its_first() -> None:
    """KAFKA-15649: a heartbeat with a controlled shutdown and a failed log dir elects broker 2 twice."""
    assert causes_from_image(TWICE) == {"log dir of broker 1 failed"}
    assert causes(TWICE, STOPPING_WITHOUT_DIR, before=STOPPED) == {}


@pytest.mark.parametrize(
    ("seen", "beside"),
    [
        (TWICE, AppendContext(stopping=(1,))),
        (TWICE, replace(STOPPING_WITHOUT_DIR, without_dir=(3,))),
        (TWICE._replace(leader=3), STOPPING_WITHOUT_DIR),
        (TWICE._replace(isr=(1, 2, 3)), STOPPING_WITHOUT_DIR),
        (TWICE._replace(leader_epoch=STOPPED.leader_epoch), STOPPING_WITHOUT_DIR),
        (TWICE._replace(epoch=TWICE.epoch + 1), STOPPING_WITHOUT_DIR),
    ],
)
def test_no_other_second_record_is_built_from_that_image(seen: Partition, beside: AppendContext) -> None:
    assert causes_from_image(seen, beside) == set()


def test_a_replica_in_a_failed_log_dir_is_not_elected() -> None:
    """Source: LeaderAcceptor. Broker 2 is active, but its replica is offline."""
    beside = AppendContext(fenced=(1,), offline=frozenset([2]))
    assert causes(DEPOSED, beside) == {}
    assert causes(after(leader=3, leader_epoch=5, isr=(2, 3)), beside) == {"broker 1 fenced": True}
    seen = after(NOBODY, leader=1, leader_epoch=5)
    assert causes(seen, AppendContext(unfenced=(1,), offline=frozenset([1])), before=NOBODY) == {}


# -- brokers ----------------------------------------------------------------------------------------------------------


WHOLE = ((0, 99, 0), (100, 179, 1))


def conformed(
    records: list[dict[str, Any]], folder: Path, log: tuple[tuple[int, int, int], ...] = WHOLE
) -> ConformanceFile:
    folder.mkdir(exist_ok=True)
    return ObservedRun(records=records, log=log).conformed(folder)


def test_a_change_of_a_broker_that_is_not_of_its_incarnation_is_forbidden(tmp_path: Path) -> None:
    records = metadata()
    at = next(n for n, one in enumerate(records) if one["offset"] == 41)
    records[at] = broker(41, 7100, 1, 39, fenced=False)
    file = conformed(records, tmp_path)
    step = file.forbidden
    assert step is not None
    assert (step.rule, step.offset) == ("change of another incarnation", 41)
    assert step.text == "broker 1 in epoch 39 changed; 40 is registered"
    assert step.source == "KIP-631; ClusterControlManager.replay(BrokerRegistrationChangeRecord)"
    assert "Registration(broker=1, epoch=40, fenced=True" in step.state_before


def test_steps_of_brokers_are_counted_by_what_they_are(tmp_path: Path) -> None:
    records = metadata()
    stopping = {**broker(43, 8000, 3, 3, fenced=False), "controlled_shutdown": True, "fenced": None}
    file = conformed([*records, stopping, {**stopping, "offset": 44, "controlled_shutdown": False}], tmp_path)
    assert {name: count for name, count in file.steps.items() if name.startswith("broker")} == {
        "broker N fenced": 1,
        "broker controlled shutdown": 1,
        "broker controlled shutdown no more": 1,
        "broker fenced": 1,
        "broker fenced no more": 4,
        "broker registered": 4,
    }
    whole = conformed(metadata(), tmp_path / "whole")
    assert file.replayed == whole.replayed + 2


def test_a_broker_that_asks_again_keeps_its_epoch_and_another_incarnation_takes_a_higher_one(
    tmp_path: Path,
) -> None:
    records = metadata()
    at = next(n for n, one in enumerate(records) if one["offset"] == 40)
    again = {**records[at], "offset": 45, "broker_epoch": 40}
    assert conformed([*records, again], tmp_path / "again").forbidden is None
    other = {**again, "incarnation": "another"}
    file = conformed([*records, other], tmp_path / "other")
    assert file.forbidden is not None
    assert file.forbidden.text == "broker 1 registered with epoch 40 after 40"
    assert file.forbidden.source == "KIP-631; ClusterControlManager.registerBroker"
    assert file.forbidden.offset == 45
    assert conformed([*records, {**other, "broker_epoch": 41}], tmp_path / "higher").forbidden is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"isr": [1, 2]}, "created with leader 1 and ISR [1, 2]; active are [1, 2, 3]"),
        ({"leader": 2}, "created with leader 2 and ISR [1, 2, 3]; active are [1, 2, 3]"),
        ({"leader_epoch": 1}, "created with leader epoch 1 and partition epoch 0: both begin at 0"),
        ({"partition_epoch": 1}, "created with leader epoch 0 and partition epoch 1: both begin at 0"),
    ],
)
def test_a_partition_is_created_with_all_that_are_active(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    records = [one for one in metadata() if one["offset"] <= 20]
    records[-1] = {**records[-1], **changes}
    file = conformed(records, tmp_path, ((0, 179, records[-1]["leader_epoch"]),))
    assert (file.forbidden.text if file.forbidden else "") == (f"orders/0: {words}" if words else "")
    if file.forbidden is not None:
        assert file.forbidden.rule == "creation"
        assert file.forbidden.source == "ReplicationControlManager.buildPartitionRegistration"


def test_what_is_there_is_not_created_again(tmp_path: Path) -> None:
    records = [one for one in metadata() if one["offset"] <= 20]
    file = conformed([*records, partition(21, 1100, 1, (0, 0), [1, 2, 3], "created")], tmp_path)
    assert file.forbidden is not None
    assert file.forbidden.rule == "creation of what is there"
    assert (
        file.forbidden.text
        == "orders/0: created with leader 1 and ISR [1, 2, 3]; its topic was not deleted before"
    )
    assert file.forbidden.source == "ReplicationControlManager.createTopics"


def _one_heartbeat(seconds_ms: int = 5000, leader: int = 2) -> list[dict[str, Any]]:
    """Return a metadata log in which broker 1 asks to stop and reports a failed log dir in one heartbeat: two records
    of the partition. `seconds_ms`: time of the second record in ms since the run's start. `leader`: its leader."""
    records = [one for one in metadata() if one["offset"] <= 20]
    for record in records:
        if record["kind"] == "broker-registered":
            record["log_dirs"] = ["a1", "b1"] if record["node"] == 1 else [f"a{record['node']}"]
        elif record["kind"] == "partition":
            record["directories"] = ["a1", "a2", "a3"]
    changed = broker(30, 5000, 1, 1, fenced=False) | {"fenced": None}
    return [
        *records,
        {**changed, "controlled_shutdown": True},
        partition(31, 5000, 2, (1, 1), [2, 3], "isr", "leader") | {"directories": ["a1", "a2", "a3"]},
        partition(32, seconds_ms, leader, (2, 2), [2, 3], "isr", "leader")
        | {"directories": ["a1", "a2", "a3"]},
        {**changed, "offset": 33, "timestamp_ms": records[0]["timestamp_ms"] - 100 + seconds_ms}
        | {"log_dirs": ["b1"]},
    ]


def test_two_records_of_one_heartbeat_are_each_held_against_the_image_before_it(tmp_path: Path) -> None:
    log = ((0, 99, 0), (100, 179, 2))
    file = conformed(_one_heartbeat(), tmp_path / "one", log)
    assert file.forbidden is None
    assert file.steps["log dir of broker N failed"] == 1
    assert file.steps["broker N in controlled shutdown"] == 1
    for name, lie in (("later", _one_heartbeat(5001)), ("another", _one_heartbeat(leader=3))):
        told = conformed(lie, tmp_path / name, log).forbidden
        assert told is not None, name
        assert told.offset == 32
