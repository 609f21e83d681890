"""Fake nodes and clusters, for tests of faults of nodes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ackproof.base.errors import WaitTimeout
from ackproof.cluster.protocol import NodeState
from local_node import OnThisMachine


@dataclass
class FakeNode(OnThisMachine):
    """Fake node that does what it is asked to, unless it is `deaf`. `told`: the requests so far. `await_ready` waits
    `ready_after_s`, then raises `WaitTimeout` unless the node is `ready`."""

    id: int
    deaf: bool = False
    is_broker: bool = True
    ready: bool = True
    ready_after_s: float = 0.0
    now: NodeState = NodeState.RUNNING
    pid: int = 100
    told: list[str] = field(default_factory=list)

    def state(self) -> NodeState:
        return self.now

    def _become(self, word: str, state: NodeState) -> None:
        self.told.append(word)
        if not self.deaf:
            self.now = state

    def kill(self) -> None:
        self._become("kill", NodeState.GONE)

    def terminate(self) -> None:
        self._become("terminate", NodeState.GONE)

    def pause(self) -> None:
        self._become("pause", NodeState.STOPPED)

    def resume(self) -> None:
        self._become("resume", NodeState.RUNNING)

    def start(self) -> None:
        self.pid += 1
        self._become("start", NodeState.RUNNING)

    def await_ready(self, timeout_s: float) -> None:
        time.sleep(self.ready_after_s)
        if not self.ready:
            raise WaitTimeout(f"waited {timeout_s} s for node {self.id} to be unfenced")

    def log_tail(self, lines: int = 20) -> str:
        return ""


@dataclass
class FakeCluster:
    """Fake cluster: its nodes by id. It has no active controller."""

    nodes: dict[int, FakeNode]

    def node(self, node: int) -> FakeNode:
        return self.nodes[node]

    def controller(self) -> int | None:
        return None
