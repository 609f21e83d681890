"""Faults of links in the model: which connections they hinder, and how."""

from __future__ import annotations

from typing import Generic, TypeVar

from ackproof.faults.links.named import FlapFault
from ackproof.faults.links.of_links import CLIENTS, OfLinks
from ackproof.faults.links.shaped import DelayFault, DropLargeFault, LossFault, SlowCloseFault, ThrottleFault
from ackproof_simulator.faults.virtual import Virtual, does
from ackproof_simulator.network import Connection
from ackproof_simulator.timing import seconds

LinksT = TypeVar("LinksT", bound=OfLinks)
Burden = TypeVar("Burden")


@does(OfLinks)
class LinksRun(Virtual[LinksT]):
    """The connections that the fault names; clients that come later are hindered too.

    Nothing passes: they are closed and refused, or all is held back in silence and comes through at the mending. A
    reset as soon as something is carried, which is at once, is to who uses it the same as a cut.
    """

    def connections(self) -> list[Connection]:
        """All of them, as of now."""
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

    def hinder(self, connection: Connection) -> None:
        """What it does to one of them."""
        if self.fault.in_silence:
            connection.holds += 1
        else:
            connection.cuts += 1
            self.world.network.reset(connection)

    def mend(self, connection: Connection) -> None:
        """The end of it."""
        if self.fault.in_silence:
            connection.holds -= 1
            self.world.network.release(connection)
        else:
            connection.cuts -= 1


class _Burdens(LinksRun[LinksT], Generic[LinksT, Burden]):
    """A burden on the connection, beside others of its kind."""

    def burden(self, connection: Connection) -> tuple[list[Burden], Burden]:
        """What the connection bears of that kind, and this one."""
        raise NotImplementedError

    def hinder(self, connection: Connection) -> None:
        borne, one = self.burden(connection)
        borne.append(one)

    def mend(self, connection: Connection) -> None:
        borne, one = self.burden(connection)
        borne.remove(one)


@does(DelayFault)
class DelayRun(_Burdens[DelayFault, tuple[int, int]]):
    """Everything arrives later."""

    def burden(self, connection: Connection) -> tuple[list[tuple[int, int]], tuple[int, int]]:
        return connection.delays, (seconds(self.fault.latency), seconds(self.fault.jitter))


@does(LossFault)
class LossRun(_Burdens[LossFault, float]):
    """Packets are lost, and sent again."""

    def burden(self, connection: Connection) -> tuple[list[float], float]:
        return connection.losses, self.fault.share


@does(ThrottleFault)
class ThrottleRun(_Burdens[ThrottleFault, int]):
    """A thin line."""

    def burden(self, connection: Connection) -> tuple[list[int], int]:
        return connection.rates, int(self.fault.rate)


@does(DropLargeFault)
class DropLargeRun(_Burdens[DropLargeFault, int]):
    """A large packet never arrives, and all behind it waits for it; TCP tries it again, later and later."""

    def burden(self, connection: Connection) -> tuple[list[int], int]:
        return connection.limits, int(self.fault.above)

    def mend(self, connection: Connection) -> None:
        """And what is stuck may go."""
        super().mend(connection)
        self.world.network.widen(connection)


@does(SlowCloseFault)
class SlowCloseRun(_Burdens[SlowCloseFault, int]):
    """Who has lost a connection learns of it late, from the next end on, and sends into it meanwhile."""

    def burden(self, connection: Connection) -> tuple[list[int], int]:
        return connection.slow_closes, seconds(self.fault.delay)


@does(FlapFault)
class FlapRun(LinksRun[FlapFault]):
    """Down and up, again and again."""

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
