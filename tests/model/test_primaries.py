"""Tests of PacificA: no finding with all protections, and a finding without leases, versions or reconciliation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackproof_reference.explore.protocol_worlds import PacificaBounds, pacifica
from ackproof_reference.explore.search import Search
from ackproof_reference.log import Batch, Log
from ackproof_reference.pacifica import (
    Configuration,
    PacificaRules,
    Replica,
    commit,
    in_its_place,
    learn,
    reconfigure,
    replicate,
    serves,
    without_backup,
    write,
)
from partition import log

RULES = PacificaRules()
FIRST = Configuration(0, 0, (0, 1, 2))


def search(rules: PacificaRules, bounds: PacificaBounds, *wanted: str) -> Search:
    made = Search(pacifica(rules, bounds), frozenset(wanted) or frozenset({"whatever there is"}))
    made.run(max_states=400_000)
    return made


@pytest.mark.parametrize("bounds", [PacificaBounds(1, 2), PacificaBounds(2, 1)], ids=str)
def test_nothing_is_lost_to_exhaustion(bounds: PacificaBounds) -> None:
    made = search(RULES, bounds)
    assert made.exhausted
    assert made.findings == {}
    assert any(len(seen.committed) == bounds.entries for seen in made.cells.values[1])


@pytest.mark.parametrize(
    ("off", "bounds", "kinds"),
    [
        ("leases", PacificaBounds(1, 1), {"stale read"}),
        ("version_check", PacificaBounds(2, 1), {"lost", "conflict"}),
        ("reconciliation", PacificaBounds(2, 2), {"lost", "conflict"}),
    ],
)
def test_each_protection_is_needed(off: str, bounds: PacificaBounds, kinds: set[str]) -> None:
    without = replace(RULES, **{off: False})
    assert any(search(without, bounds, kind).findings.keys() & {kind} for kind in kinds)
    assert not search(RULES, bounds, *kinds).findings


def test_at_the_start_a_replica_has_its_leases_and_every_rule_holds() -> None:
    assert Replica(FIRST) == Replica(FIRST, Log(), True, ())
    assert PacificaRules() == PacificaRules(True, True, True)


def test_committed_is_what_all_members_hold() -> None:
    primary = Replica(FIRST, log(0, 0), ends=((1, 2), (2, 1)))
    assert commit(primary, 0).log.high_watermark == 1
    assert commit(primary._replace(ends=((1, 2),)), 0).log.high_watermark == 0
    smaller = primary._replace(config=Configuration(1, 0, (0, 1)))
    assert commit(smaller, 0).log.high_watermark == 2


def test_a_configuration_is_taken_from_who_knows_the_newest() -> None:
    replica = Replica(FIRST)
    assert reconfigure(FIRST, without_backup(replica, 2), RULES) == (Configuration(1, 0, (0, 1)), True)
    assert reconfigure(FIRST, in_its_place(replica, 1), RULES) == (Configuration(1, 1, (1, 2)), True)
    later = Configuration(1, 0, (0, 1))
    assert reconfigure(later, in_its_place(replica, 1), RULES) == (later, False)
    careless = replace(RULES, version_check=False)
    assert reconfigure(later, in_its_place(replica, 1), careless) == (Configuration(2, 1, (1, 2)), True)


def test_a_new_primary_begins_an_epoch_and_knows_nobodys_log() -> None:
    old = Replica(FIRST, log(0), ends=((0, 9),))
    new = learn(old, Configuration(1, 1, (1, 2)), 1)
    assert (new.log.epochs[-1], new.ends, serves(new, 1)) == ((1, 1), (), True)
    backup = learn(old, Configuration(1, 1, (1, 2)), 2)
    assert (backup.log, serves(backup, 2)) == (log(0), False)
    on = learn(Replica(FIRST, Log(), ends=((1, 0), (2, 0))), Configuration(1, 0, (0, 1)), 0)
    assert on.ends == ((1, 0),)
    assert not learn(old, Configuration(1, 1, (1, 2)), 0).leased
    assert on.log.epochs == ()


def test_the_only_member_left_commits_all_it_holds() -> None:
    assert learn(Replica(FIRST, log(0, 0)), Configuration(1, 1, (1,)), 1).log.high_watermark == 2
    assert learn(Replica(FIRST, log(0, 0)), Configuration(1, 0, (0,)), 1).log.high_watermark == 0


def test_a_primary_stamps_its_version() -> None:
    written = write(Replica(Configuration(4, 0, (0,))), 0, 7).log
    assert (written.batches, written.high_watermark) == ((Batch(0, 4, 0, 7),), 1)


def test_a_backup_takes_one_entry_at_a_time_and_the_commit_point_with_it() -> None:
    primary = Replica(FIRST, log(0, 0), ends=((1, 0), (2, 2)))
    backup, primary = replicate(Replica(FIRST), primary, 1, 0, RULES)
    assert (backup.log, dict(primary.ends)[1]) == (log(0, high_watermark=1), 1)
    backup, primary = replicate(backup, primary, 1, 0, RULES)
    assert (backup.log, primary.log) == (log(0, 0, high_watermark=2), log(0, 0, high_watermark=2))


@pytest.mark.parametrize(
    ("own", "primarys", "kept"),
    [
        ((0, 0, 0), (0, 2), (0,)),
        ((0, 1), (0, 0, 2), (0,)),
        ((5,), (0,), ()),
        ((1,), (0, 2), ()),
    ],
    ids=["longer in an epoch", "an epoch of its own", "a newer epoch", "nothing in common"],
)
def test_a_backup_cuts_where_the_logs_part(
    own: tuple[int, ...], primarys: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    primary = Replica(FIRST, log(*primarys))
    assert replicate(Replica(FIRST, log(*own)), primary, 1, 0, RULES) == (Replica(FIRST, log(*kept)), primary)


def test_a_backup_that_agrees_cuts_nothing() -> None:
    backup, _ = replicate(Replica(FIRST, log(0)), Replica(FIRST, log(0, 2)), 1, 0, RULES)
    assert backup.log == log(0, 2)
    careless = replace(RULES, reconciliation=False)
    assert replicate(Replica(FIRST, log(0, 1)), Replica(FIRST, log(0)), 1, 0, careless)[0].log == log(0, 1)
