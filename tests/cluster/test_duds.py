"""Faults that do not do what they say, on real brokers: each witness sees that, and so does each healing.

What is planted is the lie of one call; node, brokers and witnesses are real. Duds of links, packets, disks and clients
are beside their faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from ackproof.cluster import admin
from ackproof.cluster.backends.process.node import ProcessNode
from ackproof.cluster.disks import file_systems as disks
from ackproof.cluster.disks.file_systems import FileSystem
from ackproof.cluster.install import Installation
from ackproof.cluster.network.packets import PacketRules
from ackproof.experiment.backends import Need
from ackproof.faults import processes
from ackproof.faults.crashes.crash_loop import CrashLoopInjection
from ackproof.faults.links import of_links
from faultbench import Bench

pytestmark = pytest.mark.cluster
needs_root = pytest.mark.skipif(disks.refusal() is not None, reason=disks.refusal() or "")


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    root = disks.refusal() is None
    needs = frozenset({Need.DISKS, Need.BROKER_LINKS, Need.PACKETS} if root else set[Need]())
    with Bench(
        tmp_path_factory.mktemp("bench"),
        installed=installs("4.3.1"),
        needs=needs,
        disk="256MB",
        config={"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500},
    ) as made:
        yield made


@dataclass(frozen=True)
class Dud:
    """A fault as in a file, what is put in place of which call, and what is said of it then."""

    fault: str
    of: Any
    call: str
    instead: Callable[..., object]
    said: str


def _nothing(*given: object, **named: object) -> None:
    return None


def _kept_all(system: FileSystem) -> None:
    """The power goes when all had been written."""
    system.sync()
    system.fail()


def _removed_elsewhere(rules: PacketRules, mark: str) -> None:
    """Says that it removed them."""


DUDS = {
    "a kill that misses": Dud(
        "kill: {target: leader(t/0)}", ProcessNode, "kill", _nothing, "to be gone"
    ),
    "a stop that nobody hears": Dud(
        "stop: {target: leader(t/0)}", ProcessNode, "terminate", _nothing, "to be gone"
    ),
    "a restart that did not restart": Dud(
        "restart: {target: leader(t/0)}", ProcessNode, "terminate", _nothing, "to shut down"
    ),
    "a pause that misses": Dud(
        "pause: {target: follower(t/0)}", ProcessNode, "pause", _nothing, "to be stopped"
    ),
    "a crash loop of one crash": Dud(
        "crash_loop: {target: follower(t/0), times: 3, up: 200ms}",
        CrashLoopInjection, "_crash_again", lambda injection: True, "1 processes crashed, not 3",
    ),
    "an election that nobody held": Dud(
        "elect_preferred: {partition: t/0}", admin, "elect", _nothing, "to show a new leader of t/0"
    ),
}  # fmt: skip
AS_ROOT = {
    "a power loss whose disk kept all": Dud(
        "power_loss: {target: follower(t/0), how: device}", FileSystem, "lose_power", _kept_all, "is still there"
    ),
    "packet loss that is not lifted": Dud(
        "loss: {link: follower(t/0) -> leader(t/0), share: 60%}", PacketRules, "remove", _removed_elsewhere, "healing"
    ),
}  # fmt: skip
EACH_PUSH = ("a restart that did not restart", "a power loss whose disk kept all")
"""The others wait for the night."""


def _params() -> Iterator[Any]:
    for name, dud in (DUDS | AS_ROOT).items():
        marks = [] if name in EACH_PUSH else [pytest.mark.nightly]
        yield pytest.param(dud, id=name, marks=[*marks, *([needs_root] if name in AS_ROOT else [])])


@pytest.mark.parametrize("dud", list(_params()))
def test_it_does_not_pass_for_a_bite(bench: Bench, monkeypatch: pytest.MonkeyPatch, dud: Dud) -> None:
    if dud.call == "elect":  # somebody else than the preferred leader is to lead
        bench.bite("restart: {target: leader(t/0)}", record=False)
    with monkeypatch.context() as patch:
        for module, name in (
            (processes, "GONE_WITHIN_S"),
            (processes, "STOPPED_WITHIN_S"),
            (of_links, "MENDED_WITHIN_S"),
        ):
            patch.setattr(module, name, 2.0)
        patch.setattr(dud.of, dud.call, dud.instead)
        bite = bench.bite(dud.fault, record=False, settled=False)
    assert bite.failures, bite
    assert dud.said in bite.failures[0], bite.failures
