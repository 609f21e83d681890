"""Faults of the workload's own clients, and of the instances of a service: killed, frozen. They work on every backend.

The field `client` selects clients. `producer(0)`, `reader(1)`, `member(2)` or `service(0)` is one client, by the order
of start. `producer`, `reader`, `member` or `service` is a running one, drawn from the seed. The plural, such as
`producers`, selects all. A replacement gets the next free number. Members are counted over all consumer groups.
`member(billing)` and `members(billing)` are of one consumer group or share group. `owner(orders/0)` and `owner(billing,
orders/0)` select the member that owns a partition now, as its coordinator says.

The witness is the kernel: the client's processes have ended, or all their threads are stopped and not scheduled.
"""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Annotated, Final, Literal, TypeAlias, TypeVar, cast

from pydantic import Field, WithJsonSchema

from ackproof.base.processes import ClientProcess, context_switches, is_alive, process_state
from ackproof.base.wait import wait_until
from ackproof.experiment.base import text_field
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import NOTHING, Draw
from ackproof.experiment.fault import Complaints, FaultSpec
from ackproof.experiment.problems import Data
from ackproof.faults.context import FREE_WITHIN_S, FaultContext, Processes
from ackproof.faults.groups.views import client_of, describe
from ackproof.faults.injection import Aim, Injection, injects
from ackproof.rundir.partition import TopicPartition

SEEN_WITHIN_S: Final = 10.0
STILL_S: Final = 0.2
"""A process counts as stopped by SIGSTOP if none of its threads is scheduled for this many seconds."""
READY_WITHIN_S: Final = 60.0
OWNED_WITHIN_S: Final = 15.0
"""Seconds until a partition has an owner. It has none while its group rebalances."""
ClientKind: TypeAlias = Literal["producer", "reader", "member", "service"]
_GROUP: Final = r"[A-Za-z0-9._-]{1,200}"
_CLIENT: Final = re.compile(
    rf"(producer|reader|member|service)(?:(s)?\((?:([0-9]{{1,9}})|({_GROUP}))\)|(s))?\Z"
)
_OWNER: Final = re.compile(rf"owner\( *(?:({_GROUP}) *, *)?({_GROUP}/[0-9]+) *\)\Z")
_PATTERN: Final = (
    r"^((producer|reader|member|service)(s|\([0-9]+\))?|members?\([A-Za-z0-9._-]+\)"
    r"|owner\(([A-Za-z0-9._-]+ *, *)?[A-Za-z0-9._-]+/[0-9]+\))$"
)


@dataclass(frozen=True)
class ClientSelector:
    """Selects clients of one kind: all (`every`), the client with this `number`, or a random client (neither is set).
    Members are of one `group` ('': of any consumer group). `place`: selects the member that owns this partition."""

    kind: ClientKind
    number: int | None = None
    every: bool = False
    group: str = ""
    place: TopicPartition | None = None

    @classmethod
    def parse(cls, text: str) -> ClientSelector:
        """Parse KIND (one at random), KINDs (all) or KIND(NUMBER); KIND: producer, reader, member, service. Also
        member(GROUP), members(GROUP), owner(TOPIC/N), owner(GROUP, TOPIC/N). Raises ValueError for any other text."""
        if owner := _OWNER.match(text.strip()):
            return cls("member", group=owner[1] or "", place=TopicPartition.parse(owner[2]))
        match = _CLIENT.match(text.strip())
        if match is None or (match[2] and match[3]) or (match[4] and match[1] != "member"):
            raise ValueError(
                "expected producer, producers, producer(0), the same with reader, member or service, or "
                f"members(billing), owner(orders/0), not '{text[:60]}'"
            )
        number = None if match[3] is None else int(match[3])
        every = match[2] is not None or match[5] is not None
        return cls(cast("ClientKind", match[1]), number, every, match[4] or "")

    @property
    def prefix(self) -> str:
        """Return the first letter of the ids of this kind: `g` for members of groups, else the kind's own."""
        return "g" if self.kind == "member" else self.kind[0]

    def among(self, running: Sequence[str], draw: int) -> tuple[str, ...]:
        """Return the ids in `running` (in order of start) that are selected. If `group` is set, the caller passes only
        ids of members of that group. `draw`: random number ≥ 0, which picks the client if one at random is selected."""
        own = [name for name in running if self.group or name.startswith(self.prefix)]
        if self.number is not None:
            return tuple(name for name in own if name == f"{self.prefix}{self.number}")
        if self.every or not own:
            return tuple(own)
        return (own[draw % len(own)],)

    def __str__(self) -> str:
        if self.place is not None:
            return f"owner({self.group}, {self.place})" if self.group else f"owner({self.place})"
        if self.number is not None:
            return f"{self.kind}({self.number})"
        return (f"{self.kind}s" if self.every else self.kind) + (f"({self.group})" if self.group else "")


ClientField: TypeAlias = Annotated[
    ClientSelector,
    *text_field(ClientSelector.parse, ClientSelector, "clients such as producer(0), readers"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": _PATTERN,
            "title": "Clients",
            "description": "Clients of the workload, or instances of its service: producer(0), reader, "
            "members(billing), owner(orders/0), services, …",
        }
    ),
]


class ClientFault(FaultSpec):
    """Base of faults of clients and of service instances. Such faults affect no broker."""

    PER_NODE = NOTHING
    IN_FORCE_S = 1.0

    client: ClientField = Field(
        description="Clients: producer(0), producer (one, drawn), producers, reader, member(0), members(billing), "
        "owner(orders/0), service(0), …"
    )

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        live = spec.workload.consumers.live
        if self.client.kind == "member":
            self._check_member(spec, say)
        if self.client.kind == "reader" and not live:
            say.report(("client",), f"{self.client} does not exist: set workload.consumers.live to 1 or more")
        if self.client.kind == "service" and spec.workload.service is None:
            say.report(("client",), f"{self.client} does not exist: write workload.service")

    def _check_member(self, spec: ExperimentSpec, say: Complaints) -> None:
        groups, group, place = spec.workload.groups, self.client.group, self.client.place
        known = {**groups, **({} if place is not None else spec.workload.share_groups)}
        if not known or not (groups or group):
            say.report(("client",), f"{self.client} does not exist: write workload.groups")
        elif group and group not in known:
            say.unknown_value(("client",), "the consumer group", group, known)
        elif place is not None:
            topic = spec.topics.get(place.topic)
            reading = [name for name in groups if group in ("", name) and place.topic in spec.input_of(name)]
            if topic is None or place.partition >= topic.partitions or not reading:
                say.report(("client",), f"{self.client} does not exist: no consumer group reads {place}")
            elif len(reading) > 1:
                why = f"groups {', '.join(reading)} read it: write owner({reading[0]}, {place})"
                say.report(("client",), f"{self.client} may be several: {why}")

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
    """SIGKILL of clients while they send, or of instances of a service, with the processes that these started. Sends
    without an outcome are indeterminate. A new client replaces each."""

    KIND = "kill_client"
    DONE = "killed"
    SUMMARY = "SIGKILL producers, readers or instances of a service in mid-flight; new ones take their place."
    HEALING = "start another"
    HOLD_KEY = "restart_after"


class PauseClient(ClientFault):
    """SIGSTOP of clients. The records in their queues and sockets are sent when they resume (a zombie)."""

    KIND = "pause_client"
    DONE = "paused"
    SUMMARY = (
        "Freeze producers, readers or instances of a service (SIGSTOP); later they resume where they were."
    )
    HEALING = "resume"
    HOLD_KEY = "for"


ClientT = TypeVar("ClientT", bound=ClientFault)


class ClientInjection(Injection[ClientT]):
    """Base of the injections of client faults: chooses the clients and waits for their state."""

    def __init__(self, fault: ClientT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.hit: list[ClientProcess] = []
        """The clients that the fault has killed, paused, fenced or slowed down so far."""
        self.members: list[ClientProcess] = []
        """Processes for which `await_all` waits: those in `hit`, and those that killed or paused clients started."""

    @property
    def processes(self) -> Processes:
        own: dict[str, Processes | None] = {"service": self.context.service, "member": self.context.groups}
        found = own.get(self.fault.client.kind, self.context.clients)
        if found is None:
            raise self.not_confirmed("no workload of ours runs here")
        return found

    def choose(self) -> list[ClientProcess]:
        """Return the clients that the fault's field `client` selects now. Raises `FaultNotConfirmed` if none runs, or
        if no coordinator names the owner of a selected partition within `OWNED_WITHIN_S` seconds."""
        group = self.fault.client.group
        running = {
            name: client
            for name, client in self.processes.running().items()
            if not group or self.groups.group_of(name) == group
        }
        if (place := self.fault.client.place) is not None:
            owners = self.wait_for(
                lambda: [name for name in running if place in self._owned(name)],
                f"a coordinator to name the owner of {place}",
                OWNED_WITHIN_S,
            )
            return [running[name] for name in owners]
        seed = 0 if self.context.case is None else self.context.case.seed
        draw = random.Random(f"{seed}/client/{self.fault.number}").randrange(1 << 30)
        if not (names := self.fault.client.among(list(running), draw)):
            raise self.not_confirmed(
                f"aimed at nothing: {self.fault.client}; {', '.join(running) or 'no client'} runs"
            )
        return [running[name] for name in names]

    def _owned(self, member: str) -> frozenset[TopicPartition]:
        """Return the partitions that the coordinator now assigns to a member; none if the coordinator does not answer,
        or does not list the member."""
        described = describe(self.context, self.groups.group_of(member))
        own = (
            (one.partitions for one in described.members if client_of(one, self.groups) == member)
            if described
            else ()
        )
        return frozenset[TopicPartition]().union(*own)

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(client.id for client in self.hit)

    def await_all(self, what: str, state: Callable[[ClientProcess], bool], within_s: float) -> None:
        """Wait up to `within_s` seconds for each process in `members` until `state` is true of it. Raises
        `FaultNotConfirmed` ("waited for client ID `what`") if it does not become true."""
        for client in self.members:
            self.wait_for(
                partial(state, client),
                f"client {client.id} (pid {client.pid}) {what}",
                within_s,
                state=partial(process_state, client.pid, client.started),
            )

    def await_work(self, name: str) -> str:
        """Wait until a client is at work (`Processes.at_work`), and return its id. If another fault has ended the
        client, wait for its successor instead. Raises `FaultNotConfirmed` if a minute passes without that. The time
        until the other fault starts a successor does not count."""
        clients = self.processes
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


def is_gone(client: ClientProcess) -> bool:
    """Return True if the client's process has ended and was reaped."""
    return process_state(client.pid, client.started) == "gone"


def has_ended(client: ClientProcess) -> bool:
    """Return True if the client's process has ended, reaped or not."""
    return not is_alive(client.pid, client.started)


@injects(KillClient)
class _KillClientInjection(ClientInjection[KillClient]):
    """Kill clients with SIGKILL. Confirmed when all their processes are gone. Healing starts a new client for each; it
    is confirmed when these are at work."""

    _others: Sequence[str] = ()

    def inject(self) -> str:
        did = []
        for client in self.choose():
            if not (members := self.processes.members(client.id)):
                raise self.not_confirmed(f"{client.id} has ended meanwhile: nothing to kill")
            self.members += members
            left = self.processes.kill(client.id)
            self.hit.append(client)
            unknown = "" if left is None else f", {left} sends without an outcome"
            did.append(f"{client.id} (pid {client.pid}){unknown}")
        return "SIGKILL to " + ", ".join(did)

    @property
    def killed(self) -> Mapping[str, int]:
        return {client.id: client.pid for client in self.hit}

    def confirm(self) -> str:
        self.await_all("to be gone", is_gone, SEEN_WITHIN_S)
        return "/proc: " + ", ".join(f"pid {client.pid} is gone" for client in self.members)

    def heal(self) -> str:
        self._others = [self.processes.replace(client.id) for client in self.hit]
        return "started " + (", ".join(self._others) or "no client")

    def confirm_healed(self) -> str:
        seen = [f"{self.await_work(name)} is at work" for name in self._others]
        prints = self.fault.client.kind in ("service", "member")
        return f"{'its process and output' if prints else 'counters in shared memory'}: {', '.join(seen)}"


@injects(PauseClient)
class _PauseClientInjection(ClientInjection[PauseClient]):
    """Pause clients with SIGSTOP. Confirmed when none of their threads ran for `STILL_S` seconds. SIGCONT heals."""

    def __init__(self, fault: PauseClient, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._switches: dict[int, int] = {}
        """Context switches of each process before SIGCONT, by pid. Another number shows that it ran since."""

    def inject(self) -> str:
        for client in self.choose():
            if process_state(client.pid, client.started) != "running":
                raise self.not_confirmed(f"{client.id} does not run: nothing to freeze")
            self.processes.signal(client.id, signal.SIGSTOP)
            self.hit.append(client)
            self.members += self.processes.members(client.id)
        return "SIGSTOP to " + ", ".join(f"{client.id} (pid {client.pid})" for client in self.hit)

    def confirm(self) -> str:
        self.await_all("to be stopped", self._stands_still, SEEN_WITHIN_S)
        return "/proc: " + ", ".join(
            f"all threads of pid {client.pid} are stopped and none ran for {STILL_S:g} s"
            for client in self.members
        )

    def heal(self) -> str:
        for client in self.members:
            self._switches.setdefault(client.pid, context_switches(client.pid))
        for client in self.hit:
            self.processes.signal(client.id, signal.SIGCONT)
        return "SIGCONT to " + (", ".join(client.id for client in self.hit) or "no client")

    def confirm_healed(self) -> str:
        """Confirm that each client is scheduled again, or has ended since; return in words what was seen in /proc."""
        seen = []
        for client in self.members:
            what = f"client {client.id} (pid {client.pid}) to run again"
            runs = partial(self._runs, client, self._switches.get(client.pid, -1))
            self.wait_for(runs, what, SEEN_WITHIN_S, to_the_end=True)
            seen.append(
                f"pid {client.pid} {'has ended since' if has_ended(client) else 'is scheduled again'}"
            )
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
