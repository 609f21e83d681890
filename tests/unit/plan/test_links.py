"""Faults of links in a file: what they mean, what they need of the ground, and what is refused, where."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof.experiment.backends import Need
from ackproof.experiment.links import LinkEnds
from ackproof.plan import ExperimentSpec, InvalidExperiment, Plan

Load = Callable[[str], Plan]

FRAME = """\
name: links
topics: {{t: {{}}}}
workload: {{duration: 5s}}
faults:
  - {fault}
    at: 1s
    for: 2s
"""


def loaded(load_text: Load, fault: str) -> ExperimentSpec:
    return load_text(FRAME.format(fault=fault)).spec


@pytest.mark.parametrize(
    ("fault", "shown", "needs"),
    [
        (
            "cut: {link: follower(t/0) -> leader(t/0)}",
            "cut follower(t/0) -> leader(t/0)",
            {Need.BROKER_LINKS},
        ),
        ("cut: {link: clients -> leader(t/0)}", "cut clients -> leader(t/0)", {Need.CLIENT_LINKS}),
        (
            "cut: {link: controller -> controllers}",
            "cut controller -> controllers",
            {Need.CONTROLLER_LINKS},
        ),
        (
            "reset: {link: leader(t/0) -> controllers, both_ways: true}",
            "reset leader(t/0) -> controllers both ways",
            {Need.BROKER_LINKS, Need.CONTROLLER_LINKS},
        ),
        (
            "loss: {link: leader(t/0) -> followers(t/0), share: 12.5%}",
            "loss leader(t/0) -> followers(t/0)",
            {Need.BROKER_LINKS, Need.PACKETS},
        ),
        (
            "throttle: {link: followers(t/0) -> leader(t/0), rate: 50KB/s}",
            "throttle followers(t/0) -> leader(t/0) to 50KB/s",
            {Need.BROKER_LINKS},
        ),
        (
            "delay: {link: followers(t/0) -> leader(t/0), latency: 1.5s}",
            "delay followers(t/0) -> leader(t/0) by 1500ms",
            {Need.BROKER_LINKS},
        ),
        (
            "isolate: {target: leader(t/0), from: peers}",
            "isolate leader(t/0) from peers",
            {Need.BROKER_LINKS},
        ),
        (
            "isolate: {target: leader(t/0), from: [clients, controllers]}",
            "isolate leader(t/0) from clients, controllers",
            {Need.CLIENT_LINKS, Need.BROKER_LINKS},
        ),
        (
            "isolate: {target: controller}",
            "isolate controller from all",
            {Need.CLIENT_LINKS, Need.BROKER_LINKS, Need.CONTROLLER_LINKS},
        ),
        (
            "split: {groups: [[1, 2], [3, 101]]}",
            "split broker(1) + broker(2) | broker(3) + controller(101)",
            {Need.BROKER_LINKS, Need.CONTROLLER_LINKS},
        ),
        (
            "bridge: {groups: [1, [2]], over: broker(3)}",
            "bridge broker(1) | broker(3) | broker(2)",
            {Need.BROKER_LINKS, Need.CONTROLLER_LINKS},
        ),
    ],
)
def test_what_is_written_is_what_is_meant(load_text: Load, fault: str, shown: str, needs: set[Need]) -> None:
    spec = loaded(load_text, fault)
    assert str(spec.faults[0]) == shown
    assert spec.faults[0].needs == needs


@pytest.mark.parametrize(
    ("fault", "path", "message"),
    [
        (
            "cut: {link: leader(t/0)}",
            "link",
            "expected a link such as followers(orders/0) -> leader(orders/0)",
        ),
        ("cut: {link: leader(t/0) -> clients}", "link", "write clients -> leader(t/0)"),
        ("cut: {link: client -> leader(t/0)}", "link", "did you mean 'clients'"),
        ("cut: {link: leader(u/0) -> followers(t/0)}", "link", "u"),
        ("cut: {link: broker(4) -> followers(t/0)}", "link", "4"),
        (
            "cut: {link: clients -> leader(t/0), both_ways: true}",
            "",
            "brokers open no connections to clients",
        ),
        ("throttle: {link: broker -> leader(t/0)}", "rate", "rate"),
        ("throttle: {link: broker -> leader(t/0), rate: 50KB}", "rate", "50KB/s"),
        ("throttle: {link: broker -> leader(t/0), rate: 5B/s}", "rate", "at least"),
        ("delay: {link: broker -> leader(t/0), latency: 10ms, jitter: 20ms}", "", "more than the latency"),
        ("loss: {link: broker -> leader(t/0), share: 101%}", "share", "30%"),
        ("loss: {link: broker -> leader(t/0), share: 0.3}", "share", "30%"),
        ("drop_large: {link: broker -> leader(t/0), above: 100B}", "above", "at least"),
        ("isolate: {target: leader(t/0), from: everybody}", "from", "peers"),
        ("isolate: {target: leader(t/0), from: []}", "from", "at least 1"),
        ("split: {groups: [[1, 2]]}", "groups", "at least 2"),
        ("split: {groups: [[1, 2], [2, 3]]}", "", "broker(2) is in two groups"),
        ("split: {groups: [[1, 2], []]}", "groups", "at least one node"),
        ("split: {groups: [[1, 7], [2]]}", "groups", "7"),
        ("bridge: {groups: [[1, 3], [2]], over: broker(3)}", "", "it stands between them"),
    ],
)
def test_what_is_refused(load_text: Load, fault: str, path: str, message: str) -> None:
    with pytest.raises(InvalidExperiment) as caught:
        loaded(load_text, fault)
    problems = caught.value.problems
    assert any(
        message in f"{p.message} {p.suggestion}" and p.path.startswith("faults[1]") and path in p.path
        for p in problems
    ), str(caught.value)


@pytest.mark.parametrize("text", ["a(t/0) -> b", "-> leader(t/0)", "leader(t/0) ->", "x"])
def test_links_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"unknown role|expected"):
        LinkEnds.parse(text)
