"""Changed settings, ended ZooKeeper sessions, starved processes, clock jumps: what confirms each, and what does not."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster import admin, queries
from ackproof.cluster.admin import Owner, ResourceType, Setting
from ackproof.cluster.clocks import ClockReading
from ackproof.cluster.metadata import zookeeper as zookeeper_metadata
from ackproof.cluster.metadata.zookeeper import Registration
from ackproof.cluster.protocol import NodeState
from ackproof.experiment.fault import Grip
from ackproof.experiment.roles import Role, RoleKind
from ackproof.faults import clocks, zookeeper
from ackproof.faults import crashes as starving
from ackproof.faults.clocks import ClockJump
from ackproof.faults.context import Holds
from ackproof.faults.crashes import Starve
from ackproof.faults.planned.topics import ConfigChange, SetConfig
from ackproof.faults.processes import Kill, Restart
from ackproof.faults.zookeeper import ExpireSession
from ackproof.network.wire import Unreachable
from fake_nodes import FakeNode
from fault_stand import expect, make, wait_shortly

NAME = "flush.messages"
BROKER = Role(RoleKind.BROKER, node=1)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_shortly(monkeypatch, 0.05)
    monkeypatch.setattr(queries, "brokers", lambda link, timeout_s: frozenset({1, 2, 3}))


@dataclass
class Settings:
    """Fake brokers; a link is its broker's number. `said`: a setting by (broker, owner). `asked`: changes so far."""

    said: dict[tuple[int, Owner], Setting] = field(default_factory=dict)
    asked: list[tuple[int, dict[Owner, dict[str, str | None]]]] = field(default_factory=list)
    spec = SimpleNamespace(metadata=SimpleNamespace(broker_controls=False))

    def running_links(self) -> dict[int, Any]:
        return {1: 1, 2: 2, 3: 3}

    def describe(self, link: int, owner: Owner, names: list[str]) -> dict[str, Setting]:
        if (link, owner) not in self.said:
            raise Unreachable("it is gone")
        return {NAME: self.said[link, owner]}

    def change(self, monkeypatch: pytest.MonkeyPatch, **whose: object) -> ConfigChange:
        monkeypatch.setattr(admin, "describe_config", self.describe)
        monkeypatch.setattr(admin, "alter_config", lambda link, what: self.asked.append((link, what)))
        return cast(ConfigChange, make(SetConfig, cluster=self, config={NAME: "1"}, **whose))


TOPIC = Owner(ResourceType.TOPIC, "t")


def _says(**values: str) -> dict[tuple[int, Owner], Setting]:
    return {(int(broker[1:]), TOPIC): Setting(value, own=False) for broker, value in values.items()}


@pytest.mark.parametrize(
    ("said", "in_force", "back"),
    [
        (_says(b1="1", b2="1", b3="1"), True, False),
        (_says(b1="1", b2="1", b3="9"), False, False),
        (_says(b1="9", b2="9", b3="9"), False, True),
        (_says(b1="1", b3="1"), True, False),
    ],
    ids=["all", "but one", "nobody", "one is gone"],
)
def test_every_broker_that_runs_says_it(
    monkeypatch: pytest.MonkeyPatch, said: dict[tuple[int, Owner], Setting], in_force: bool, back: bool
) -> None:
    brokers = Settings(_says(b1="9", b2="9", b3="9"))
    change = brokers.change(monkeypatch, topic="t")
    change.inject()
    assert brokers.asked == [(1, {TOPIC: {NAME: "1"}})]
    brokers.said = said
    for step, seen in ((change.confirm, in_force), (change.confirm_healed, back)):
        expect(step, seen, f"broker 3: {NAME}=", "every broker to say")


def test_what_is_in_force_already_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Settings(_says(b1="1", b2="1", b3="1"))
    with pytest.raises(FaultNotConfirmed, match="is in force already"):
        brokers.change(monkeypatch, topic="t").inject()
    assert brokers.asked == []
    brokers.said = _says(b1="1", b2="1", b3="9")
    brokers.change(monkeypatch, topic="t").inject()  # for one broker it changes something


@pytest.mark.parametrize(("own", "back"), [(True, "9"), (False, None)], ids=["its own", "inherited"])
def test_it_is_put_back_as_it_was(monkeypatch: pytest.MonkeyPatch, own: bool, back: str | None) -> None:
    """Settings of one broker are requested from that broker, and changed there only."""
    owner = Owner(ResourceType.BROKER, "2")
    brokers = Settings({(2, owner): Setting("9", own)})
    change = brokers.change(monkeypatch, broker=2)
    change.inject()
    brokers.said = {(2, owner): Setting("1", own=True)}
    assert change.confirm() == f"DescribeConfigs at broker 2: {NAME}=1"
    change.heal()
    assert brokers.asked == [(2, {owner: {NAME: "1"}}), (2, {owner: {NAME: back}})]


def test_settings_of_all_brokers_are_looked_at_on_each(monkeypatch: pytest.MonkeyPatch) -> None:
    everybody = Owner(ResourceType.BROKER, "")
    brokers = Settings({(1, everybody): Setting("9", own=False)})
    change = brokers.change(monkeypatch)
    change.inject()
    assert brokers.asked == [(1, {everybody: {NAME: "1"}})]
    brokers.said = {
        (number, Owner(ResourceType.BROKER, str(number))): Setting("1", own=False) for number in (1, 2, 3)
    }
    assert all(f"broker {number}: {NAME}=1" in change.confirm() for number in (1, 2, 3))


@dataclass
class Registrations:
    """The brokers' registrations in ZooKeeper: broker → its registration, None if it has none."""

    held: dict[int, Registration | None]
    addresses = "addresses"

    def registration(self, broker: int) -> Registration | None:
        return self.held[broker]


def _expiry(monkeypatch: pytest.MonkeyPatch, node: FakeNode, znodes: Registrations) -> tuple[Any, list[int]]:
    ended: list[int] = []
    monkeypatch.setattr(zookeeper, "zookeeper_of", lambda context: znodes)
    monkeypatch.setattr(zookeeper_metadata, "end_session", lambda addresses, session: ended.append(session))
    return make(ExpireSession, node, target=BROKER), ended


OLD, NEW = Registration(1, 70, 500), Registration(1, 80, 600)


@pytest.mark.parametrize(
    ("then", "believed"),
    [(OLD, False), (None, True), (NEW, True), (Registration(1, 70, 600), False)],
    ids=["as before", "gone", "new", "the same session"],
)
def test_a_session_that_ended(
    monkeypatch: pytest.MonkeyPatch, then: Registration | None, believed: bool
) -> None:
    znodes = Registrations({1: OLD})
    expiry, ended = _expiry(monkeypatch, FakeNode(1), znodes)
    expiry.inject()
    assert ended == [70]
    znodes.held[1] = then
    words = f"broker 1 {'is gone' if then is None else 'is held by a new'}"
    expect(expiry.confirm, believed, words, "the registration of broker 1 to end with its session")


@pytest.mark.parametrize(
    ("then", "ready", "why"),
    [
        (NEW, True, ""),
        (None, True, "to register again"),
        (Registration(1, 80, 500), True, "to register again"),
        (NEW, False, "to be unfenced"),
    ],
    ids=["again", "nobody", "the old one", "does not answer"],
)
def test_a_broker_that_is_back(
    monkeypatch: pytest.MonkeyPatch, then: Registration | None, ready: bool, why: str
) -> None:
    znodes = Registrations({1: OLD})
    expiry, _ = _expiry(monkeypatch, FakeNode(1, ready=ready), znodes)
    expiry.inject()
    znodes.held[1] = None
    expiry.confirm()
    znodes.held[1] = then
    expect(expiry.confirm_healed, not why, "broker 1 is registered by session 0x50 and answers", why)


def test_a_broker_without_a_session_has_none_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    expiry, ended = _expiry(monkeypatch, FakeNode(1), Registrations({1: None}))
    with pytest.raises(FaultNotConfirmed, match="it holds no session: nothing to break"):
        expiry.inject()
    assert ended == []
    assert expiry.confirm_healed() == "znodes: "


class Turns(FakeNode):
    """A node that is stopped in `stopped` of every ten observations."""

    def __init__(self, stopped: int) -> None:
        super().__init__(1)
        self._turn = itertools.cycle([NodeState.STOPPED] * stopped + [NodeState.RUNNING] * (10 - stopped))

    def state(self) -> NodeState:
        return next(self._turn)


@pytest.mark.parametrize(
    ("stopped", "bites", "healed"),
    [(10, True, False), (4, True, False), (2, False, False), (0, False, True)],
    ids=["always", "enough", "too seldom", "never"],
)
def test_a_starved_process_stands_still(
    monkeypatch: pytest.MonkeyPatch, stopped: int, bites: bool, healed: bool
) -> None:
    """At least 0.6 of the expected standstill must be observed. The fake clock advances at each observation."""
    monkeypatch.setattr(starving, "LOOK_S", 40)
    monkeypatch.setattr(starving, "time", SimpleNamespace(monotonic=itertools.count().__next__))
    monkeypatch.setattr(starving, "LOOK_EVERY_S", 0.0)
    holds = Holds()
    starve = make(Starve, Turns(stopped), holds=holds, target=BROKER, share=0.5)
    monkeypatch.setattr(starve, "_await_ready", lambda: "it answers")
    for step, seen in ((starve.confirm, bites), (starve.confirm_healed, healed)):
        expect(step, seen, "/proc: ", r"stood still for|still stands still")
    holds.take(1, 2, Grip.STILL)  # another fault makes it stand still
    assert starve.confirm_healed()


@pytest.mark.parametrize(
    ("pid", "state", "held", "believed"),
    [
        (101, NodeState.RUNNING, False, True),
        (100, NodeState.RUNNING, False, False),
        (101, NodeState.GONE, False, False),
        (101, NodeState.GONE, True, True),
        (100, NodeState.GONE, True, False),
    ],
    ids=["another", "the same", "gone", "gone by another fault", "the same, of another fault"],
)
def test_another_process_runs_after_a_bounce(pid: int, state: NodeState, held: bool, believed: bool) -> None:
    node, holds = FakeNode(1), Holds()
    bounce = make(Restart, node, holds=holds, target=BROKER)
    bounce.inject()
    assert (node.told, node.pid) == (["terminate", "start"], 101)
    node.pid, node.now = pid, state
    if held:
        holds.take(1, 2, Grip.DOWN)
    expect(bounce.confirm, believed, "/proc: another process runs node 1", "node 1 is")


@pytest.mark.parametrize(
    ("now", "ready", "why"),
    [
        (NodeState.RUNNING, True, ""),
        (NodeState.STOPPED, True, "node 1 to be running"),
        (NodeState.GONE, True, "node 1 to be running"),
        (NodeState.RUNNING, False, "node 1 to be unfenced"),
    ],
    ids=["back", "stands still", "gone again", "does not answer"],
)
def test_a_killed_node_is_back_when_it_runs_and_answers(now: NodeState, ready: bool, why: str) -> None:
    node = FakeNode(1, ready=ready)
    kill = make(Kill, node, target=BROKER)
    kill.inject()
    assert kill.confirm() == "kernel: node 1 gone"
    assert (kill.heal(), node.told) == ("started 1", ["kill", "start"])
    node.now = now
    expect(kill.confirm_healed, not why, "protocol: node 1 answers, registered and unfenced", why)


@pytest.mark.parametrize(
    ("least", "most", "believed"),
    [(29.9, 30.1, True), (23.0, 37.0, True), (22.0, 38.0, False), (-0.1, 0.1, False), (31.0, 32.0, False)],
    ids=["sharp", "half as broad as the jump", "broader", "not moved", "elsewhere"],
)
def test_a_clock_has_jumped_where_it_is_read_sharply(
    monkeypatch: pytest.MonkeyPatch, least: float, most: float, believed: bool
) -> None:
    shown = [ClockReading(-0.01, 0.01)]
    clock = SimpleNamespace(read=lambda: shown[-1], shift=lambda seconds: None)
    monkeypatch.setattr(clocks, "clock_of", lambda node: clock)
    jump = make(ClockJump, FakeNode(1), target=BROKER, by=30.0)
    jump.inject()
    shown.append(ClockReading(least, most))
    expect(jump.confirm, believed, "log stamps of node 1: off by", r"off by \+30 s")
