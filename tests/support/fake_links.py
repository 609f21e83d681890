"""A fake mesh of links, with the nodes at their ends."""

from __future__ import annotations

import json
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ackproof.base.errors import WaitTimeout
from ackproof.cluster.protocol import NodeState
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import Members
from ackproof.experiment.spec import ClusterSpec
from ackproof.faults.context import FaultContext, Holds
from ackproof.faults.injection import Aim, make_injection
from ackproof.faults.links import injection as links
from ackproof.network.mesh import (
    CLIENTS,
    BlackHole,
    Cut,
    Delay,
    DropLarge,
    Effect,
    Imposed,
    Link,
    LinkError,
    Loss,
    SlowClose,
    Throttle,
)
from ackproof.network.probe import ProbeAnswer, TcpFlow, Traffic
from ackproof.plan.cases import load


@dataclass
class FakeNode:
    id: int
    is_broker: bool = True
    is_controller: bool = False
    now: NodeState = NodeState.RUNNING
    ready: bool = True

    def state(self) -> NodeState:
        return self.now

    def await_ready(self, timeout_s: float) -> None:
        if not self.ready:
            raise WaitTimeout(f"node {self.id} is fenced")


@dataclass
class FakeMesh:
    """Fake mesh of the links `every`. `laid`: effects by link and owner; `broken`: links on which they show to probes.

    Effects on the links `astray` never show. The links `stuck` are never healed: probes are refused there after the
    effect was lifted."""

    every: frozenset[Link]
    astray: set[Link] = field(default_factory=set)
    stuck: set[Link] = field(default_factory=set)
    laid: dict[Link, dict[str, Effect]] = field(default_factory=dict)
    broken: set[Link] = field(default_factory=set)
    came: dict[Link, int] = field(default_factory=dict)
    """By link: bytes that came back over it so far; the test sets them."""
    held_up: list[float] = field(default_factory=list)
    """Seconds by which each of the next probes is late, as on a busy machine."""

    def links(self) -> frozenset[Link]:
        return self.every

    def impose(self, owner: str, link: Link, effect: Effect) -> None:
        if link not in self.every:
            raise LinkError(f"the link {link} was not laid so that it can be broken")
        self.laid.setdefault(link, {})[owner] = effect
        if link not in self.astray:
            self.broken.add(link)

    def lift(self, owner: str, link: Link) -> None:
        self.laid.get(link, {}).pop(owner, None)
        if not self.laid.get(link) and link not in self.stuck:
            self.broken.discard(link)

    def imposed(self, link: Link) -> tuple[Imposed, ...]:
        return tuple(Imposed(owner, owner) for owner in self.laid.get(link, {}))

    def probe(self, link: Link, *, timeout_s: float = 1.0, size: int = 0, asks: int = 1) -> ProbeAnswer:
        effects = list(self.laid.get(link, {}).values()) if link in self.broken else []
        if link in self.broken and not effects:
            return ProbeAnswer("refused", 0.0)
        seconds = 0.001 + (self.held_up.pop(0) if self.held_up else 0.0)
        resent = 0
        for effect in effects:
            match effect:
                case Cut():
                    return ProbeAnswer("refused", 0.0)
                case BlackHole():
                    return ProbeAnswer("silent", timeout_s)
                case DropLarge(above) if size > above:
                    return ProbeAnswer("silent", timeout_s)
                case Loss():
                    resent += 3
                case Delay(latency):
                    seconds += 2 * latency * asks
                case Throttle(rate):
                    seconds += size * asks / rate
        if seconds > timeout_s:
            return ProbeAnswer("silent", timeout_s, resent, answers=int(asks * timeout_s / seconds))
        return ProbeAnswer("answered", seconds, resent, answers=asks)

    def closing(self, link: Link, *, timeout_s: float) -> float | None:
        effects = self.laid.get(link, {}).values() if link in self.broken else ()
        return 0.001 + sum(effect.delay for effect in effects if isinstance(effect, SlowClose))

    def traffic(self, link: Link) -> Traffic:
        flow = TcpFlow(("", 0), 1, self.came.get(link, 0))
        return Traffic({1: flow})


@dataclass
class Ground:
    """Fake cluster of brokers 1, 2 and 3 (1 leads t/0) and controller 101, with its mesh."""

    nodes: dict[int, FakeNode] = field(
        default_factory=lambda: {
            1: FakeNode(1),
            2: FakeNode(2),
            3: FakeNode(3),
            101: FakeNode(101, is_broker=False, is_controller=True),
        }
    )
    mesh: FakeMesh = field(init=False)
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
        made = make_injection(
            fault, self.aim(fault), FaultContext(cast(Any, self), threading.Event(), holds=self.holds)
        )
        assert isinstance(made, links.LinksInjection)
        return made


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
