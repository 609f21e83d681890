"""Link faults: the links that each kind breaks, what confirms its effect, and effects that do not appear."""

from __future__ import annotations

import math

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.protocol import NodeState
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.problems import InvalidExperiment
from ackproof.faults.links import injection as links
from ackproof.faults.links.shaped import ROUNDS, ThrottleFault
from ackproof.faults.links.spec import LinkObservation
from ackproof.network.mesh import Cut, Link, LinkError
from fake_links import Ground, spec_of


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
def test_an_effect_is_seen_and_mended(ground: Ground, kind: str, body: dict[str, object]) -> None:
    injection = ground.injection(spec_of(kind, **body))
    injection.inject()
    assert injection.confirm()
    injection.heal()
    assert "registered and unfenced" in injection.confirm_healed()
    assert not ground.mesh.broken


def test_packets_that_no_probe_is_larger_than_are_not_dropped() -> None:
    with pytest.raises(InvalidExperiment, match="30000"):
        spec_of("drop_large", link=LINK, above="30000B")


@pytest.mark.parametrize(("kind", "body"), EVERY)
def test_an_effect_that_goes_astray_is_not_confirmed(
    ground: Ground, kind: str, body: dict[str, object]
) -> None:
    ground.mesh.astray = {Link(2, 1)}
    injection = ground.injection(spec_of(kind, **body))
    injection.inject()
    with pytest.raises(FaultNotConfirmed, match="to show on 2→1"):
        injection.confirm()
    injection.heal()


def test_a_link_that_stays_broken_is_not_healed(ground: Ground) -> None:
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
    ground.nodes[3].now = NodeState.GONE
    injection = ground.injection(spec_of("cut", link="followers(t/0) -> leader(t/0)"))
    injection.inject()
    assert ground.mesh.broken == {Link(2, 1), Link(3, 1)}
    assert "3→1 was not looked at (node 3 is gone)" in injection.confirm()


def test_a_link_that_was_broken_before_is_not_this_faults_doing(ground: Ground) -> None:
    ground.mesh.broken = {Link(2, 1)}
    with pytest.raises(FaultNotConfirmed, match="2→1 was broken before the fault"):
        ground.injection(spec_of("cut", link=LINK)).inject()


@pytest.mark.parametrize("kind", ["delay", "throttle"])
def test_what_nobody_could_see_below_another_cut_is_nothing_to_break(ground: Ground, kind: str) -> None:
    ground.mesh.impose("fault-9", Link(2, 1), Cut())
    more = {"delay": {"latency": "1s"}, "throttle": {"rate": "10KB/s"}}
    injection = ground.injection(spec_of(kind, link=LINK, **more[kind]))
    with pytest.raises(FaultNotConfirmed, match="broken already: fault-9"):
        injection.inject()
    # What never began is healed at once, whatever lies there.
    injection.heal()
    assert "the nodes at their ends answer" in injection.confirm_healed()


def test_a_cluster_whose_links_were_not_laid(ground: Ground) -> None:
    ground.mesh = None  # type: ignore[assignment]
    with pytest.raises(FaultNotConfirmed, match="were not laid to be broken"):
        ground.injection(spec_of("cut", link=LINK))


def test_healing_half_a_fault(ground: Ground) -> None:
    """The second link cannot be broken; healing mends the first, which was broken already."""
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
    ground.mesh.astray = {Link(2, 1)}
    injection = ground.injection(spec_of("flap", link=LINK, down="50ms", up="50ms"))
    injection.inject()
    with pytest.raises(FaultNotConfirmed, match="to be seen down"):
        injection.confirm()
    injection.heal()


def test_a_busy_moment_hides_no_delay(ground: Ground) -> None:
    """The delay is confirmed although most probes before the fault were slow, and one had no answer."""
    ground.mesh.held_up = [0.9, math.inf, 0.0, 0.9, 0.9] * 3
    injection = ground.injection(spec_of("delay", link=LINK, latency="100ms"))
    injection.inject()
    assert injection.confirm() == "2→1: a round trip takes 201.0 ms"


def test_busy_moments_do_not_pass_for_a_delay(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.mesh.astray = {Link(2, 1)}
    monkeypatch.setattr(links, "BITES_WITHIN_S", 0.2)
    injection = ground.injection(spec_of("delay", link=LINK, latency="100ms"))
    injection.inject()
    ground.mesh.held_up = [0.0, 0.9, 0.9, 0.9, 0.9]
    with pytest.raises(FaultNotConfirmed, match="to show on"):
        injection.confirm()


def test_a_busy_machine_does_not_pass_for_lost_packets(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss is not confirmed if some probes have no answer in time but no packet was sent again."""
    ground.mesh.astray = {Link(2, 1)}
    monkeypatch.setattr(links, "BITES_WITHIN_S", 0.2)
    injection = ground.injection(spec_of("loss", link=LINK, share="30%"))
    injection.inject()
    ground.mesh.held_up = [3.0]
    with pytest.raises(FaultNotConfirmed, match="to show on"):
        injection.confirm()


@pytest.mark.parametrize("rate", ["10KB/s", "40KB/s", "50KB/s", "58KB/s", "1MB/s"])
def test_a_line_is_thin_that_takes_most_of_a_second_for_a_second_of_its_rate(rate: str) -> None:
    fault = spec_of("throttle", link=LINK, rate=rate)
    assert isinstance(fault, ThrottleFault)
    before = LinkObservation(True, 0.01, "")
    size, asks = fault.volume()
    nominal = size * asks / fault.rate
    assert 0.5 <= nominal <= 1.5
    assert fault.shows(before, LinkObservation(True, nominal, ""))
    assert not fault.shows(before, LinkObservation(True, 0.4, ""))


def test_a_busy_machine_does_not_make_a_line_thin(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Throttling is not confirmed if two probes in a row are slow on a link that is not throttled."""
    ground.mesh.astray = {Link(2, 1)}
    monkeypatch.setattr(links, "BITES_WITHIN_S", 0.2)
    injection = ground.injection(spec_of("throttle", link=LINK, rate="50KB/s"))
    injection.inject()
    ground.mesh.held_up = [1.2, 1.2]
    with pytest.raises(FaultNotConfirmed, match="to show on"):
        injection.confirm()


def test_a_busy_machine_before_a_delay_hides_nothing(ground: Ground) -> None:
    """The delay is confirmed although all probes of the first look were as slow as the delay will be."""
    ground.mesh.held_up = [0.15] * ROUNDS
    injection = ground.injection(spec_of("delay", link=LINK, latency="100ms"))
    injection.inject()
    assert injection.confirm() == "2→1: a round trip takes 201.0 ms"
