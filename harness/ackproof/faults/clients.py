"""Faults of the workload's own clients: killed, frozen, fenced. They work on every backend.

`client` selects them: `producer(0)` or `reader(1)` by the order of start; `producer` or `reader` for one running
client, drawn from the seed; `producers` or `readers` for all. A client that replaces another gets the next free
number.

The witness is the kernel: the process has ended, or all its threads are stopped and not scheduled. For a fenced
producer the witnesses are the transaction coordinator, which has a higher epoch, and the last output of the older
client.
"""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from operator import attrgetter
from typing import Annotated, Final, Literal, TypeAlias, TypeVar, cast

from pydantic import Field, WithJsonSchema

from ackproof.base.processes import ClientProcess, context_switches, process_state
from ackproof.base.wait import wait_until
from ackproof.cluster import admin
from ackproof.cluster.admin import TransactionState
from ackproof.experiment.base import text_field
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import NOTHING, Draw
from ackproof.experiment.fault import Complaints, FaultSpec
from ackproof.experiment.problems import Data
from ackproof.faults.injection import FREE_WITHIN_S, Aim, Clients, FaultContext, Injection, injects
from ackproof.network.wire import WireError

SEEN_WITHIN_S: Final = 10.0
STILL_S: Final = 0.2
"""A process counts as stopped by SIGSTOP if none of its threads is scheduled for this many seconds."""
READY_WITHIN_S: Final = 60.0
ClientKind: TypeAlias = Literal["producer", "reader"]
_epoch = attrgetter("producer_id", "producer_epoch")
_CLIENT: Final = re.compile(r"(producer|reader)(?:(s)|\(([0-9]{1,9})\))?\Z")


@dataclass(frozen=True)
class ClientSelector:
    """Selects clients of one kind: all (`every`), the one with this `number`, or one at random (neither)."""

    kind: ClientKind
    number: int | None = None
    every: bool = False

    @classmethod
    def parse(cls, text: str) -> ClientSelector:
        """Parse `producer(0)`, `reader` or `producers`. Raises ValueError with a message on what was expected."""
        match = _CLIENT.match(text.strip())
        if match is None:
            raise ValueError(
                f"expected producer, producers, producer(0), reader, readers or reader(0), not '{text[:60]}'"
            )
        number = None if match[3] is None else int(match[3])
        return cls(cast("ClientKind", match[1]), number, match[2] is not None)

    @property
    def prefix(self) -> str:
        return "p" if self.kind == "producer" else "r"

    def among(self, running: Sequence[str], draw: int) -> tuple[str, ...]:
        """Return the selected ids of `running`, which is in order of start. `draw` (a random number ≥ 0) picks
        the id of a drawn client."""
        own = [name for name in running if name.startswith(self.prefix)]
        if self.number is not None:
            return tuple(name for name in own if name == f"{self.prefix}{self.number}")
        if self.every or not own:
            return tuple(own)
        return (own[draw % len(own)],)

    def __str__(self) -> str:
        if self.number is not None:
            return f"{self.kind}({self.number})"
        return f"{self.kind}s" if self.every else self.kind


ClientField: TypeAlias = Annotated[
    ClientSelector,
    *text_field(ClientSelector.parse, ClientSelector, "clients such as producer(0), readers"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^(producer|reader)(s|\([0-9]+\))?$",
            "title": "Clients",
            "description": "Clients of the workload: producer(0), reader, producers, …",
        }
    ),
]


class ClientFault(FaultSpec):
    """Base of faults of clients, which touch no replica."""

    PER_NODE = NOTHING
    IN_FORCE_S = 1.0

    client: ClientField = Field(
        description="Clients: producer(0), producer (one, drawn), producers, reader, …"
    )

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        live = spec.workload.consumers.live
        if self.client.kind == "reader" and not live:
            say.report(("client",), f"{self.client} does not exist: set workload.consumers.live to 1 or more")

    def disturbs(self, producer: int) -> bool:
        return self.client.kind == "producer" and self.client.number in {None, producer}

    @property
    def lasts(self) -> float:
        """Return the seconds for which the effect lasts; infinite for a kill or fencing: the client never returns."""
        return super().lasts if isinstance(self, PauseClient) else inf

    def at_odds(self, first: FaultSpec, spec: ExperimentSpec) -> str:
        same = (
            isinstance(first, ClientFault) and first.client == self.client and self.client.number is not None
        )
        hinders = isinstance(self, PauseClient) or not isinstance(first, PauseClient)
        return f"has {first.DONE} {self.client}" if same and hinders else ""

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        return {"client": "producer"}

    def __str__(self) -> str:
        return f"{self.kind} {self.client}"


class KillClient(ClientFault):
    """SIGKILL of clients while they send. Sends without an outcome are indeterminate. A new client replaces each."""

    KIND = "kill_client"
    DONE = "killed"
    SUMMARY = "SIGKILL producers or readers in mid-flight; new ones take their place."
    HEALING = "start another"
    HOLD_KEY = "restart_after"


class PauseClient(ClientFault):
    """SIGSTOP of clients. The records in their queues and sockets are sent when they resume (a zombie)."""

    KIND = "pause_client"
    DONE = "paused"
    SUMMARY = "Freeze producers or readers (SIGSTOP); later they resume where they were."
    HEALING = "resume"
    HOLD_KEY = "for"


class FenceProducer(ClientFault):
    """A second producer starts with the transactional id of a running one. The coordinator raises the epoch and
    fences the older producer (a zombie) at its next request. Whether the older one's last transaction was committed
    is unknown, but it is atomic."""

    KIND = "fence_producer"
    DONE = "fenced"
    IN_FORCE_S = 60.0
    SUMMARY = "Start a second producer with the transactional id of a running one, which is fenced."
    HEALING = "the older producer ends, the newer one goes on"

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        if self.client.kind == "reader":
            say.report(("client",), f"{self.client} has no transactional id; name a producer")
        elif spec.workload.producers.transaction_size is None:
            say.report(
                ("client",),
                "without transactions no producer is fenced: set workload.producers.transaction_size",
            )

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        return {"client": "producer"} if draw.experiment.workload.producers.transaction_size else None


ClientT = TypeVar("ClientT", bound=ClientFault)


class _ClientInjection(Injection[ClientT]):
    """Base of the injections of client faults: chooses the clients and waits for their state."""

    def __init__(self, fault: ClientT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.hit: list[ClientProcess] = []

    @property
    def clients(self) -> Clients:
        if self.context.clients is None:
            raise self.not_confirmed("no workload of ours runs here")
        return self.context.clients

    def choose(self) -> list[ClientProcess]:
        """Return the clients to hit. Raises `FaultNotConfirmed` if none of them runs."""
        running = self.clients.running()
        seed = 0 if self.context.case is None else self.context.case.seed
        draw = random.Random(f"{seed}/client/{self.fault.number}").randrange(1 << 30)
        if not (names := self.fault.client.among(list(running), draw)):
            raise self.not_confirmed(
                f"aimed at nothing: {self.fault.client}; {', '.join(running) or 'no client'} runs"
            )
        return [running[name] for name in names]

    def await_all(self, what: str, state: Callable[[ClientProcess], bool], within_s: float) -> None:
        """Wait until `state` is true for each client hit. Raises `FaultNotConfirmed` (`waited for client ID WHAT`)."""
        for client in self.hit:
            self.wait_for(
                partial(state, client),
                f"client {client.id} (pid {client.pid}) {what}",
                within_s,
                state=partial(process_state, client.pid, client.started),
            )

    def await_work(self, name: str) -> str:
        """Wait until this client, or its successor if another fault hit it too, has sent or read something; return
        its id.

        Time in which another fault leaves the client without a successor does not count. Raises `FaultNotConfirmed`.
        """
        clients = self.clients
        while True:
            now = self.wait_for(
                partial(clients.successor, name),
                f"another fault to let someone take the place of {name}",
                FREE_WITHIN_S,
            )
            self.wait_for(
                lambda now=now: clients.at_work(now) or clients.successor(name) != now,  # type: ignore[misc]
                f"client {now} to be at work",
                READY_WITHIN_S,
            )
            if clients.at_work(now):
                return now


def _is_gone(client: ClientProcess) -> bool:
    return process_state(client.pid, client.started) == "gone"


@injects(KillClient)
class _KillClientInjection(_ClientInjection[KillClient]):
    """Kill clients with SIGKILL, and start a new client for each."""

    _others: Sequence[str] = ()

    def inject(self) -> str:
        did = []
        for client in self.choose():
            left = self.clients.kill(client.id)
            self.hit.append(client)
            did.append(
                f"{client.id} (pid {client.pid})"
                + ("" if left is None else f", {left} sends without an outcome")
            )
        return "SIGKILL to " + ", ".join(did)

    @property
    def killed(self) -> Mapping[str, int]:
        return {client.id: client.pid for client in self.hit}

    def confirm(self) -> str:
        self.await_all("to be gone", _is_gone, SEEN_WITHIN_S)
        return "/proc: " + ", ".join(f"pid {client.pid} is gone" for client in self.hit)

    def heal(self) -> str:
        self._others = [self.clients.replace(client.id) for client in self.hit]
        return "started " + (", ".join(self._others) or "no client")

    def confirm_healed(self) -> str:
        seen = [f"{self.await_work(name)} is at work" for name in self._others]
        return f"counters in shared memory: {', '.join(seen)}"


@injects(PauseClient)
class _PauseClientInjection(_ClientInjection[PauseClient]):
    """Pause clients with SIGSTOP. Healing sends SIGCONT."""

    def inject(self) -> str:
        for client in self.choose():
            if process_state(client.pid, client.started) != "running":
                raise self.not_confirmed(f"{client.id} does not run: nothing to freeze")
            self.clients.signal(client.id, signal.SIGSTOP)
            self.hit.append(client)
        return "SIGSTOP to " + ", ".join(f"{client.id} (pid {client.pid})" for client in self.hit)

    def confirm(self) -> str:
        self.await_all("to be stopped", self._stands_still, SEEN_WITHIN_S)
        return "/proc: " + ", ".join(
            f"all threads of pid {client.pid} are stopped and none ran for {STILL_S:g} s"
            for client in self.hit
        )

    def heal(self) -> str:
        for client in self.hit:
            self.clients.signal(client.id, signal.SIGCONT)
        return "SIGCONT to " + (", ".join(client.id for client in self.hit) or "no client")

    def confirm_healed(self) -> str:
        """Confirm that each client is scheduled again, or has ended since; return in words what was seen in /proc."""
        seen = []
        for client in self.hit:
            what = f"client {client.id} (pid {client.pid}) to run again"
            runs = partial(self._runs, client, context_switches(client.pid))
            self.wait_for(runs, what, SEEN_WITHIN_S, to_the_end=True)
            gone = process_state(client.pid, client.started) in ("gone", "zombie")
            seen.append(f"pid {client.pid} " + ("has ended since" if gone else "is scheduled again"))
        return "/proc: " + ", ".join(seen)

    @staticmethod
    def _stands_still(client: ClientProcess) -> bool:
        if process_state(client.pid, client.started) != "stopped":
            return False
        before, since = context_switches(client.pid), time.monotonic()
        wait_until(lambda: time.monotonic() - since >= STILL_S, what="a while", timeout_s=STILL_S + 5)
        return (
            process_state(client.pid, client.started) == "stopped" and context_switches(client.pid) == before
        )

    @staticmethod
    def _runs(
        client: ClientProcess, before: int
    ) -> bool:  # not a higher count: a thread that ends takes its switches with it
        state = process_state(client.pid, client.started)
        return state in ("gone", "zombie") or (state == "running" and context_switches(client.pid) != before)


@injects(FenceProducer)
class _FenceProducerInjection(_ClientInjection[FenceProducer]):
    """Start another producer with the transactional id of one that still runs."""

    def __init__(self, fault: FenceProducer, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._before: dict[str, TransactionState] = {}
        self._others: dict[str, str] = {}

    def inject(self) -> str:
        did = []
        for client in self.choose():
            if not (name := self.clients.transactional_id(client.id)):
                raise self.not_confirmed(f"{client.id} has no transactional id")
            if (state := self._ask(name)) is None:
                raise self.not_confirmed(f"no broker knows the transactional id of {client.id}")
            self._before[client.id] = state
            self._others[client.id] = self.clients.take_over(client.id)
            self.hit.append(client)
            did.append(f"{self._others[client.id]} with the transactional id of {client.id}, {name}")
        return "started " + ", ".join(did)

    def confirm(self) -> str:
        seen = []
        for client in self.hit:
            before = self._before[client.id]
            after = self.wait_for(
                partial(self._newer, client.id),
                f"the coordinator to give the id of {client.id} another epoch than {before.producer_epoch}",
                READY_WITHIN_S,
            )
            words = self.wait_for(
                partial(self.clients.fenced, client.id),
                f"{client.id} to be told that it is fenced",
                READY_WITHIN_S,
            )
            seen.append(
                f"the coordinator's epoch of {client.id}'s id went from {_describe(before)} to {_describe(after)}, "
                f"and {client.id} ended with: {words}"
            )
        return "; ".join(seen)

    def heal(self) -> str:
        return "nothing to undo: the older one ends by itself, the newer one goes on"

    def confirm_healed(self) -> str:
        self.await_all("to end", _is_gone, READY_WITHIN_S)
        seen = {old: self.await_work(new) for old, new in self._others.items()}
        return ", ".join(f"{old} is gone and {new} is at work" for old, new in seen.items())

    def _newer(self, client: str) -> TransactionState | None:
        now, before = self._ask(self.clients.transactional_id(client)), self._before[client]
        return None if now is not None and _epoch(now) == _epoch(before) else now

    def _ask(self, name: str) -> TransactionState | None:
        """Return the coordinator's state of a transactional id. Every broker is asked, because one of them
        coordinates it."""
        for connection in self.context.cluster.running_links().values():
            with suppress(WireError):  # a dead broker coordinates nothing
                if (found := admin.transaction(connection, name)) is not None:
                    return found
        return None


def _describe(state: TransactionState) -> str:
    return f"{state.producer_epoch} (producer id {state.producer_id})"
