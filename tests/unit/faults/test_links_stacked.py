"""Several faults on one link, or on its end nodes: each is confirmed and healed relative to the others' effects."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.protocol import NodeState
from ackproof.experiment.fault import Grip
from ackproof.faults.links import injection as links
from ackproof.network.mesh import Cut, Delay, Effect, Imposed, Link, LinkError, SlowClose, Throttle
from fake_links import Ground, spec_of

LINK = "follower(t/0) -> leader(t/0)"


STACKED = [
    ("delay", {"latency": "100ms"}, Throttle(2000)),
    ("throttle", {"rate": "10KB/s"}, Delay(0.1)),
    ("throttle", {"rate": "2KB/s"}, Throttle(10_000)),
    ("loss", {"share": "30%"}, Delay(0.1)),
    ("cut", {}, Throttle(2000)),
    ("black_hole", {}, Delay(0.1)),
    ("slow_close", {"delay": "100ms"}, SlowClose(0.1)),
    ("cut", {}, Cut()),
    ("black_hole", {}, Cut()),
]


@pytest.mark.parametrize(("kind", "body", "below"), STACKED)
@pytest.mark.parametrize("first", ["own", "other"])
def test_effects_stack_and_each_is_lifted_alone(
    ground: Ground, kind: str, body: dict[str, object], below: Effect, first: str
) -> None:
    """`first`: the fault that is healed first: this one (`own`), or the one that affected the link before (`other`)."""
    ground.mesh.impose("fault-9", Link(2, 1), below)
    injection = ground.injection(spec_of(kind, link=LINK, **body))
    injection.inject()
    injection.confirm()
    if first == "other":
        ground.mesh.lift("fault-9", Link(2, 1))
    injection.heal()
    assert ground.mesh.laid[Link(2, 1)] == ({} if first == "other" else {"fault-9": below})
    hidden = first == "own" and isinstance(below, Cut)  # below what is silent itself nothing can be seen
    if hidden:
        threading.Timer(0.3, ground.mesh.lift, ("fault-9", Link(2, 1))).start()
    injection.confirm_healed()
    assert bool(ground.mesh.laid[Link(2, 1)]) is (first == "own" and not hidden)


@pytest.mark.parametrize(("kind", "body", "below"), STACKED[:7])
def test_a_stacked_effect_that_goes_astray_is_not_confirmed(
    ground: Ground, kind: str, body: dict[str, object], below: Effect, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.mesh.impose("fault-9", Link(2, 1), below)
    monkeypatch.setattr(ground.mesh, "impose", lambda *_: None)
    injection = ground.injection(spec_of(kind, link=LINK, **body))
    injection.inject()
    with pytest.raises(FaultNotConfirmed, match="to show on 2→1"):
        injection.confirm()


def test_an_effect_that_came_later_is_left_to_its_own_fault(ground: Ground) -> None:
    injection = ground.injection(spec_of("delay", link=LINK, latency="100ms"))
    injection.inject()
    injection.confirm()
    ground.mesh.impose("fault-12", Link(2, 1), Cut())
    injection.heal()
    threading.Timer(0.3, ground.mesh.lift, ("fault-12", Link(2, 1))).start()
    assert "2→1: a round trip takes 1.0 ms; the nodes" in injection.confirm_healed()
    assert not ground.mesh.broken


@pytest.mark.parametrize("kind", ["fault", "node"])
def test_a_healing_of_which_nothing_can_be_seen_any_more_is_not_confirmed(ground: Ground, kind: str) -> None:
    """The link stays blocked and no fault that is in force explains it: the other fault is over but left its effect, or
    a node died and no fault holds it."""
    injection = ground.injection(spec_of("cut", link=LINK))
    injection.inject()
    injection.confirm()
    injection.heal()
    if kind == "fault":
        ground.mesh.impose("fault-12", Link(2, 1), Cut())
        ground.holds.drop(12)
    else:
        ground.nodes[2].now = NodeState.GONE
    with pytest.raises(FaultNotConfirmed, match=r"nothing can be seen of its healing: 2→1 \("):
        injection.confirm_healed()


def test_what_hinders_a_look_may_end_between_two_looks_at_it(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine stalls between two looks: the time limit passes while the other fault affects the link."""
    injection = ground.injection(spec_of("cut", link=LINK))
    injection.inject()
    injection.confirm()
    injection.heal()
    monkeypatch.setattr(links, "BITES_WITHIN_S", -1.0)
    mesh, there = ground.mesh, ground.mesh.imposed
    mesh.impose("fault-12", Link(2, 1), Cut())

    def ends_after_a_look(link: Link) -> tuple[Imposed, ...]:
        seen = there(link)
        mesh.lift("fault-12", link)
        return seen

    monkeypatch.setattr(mesh, "imposed", ends_after_a_look)
    injection.confirm_healed()


def test_a_link_that_carried_something_before_it_was_mended_was_not_cut_all_the_time(ground: Ground) -> None:
    injection = ground.injection(spec_of("cut", link=LINK))
    injection.inject()
    injection.confirm()
    ground.mesh.came[Link(2, 1)] = 7
    with pytest.raises(FaultNotConfirmed, match="2→1 carried 7 bytes before it was mended"):
        injection.heal()
    assert not ground.mesh.broken


def test_a_delay_that_does_not_last_is_seen_before_it_is_mended(ground: Ground) -> None:
    injection = ground.injection(spec_of("delay", link=LINK, latency="100ms"))
    injection.inject()
    injection.confirm()
    ground.mesh.broken.clear()
    with pytest.raises(FaultNotConfirmed, match="to show on 2→1"):
        injection.heal()


@pytest.mark.parametrize("goes_astray", [False, True])
def test_a_flap_over_a_cut_stays_silent_and_is_seen_once_the_cut_has_healed(
    ground: Ground, goes_astray: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.mesh.impose("fault-9", Link(2, 1), Cut())
    if goes_astray:
        monkeypatch.setattr(ground.mesh, "impose", lambda *_: None)
    injection = ground.injection(spec_of("flap", link=LINK, down="50ms", up="50ms"))
    injection.inject()
    assert injection.confirm().startswith("2→1: probe refused")
    ground.mesh.lift("fault-9", Link(2, 1))
    if goes_astray:
        with pytest.raises(FaultNotConfirmed, match="2→1 to be seen down"):
            injection.heal()
    else:
        assert injection.heal().endswith("; 2→1 until then: seen down, seen up")
        injection.confirm_healed()
    assert not ground.mesh.broken


def test_a_flap_over_a_cut_that_lasts_longer_is_ended_below_it(ground: Ground) -> None:
    ground.mesh.impose("fault-9", Link(2, 1), Cut())
    injection = ground.injection(spec_of("flap", link=LINK, down="50ms", up="50ms"))
    injection.inject()
    injection.confirm()
    assert injection.heal().endswith("cuts")
    assert ground.mesh.laid[Link(2, 1)] == {"fault-9": Cut()}
    threading.Timer(0.3, ground.mesh.lift, ("fault-9", Link(2, 1))).start()
    injection.confirm_healed()


def test_a_flap_that_another_fault_cuts_before_it_was_seen_up(ground: Ground) -> None:
    injection = ground.injection(spec_of("flap", link=LINK, down="50ms", up="50ms"))
    injection.inject()
    ground.mesh.impose("fault-12", Link(2, 1), Cut())
    assert "2→1: seen down, not seen up (broken already: fault-12)" in injection.confirm()
    ground.mesh.lift("fault-12", Link(2, 1))
    injection.heal()
    injection.confirm_healed()


def test_a_cut_of_a_link_that_flaps_is_confirmed_though_it_was_down_at_each_look(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another fault's flapping effect is on the link at one look and missing at the next."""
    flaps = iter([(), (Imposed("fault-9", "fault-9"),), ()])
    monkeypatch.setattr(ground.mesh, "imposed", lambda link: next(flaps, ()))
    ground.mesh.broken = {Link(2, 1)}
    injection = ground.injection(spec_of("cut", link=LINK))
    injection.inject()
    assert injection.confirm().endswith("2→1 was not looked at (broken already: fault-9)")


def test_a_flap_over_a_thin_line_is_seen_up(ground: Ground) -> None:
    ground.mesh.impose("fault-9", Link(2, 1), Throttle(2000))
    injection = ground.injection(spec_of("flap", link=LINK, down="50ms", up="50ms"))
    injection.inject()
    assert injection.confirm() == "2→1: seen down, seen up"
    injection.heal()


def test_a_flapping_link_whose_end_died_by_itself_is_not_confirmed(ground: Ground) -> None:
    """No fault holds the node. So the missing answers may have another cause than a fault."""
    injection = ground.injection(spec_of("flap", link=LINK, down="50ms", up="50ms"))
    injection.inject()
    ground.mesh.stuck = {Link(2, 1)}
    ground.nodes[2].now = NodeState.GONE
    with pytest.raises(FaultNotConfirmed, match="2→1 to be seen up"):
        injection.confirm()
    injection.heal()


@pytest.mark.parametrize("held", [True, False])
def test_nobody_counts_for_a_source_that_is_gone(
    ground: Ground, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers, counters and probes end with a node's process. Only a fault that holds the node excuses that."""
    mesh, node = ground.mesh, ground.nodes[2]

    def from_the_dead(look: Callable[..., object]) -> Callable[..., object]:
        def act(link: Link, **more: object) -> object:
            if node.now is NodeState.GONE:
                raise LinkError("node 2 has no process")
            return look(link, **more)

        return act

    for name in ("traffic", "probe"):
        monkeypatch.setattr(mesh, name, from_the_dead(getattr(mesh, name)))
    injection = ground.injection(spec_of("cut", link=LINK))
    injection.inject()
    injection.confirm()
    node.now = NodeState.GONE
    if held:
        ground.holds.take(2, 9, Grip.DOWN)
    assert injection.heal().endswith(
        "until then no byte came back; whether anything came over 2→1 is unknown"
    )
    if held:
        threading.Timer(
            0.3, lambda: (setattr(node, "now", NodeState.RUNNING), ground.holds.release(2, 9))
        ).start()
        assert injection.confirm_healed().startswith("2→1: probe answered")
    else:
        with pytest.raises(FaultNotConfirmed, match="nothing can be seen of its healing"):
            injection.confirm_healed()


SPLIT = {"groups": [[2], [1, 3]]}


def test_links_of_a_node_that_another_fault_holds_are_vouched_for_by_that(ground: Ground) -> None:
    ground.holds.take(2, 9, Grip.DOWN)
    ground.nodes[2].now = NodeState.GONE
    injection = ground.injection(spec_of("split", **SPLIT))
    injection.inject()
    assert "2→1 was not looked at (node 2 is gone, held by fault 9)" in injection.confirm()
    assert Link(2, 1) in ground.mesh.broken
    ground.holds.release(2, 9)
    ground.nodes[2].now = NodeState.RUNNING
    assert "2→1 until then: probe refused" in injection.heal()
    injection.confirm_healed()
    assert not ground.mesh.broken


def test_a_split_that_does_not_hold_the_node_that_came_back_is_seen(ground: Ground) -> None:
    ground.holds.take(2, 9, Grip.DOWN)
    ground.nodes[2].now = NodeState.GONE
    ground.mesh.astray = {Link(2, 1)}
    injection = ground.injection(spec_of("split", **SPLIT))
    injection.inject()
    injection.confirm()
    ground.holds.release(2, 9)
    ground.nodes[2].now = NodeState.RUNNING
    with pytest.raises(FaultNotConfirmed, match="2→1 to carry nothing"):
        injection.heal()
    assert not ground.mesh.broken


def test_a_node_that_only_comes_back_is_not_broken_before(ground: Ground) -> None:
    ground.holds.take(2, 9, Grip.DOWN)
    ground.holds.release(2, 9)
    ground.nodes[2].ready = False
    ground.mesh.broken = {Link(1, 2), Link(3, 2)}
    injection = ground.injection(spec_of("split", **SPLIT))
    injection.inject()
    assert "1→2 was not looked at (node 2 was started again a moment ago)" in injection.confirm()
