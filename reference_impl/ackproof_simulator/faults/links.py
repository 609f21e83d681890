"""Simulates faults of links in virtual time: the connections that they affect, and their effects."""

from __future__ import annotations

from typing import Any, TypeVar

from ackproof.faults.links.named import FlapFault
from ackproof.faults.links.shaped import DelayFault, DropLargeFault, LossFault, SlowCloseFault, ThrottleFault
from ackproof.faults.links.spec import CLIENTS, LinkFault
from ackproof_simulator.clock import seconds
from ackproof_simulator.faults.virtual import Virtual, does
from ackproof_simulator.network import Connection

LinksT = TypeVar("LinksT", bound=LinkFault)


@does(LinkFault)
class _LinksRun(Virtual[LinksT]):
    """Disturb the connections that a fault names, also after they have been opened again. A client that starts during
    the fault is not affected.

    `cut`, `reset`: connections are closed and refused. `black_hole`: packets are held until the healing. `delay`:
    packets are late. `loss`: some are lost and sent again. `throttle`: bandwidth is limited. `drop_large`: a packet
    above a size never arrives and blocks later ones. `slow_close`: if a connection ends, the side that opened it
    notices late, and what it sends meanwhile is lost. Other kinds, such as `isolate`, act like `black_hole` if their
    `in_silence` is True, else like `cut`.
    """

    def connections(self) -> list[Connection]:
        links = self.fault.links_there(self.aim, self.world.case.experiment.cluster)
        network = self.world.network
        clients = [number for number in network.hosts if number < 0]
        return [
            network.between(opener, target)
            for source, target in links
            for opener in (clients if source == CLIENTS else [source])
        ]

    def inject(self) -> str:
        self.mine = self.connections()
        for connection in self.mine:
            self.hinder(connection)
            connection.plain = False
        self.world.control.look()
        return f"{self.fault.kind} of {len(self.mine)} connections"

    def heal(self) -> str:
        for connection in self.mine:
            self.mend(connection)
            hindered = connection.delays or connection.losses or connection.rates or connection.limits
            connection.plain = not hindered and not any(connection.stuck)
        self.world.control.look()
        return f"mended {len(self.mine)} connections"

    def burden(self, connection: Connection) -> tuple[list[Any], object] | None:
        """Return (list of effects in `connection`, effect of this fault), such as (`connection.delays`, (latency,
        jitter)). The fault adds its effect to this list. None for a fault that holds packets or closes connections."""
        fault: LinkFault = self.fault
        match fault:
            case DelayFault():
                return connection.delays, (seconds(fault.latency), seconds(fault.jitter))
            case LossFault():
                return connection.losses, fault.share
            case ThrottleFault():
                return connection.rates, int(fault.rate)
            case DropLargeFault():
                return connection.limits, int(fault.above)
            case SlowCloseFault():
                return connection.slow_closes, seconds(fault.delay)
        return None

    def hinder(self, connection: Connection) -> None:
        burden = self.burden(connection)
        if burden is not None:
            borne, one = burden
            borne.append(one)
        elif self.fault.in_silence:
            connection.holds += 1
        else:
            connection.cuts += 1
            self.world.network.reset(connection)

    def mend(self, connection: Connection) -> None:
        """End the fault's effect on a connection. Packets that it had blocked pass, unless another fault blocks
        them."""
        burden = self.burden(connection)
        if burden is not None:
            borne, one = burden
            borne.remove(one)
            if borne is connection.limits:
                self.world.network.widen(connection)
        elif self.fault.in_silence:
            connection.holds -= 1
            self.world.network.release(connection)
        else:
            connection.cuts -= 1


@does(FlapFault)
class _FlapRun(_LinksRun[FlapFault]):
    """Take links down for `down` seconds and up for `up` seconds, repeatedly. Each outage affects the clients that
    run when it begins."""

    def inject(self) -> str:
        self.over = False
        did = super().inject()
        self.is_down = True
        self.later(self.fault.down, self._turn)
        return did

    def _turn(self) -> None:
        if self.over:
            return
        if self.is_down:
            super().heal()
        else:
            super().inject()
        self.is_down = not self.is_down
        self.later(self.fault.down if self.is_down else self.fault.up, self._turn)

    def heal(self) -> str:
        self.over = True
        return super().heal() if self.is_down else "it was up"
