"""Faults of clients, with effect and without, injected into real processes that stand for clients."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.processes import Child, ClientProcess
from ackproof.cluster.admin import TransactionState
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.triggers import TimeTrigger
from ackproof.faults.clients import fence_producer as fencing
from ackproof.faults.clients.client import (
    ClientFault,
    ClientSelector,
    KillClient,
    PauseClient,
)
from ackproof.faults.clients.fence_producer import FenceProducer
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import Aim, Injection, make_injection

BUSY = "import time\nwhile True: time.sleep(0.005)"


@dataclass
class FakeClients:
    """Busy processes in place of clients. `deaf`: True if signals do not reach them. `ids`: transactional ids by
    client. `said`: messages of fenced producers. `successors`: replacement of each replaced client."""

    children: dict[str, Child] = field(default_factory=dict)
    deaf: bool = False
    ids: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    successors: dict[str, str] = field(default_factory=dict)

    def add(self, name: str) -> str:
        self.children[name] = Child(subprocess.Popen([sys.executable, "-c", BUSY]), name)
        return name

    def running(self) -> Mapping[str, ClientProcess]:
        return {
            name: ClientProcess(name, child.pid, child.started)
            for name, child in self.children.items()
            if child.poll() is None
        }

    def members(self, client_id: str) -> list[ClientProcess]:
        return [client for client in self.running().values() if client.id == client_id]

    def kill(self, client_id: str) -> int | None:
        if not self.deaf:
            self.children[client_id].kill()
        return 3

    def signal(self, client_id: str, number: int) -> None:
        if not self.deaf:
            self.children[client_id].signal(number)

    def replace(self, client_id: str) -> str:
        self.successors[client_id] = self.add(f"{client_id[0]}{len(self.children)}")
        return self.successors[client_id]

    def successor(self, client_id: str) -> str | None:
        while client_id in self.successors:
            client_id = self.successors[client_id]
        return client_id if self.children[client_id].poll() is None else None

    def take_over(self, client_id: str) -> str:
        other = self.add(f"p{len(self.children)}")
        if not self.deaf:
            self.said[client_id] = "fenced"
            self.children[client_id].kill()
        return other

    def transactional_id(self, client_id: str) -> str:
        return self.ids.get(client_id, "")

    def fenced(self, client_id: str) -> str:
        return self.said.get(client_id, "")

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
    return _make(kind, whom, clients, None)


def _make(kind: type[ClientFault], whom: str, clients: FakeClients | None, coordinator: object) -> Injection:
    context = FaultContext(cast("Cluster", coordinator), threading.Event(), None, clients)
    fault = kind(number=1, trigger=TimeTrigger(0.0), client=ClientSelector.parse(whom))
    return make_injection(fault, Aim(), context)


def test_a_kill_and_its_healing(clients: FakeClients) -> None:
    kill = injection(KillClient, "producer(1)", clients)
    pid = clients.children["p1"].pid
    assert kill.inject() == f"SIGKILL to p1 (pid {pid}), 3 sends without an outcome"
    assert kill.confirm() == f"/proc: pid {pid} is gone"
    assert list(clients.running()) == ["p0"]
    assert kill.heal() == "started p2"
    assert "p2 is at work" in kill.confirm_healed()


def test_a_successor_that_another_fault_kills_is_succeeded_in_its_turn(clients: FakeClients) -> None:
    first = injection(KillClient, "producer(1)", clients)
    first.inject()
    assert first.heal() == "started p2"
    second = injection(KillClient, "producer(2)", clients)
    second.inject()
    healing = threading.Timer(0.3, second.heal)
    healing.start()
    assert "p3 is at work" in first.confirm_healed()
    healing.join()


def test_a_client_that_ended_before_its_kill_was_not_killed(
    clients: FakeClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "members", lambda client_id: [])
    kill = injection(KillClient, "producer(1)", clients)
    with pytest.raises(FaultNotConfirmed, match="p1 has ended meanwhile: nothing to kill"):
        kill.inject()
    assert kill.heal() == "started no client"


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
    """Without a fitting client or a workload, without effect, or on a frozen client, the fault is not confirmed."""
    with pytest.raises(FaultNotConfirmed, match="aimed at nothing: producer"):
        injection(kind, "producer(7)", clients).inject()
    with pytest.raises(FaultNotConfirmed, match="no workload"):
        injection(kind, "producer", None).inject()
    monkeypatch.setattr("ackproof.faults.clients.client.SEEN_WITHIN_S", 0.3)
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
            from ackproof.base.wait import wait_until

            wait_until(
                lambda: clients.children["p0"].state() == "stopped", what="p0 to be stopped", timeout_s=5
            )
            frozen.inject()


class Coordinator:
    """Transaction states as brokers 1 and 2 report them; broker 2 is the coordinator. `epochs`: producer epochs in
    successive answers; the last one repeats."""

    def __init__(self, *epochs: int) -> None:
        self.epochs = list(epochs)

    def running_links(self) -> Mapping[int, str]:
        return {1: "not it", 2: "coordinator"}

    def say(self, connection: str, name: str) -> TransactionState | None:
        assert name == "id-of-p0"
        if connection != "coordinator" or not self.epochs:
            return None
        epoch = self.epochs.pop(0) if len(self.epochs) > 1 else self.epochs[0]
        return TransactionState(7, epoch, "Ongoing")


def fence(clients: FakeClients, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> Injection:
    monkeypatch.setattr(fencing.admin, "transaction", coordinator.say)
    monkeypatch.setattr(fencing, "READY_WITHIN_S", 0.5)
    return _make(FenceProducer, "producer(0)", clients, coordinator)


def test_a_producer_is_fenced_by_another_with_its_id(
    clients: FakeClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients.ids = {"p0": "id-of-p0"}
    one = fence(clients, Coordinator(4, 4, 6), monkeypatch)
    assert one.inject() == "started p2 with the transactional id of p0, id-of-p0"
    assert one.confirm() == (
        "the coordinator's epoch of p0's id went from 4 (producer id 7) to 6 (producer id 7), "
        "and p0 ended with: fenced"
    )
    one.heal()
    assert one.confirm_healed() == "p0 is gone and p2 is at work"


def test_a_second_producer_whose_epoch_nobody_sees_is_no_fault(
    clients: FakeClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients.ids = {"p0": "id-of-p0"}
    one = fence(clients, Coordinator(4), monkeypatch)
    one.inject()
    with pytest.raises(FaultNotConfirmed, match="the coordinator to give the id of p0 another epoch than 4"):
        one.confirm()


def test_an_older_producer_that_goes_on_is_not_fenced(
    clients: FakeClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients.ids, clients.deaf = {"p0": "id-of-p0"}, True
    one = fence(clients, Coordinator(4, 5), monkeypatch)
    one.inject()
    with pytest.raises(FaultNotConfirmed, match="p0 to be told that it is fenced"):
        one.confirm()


def test_nobody_without_a_transactional_id_can_be_fenced(
    clients: FakeClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FaultNotConfirmed, match="p0 has no transactional id"):
        fence(clients, Coordinator(4), monkeypatch).inject()
    clients.ids = {"p0": "id-of-p0"}
    one = fence(clients, Coordinator(), monkeypatch)
    with pytest.raises(FaultNotConfirmed, match="no broker knows the transactional id of p0"):
        one.inject()
    one.heal()
    assert one.confirm_healed() == "nobody was fenced"
