"""Simulates faults of clients in virtual time: killed, paused and fenced clients."""

from __future__ import annotations

from typing import TypeVar

from ackproof.base.errors import FaultNotConfirmed
from ackproof.faults.clients.client import ClientFault, KillClient, PauseClient
from ackproof.faults.clients.fence_producer import FenceProducer
from ackproof_simulator.faults.virtual import Virtual, does
from ackproof_simulator.network import Host
from ackproof_simulator.transactional import TransactionalProducer

ClientT = TypeVar("ClientT", bound=ClientFault)


class _Clients(Virtual[ClientT]):
    """Base class of simulated faults that hit clients. The clients are selected among the running ones when the
    fault begins."""

    def chosen(self) -> list[Host]:
        running = [f"p{p.number}" for p in self.world.producers if p.host.up]
        running += [f"r{r.number}" for r in self.world.readers if r.host.up]
        draw = int(self.world.random.random() * (1 << 30))
        names = self.fault.client.among(running, draw)
        if not names:
            raise FaultNotConfirmed(f"{self.fault}: there is no such client")
        self.clients = names
        return [self._named(name) for name in names]

    def _named(self, name: str) -> Host:
        clients = self.world.producers if name[0] == "p" else self.world.readers
        return clients[int(name[1:])].host


@does(KillClient)
class _KillClientRun(_Clients[KillClient]):
    """Kill clients with SIGKILL. Healing starts new clients in their place, which take over the transactional ids."""

    def inject(self) -> str:
        for host in self.chosen():
            self.world.network.down(host)
            self.world.killed.add(host.id)
        return f"SIGKILL to {', '.join(self.clients)}"

    def heal(self) -> str:
        for name in self.clients:
            if name[0] == "p":
                self.world.add_producer(self.world.slot_of(int(name[1:]))).start()
            else:
                self.world.add_reader()
        return f"others for {', '.join(self.clients)}"


@does(PauseClient)
class _PauseClientRun(_Clients[PauseClient]):
    """Stop client processes with SIGSTOP; healing continues them."""

    def inject(self) -> str:
        self.hosts = self.chosen()
        for host in self.hosts:
            self.world.network.pause(host)
        return f"SIGSTOP to {', '.join(self.clients)}"

    def heal(self) -> str:
        for host in self.hosts:
            if host.paused:
                self.world.network.resume(host)
        return f"SIGCONT to {', '.join(self.clients)}"


@does(FenceProducer)
class _FenceProducerRun(_Clients[FenceProducer]):
    """Start a second producer with the transactional id of a running one, which is then fenced."""

    def inject(self) -> str:
        self.chosen()
        self.pairs: list[tuple[TransactionalProducer, TransactionalProducer]] = []
        for name in self.clients:
            old = self.world.producers[int(name[1:])]
            assert isinstance(old, TransactionalProducer)
            old.fenced_by_another = True
            new = self.world.add_producer(old.slot)
            assert isinstance(new, TransactionalProducer)
            new.start()
            self.pairs.append((old, new))
        return f"others with the transactional ids of {', '.join(self.clients)}"

    def is_in_effect(self) -> bool:
        """Return True if the older producers have learned that they are fenced."""
        return all(old.gave_up == "fenced" for old, _ in self.pairs)

    def healed(self) -> bool:
        """Return True if each newer producer has had a record acknowledged."""
        return all(any(batch.outcome == 0 for batch in new.batches) for _, new in self.pairs)
