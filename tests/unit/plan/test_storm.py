"""Storms without a cluster: draws from a seed, fields of the menu, and stored cases that keep their draws."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path

import pytest

from ackproof.experiment.case import Case
from ackproof.experiment.triggers import ChainTrigger
from ackproof.faults.disks.log_dirs import FullDisk
from ackproof.faults.processes import Kill, Pause
from ackproof.faults.registry import fault_kinds
from ackproof.faults.requests.spec import RequestFault
from ackproof.plan import Plan, cases, load
from ackproof.plan.cases import case_from_json, case_to_json
from ackproof.plan.schedule import describe

from .conftest import Load

HEAD = "name: t\ntopics:\n  orders: {}\nfaults:\n"
STORM = (
    "  - storm: {count: 12, menu: {pause: 3, kill: {weight: 1, lasting: 5s}}, gap: 0.5s..3s,"
    " roles: [leader(orders/0), broker], lasting: 1s..4s, at_least: 8}\n    at: 2s\n"
)


@pytest.fixture
def read(tmp_path: Path) -> Load:
    def of(faults: str) -> Plan:
        file = tmp_path / "e.yaml"
        file.write_text(HEAD + faults, encoding="utf-8")
        return load(file)

    return of


def drawn(plan: Plan, seed: int = 1) -> Case:
    return cases(plan, seed=seed)[0]


def test_every_fault_is_drawn_beforehand_from_the_seed(read: Load) -> None:
    spec = read(STORM)
    case = drawn(spec)
    assert case.faults == drawn(spec).faults
    assert case.faults != drawn(spec, 2).faults
    storm, *rest = case.faults
    assert [one.number for one in rest] == list(range(1001, 1013))
    begins = 0.0
    for one in rest:
        assert isinstance(one.trigger, ChainTrigger) and one.trigger.fault == storm.number
        assert 0.5 <= round(one.trigger.by - begins, 3) <= 3.0
        begins = one.trigger.by
        assert isinstance(one, (Kill, Pause))
        assert one.hold == 5.0 if isinstance(one, Kill) else 1.0 <= (one.hold or 0) <= 4.0
        assert str(one.target) in {"leader(orders/0)", "broker"}
        assert sorted(case.order(one)) == [1, 2, 3]


CONTROLLERS = HEAD.replace("topics:", "cluster: {controllers: 3}\ntopics:")


def test_a_kind_is_aimed_at_the_roles_that_it_can_be_aimed_at(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    roles = "[leader(orders/0), controller, broker]"
    file.write_text(
        CONTROLLERS
        + f"  - storm: {{count: 40, menu: {{remove_controller: 1, kill: 1}}, roles: {roles}}}\n    at: 1s\n"
    )
    targets: dict[str, set[str]] = {"remove_controller": set(), "kill": set()}
    for seed in range(3):
        for one in drawn(load(file), seed).faults[1:]:
            targets[one.kind].add(str(one.target))  # type: ignore[attr-defined]
    assert targets == {
        "remove_controller": {"controller"},
        "kill": {"leader(orders/0)", "controller", "broker"},
    }


def test_weights_are_shares(read: Load) -> None:
    spec = read("  - storm: {count: 200, menu: {pause: 3, kill: 1}}\n    at: 0s\n")
    kinds = Counter(one.kind for seed in range(10) for one in drawn(spec, seed).faults[1:])
    assert 0.70 < kinds["pause"] / 2000 < 0.80


def test_swarm_leaves_whole_kinds_out_and_never_all(read: Load) -> None:
    spec = read("  - storm: {menu: {pause: 1, kill: 1, stop: 1}, swarm: true}\n    at: 0s\n")
    left = [drawn(spec, seed).drawn[1].left_out for seed in range(60)]
    assert len(set(left)) == 7 and all(len(kinds) < 3 for kinds in left)
    for seed in range(60):
        case = drawn(spec, seed)
        assert not {one.kind for one in case.faults[1:]} & set(case.drawn[1].left_out)


def test_a_fault_before_it_does_not_change_its_times(read: Load) -> None:
    one = drawn(read(STORM)).drawn[1].faults
    two = drawn(read("  - kill: {target: broker}\n    at: 1s\n" + STORM)).drawn
    assert len(one) == len(two[2].faults) and two[2].faults[0].number == 2001


def test_the_plan_shows_each(read: Load) -> None:
    lines = "\n".join(describe(drawn(read(STORM))))
    assert "fault 1. storm of 12 (pause 3, kill 1): 2s after" in lines and "at least 8 must bite" in lines
    assert all(f"fault 1.{index}. " in lines for index in range(1, 13))
    assert " into storm 1; " in lines


def test_a_resolved_case_keeps_its_draws(read: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    case = drawn(read(STORM))
    resolved = case_to_json(case)
    # Another version may draw otherwise.
    monkeypatch.setattr(importlib.import_module("ackproof.plan.cases"), "draw_storm", None)
    assert case_from_json(resolved) == case


# fmt: on


ALL = "  - storm: {count: 20}\n    at: 1s\n"


@pytest.mark.parametrize("cluster", ["", "cluster: {controllers: 3}\n", "cluster: {brokers: 1}\n"])
def test_a_storm_that_says_nothing_draws_whatever_fits(tmp_path: Path, cluster: str) -> None:
    file = tmp_path / "e.yaml"
    one = (
        "topics:\n  orders: {replication_factor: 1}\n"
        if "brokers: 1" in cluster
        else "topics:\n  orders: {}\n"
    )
    file.write_text(f"name: t\n{cluster}{one}faults:\n{ALL}", encoding="utf-8")
    spec = load(file)
    kinds = set()
    for seed in range(12):
        case = drawn(spec, seed)
        assert len(case.faults) == 21
        assert case_from_json(case_to_json(case)) == case
        kinds |= {one.kind for one in case.faults}
        assert all(one.hold for one in case.faults if one.HOLD_KEY is not None)
    assert {"kill", "cut", "kill_client", "power_loss"} <= kinds
    # What ends the cluster for good, loses by design, or needs what is not there, is not drawn.
    assert not {"recreate", "elect_unclean", "upgrade", "command", "expire_session", "move_log_dir"} & kinds
    assert ("remove_controller" in kinds) <= ("controllers: 3" in cluster)
    assert not ({"split", "bridge", "reassign"} & kinds and "brokers: 1" in cluster)


def test_what_the_menu_leaves_out_of_a_kind_is_drawn(read: Load) -> None:
    spec = read("  - storm: {menu: {throttle: 1, delay: {weight: 1, latency: 70ms}}}\n    at: 0s\n")
    faults = [one for seed in range(4) for one in drawn(spec, seed).faults[1:]]
    assert len({str(one) for one in faults if one.kind == "throttle"}) > 5
    assert all("by 70ms" in str(one) for one in faults if one.kind == "delay")


def test_what_is_drawn_more_changes_no_other_draw(read: Load) -> None:
    """Kinds whose fields the menu gives: their draws must not change when other choices are drawn in addition."""
    said = "link: follower(orders/0) -> leader(orders/0), rate: 9KB/s"
    spec = read(f"  - storm: {{menu: {{throttle: {{weight: 1, {said}}}, kill: 1}}}}\n    at: 0s\n")
    told = [(one.kind, str(one.trigger), one.hold) for one in drawn(spec).faults[1:4]]
    assert told == [
        ("throttle", "2822ms after fault 1 is confirmed", 1.968),
        ("kill", "4020ms after fault 1 is confirmed", 1.662),
        ("throttle", "6917ms after fault 1 is confirmed", 2.404),
    ]


def test_requests_are_drawn_that_are_sent_all_the_time(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    kinds = [kind for kind in fault_kinds() if kind.endswith("_request")]
    menu = ", ".join(f"{kind}: 1" for kind in kinds)
    file.write_text(
        CONTROLLERS + f"  - storm: {{count: 60, menu: {{{menu}}}}}\n    at: 1s\n", encoding="utf-8"
    )
    faults = [one for seed in range(4) for one in drawn(load(file), seed).faults[1:]]
    assert {one.kind for one in faults} == set(kinds)
    told = {(str(one.link), one.api) for one in faults if isinstance(one, RequestFault)}
    assert told == {
        ("clients -> leader(orders/0)", "Produce"),
        ("followers(orders/0) -> leader(orders/0)", "Fetch"),
        ("brokers -> controllers", "BrokerHeartbeat"),
        ("brokers -> controllers", "Fetch"),
        ("controllers -> controller", "Fetch"),
    }


def test_the_log_dir_of_a_controller_is_its_only_one(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    head = CONTROLLERS.replace("controllers: 3", "controllers: 3, log_dirs: 2")
    roles = "[broker(1), controller(101)]"
    file.write_text(head + f"  - storm: {{count: 60, menu: {{full_disk: 1}}, roles: {roles}}}\n    at: 1s\n")
    faults = [one for seed in range(2) for one in drawn(load(file), seed).faults[1:]]
    dirs = {(str(one.target), one.dir) for one in faults if isinstance(one, FullDisk)}
    assert dirs == {("broker(1)", 1), ("broker(1)", 2), ("controller(101)", 1)}
