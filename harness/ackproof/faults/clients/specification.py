"""Faults of the workload's own clients: processes of ours, so that these work on every backend.

`client` says whom: `producer(0)` or `reader(1)` by their order of start, `producer` or `reader` one of those that
run, drawn from the seed, `producers` or `readers` all of them. One that took another's place has the next free number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, TypeAlias, cast

from pydantic import Field, WithJsonSchema

from ackproof.experiment.base import text_field
from ackproof.experiment.fault import Complaints, FaultSpec, HoldKey

if TYPE_CHECKING:
    from ackproof.experiment.drawing import Draw
    from ackproof.experiment.nodes import Data
    from ackproof.experiment.spec import Surroundings

ClientKind: TypeAlias = Literal["producer", "reader"]

_CLIENT: Final = re.compile(r"(producer|reader)(?:(s)|\(([0-9]{1,9})\))?\Z")


@dataclass(frozen=True)
class Whom:
    """One or several clients. `number` None and not `every`: one of them, drawn."""

    kind: ClientKind
    number: int | None = None
    every: bool = False

    @classmethod
    def parse(cls, text: str) -> Whom:
        """Read `producer(0)`, `reader`, `producers`. Raises ValueError with what was expected."""
        match = _CLIENT.match(text.strip())
        if match is None:
            raise ValueError(
                f"expected producer, producers, producer(0), reader, readers or reader(0), not '{text[:60]}'"
            )
        number = None if match[3] is None else int(match[3])
        return cls(cast("ClientKind", match[1]), number, match[2] is not None)

    @property
    def prefix(self) -> str:
        """How the ids of such clients begin."""
        return "p" if self.kind == "producer" else "r"

    def among(self, running: Sequence[str], draw: int) -> tuple[str, ...]:
        """Which of these client ids (in order of their start) are meant; `draw` chooses where one is to be drawn."""
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


WhomField: TypeAlias = Annotated[
    Whom,
    *text_field(Whom.parse, Whom, "clients such as producer(0), readers"),
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
    """A fault of clients."""

    UNPREDICTABLE: ClassVar[str] = ""

    client: WhomField = Field(description="Whom: producer(0), producer (one, drawn), producers, reader, …")

    def check(self, spec: Surroundings, say: Complaints) -> None:
        """There must be such a client; one that takes another's place comes later and may be named too."""
        live = spec.workload.consumers.live
        if self.client.kind == "reader" and not live:
            say.report(("client",), f"{self.client} is nobody: set workload.consumers.live to 1 or more")

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """A producer: every workload has some."""
        return {"client": "producer"}

    def __str__(self) -> str:
        return f"{self.kind} {self.client}"


class KillClient(ClientFault):
    """SIGKILL of clients in mid-flight. What they had sent without an outcome is indeterminate. Another client, with
    the next free number, takes the place of each."""

    KIND: ClassVar[str] = "kill_client"
    SUMMARY: ClassVar[str] = "SIGKILL producers or readers in mid-flight; new ones take their place."
    HEALING: ClassVar[str] = "start another"
    HOLD_KEY: ClassVar[HoldKey | None] = "restart_after"


class PauseClient(ClientFault):
    """SIGSTOP of clients: what they hold in their queues and sockets goes out when they return (a zombie)."""

    KIND: ClassVar[str] = "pause_client"
    SUMMARY: ClassVar[str] = (
        "Freeze producers or readers (SIGSTOP), which later go on as if nothing had been."
    )
    HEALING: ClassVar[str] = "resume"
    HOLD_KEY: ClassVar[HoldKey | None] = "for"


class FenceProducer(ClientFault):
    """A second producer with the transactional id of one that goes on: the broker gives it a higher epoch, and fences
    the older one (a zombie) at its next request. What the older one's last transaction came to is not known, but for
    one thing: it is there as a whole or not at all."""

    KIND: ClassVar[str] = "fence_producer"
    SUMMARY: ClassVar[str] = (
        "Start a second producer with the transactional id of one that goes on; the older one is fenced."
    )
    HEALING: ClassVar[str] = "the older one ends, the newer one goes on"
    HOLD_KEY: ClassVar[HoldKey | None] = None

    def check(self, spec: Surroundings, say: Complaints) -> None:
        """It takes producers that write in transactions."""
        if self.client.kind == "reader":
            say.report(("client",), f"{self.client} has no transactional id; name a producer")
        elif spec.workload.producers.transaction_size is None:
            say.report(
                ("client",), "without transactions nobody is fenced: set workload.producers.transaction_size"
            )

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Where producers write in transactions."""
        in_transactions = draw.experiment.workload.producers.transaction_size is not None
        return {"client": "producer"} if in_transactions else None
