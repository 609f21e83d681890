"""Faults of clients against real processes that are no clients: they bite, they heal, and what misses says so."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest

from ackproof.cluster.protocol import Cluster
from ackproof.errors import FaultNotConfirmed
from ackproof.faults.clients import KillClientInjection, PauseClientInjection
from ackproof.faults.injection import Aim, Field, Injection
from ackproof.plan.fault_clients import ClientFault, KillClient, PauseClient, Whom
from ackproof.plan.triggers import At
from ackproof.processes import Child, ClientProcess

BUSY = "import time\nwhile True: time.sleep(0.005)"


@dataclass
class FakeClients:
    """Processes that only sleep and wake. `deaf`: no signal reaches them."""

    children: dict[str, Child] = field(default_factory=dict)
    deaf: bool = False

    def add(self, name: str) -> str:
        self.children[name] = Child(subprocess.Popen([sys.executable, "-c", BUSY]), name)
        return name

    def running(self) -> Mapping[str, ClientProcess]:
        return {
            name: ClientProcess(name, child.pid, child.started)
            for name, child in self.children.items()
            if child.poll() is None
        }

    def kill(self, client_id: str) -> int | None:
        if not self.deaf:
            self.children[client_id].kill()
        return 3

    def signal(self, client_id: str, number: int) -> None:
        if not self.deaf:
            self.children[client_id].signal(number)

    def replace(self, client_id: str) -> str:
        return self.add(f"{client_id[0]}{len(self.children)}")

    def at_work(self, client_id: str) -> bool:
        return self.children[client_id].poll() is None


@pytest.fixture
def clients() -> Iterator[FakeClients]:
    made = FakeClients()
    made.add("p0")
    made.add("p1")
    yield made
    for child in made.children.values():
        child.kill()


def injection(kind: type[ClientFault], whom: str, clients: FakeClients | None) -> Injection:
    fault = kind(number=1, trigger=At(0.0), client=Whom.parse(whom))
    made = KillClientInjection if kind is KillClient else PauseClientInjection
    return made(fault, Aim(), Field(cast("Cluster", None), threading.Event(), None, clients))


def test_a_kill_and_its_healing(clients: FakeClients) -> None:
    kill = injection(KillClient, "producer(1)", clients)
    pid = clients.children["p1"].pid
    assert kill.inject() == f"SIGKILL to p1 (pid {pid}), 3 sends without an outcome"
    assert kill.confirm() == f"/proc: pid {pid} is gone"
    assert list(clients.running()) == ["p0"]
    assert kill.heal() == "started p2"
    assert "p2 is at work" in kill.confirm_healed()


def test_a_pause_and_its_healing(clients: FakeClients) -> None:
    pause = injection(PauseClient, "producers", clients)
    pause.inject()
    assert pause.confirm().count("are stopped and none ran") == 2
    pause.heal()
    assert pause.confirm_healed().count("is scheduled again") == 2


def test_one_that_ended_while_frozen_is_healed(clients: FakeClients) -> None:
    pause = injection(PauseClient, "producer(0)", clients)
    pause.inject()
    clients.children["p0"].kill()
    pause.heal()
    assert "has ended since" in pause.confirm_healed()


@pytest.mark.parametrize("kind", [KillClient, PauseClient])
def test_duds(kind: type[ClientFault], clients: FakeClients, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody there, no workload, a signal that does not arrive, one that is frozen already."""
    with pytest.raises(FaultNotConfirmed, match="aimed at nothing: producer"):
        injection(kind, "producer(7)", clients).inject()
    with pytest.raises(FaultNotConfirmed, match="no workload"):
        injection(kind, "producer", None).inject()
    monkeypatch.setattr("ackproof.faults.clients.SEEN_WITHIN_S", 0.3)
    clients.deaf = True
    missed = injection(kind, "producer(0)", clients)
    missed.inject()
    with pytest.raises(FaultNotConfirmed, match=r"client p0 .* running"):
        missed.confirm()
    clients.deaf = False
    if kind is PauseClient:
        clients.signal("p0", signal.SIGSTOP)
        frozen = injection(kind, "producer(0)", clients)
        with pytest.raises(FaultNotConfirmed, match="nothing to freeze"):
            from ackproof.wait import wait_until

            wait_until(
                lambda: clients.children["p0"].state() == "stopped", what="p0 to be stopped", timeout_s=5
            )
            frozen.inject()
