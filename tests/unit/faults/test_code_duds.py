"""Duds of the fault `at_code`, for every named point and each action: a rule that never fires, and a rule that only
prints that it acted.

The node and Byteman's agent are fakes; the fault's own injection decides what is confirmed. A rule that does act is
tested as a comparison."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.code_rules import CodeAgent
from ackproof.cluster.protocol import NodeState
from ackproof.experiment.roles import Role, RoleKind
from ackproof.faults.code.at_code import HALTED, AtCode, AtCodeInjection
from ackproof.faults.code.points import POINTS
from fake_nodes import FakeNode
from fault_stand import make, wait_shortly

ACTS = ("halt", "pause_thread", "delay", "throw")
FRAMES = {
    "pause_thread": "java.io.FileInputStream.open0(Native Method)\n\tat java.io.FileInputStream.open(a)",
    "delay": "org.jboss.byteman.rule.helper.Helper.delay(Helper.java:9)",
}


class Rule(Enum):
    """What a rule does that the agent has loaded."""

    NEVER_FIRES = auto()
    SAYS_SO = auto()
    """The rule prints its line, and has no other effect."""
    ACTS = auto()
    ACTS_UNSEEN = auto()
    """The rule acts, and does not print its line."""


@dataclass
class Node(FakeNode):
    exit_status: Any = None
    log: str = ""

    def log_tail(self, lines: int = 20) -> str:
        return self.log


class Agent(CodeAgent):
    """A fake of Byteman's agent, which loads every rule. `outcome`: what each rule does."""

    def __init__(self, node: Node, does: str, outcome: Rule) -> None:
        super().__init__(cast(Any, node), "4.4.0", ())
        self._fake, self._does, self._outcome = node, does, outcome
        self._printed = ""
        self._rule = ""
        self._stacks: list[str] = ['"main" #1\n\tat java.lang.Object.wait(Native Method)']

    def _install(self) -> str:
        raise AssertionError("it is attached already")

    def _ask(self, request: str) -> str:
        if request.startswith("LOAD"):
            self._rule = re.findall(r"^RULE (.+)$", request, re.MULTILINE)[0]
            self._fire(self._rule, request)
            return f"install rule {self._rule}\nOK\n"
        if request.startswith("DELETE"):
            self._rule = ""
        return f"rule {self._rule}\ntrigger method\nOK\n"

    def _fire(self, key: str, text: str) -> None:
        if self._outcome in (Rule.SAYS_SO, Rule.ACTS):
            self._printed += f"{key} passed by a-thread orders-0\n"
        if self._outcome not in (Rule.ACTS, Rule.ACTS_UNSEEN):
            return
        class_name, method = re.findall(r"^(?:CLASS|METHOD) (.+)$", text, re.MULTILINE)
        if self._does == "halt":
            self._fake.now, self._fake.exit_status = NodeState.GONE, HALTED
        elif self._does == "throw":
            self._fake.log = f"ERROR TimeoutException: {key}\n"
        else:
            place = f"{class_name}.{method.partition('(')[0]}(File.java:1)"
            self._stacks.append(f'"held" #7\n\tat {FRAMES[self._does]}\n\tat {place}')

    def output(self) -> str:
        return self._printed

    def hold_threads(self, key: str) -> None:
        """Do nothing: no thread waits in this fake."""

    def release_threads(self, key: str) -> None:
        """Do nothing: no thread waits in this fake."""

    def dump_threads(self) -> tuple[str, ...]:
        return tuple(self._stacks)


def injection(point: str, does: str, outcome: Rule) -> AtCodeInjection:
    node = Node(1)
    agent = Agent(node, does, outcome)
    spec = SimpleNamespace(mode="kraft")
    cluster = SimpleNamespace(spec=spec, code_agent=lambda number: agent)
    role = Role(RoleKind.BROKER, node=1)
    made: AtCodeInjection = make(AtCode, node, cluster=cluster, target=role, point=point, does=does)
    return made


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_shortly(monkeypatch, 0.03)


@pytest.mark.parametrize("does", ACTS)
@pytest.mark.parametrize("point", sorted(POINTS))
def test_only_what_a_witness_sees_is_a_bite(point: str, does: str) -> None:
    bites = injection(point, does, Rule.ACTS)
    bites.inject()
    assert re.match(r"(kernel|thread dump|log)( of node 1)?: ", bites.confirm())
    for outcome, said in (
        (Rule.NEVER_FIRES, "its rule never fired"),
        (Rule.SAYS_SO, "its rule acted, and no witness saw it"),
    ):
        dud = injection(point, does, outcome)
        dud.inject()
        with pytest.raises(FaultNotConfirmed, match=f"{point} to be passed 1 times.*{said}"):
            dud.confirm()


def test_a_halt_is_seen_without_a_word_of_the_agent() -> None:
    """The exit status alone proves a halt. The other actions also need the line that their rule prints."""
    halt = injection("leader-appended", "halt", Rule.ACTS_UNSEEN)
    halt.inject()
    assert "exit status 77" in halt.confirm()
    held = injection("leader-appended", "delay", Rule.ACTS_UNSEEN)
    held.inject()
    with pytest.raises(FaultNotConfirmed, match="never fired"):
        held.confirm()


def test_a_death_by_another_cause_is_no_halt() -> None:
    dud = injection("leader-appended", "halt", Rule.NEVER_FIRES)
    dud.inject()
    node = cast(Node, dud.nodes[0])
    node.now, node.exit_status = NodeState.GONE, -9
    with pytest.raises(FaultNotConfirmed, match="to be passed"):
        dud.confirm()


def test_of_several_nodes_one_may_refuse_the_agent() -> None:
    """If a node refuses the agent, healing removes the rule from the nodes that loaded it and asks no other node. Its
    text names only nodes that loaded it."""
    nodes = {1: Node(1), 2: Node(2)}
    agents = {number: Agent(node, "delay", Rule.NEVER_FIRES) for number, node in nodes.items()}
    agents[2].attach = refuse  # type: ignore[method-assign]
    cluster = SimpleNamespace(spec=SimpleNamespace(mode="kraft"), code_agent=agents.get)
    role = Role(RoleKind.BROKERS)
    fault = make(AtCode, *nodes.values(), cluster=cluster, target=role, point="leader-appended", does="delay")
    with pytest.raises(FaultNotConfirmed, match="node 2 takes no agent"):
        fault.inject()
    assert fault.heal() == "rule removed from node 1"
    assert "node 1: no thread is held" in fault.confirm_healed()


def test_a_rule_counts_as_removed_only_if_the_agent_lists_its_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = injection("leader-appended", "delay", Rule.ACTS)
    fault.inject()
    monkeypatch.setattr(Agent, "list", lambda _: "")
    with pytest.raises(FaultNotConfirmed, match="does not remove the rule"):
        fault.heal()


def refuse() -> None:
    raise FaultNotConfirmed("node 2 takes no agent")
