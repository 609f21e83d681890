"""Faults of the workload's clients: killed, frozen, fenced.

The witness is the kernel: the process is gone, or all its threads are stopped and its count of context switches
stands still; healed, it switches again, and a client that took another's place has begun to work. Of a producer that is
fenced the witnesses are the transaction coordinator, which names a higher epoch, and the older client's own last words.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from typing import Final, TypeVar

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.base.processes import ClientProcess, context_switches, process_state
from ackproof.base.wait import wait_until
from ackproof.cluster import admin
from ackproof.cluster.admin import TransactionState
from ackproof.cluster.wire import WireError
from ackproof.faults.clients.specification import ClientFault, FenceProducer, KillClient, PauseClient
from ackproof.faults.holds import FREE_WITHIN_S
from ackproof.faults.injection import Aim, Clients, FaultContext, Injection, injects

T = TypeVar("T")

SEEN_WITHIN_S: Final = 10.0
STILL_S: Final = 0.2
"""For so long nothing of a stopped process may be scheduled."""
READY_WITHIN_S: Final = 60.0


ClientT = TypeVar("ClientT", bound=ClientFault)


class _OfClients(Injection[ClientT]):
    """What they have in common."""

    def __init__(self, fault: ClientT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.hit: list[ClientProcess] = []

    @property
    def clients(self) -> Clients:
        """The workload. Raises `FaultNotConfirmed` where there is none."""
        if self.context.clients is None:
            raise FaultNotConfirmed(f"{self.fault.kind}: no workload of ours runs here")
        return self.context.clients

    def choose(self) -> list[ClientProcess]:
        """Whom it hits. Raises `FaultNotConfirmed` when there is nobody."""
        running = self.clients.running()
        seed = 0 if self.context.case is None else self.context.case.seed
        draw = random.Random(f"{seed}/client/{self.fault.number}").randrange(1 << 30)
        names = self.fault.client.among(list(running), draw)
        if not names:
            there = ", ".join(running) or "nobody"
            raise FaultNotConfirmed(f"{self.fault.kind}: aimed at nothing: {self.fault.client}; {there} runs")
        return [running[name] for name in names]

    def await_all(self, what: str, state: Callable[[ClientProcess], bool], within_s: float) -> None:
        """Until this holds for each that was hit. Raises `FaultNotConfirmed`."""
        try:
            for one in self.hit:
                wait_until(
                    lambda one=one: state(one),  # type: ignore[misc]
                    what=f"client {one.id} (pid {one.pid}) {what}",
                    timeout_s=within_s,
                    stop=self.context.stop,
                    state=lambda one=one: process_state(one.pid, one.started),  # type: ignore[misc]
                )
        except WaitTimeout as error:
            raise FaultNotConfirmed(f"{self.fault.kind}: {error}") from error

    def await_work(self, name: str, within_s: float) -> str:
        """Until this client, or who came after it because another fault struck it too, is at work; its id.

        The time in which another fault keeps the place empty does not count. Raises `FaultNotConfirmed`.
        """
        clients = self.clients
        while True:
            now = wait_until(
                lambda: clients.successor(name),
                what=f"another fault to let someone take the place of {name}",
                timeout_s=FREE_WITHIN_S,
                stop=self.context.stop,
            )
            try:
                wait_until(
                    lambda now=now: clients.at_work(now) or clients.successor(name) != now,  # type: ignore[misc]
                    what=f"client {now} to be at work",
                    timeout_s=within_s,
                    stop=self.context.stop,
                )
            except WaitTimeout as error:
                raise FaultNotConfirmed(f"{self.fault.kind}: healing: {error}") from error
            if clients.at_work(now):
                return now


@injects(KillClient)
class KillClientInjection(_OfClients[KillClient]):
    """SIGKILL, and others in their place."""

    def __init__(self, fault: KillClient, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._others: list[str] = []

    def inject(self) -> str:
        """Kill them where they stand."""
        told = []
        for one in self.choose():
            left = self.clients.kill(one.id)
            self.hit.append(one)
            told.append(
                f"{one.id} (pid {one.pid})" + ("" if left is None else f", {left} sends without an outcome")
            )
        return "SIGKILL to " + ", ".join(told)

    def confirm(self) -> str:
        """The processes are gone, says the kernel."""
        self.await_all("to be gone", lambda one: process_state(one.pid, one.started) == "gone", SEEN_WITHIN_S)
        return "/proc: " + ", ".join(f"pid {one.pid} is gone" for one in self.hit)

    def heal(self) -> str:
        """Start another for each."""
        self._others = [self.clients.replace(one.id) for one in self.hit]
        return "started " + (", ".join(self._others) or "nobody")

    def confirm_healed(self) -> str:
        """The new ones are connected to the client library and at work."""
        seen = [self.await_work(name, READY_WITHIN_S) for name in self._others]
        return "counters in shared memory: " + ", ".join(f"{name} is at work" for name in seen)


@injects(PauseClient)
class PauseClientInjection(_OfClients[PauseClient]):
    """SIGSTOP and SIGCONT."""

    def inject(self) -> str:
        """Stop them."""
        for one in self.choose():
            if process_state(one.pid, one.started) != "running":
                raise FaultNotConfirmed(f"{self.fault.kind}: {one.id} does not run: nothing to freeze")
            self.clients.signal(one.id, signal.SIGSTOP)
            self.hit.append(one)
        return "SIGSTOP to " + ", ".join(f"{one.id} (pid {one.pid})" for one in self.hit)

    def confirm(self) -> str:
        """All threads are stopped, and none of them is scheduled for a while."""
        self.await_all("to be stopped", self._stands_still, SEEN_WITHIN_S)
        return "/proc: " + ", ".join(
            f"all threads of pid {one.pid} are stopped and none ran for {STILL_S:g} s" for one in self.hit
        )

    def heal(self) -> str:
        """Let them go on."""
        for one in self.hit:
            self.clients.signal(one.id, signal.SIGCONT)
        return "SIGCONT to " + (", ".join(one.id for one in self.hit) or "nobody")

    def confirm_healed(self) -> str:
        """They are scheduled again; one that ended meanwhile (it was fenced, say) is not frozen any more either."""
        seen = []
        for one in self.hit:
            before = context_switches(one.pid)
            try:
                wait_until(
                    lambda one=one, before=before: self._runs(one, before),  # type: ignore[misc]
                    what=f"client {one.id} (pid {one.pid}) to run again",
                    timeout_s=SEEN_WITHIN_S,
                )
            except WaitTimeout as error:
                raise FaultNotConfirmed(f"{self.fault.kind}: healing: {error}") from error
            gone = process_state(one.pid, one.started) in ("gone", "zombie")
            seen.append(f"pid {one.pid} " + ("has ended since" if gone else "is scheduled again"))
        return "/proc: " + ", ".join(seen)

    @staticmethod
    def _stands_still(one: ClientProcess) -> bool:
        if process_state(one.pid, one.started) != "stopped":
            return False
        before, since = context_switches(one.pid), time.monotonic()
        wait_until(lambda: time.monotonic() - since >= STILL_S, what="a while", timeout_s=STILL_S + 5)
        return process_state(one.pid, one.started) == "stopped" and context_switches(one.pid) == before

    @staticmethod
    def _runs(one: ClientProcess, before: int) -> bool:
        state = process_state(one.pid, one.started)
        return state in ("gone", "zombie") or (state == "running" and context_switches(one.pid) > before)


@injects(FenceProducer)
class FenceProducerInjection(_OfClients[FenceProducer]):
    """Another producer with the transactional id of one that goes on."""

    def __init__(self, fault: FenceProducer, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._before: dict[str, TransactionState] = {}
        self._others: dict[str, str] = {}

    def inject(self) -> str:
        """Ask which epoch each has, then start the others."""
        told = []
        for one in self.choose():
            name = self.clients.transactional_id(one.id)
            if not name:
                raise FaultNotConfirmed(f"{self.fault.kind}: {one.id} has no transactional id")
            state = self._ask(name)
            if state is None:
                raise FaultNotConfirmed(
                    f"{self.fault.kind}: no broker knows the transactional id of {one.id}"
                )
            self._before[one.id] = state
            self._others[one.id] = self.clients.take_over(one.id)
            self.hit.append(one)
            told.append(f"{self._others[one.id]} with the transactional id of {one.id}, {name}")
        return "started " + ", ".join(told)

    def confirm(self) -> str:
        """The coordinator names a higher epoch, and the older producer was told that it is fenced."""
        seen = []
        for one in self.hit:
            before = self._before[one.id]
            after = self._await(
                f"the coordinator to give the id of {one.id} another epoch than {before.producer_epoch}",
                lambda one=one: self._newer(one.id),  # type: ignore[misc]
            )
            words = self._await(
                f"{one.id} to be told that it is fenced",
                lambda one=one: self.clients.fenced(one.id),  # type: ignore[misc]
            )
            seen.append(
                f"the coordinator's epoch of {one.id}'s id went from {_named(before)} to {_named(after)}, "
                f"and {one.id} ended with: {words}"
            )
        return "; ".join(seen)

    def heal(self) -> str:
        """The older one ends by itself."""
        return "nothing to undo: the older one ends by itself, the newer one goes on"

    def confirm_healed(self) -> str:
        """The older process is gone, and the newer one is at work."""
        self.await_all("to end", lambda one: process_state(one.pid, one.started) == "gone", READY_WITHIN_S)
        seen = {old: self.await_work(new, READY_WITHIN_S) for old, new in self._others.items()}
        return ", ".join(f"{old} is gone and {new} is at work" for old, new in seen.items())

    def _newer(self, client: str) -> TransactionState | None:
        now, before = self._ask(self.clients.transactional_id(client)), self._before[client]
        if now is None or (now.producer_id, now.producer_epoch) == (
            before.producer_id,
            before.producer_epoch,
        ):
            return None
        return now

    def _ask(self, name: str) -> TransactionState | None:
        """What its coordinator says of an id; every broker is asked, one of them coordinates."""
        for connection in self.context.cluster.running_links().values():
            try:
                found = admin.transaction(connection, name)
            except WireError:
                continue  # a broker that is gone coordinates nothing
            if found is not None:
                return found
        return None

    def _await(self, what: str, look: Callable[[], T | None]) -> T:
        try:
            return wait_until(look, what=what, timeout_s=READY_WITHIN_S, stop=self.context.stop)
        except WaitTimeout as error:
            raise FaultNotConfirmed(f"{self.fault.kind}: {error}") from error


def _named(state: TransactionState) -> str:
    return f"{state.producer_epoch} (producer id {state.producer_id})"
