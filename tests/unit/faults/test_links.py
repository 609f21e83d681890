"""Which links a fault breaks, who vouches for it, and how a fault that did not take is told from one that did."""

from __future__ import annotations

import json
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.network.mesh import (
    CLIENTS,
    Cut,
    Delay,
    Effect,
    Link,
    LinkError,
    SlowClose,
    Throttle,
)
from ackproof.cluster.protocol import NodeState
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import Members
from ackproof.experiment.spec import ClusterSpec
from ackproof.faults.holds import Grip, Holds
from ackproof.faults.injection import Aim, FaultContext, injection_of
from ackproof.faults.links import of_links as links
from ackproof.faults.links import witnesses as link_witnesses
from ackproof.plan.cases import load
from fake_links import FakeMesh, FakeNode


@dataclass
class Ground:
    """Brokers 1, 2, 3 of which 1 leads t/0, and controller 101."""

    nodes: dict[int, FakeNode] = field(
        default_factory=lambda: {
            1: FakeNode(1),
            2: FakeNode(2),
            3: FakeNode(3),
            101: FakeNode(101, is_broker=False, is_controller=True),
        }
    )
    mesh: FakeMesh | None = None
    holds: Holds = field(default_factory=Holds)

    def __post_init__(self) -> None:
        pairs = {Link(a, b) for a in (1, 2, 3) for b in (1, 2, 3, 101) if a != b}
        self.mesh = FakeMesh(frozenset(pairs | {Link(CLIENTS, b) for b in (1, 2, 3)}))
        self.spec = ClusterSpec()

    def node(self, number: int) -> FakeNode:
        return self.nodes[number]

    def aim(self, fault: FaultSpec) -> Aim:
        members = Members(
            brokers=(1, 2, 3),
            controllers=(101,),
            active_controller=101,
            leader=1,
            replicas=(1, 2, 3),
            isr=(1, 2, 3),
        )
        roles = {
            role: tuple(self.nodes[n] for n in role.resolve(members, (2, 3, 1))) for role in fault.targets
        }
        return Aim(cast(Any, roles))

    def injection(self, fault: FaultSpec) -> links.LinksInjection:
        made = injection_of(
            fault, self.aim(fault), FaultContext(cast(Any, self), threading.Event(), holds=self.holds)
        )
        assert isinstance(made, links.LinksInjection)
        return made


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> Ground:
    monkeypatch.setattr(links, "BITES_WITHIN_S", 0.3)
    monkeypatch.setattr(links, "MENDED_WITHIN_S", 0.3)
    monkeypatch.setattr(link_witnesses, "STANDS_STILL_S", 0.01)
    return Ground()


def spec_of(kind: str, **body: object) -> FaultSpec:
    data = {
        "name": "x",
        "topics": {"t": {}},
        "workload": {"duration": "1s"},
        "faults": [{kind: body, "at": "0s", "for": "1s"}],
    }
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(data, file)
        file.flush()
        return load(Path(file.name)).spec.faults[0]


def named(ground: Ground, fault: FaultSpec) -> set[str]:
    return {str(link) for link in fault.links_there(ground.aim(fault).numbers, ground.spec)}


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("cut", {"link": "followers(t/0) -> leader(t/0)"}, {"2→1", "3→1"}),
        ("cut", {"link": "leader(t/0) -> controllers", "both_ways": True}, {"1→101"}),
        ("cut", {"link": "clients -> brokers"}, {"clients→1", "clients→2", "clients→3"}),
        ("cut", {"link": "broker(2) -> brokers"}, {"2→1", "2→3"}),
        ("isolate", {"target": "leader(t/0)", "from": "peers"}, {"1→2", "1→3", "2→1", "3→1"}),
        ("isolate", {"target": "leader(t/0)", "from": "controllers"}, {"1→101"}),
        ("isolate", {"target": "leader(t/0)", "from": ["clients", "controllers"]}, {"1→101", "clients→1"}),
        ("isolate", {"target": "controller", "from": "brokers"}, {"1→101", "2→101", "3→101"}),
        ("detach", {"target": "broker(3)"}, {"3→1", "3→2", "1→3", "2→3", "3→101", "clients→3"}),
        ("isolate", {"target": "broker(3)"}, {"3→1", "3→2", "1→3", "2→3", "3→101", "clients→3"}),
        ("split", {"groups": ["minority", "majority"]}, {"2→1", "2→3", "1→2", "3→2"}),
        ("split", {"groups": [[1, 2], [3, 101]]}, {"1→3", "3→1", "2→3", "3→2", "1→101", "2→101"}),
        ("bridge", {"groups": [[1], ["followers(t/0)"]], "over": "broker(3)"}, {"1→2", "2→1"}),
    ],
)
def test_links(ground: Ground, kind: str, body: dict[str, object], expected: set[str]) -> None:
    assert named(ground, spec_of(kind, **body)) == expected


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("cut", {"link": "leader(t/0) -> broker(1)"}, "aimed at nothing"),
        ("cut", {"link": "controller -> leader(t/0)"}, "aimed at nothing"),
        ("split", {"groups": [["leader(t/0)"], [1, 2]]}, "node 1 holds roles of two groups"),
    ],
)
def test_links_that_there_are_none(ground: Ground, kind: str, body: dict[str, object], message: str) -> None:
    with pytest.raises(FaultNotConfirmed, match=message):
        named(ground, spec_of(kind, **body))


LINK = "follower(t/0) -> leader(t/0)"
EVERY = [
    ("cut", {"link": LINK}),
    ("black_hole", {"link": LINK}),
    ("throttle", {"link": LINK, "rate": "50KB/s"}),
    ("delay", {"link": LINK, "latency": "100ms"}),
    ("loss", {"link": LINK, "share": "30%"}),
    ("drop_large", {"link": LINK, "above": "600B"}),
    ("slow_close", {"link": LINK, "delay": "500ms"}),
    ("isolate", {"target": "leader(t/0)", "silent": True}),
    ("detach", {"target": "leader(t/0)"}),
]


@pytest.mark.parametrize(("kind", "body"), EVERY)
def test_a_life(ground: Ground, kind: str, body: dict[str, object]) -> None:
    injection = ground.injection(spec_of(kind, **body))
    injection.inject()
    assert injection.confirm()
    injection.heal()
    assert "registered and unfenced" in injection.confirm_healed()
    assert ground.mesh is not None
    assert not ground.mesh.broken


@pytest.mark.parametrize(("kind", "body"), EVERY)
def test_an_effect_that_goes_astray_is_not_confirmed(
    ground: Ground, kind: str, body: dict[str, object]
) -> None:
    assert ground.mesh is not None
    ground.mesh.astray = {Link(2, 1)}
    injection = ground.injection(spec_of(kind, **body))
    injection.inject()
    with pytest.raises(FaultNotConfirmed, match="to show on 2→1"):
        injection.confirm()
    injection.heal()


def test_a_link_that_stays_broken_is_not_healed(ground: Ground) -> None:
    assert ground.mesh is not None
    ground.mesh.stuck = {Link(2, 1)}
    injection = ground.injection(spec_of("cut", link=LINK))
    injection.inject()
    injection.confirm()
    injection.heal()
    with pytest.raises(FaultNotConfirmed, match="2→1 to be whole"):
        injection.confirm_healed()


def test_a_node_that_stays_fenced_is_not_healed(ground: Ground) -> None:
    injection = ground.injection(spec_of("cut", link=LINK))
    injection.inject()
    injection.confirm()
    injection.heal()
    ground.nodes[2].ready = False
    with pytest.raises(FaultNotConfirmed, match="node 2 is fenced"):
        injection.confirm_healed()


@pytest.mark.parametrize("state", [NodeState.GONE, NodeState.STOPPED])
def test_what_does_not_run_is_nothing_to_break(ground: Ground, state: NodeState) -> None:
    ground.nodes[2].now = state
    with pytest.raises(FaultNotConfirmed, match=f"nothing to break: 2→1 .node 2 is {state.value}"):
        ground.injection(spec_of("cut", link=LINK)).inject()


def test_links_to_the_dead_are_broken_too_and_said_not_to_have_been_looked_at(ground: Ground) -> None:
    assert ground.mesh is not None
    ground.nodes[3].now = NodeState.GONE
    injection = ground.injection(spec_of("cut", link="followers(t/0) -> leader(t/0)"))
    injection.inject()
    assert ground.mesh.broken == {Link(2, 1), Link(3, 1)}
    assert "3→1 was not looked at (node 3 is gone)" in injection.confirm()


def test_a_link_that_was_broken_before_is_not_this_faults_doing(ground: Ground) -> None:
    assert ground.mesh is not None
    ground.mesh.broken = {Link(2, 1)}
    with pytest.raises(FaultNotConfirmed, match="2→1 was broken before the fault"):
        ground.injection(spec_of("cut", link=LINK)).inject()


@pytest.mark.parametrize("kind", ["delay", "throttle", "flap"])
def test_what_nobody_could_see_below_another_cut_is_nothing_to_break(ground: Ground, kind: str) -> None:
    assert ground.mesh is not None
    ground.mesh.impose("fault-9", Link(2, 1), Cut())
    more = {"delay": {"latency": "1s"}, "throttle": {"rate": "10KB/s"}, "flap": {"down": "1s", "up": "1s"}}
    with pytest.raises(FaultNotConfirmed, match="broken already: fault-9"):
        ground.injection(spec_of(kind, link=LINK, **more[kind])).inject()


STACKED = [
    ("delay", {"latency": "100ms"}, Throttle(2000)),
    ("throttle", {"rate": "10KB/s"}, Delay(0.1)),
    ("throttle", {"rate": "2KB/s"}, Throttle(10_000)),
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
    """`first`: whose healing comes first."""
    assert ground.mesh is not None
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


@pytest.mark.parametrize(("kind", "body", "below"), STACKED[:6])
def test_a_stacked_effect_that_goes_astray_is_not_confirmed(
    ground: Ground, kind: str, body: dict[str, object], below: Effect, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ground.mesh is not None
    ground.mesh.impose("fault-9", Link(2, 1), below)
    monkeypatch.setattr(ground.mesh, "impose", lambda *_: None)
    injection = ground.injection(spec_of(kind, link=LINK, **body))
    injection.inject()
    with pytest.raises(FaultNotConfirmed, match="to show on 2→1"):
        injection.confirm()


def test_an_effect_that_came_later_is_left_to_its_own_fault(ground: Ground) -> None:
    assert ground.mesh is not None
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
    """What hinders it will not end: the other fault is over and left it, or a node is gone and nobody holds it."""
    assert ground.mesh is not None
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


def test_a_link_that_carried_something_before_it_was_mended_was_not_cut_all_the_time(ground: Ground) -> None:
    assert ground.mesh is not None
    injection = ground.injection(spec_of("cut", link=LINK))
    injection.inject()
    injection.confirm()
    ground.mesh.came[Link(2, 1)] = 7
    with pytest.raises(FaultNotConfirmed, match="2→1 carried 7 bytes before it was mended"):
        injection.heal()
    assert not ground.mesh.broken


def test_a_delay_that_does_not_last_is_seen_before_it_is_mended(ground: Ground) -> None:
    assert ground.mesh is not None
    injection = ground.injection(spec_of("delay", link=LINK, latency="100ms"))
    injection.inject()
    injection.confirm()
    ground.mesh.broken.clear()
    with pytest.raises(FaultNotConfirmed, match="to show on 2→1"):
        injection.heal()


SPLIT = {"groups": [[2], [1, 3]]}


def test_links_of_a_node_that_another_fault_holds_are_vouched_for_by_that(ground: Ground) -> None:
    assert ground.mesh is not None
    ground.holds.take(2, 9, Grip.DOWN)
    ground.nodes[2].now = NodeState.GONE
    injection = ground.injection(spec_of("split", **SPLIT))
    injection.inject()
    assert "2→1 was not looked at (node 2 is gone, held by fault 9)" in injection.confirm()
    assert Link(2, 1) in ground.mesh.broken
    ground.holds.release(2, 9)
    ground.nodes[2].now = NodeState.RUNNING
    assert "2→1 since its ends are back: probe refused" in injection.heal()
    injection.confirm_healed()
    assert not ground.mesh.broken


def test_a_split_that_does_not_hold_the_node_that_came_back_is_seen(ground: Ground) -> None:
    assert ground.mesh is not None
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
    assert ground.mesh is not None
    ground.holds.take(2, 9, Grip.DOWN)
    ground.holds.release(2, 9)
    ground.nodes[2].ready = False
    ground.mesh.broken = {Link(1, 2), Link(3, 2)}
    injection = ground.injection(spec_of("split", **SPLIT))
    injection.inject()
    assert "1→2 was not looked at (node 2 was started again a moment ago)" in injection.confirm()


def test_a_cluster_whose_links_were_not_laid(ground: Ground) -> None:
    ground.mesh = None
    with pytest.raises(FaultNotConfirmed, match="were not laid to be broken"):
        ground.injection(spec_of("cut", link=LINK))


def test_healing_half_a_fault(ground: Ground) -> None:
    """The second link cannot be broken: what was broken before it is mended."""
    assert ground.mesh is not None
    ground.mesh.every -= {Link(3, 1)}
    injection = ground.injection(spec_of("cut", link="followers(t/0) -> leader(t/0)"))
    with pytest.raises(LinkError):
        injection.inject()
    injection.heal()
    assert not ground.mesh.broken


def test_flapping(ground: Ground) -> None:
    injection = ground.injection(spec_of("flap", link=LINK, down="50ms", up="50ms"))
    injection.inject()
    assert injection.confirm() == "2→1: seen down, seen up"
    assert "after" in injection.heal()
    injection.confirm_healed()


def test_flapping_that_goes_astray(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ground.mesh is not None
    ground.mesh.astray = {Link(2, 1)}
    injection = ground.injection(spec_of("flap", link=LINK, down="50ms", up="50ms"))
    injection.inject()
    with pytest.raises(FaultNotConfirmed, match="to be seen down"):
        injection.confirm()
    injection.heal()


def test_a_busy_moment_hides_no_delay(ground: Ground) -> None:
    """One of the looks before took long: the delay is seen all the same."""
    assert ground.mesh is not None
    ground.mesh.held_up = [0.0, 0.9]
    injection = ground.injection(spec_of("delay", link=LINK, latency="100ms"))
    injection.inject()
    assert injection.confirm() == "2→1: a round trip takes 201.0 ms"


def test_busy_moments_do_not_pass_for_a_delay(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ground.mesh is not None
    ground.mesh.astray = {Link(2, 1)}
    monkeypatch.setattr(links, "BITES_WITHIN_S", 0.2)
    injection = ground.injection(spec_of("delay", link=LINK, latency="100ms"))
    injection.inject()
    ground.mesh.held_up = [0.0, 0.9, 0.9, 0.0, 0.0]
    with pytest.raises(FaultNotConfirmed, match="to show on"):
        injection.confirm()
