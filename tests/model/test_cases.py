"""Tests of the conversion of cases into inputs of the reference: rules, incidents, scopes."""

from __future__ import annotations

import pytest

from ackproof.experiment.case import Case
from ackproof.rundir.metadata import BrokerChanged, PartitionChanged
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Event, EventKind
from ackproof_model.predict.cases import counted_for, rules_for, scope_for
from ackproof_model.predict.incidents import happened
from ackproof_reference.explore.scope import Budget
from model_cases import case_of


@pytest.mark.parametrize(
    ("fault", "budget"),
    [
        ("kill: {target: leader(orders/0)}", Budget(kills=1)),
        ("kill: {target: followers(orders/0)}", Budget(kills=2)),
        ("kill: {target: controller}", Budget()),
        ("crash_loop: {target: leader(orders/0), times: 7}", Budget(kills=3)),
        ("stop: {target: leader(orders/0)}", Budget(clean_stops=1)),
        ("power_loss: {target: brokers}", Budget(power_losses=3)),
        ("elect_unclean: {partition: orders/0}", Budget(unclean=1)),
        ("reassign: {partition: orders/0, to: [2, 3, 1]}", Budget(hand_overs=1)),
    ],
)
def test_a_fault_counts_what_it_does_to_replicas(fault: str, budget: Budget) -> None:
    assert counted_for(case_of(fault), "orders").budget == budget


@pytest.mark.parametrize(
    ("fault", "budget"),
    [
        ("kill: [broker(1), broker(4)]", Budget(kills=2)),
        ("kill: [leader(orders/0), follower(orders/0)]", Budget(kills=2)),
        ("kill: rack(a)", Budget(kills=2)),
        ("kill: rack(c)", Budget(kills=1)),
        ("kill: rack(leader(orders/0))", Budget(kills=2)),
        ("kill: rack(controllers)", Budget(kills=3)),
        ("kill: [controller(101), broker(2)]", Budget(kills=1)),
        ("power_loss: [rack(a), rack(b)]", Budget(power_losses=3)),
    ],
)
def test_every_broker_of_a_rack_or_a_list_counts(fault: str, budget: Budget) -> None:
    racks = "brokers: 5, controllers: 3, racks: [a, b, c]"
    assert counted_for(case_of(fault, cluster=racks), "orders").budget == budget


def test_a_link_between_racks_has_brokers_and_controllers_at_its_ends() -> None:
    link, racks = "cut: rack(a) -> rack(b)", "brokers: 4, controllers: 3, racks: [a, b]"
    assert counted_for(case_of(link, "for: 6s", cluster=racks), "orders").budget == Budget(cuts=3, shrinks=2)
    alone = 'cut: "[broker(1), broker(3)] -> broker(2)"'
    assert counted_for(case_of(alone, "for: 6s", cluster=racks), "orders").budget == Budget(shrinks=2)


@pytest.mark.parametrize(
    ("lasts", "budget"),
    [("1s", Budget()), ("3500ms", Budget(cuts=2)), ("20s", Budget(cuts=2))],
)
def test_a_pause_counts_when_it_outlasts_the_session(lasts: str, budget: Budget) -> None:
    assert (
        counted_for(case_of("pause: {target: followers(orders/0)}", f"for: {lasts}"), "orders").budget
        == budget
    )


def test_a_throttled_follower_counts_as_slow_when_it_lags_long_enough() -> None:
    link = "cut: {link: followers(orders/0) -> leader(orders/0)}"
    assert counted_for(case_of(link, "for: 2s"), "orders").budget == Budget()
    assert counted_for(case_of(link, "for: 6s"), "orders").budget == Budget(shrinks=2)
    one = "throttle: {link: follower(orders/0) -> leader(orders/0), rate: 1KiB/s}"
    assert counted_for(case_of(one, "for: 6s"), "orders").budget == Budget(shrinks=1)


def test_a_leader_that_is_cut_off_drops_every_follower() -> None:
    alone = "isolate: {target: leader(orders/0), from: peers}"
    assert counted_for(case_of(alone, "for: 6s"), "orders").budget == Budget(shrinks=2)


def test_a_slow_disk_counts_as_long_as_it_lasts_at_most_and_a_leader_on_it_drops_every_follower() -> None:
    """The fault lasts at most until `for` has passed since its confirmation, which takes at most 3 stalls and 3 s. A
    follower lags too long if that exceeds 4 s."""
    one, leader = (f"slow_disk: {{target: {role}(orders/0), stall: %s}}" for role in ("follower", "leader"))
    short = "100ms"
    assert counted_for(case_of(one % short, "for: 600ms"), "orders").budget == Budget()
    assert counted_for(case_of(one % short, "for: 800ms"), "orders").budget == Budget(shrinks=1)
    assert counted_for(case_of(one % "1s", "for: 600ms"), "orders").budget == Budget(shrinks=1)
    assert counted_for(case_of(leader % "1s", "for: 6s"), "orders").budget == Budget(shrinks=2)
    assert (
        counted_for(case_of("slow_disk: {target: controller, stall: 9s}", "for: 6s"), "orders").budget
        == Budget()
    )


def test_a_disk_that_stands_still_for_a_session_hides_another_controller() -> None:
    slow = "slow_disk: {target: follower(orders/0), stall: %s}"
    combined = "controllers: 3, combined: true"
    assert counted_for(case_of(slow % "2s", cluster=combined), "orders").budget == Budget(shrinks=1)
    assert counted_for(case_of(slow % "3s", cluster=combined), "orders").budget == Budget(shrinks=1, cuts=1)
    assert counted_for(case_of(slow % "3s", cluster=f"log_dirs: 2, {combined}"), "orders").budget == Budget(
        shrinks=1
    )


def test_a_quorum_that_changes_is_named_and_takes_nothing_from_replicas() -> None:
    case = case_of("remove_controller: {target: controller}", "for: 6s", cluster="controllers: 3")
    counted = counted_for(case, "orders")
    assert counted.budget == Budget()
    assert counted.faults == ("fault 1 (remove_controller controller): nothing",)


def test_rot_is_an_end_of_the_broker_and_a_loss_of_power_where_it_rots() -> None:
    rotten = case_of("flip_bits: {target: leader(orders/0)}", "for: 1s")
    assert counted_for(rotten, "orders").budget == Budget(kills=1)
    assert counted_for(rotten, "orders", rotted=rotten.faults).budget == Budget(kills=1, power_losses=1)
    flushed = case_of("flip_bits: {target: leader(orders/0)}", "for: 1s", config='flush.messages: "1"')
    assert counted_for(flushed, "orders", rotted=flushed.faults).budget == Budget(kills=1, power_losses=1)


@pytest.mark.parametrize(
    ("fault", "rots"),
    [
        ("flip_bits: {target: leader(orders/0)}", True),
        ("truncate_segment: {target: leader(orders/0)}", True),
        ("delete_checkpoint: {target: leader(orders/0), file: leader-epoch}", True),
        ("delete_checkpoint: {target: leader(orders/0), file: recovery-point}", False),
        ("empty_disk: {target: leader(orders/0)}", False),
    ],
)
def test_a_log_rots_where_the_fault_strikes_it(fault: str, rots: bool) -> None:
    one = case_of(fault).faults[0]
    assert one.rots(TopicPartition("orders", 0)) is rots
    assert not one.rots(TopicPartition("orders", 1))


def test_commands_cannot_be_predicted() -> None:
    commanded = case_of('command: {inject: ["true"], check: ["false"], heal: ["true"]}')
    assert commanded.faults[0].unpredictable() == "the effect of a command is unknown"
    assert case_of("kill: {target: leader(orders/0)}").faults[0].unpredictable() == ""


def test_rules_take_release_feature_level_and_settings_of_the_topic() -> None:
    rules = rules_for(case_of(min_insync=2), "orders")
    assert (rules.min_insync, rules.elr, rules.unclean_election) == (2, True, False)
    old = rules_for(
        case_of(cluster='kafka: "4.0.2"', config="unclean.leader.election.enable: true"), "orders"
    )
    assert (old.elr, old.unclean_election) == (False, True)
    off = rules_for(case_of(cluster="features: {eligible.leader.replicas.version: 0}"), "orders")
    assert not off.elr
    assert rules_for(case_of(cluster='kafka: "3.9.2", mode: zookeeper'), "orders").bump_on_shrink


def test_what_is_too_large_is_clamped_and_said() -> None:
    case = case_of(
        "crash_loop: {target: leader(orders/0), times: 7}", cluster="brokers: 5", min_insync=3, replicas=5
    )
    scope, counted = scope_for(case, "orders")
    assert (scope.brokers, scope.rules.min_insync, scope.budget.kills) == (3, 2, 3)
    assert counted.clamped == ("kills: 7 → 3", "replicas: 5 → 3", "min.insync.replicas: 3 → 2")


def _event(kind: EventKind, **more: object) -> Event:
    return Event.model_validate({"t_ns": 0, "wall_ns": 0, "kind": kind, **more})


def _asked(*nodes: int) -> Event:
    return _event(EventKind.FAULT_ASKED, fault=1, detail={"nodes": list(nodes)})


def _partition(offset: int, leader: int, epoch: int, isr: tuple[int, ...]) -> PartitionChanged:
    return PartitionChanged(
        offset=offset,
        epoch=1,
        timestamp_ms=offset,
        topic="orders",
        partition=0,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=offset,
        replicas=(1, 2, 3),
        isr=isr,
    )


def _fenced(offset: int, node: int, fenced: bool, at: int | None = None) -> BrokerChanged:
    when = offset if at is None else at
    return BrokerChanged(offset=offset, epoch=1, timestamp_ms=when, node=node, broker_epoch=1, fenced=fenced)


@pytest.fixture
def killing() -> Case:
    return case_of("kill: {target: leader(orders/0)}")


def test_a_fault_that_was_never_asked_for_does_not_count(killing: Case) -> None:
    assert counted_for(killing, "orders", []).budget == Budget()
    assert counted_for(killing, "orders", [_asked(1)]).budget == Budget(kills=1)


def test_a_node_that_died_by_itself_counts_as_killed(killing: Case) -> None:
    events = [_asked(1), _event(EventKind.NODE_DIED, node=2)]
    assert counted_for(killing, "orders", events).budget == Budget(kills=2)


def test_an_unplanned_fencing_counts_and_that_of_a_killed_broker_does_not(killing: Case) -> None:
    decided = [
        _partition(0, 1, 0, (1, 2, 3)),
        _fenced(1, 1, True),
        _partition(2, 2, 1, (2, 3)),
        _fenced(3, 1, False),
        _fenced(4, 3, True),
        _partition(5, 2, 1, (2,)),
    ]
    counted = counted_for(killing, "orders", [_asked(1)], decided=decided)
    assert counted.budget == Budget(kills=1, cuts=1)
    assert "broker 3 was fenced once while it lived: cuts=1" in counted.faults


def test_isr_shrinks_moves_and_unclean_elections_are_read_from_the_metadata_log(killing: Case) -> None:
    decided = [
        _partition(0, 1, 0, (1, 2, 3)),
        _partition(1, 1, 0, (1, 2)),
        _partition(2, 2, 1, (1, 2)),
        _partition(3, 3, 2, (3,)),
    ]
    assert counted_for(killing, "orders", [], decided=decided).budget == Budget(
        shrinks=1, hand_overs=1, unclean=1
    )


def test_a_shrink_that_raises_the_leader_epoch_is_one_too(killing: Case) -> None:
    """In ZooKeeper mode, and before metadata version 3.6, a shrink raises the leader epoch although the leader
    stays."""
    decided = [_partition(0, 1, 0, (1, 2, 3)), _partition(1, 1, 1, (1,))]
    assert counted_for(killing, "orders", [], decided=decided).budget == Budget(shrinks=2)


def test_the_drop_that_comes_with_a_fencing_is_no_second_one(killing: Case) -> None:
    decided = [_partition(0, 1, 0, (1, 2, 3)), _partition(1, 1, 0, (1, 2)), _fenced(2, 3, True, at=1)]
    assert counted_for(killing, "orders", [], decided=decided).budget == Budget(cuts=1)


def test_without_a_metadata_log_the_samples_count() -> None:
    case = case_of("pause: {target: leader(orders/0)}", "for: 1s")
    events = [
        _event(EventKind.ISR, topic="orders", partition=0, detail={"isr": [1, 2, 3]}),
        _event(EventKind.ISR, topic="orders", partition=0, detail={"isr": [1, 3]}),
    ]
    assert counted_for(case, "orders", events).budget == Budget(shrinks=1)


def _told(kind: EventKind, second: int, *, fault: int | None = None, node: int | None = None) -> Event:
    detail = {"kind": "kill", "nodes": [1, 2]} if kind is EventKind.FAULT_ASKED else {}
    return Event(t_ns=second * 10**9, wall_ns=0, kind=kind, fault=fault, node=node, detail=detail)


@pytest.mark.parametrize(
    ("missed", "ends", "kills"),
    [
        (False, [], 2),
        (True, [], 0),
        (True, [(2, 3)], 1),
        (True, [(2, 2), (1, 4)], 2),
        (True, [(2, 1), (1, 5), (3, 3)], 0),
    ],
    ids=["it bit", "nobody ended", "one ended unseen", "at the edges", "another time, another node"],
)
def test_a_fault_that_missed_struck_nobody_but_who_ended_in_its_time(
    missed: bool, ends: list[tuple[int, int]], kills: int
) -> None:
    """The fault is requested at 2 s and over at 4 s. A node that did not end in this time does not count as killed."""
    case = case_of("kill: {target: brokers}")
    life = [_told(EventKind.FAULT_ASKED, 2, fault=1)]
    life += [_told(EventKind.FAULT_MISSED if missed else EventKind.FAULT_CONFIRMED, 3, fault=1)]
    life += [_told(EventKind.FAULT_RECOVERED, 4, fault=1)]
    gone = [_told(EventKind.NODE_ENDED, second, node=node) for node, second in ends]
    events = sorted([*life, *gone], key=lambda event: event.t_ns)
    counted = dict(happened(case, "orders", events, ()))
    assert sum(count.kills for count in counted.values()) == kills, counted
