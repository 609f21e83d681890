"""Tests of the model of a consumer group: checks of the coordinator, its offsets log, and the classes that are reached.

The expected values in the tables were observed on real clusters (4.2.1 and 4.3.1, librdkafka and Java)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from ackproof_reference.explore.consumer_groups import _World, consumer_group
from ackproof_reference.explore.group_states import CLASSES, GroupIncidents, GroupScope
from ackproof_reference.explore.model import Group
from ackproof_reference.explore.search import Search
from ackproof_reference.group_coordinator import (
    NO_EPOCH,
    CommitError,
    Entry,
    GroupState,
    OffsetRecord,
    OffsetsLog,
    Phase,
    assign,
    check_commit,
    choices,
    compact,
    complete_join,
    elect,
    heartbeat,
    join,
    leave,
    load_group,
    load_offsets,
    revoked,
)
from ackproof_reference.rules import (
    GROUP_VERSIONS,
    CommitMode,
    GroupProtocol,
    GroupRules,
    group_rules_of,
)

EAGER, COOPERATIVE, CONSUMER = GroupProtocol
CLASSIC_43 = replace(group_rules_of("4.3.1"), protocol=EAGER)
CONSUMER_42 = replace(group_rules_of("4.2.1"), protocol=CONSUMER)
CONSUMER_43 = replace(group_rules_of("4.3.1"), protocol=CONSUMER)
NONE, UNKNOWN_MEMBER, ILLEGAL, REBALANCING, STALE = (
    CommitError.NONE,
    CommitError.UNKNOWN_MEMBER_ID,
    CommitError.ILLEGAL_GENERATION,
    CommitError.REBALANCE_IN_PROGRESS,
    CommitError.STALE_MEMBER_EPOCH,
)
ANY = GroupIncidents(kills=True, expiries=True, lost_answers=True, moves=True)
PAUSE, KILL = GroupIncidents(expiries=True), GroupIncidents(kills=True)


def _found(
    rules: GroupRules, incidents: GroupIncidents, wanted: frozenset[str] = frozenset(CLASSES)
) -> set[str]:
    search = Search(consumer_group(GroupScope(rules, incidents)), wanted)
    search.run(max_states=60_000)
    assert search.exhausted or search.satisfied
    return set(search.findings) & wanted


# -- what the coordinator checks ---------------------------------------------------------------------------------------


def _two_members(rules: GroupRules) -> tuple[GroupState, int]:
    """Return a group of two members, and the first epoch of member 0. Member 0 has had the partition since that epoch;
    member 1 joined later, which raised the generation or the group epoch."""
    group = join(GroupState((None, None)), 0, rules)
    if rules.protocol is CONSUMER:
        group = heartbeat(assign(group, 0, rules), 0)
        first = group.entries[0].epoch  # type: ignore[union-attr]
        group = assign(join(group, 1, rules), 0, rules)
        return heartbeat(heartbeat(group, 0), 1), first
    begun = complete_join(group)
    assert begun is not None
    first = begun.epoch
    group = join(join(assign(begun, 0, rules), 1, rules), 0, rules)
    begun = complete_join(group)
    assert begun is not None
    return assign(begun, 0, rules), first


@pytest.mark.parametrize(
    ("rules", "older_own", "older_other"),
    [
        (CLASSIC_43, ILLEGAL, ILLEGAL),
        (CONSUMER_42, STALE, STALE),
        (CONSUMER_43, NONE, STALE),
    ],
    ids=["classic", "consumer 4.2", "consumer 4.3"],
)
def test_commits_while_two_members_live(
    rules: GroupRules, older_own: CommitError, older_other: CommitError
) -> None:
    """The expected errors are those that real clusters returned to forged commits."""
    group, older = _two_members(rules)
    current = group.epoch
    assert current > older
    assert check_commit(group, 0, older, rules) is older_own
    assert check_commit(group, 1, older, rules) is older_other
    assert check_commit(group, 1, current, rules) is NONE, "who owns the partition is not checked"
    assert check_commit(leave(group, 1, rules), 1, current, rules) is UNKNOWN_MEMBER
    assert check_commit(group, 0, NO_EPOCH, rules, transactional=True) is NONE, "no group metadata"
    assert check_commit(group, 0, NO_EPOCH, rules) is UNKNOWN_MEMBER, "an administrator, the group alive"
    assert check_commit(GroupState((None, None)), 0, NO_EPOCH, rules) is NONE, "the same, the group empty"
    assert check_commit(group, 0, current + 1, rules) is not NONE, "an epoch of the future"


def test_a_kept_partition_ends_with_its_assignment() -> None:
    """KIP-1251 accepts an older epoch only while the member has the partition."""
    group, older = _two_members(CONSUMER_43)
    moved = assign(group, 1, CONSUMER_43)
    assert check_commit(moved, 0, older, CONSUMER_43) is NONE, "it has not given the partition up yet"
    assert heartbeat(moved, 1).entries[1].holds is False, "nor has the other one got it"  # type: ignore[union-attr]
    given_up = revoked(moved, 0)
    assert check_commit(given_up, 0, older, CONSUMER_43) is STALE
    assert heartbeat(given_up, 1).entries[1].holds  # type: ignore[union-attr]


def test_commits_of_a_classic_group_while_it_rebalances() -> None:
    group, _ = _two_members(CLASSIC_43)
    generation = group.epoch
    preparing = join(group, 1, CLASSIC_43)
    assert preparing.phase is Phase.PREPARING and complete_join(preparing) is None
    assert check_commit(preparing, 0, generation, CLASSIC_43) is NONE
    completing = complete_join(join(preparing, 0, CLASSIC_43))
    assert completing is not None and completing.phase is Phase.COMPLETING
    assert check_commit(completing, 0, generation, CLASSIC_43) is ILLEGAL
    assert check_commit(completing, 0, generation + 1, CLASSIC_43) is REBALANCING
    assert check_commit(completing, 0, generation + 1, CLASSIC_43, transactional=True) is NONE
    # A new coordinator knows nothing of what was being prepared.
    assert load_group(completing, CLASSIC_43).epoch == generation
    assert check_commit(load_group(completing, CLASSIC_43), 0, generation, CLASSIC_43) is NONE


def test_a_cooperative_assignor_waits_until_the_partition_is_given_up() -> None:
    rules = replace(CLASSIC_43, protocol=COOPERATIVE)
    group, _ = _two_members(rules)
    begun = complete_join(join(join(group, 1, rules), 0, rules, holds=True))
    assert begun is not None
    assert set(choices(begun, rules)) == {0, -1}
    assert set(choices(begun, CLASSIC_43)) == {0, 1}


def test_presets_name_the_line_since_which_a_rule_holds() -> None:
    accepts = {name: rules.accept_since_assignment for name, rules in GROUP_VERSIONS.items()}
    assert accepts == {"3.9": False, "4.0": False, "4.1": False, "4.2": False, "4.3": True, "4.4": True}
    assert group_rules_of("3.7.2") == group_rules_of("3.9.2-zk") == GROUP_VERSIONS["3.9"]
    with pytest.raises(ValueError, match=r"2\.5"):
        group_rules_of("2.4.1")


# -- the offsets log ---------------------------------------------------------------------------------------------------


def test_an_offset_of_a_transaction_counts_at_its_marker_unless_a_later_record_does() -> None:
    pending, commit = OffsetRecord(1, 0), OffsetRecord(-1, 0, marker=True)
    assert load_offsets(OffsetsLog((pending,), 1)) == (-1, (0,))
    assert load_offsets(OffsetsLog((pending, commit), 2)).committed == 1
    assert load_offsets(OffsetsLog((pending, commit._replace(marker=False)), 2)).committed == -1
    assert load_offsets(OffsetsLog((pending, OffsetRecord(2), commit), 3)).committed == 2
    assert load_offsets(OffsetsLog((OffsetRecord(2), pending, commit), 3)).committed == 1
    assert load_offsets(OffsetsLog((OffsetRecord(2), OffsetRecord(-1)), 2)).committed == -1, "a tombstone"
    assert load_offsets(elect(OffsetsLog((OffsetRecord(1), OffsetRecord(2)), 1), 1)).committed == 1


def test_compaction_changes_nothing_that_is_loaded_now_or_later() -> None:
    """3,000 random logs are compacted; each must load the same offsets as before, also after further records."""
    draw = random.Random(44)

    def record() -> OffsetRecord:
        producer = draw.choice((-1, -1, 0, 1))
        if producer >= 0 and draw.random() < 0.5:
            return OffsetRecord(-1, producer, marker=draw.random() < 0.7)
        return OffsetRecord(draw.choice((-1, 0, 1, 2)) if producer < 0 else draw.randrange(3), producer)

    shorter = 0
    for _ in range(3_000):
        records = tuple(record() for _ in range(draw.randrange(9)))
        whole = OffsetsLog(records, draw.randrange(len(records) + 1))
        cleaned = compact(whole)
        shorter += len(cleaned.records) < len(records)
        later = tuple(record() for _ in range(4))
        for end in range(5):
            longer = [log._replace(records=log.records + later[:end]) for log in (whole, cleaned)]
            assert load_offsets(longer[0]) == load_offsets(longer[1]), (whole, later[:end])
    assert shorter > 1_500


# -- which classes are reached -----------------------------------------------------------------------------------------


MODES: Mapping[CommitMode, tuple[set[str], set[str]]] = {
    CommitMode.BEFORE: ({"undelivered"}, set()),
    CommitMode.AFTER: ({"redelivered"}, {"redelivered"}),
    CommitMode.TIMED: ({"redelivered"}, {"redelivered"}),
    CommitMode.AT_DELIVERY: ({"redelivered", "undelivered"}, {"redelivered"}),
    CommitMode.TRANSACTION: (set(), set()),
}
"""By commit mode: classes that a SIGKILL can cause, and classes that a pause beyond the session can cause."""


@pytest.mark.parametrize("mode", CommitMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize("protocol", [EAGER, CONSUMER], ids=["eager", "consumer"])
def test_kills_and_pauses_lead_to_what_real_members_showed(mode: CommitMode, protocol: GroupProtocol) -> None:
    rules = GroupRules(protocol=protocol, commit=mode)
    assert _found(rules, GroupIncidents()) == set()
    assert (_found(rules, KILL), _found(rules, PAUSE)) == MODES[mode]


@pytest.mark.parametrize("protocol", [EAGER, CONSUMER], ids=["eager", "consumer"])
def test_exactly_once_holds_with_group_metadata_and_breaks_without(protocol: GroupProtocol) -> None:
    with_metadata = GroupRules(protocol=protocol, commit=CommitMode.TRANSACTION)
    assert _found(with_metadata, ANY) == set()
    broken = {
        "doubled-output",
        "redelivered",
        "regressed-commit",
        "torn-output",
        "two-owners",
        "zombie-commit",
    }
    assert _found(replace(with_metadata, group_metadata=False), PAUSE) == broken


def test_a_healthy_group_processes_again_where_its_commit_raced_with_an_epoch() -> None:
    """Before 4.3 a commit with the previous epoch is refused (KIP-1251), and so is a commit of a cooperative member
    while others join."""
    after = {"commit": CommitMode.AFTER}
    assert _found(GroupRules(accept_since_assignment=False, **after), GroupIncidents()) == {"redelivered"}
    assert _found(GroupRules(protocol=COOPERATIVE, **after), GroupIncidents()) == {"redelivered"}
    assert _found(GroupRules(**after), GroupIncidents()) == set()


def test_a_late_copy_of_a_commit_takes_the_offset_back() -> None:
    late = ANY._replace(late_requests=True)
    assert _found(GroupRules(protocol=EAGER), late) == {"redelivered", "regressed-commit"}
    rules = GroupRules(protocol=EAGER, commit=CommitMode.TRANSACTION)
    assert _found(rules, late) == set(), "the next transaction has another producer epoch"
    assert "torn-output" in _found(replace(rules, epoch_per_transaction=False), late)


def test_a_log_that_loses_records_loses_commits() -> None:
    lossy = GroupIncidents(moves=True, lossy_log=True)
    assert {"lost-commit", "regressed-commit", "redelivered"} <= _found(
        GroupRules(protocol=EAGER), lossy._replace(expiries=True)
    )
    found = _found(
        GroupRules(commit=CommitMode.TRANSACTION), lossy, frozenset({"lost-commit", "torn-output"})
    )
    assert found == {"lost-commit", "torn-output"}
    assert _found(GroupRules(protocol=EAGER), GroupIncidents(moves=True)) == set()


@pytest.mark.parametrize(
    ("planted", "incidents", "shows"),
    [
        ({"check_generation": False}, PAUSE, {"zombie-commit", "regressed-commit", "two-owners"}),
        ({"load_offsets": False}, GroupIncidents(moves=True), {"regressed-commit"}),
        ({"load_shift": 1}, PAUSE._replace(moves=True), {"undelivered"}),
        ({"load_shift": -1}, GroupIncidents(moves=True), {"regressed-commit"}),
        (
            {"stable_fetch": False, "commit": CommitMode.TRANSACTION},
            PAUSE,
            {"doubled-output", "redelivered"},
        ),
        (
            {"check_generation": False, "commit": CommitMode.TRANSACTION},
            PAUSE,
            {"doubled-output", "torn-output", "regressed-commit", "zombie-commit", "two-owners"},
        ),
        (
            {"load_shift": 1, "commit": CommitMode.TRANSACTION},
            PAUSE._replace(moves=True),
            {"undelivered", "torn-output"},
        ),
    ],
    ids=["checks", "forgets", "ahead", "behind", "unstable", "checks-txn", "ahead-txn"],
)
def test_planted_bugs_of_the_coordinator_are_found(
    planted: dict[str, object], incidents: GroupIncidents, shows: set[str]
) -> None:
    """Without the planted bug, the same incidents reach none of these classes."""
    mode = planted.get("commit", CommitMode.AFTER)
    sound = GroupRules(protocol=EAGER, commit=mode)  # type: ignore[arg-type]
    assert shows <= _found(replace(sound, **planted), incidents)  # type: ignore[arg-type]
    assert not shows & _found(sound, incidents)


@pytest.mark.parametrize("mode", [CommitMode.AFTER, CommitMode.TRANSACTION], ids=lambda mode: mode.name)
def test_members_that_are_alike_are_taken_together_without_loss(mode: CommitMode) -> None:
    """The reduced search must find the same classes in as many steps as a search that tells the members apart."""
    rules = GroupRules(commit=mode, group_metadata=False)
    scope = GroupScope(rules, ANY if mode is CommitMode.AFTER else PAUSE)
    reduced = Search(consumer_group(scope), frozenset(CLASSES))
    model = consumer_group(scope)
    world = _World(scope)
    cells = tuple(range(len(model.initial)))
    whole = replace(
        model, groups=[Group("steps", cells, world.moves, world.at_rest), model.groups[1]], retold=None
    )
    plain = Search(whole, frozenset(CLASSES))
    for search in (reduced, plain):
        search.run(max_states=60_000)
        assert search.exhausted or search.satisfied
    assert {kind: one.depth for kind, one in reduced.findings.items()} == {
        kind: one.depth for kind, one in plain.findings.items()
    }
    assert reduced.progress.states < plain.progress.states
    for finding in reduced.findings.values():
        assert len(reduced.way_to(finding.state)) == finding.depth


def test_the_story_of_a_zombie_names_one_member_from_first_to_last() -> None:
    rules = GroupRules(protocol=EAGER, commit=CommitMode.TRANSACTION, group_metadata=False)
    search = Search(consumer_group(GroupScope(rules, PAUSE)), frozenset({"doubled-output"}))
    search.run()
    steps = [line.action for line in search.way_to(search.findings["doubled-output"].state)]
    removed = next(step.text for step in steps if "removes" in step.text)
    zombie = removed.split(",")[0].removeprefix("removes ")
    after = steps[[step.text for step in steps].index(removed) :]
    assert any(step.actor == zombie and step.text == "commits the transaction" for step in after)
    assert {step.actor for step in steps} == {"coordinator", "member 0", "member 1"}


def test_static_members_that_come_back_take_their_partition_over() -> None:
    rules = GroupRules(protocol=EAGER, commit=CommitMode.AFTER, static=True)
    group, _ = _two_members(CLASSIC_43)
    assert isinstance(group.entries[0], Entry)
    assert _found(rules, KILL) == {"redelivered"}
    assert _found(replace(rules, commit=CommitMode.TRANSACTION), ANY) == set()
