"""Tests of ZooKeeper mode: controller election, the zombie controller, watches that fire once."""

from __future__ import annotations

from dataclasses import replace

from ackproof_reference.explore.protocol_worlds import controllers
from ackproof_reference.explore.search import Search
from ackproof_reference.explore.story import counterexample_lines
from ackproof_reference.zookeeper import (
    Ensemble,
    Member,
    ZooKeeperRules,
    expire,
    reconnect,
    try_to_become_controller,
    watch,
    write_state,
)

RULES = ZooKeeperRules()
THREE = Ensemble((0, 1, 2), (0, 1, 2))


def search(rules: ZooKeeperRules, *wanted: str, brokers: int = 3, expiries: int = 2) -> Search:
    made = Search(controllers(rules, brokers, expiries), frozenset(wanted) or frozenset({"whatever"}))
    made.run(max_states=300_000)
    return made


def test_whoever_comes_first_is_controller() -> None:
    taken, winner = try_to_become_controller(THREE, 2)
    assert (taken.controller, taken.controller_epoch, winner) == (2, 1, Member(2, 1, fired=False))
    again, loser = try_to_become_controller(taken, 0)
    assert (again, loser) == (taken, Member(2, 0, fired=False))


def test_an_expired_session_takes_its_nodes_and_fires_watches_once() -> None:
    taken, _ = try_to_become_controller(watch(watch(THREE, 0), 1), 2)
    gone, told = expire(taken, 2)
    assert (gone.controller, gone.ids, gone.sessions, told) == (-1, (0, 1), (0, 1), (0, 1))
    assert gone.watches == ()
    other, told = expire(taken, 1)
    assert (other.controller, other.watches, told) == (2, (0,), ())
    back, member = reconnect(gone, 2)
    assert (back.ids, back.sessions, member) == ((0, 1, 2), (0, 1, 2), Member())


def test_a_zombie_controllers_write_is_refused() -> None:
    now = THREE._replace(controller=1, controller_epoch=2, state_epoch=2)
    zombie = Member(0, 1, fired=False)
    assert write_state(now, zombie, 0, RULES) == (now, False)
    written, taken = write_state(now, zombie, 0, replace(RULES, epoch_check=False))
    assert (written.state_epoch, written.leader, written.state_version, taken) == (1, 0, 1, True)


def test_the_controllers_own_write_is_taken() -> None:
    now = THREE._replace(controller=1, controller_epoch=2, state_epoch=1, state_version=4)
    written, taken = write_state(now, Member(1, 2, fired=False), 0, RULES)
    assert taken
    assert written == now._replace(leader=0, state_epoch=2, state_version=5)


def test_each_controller_raises_the_epoch() -> None:
    taken, member = try_to_become_controller(THREE._replace(controller_epoch=4), 1)
    assert (taken.controller, taken.controller_epoch, member.acts) == (1, 5, 5)


def test_a_watch_is_set_once() -> None:
    watched = watch(watch(watch(THREE, 2), 0), 2)
    assert watched == THREE._replace(watches=(0, 2))


def test_a_controller_that_expires_is_not_told_of_itself() -> None:
    taken, _ = try_to_become_controller(watch(watch(THREE, 0), 2), 2)
    gone, told = expire(taken, 2)
    assert (told, gone.controller_epoch) == ((0,), 1)


def test_a_new_session_changes_nothing_for_the_others() -> None:
    taken, _ = try_to_become_controller(watch(THREE, 2), 2)
    gone, _ = expire(taken, 0)
    assert reconnect(gone, 0) == (taken, Member())
    assert reconnect(taken, 1) == (taken, Member())


def test_at_the_start_nobody_is_believed_and_all_have_yet_to_look() -> None:
    assert Member() == Member(-1, 0, True, False)
    assert Ensemble((0,), (0,)) == Ensemble((0,), (0,), (), -1, 0, -1, 0, 0)
    assert ZooKeeperRules() == ZooKeeperRules(True, True)


def test_every_interleaving_has_one_controllers_decisions_in_order() -> None:
    made = search(RULES)
    assert made.exhausted
    assert made.findings == {}
    assert max(ensemble.controller_epoch for ensemble in made.cells.values[1]) == 3


def test_without_the_epoch_check_a_zombie_overwrites() -> None:
    made = search(replace(RULES, epoch_check=False), "overwritten", expiries=1)
    found = made.findings["overwritten"]
    story = "\n".join(counterexample_lines(found, made.way_to(found.state)))
    assert "ends the session" in story


def test_without_watching_first_a_change_is_missed_and_nobody_becomes_controller() -> None:
    made = search(replace(RULES, watch_before_reading=False), "nobody", expiries=1)
    assert "nobody" in made.findings
