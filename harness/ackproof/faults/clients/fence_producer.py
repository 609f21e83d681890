"""`fence_producer`: a second producer starts with the transactional id of a running producer.

The witnesses are the transaction coordinator, which shows another epoch or producer id, and the last output
of the older client.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from operator import attrgetter

from ackproof.cluster import admin
from ackproof.cluster.admin import TransactionState
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import Draw
from ackproof.experiment.fault import Complaints
from ackproof.experiment.problems import Data
from ackproof.faults.clients.client import READY_WITHIN_S, ClientFault, ClientInjection, is_gone
from ackproof.faults.context import Clients, FaultContext
from ackproof.faults.injection import Aim, injects
from ackproof.network.wire import WireError

_epoch = attrgetter("producer_id", "producer_epoch")


class FenceProducer(ClientFault):
    """A second producer starts with the transactional id of a running producer. The coordinator raises the epoch and
    fences the older producer (a zombie) at its next request. It is unknown whether the older producer's last
    transaction was committed; in any case it is atomic."""

    KIND = "fence_producer"
    DONE = "fenced"
    IN_FORCE_S = 60.0
    SUMMARY = "Start a second producer with the transactional id of a running one, which is fenced."
    HEALING = "the older producer ends, the newer one goes on"

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        if self.client.kind != "producer":
            say.report(("client",), f"{self.client} has no transactional id", "name a producer")
        elif spec.workload.producers.transaction_size is None:
            say.report(
                ("client",),
                "without transactions no producer is fenced: set workload.producers.transaction_size",
            )

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        return {"client": "producer"} if draw.experiment.workload.producers.transaction_size else None


@injects(FenceProducer)
class _FenceProducerInjection(ClientInjection[FenceProducer]):
    """Start another producer with the transactional id of each chosen producer.

    Confirmed when the coordinator shows another epoch or producer id, and each older producer reports that it was
    fenced. Raises `FaultNotConfirmed` if a producer has no transactional id, or if no broker knows the id. Healing does
    nothing; it is confirmed when the older producers have ended and the newer ones are at work."""

    def __init__(self, fault: FenceProducer, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._before: dict[str, TransactionState] = {}
        self._others: dict[str, str] = {}

    @property
    def workload(self) -> Clients:
        if self.context.clients is None:
            raise self.not_confirmed("no workload of ours runs here")
        return self.context.clients

    def inject(self) -> str:
        did = []
        for client in self.choose():
            if not (name := self.workload.transactional_id(client.id)):
                raise self.not_confirmed(f"{client.id} has no transactional id")
            if (state := self._ask(name)) is None:
                raise self.not_confirmed(f"no broker knows the transactional id of {client.id}")
            self._before[client.id] = state
            self._others[client.id] = self.workload.take_over(client.id)
            self.hit.append(client)
            self.members.append(client)
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
                partial(self.workload.fenced, client.id),
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
        self.await_all("to end", is_gone, READY_WITHIN_S)
        seen = {old: self.await_work(new) for old, new in self._others.items()}
        return (
            ", ".join(f"{old} is gone and {new} is at work" for old, new in seen.items())
            or "nobody was fenced"
        )

    def _newer(self, client: str) -> TransactionState | None:
        now, before = self._ask(self.workload.transactional_id(client)), self._before[client]
        return None if now is not None and _epoch(now) == _epoch(before) else now

    def _ask(self, name: str) -> TransactionState | None:
        """Return the state of a transactional id as its coordinator reports it; None if no running broker
        reports it. All running brokers get the request in turn, because one of them is the coordinator."""
        for connection in self.context.cluster.running_links().values():
            with suppress(WireError):  # a dead broker coordinates nothing
                if (found := admin.transaction(connection, name)) is not None:
                    return found
        return None


def _describe(state: TransactionState) -> str:
    return f"{state.producer_epoch} (producer id {state.producer_id})"
