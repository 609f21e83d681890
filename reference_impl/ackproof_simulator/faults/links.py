"""Faults of links in the model: which connections they hinder, and how."""

from __future__ import annotations

from typing import Generic, TypeVar, cast

from ackproof.faults.links.aims import CLIENTS, links_of
from ackproof.faults.links.detach import Detach
from ackproof.faults.links.groups import BridgeFault, IsolateFault, SplitFault
from ackproof.faults.links.specification import (
    BlackHoleFault,
    CutFault,
    DelayFault,
    DropLargeFault,
    FlapFault,
    LossFault,
    OfLinks,
    ResetFault,
    SlowCloseFault,
    ThrottleFault,
)
from ackproof_simulator.faults.virtual import Virtual, does
from ackproof_simulator.network import Connection
from ackproof_simulator.timing import seconds

Burden = TypeVar("Burden")


class _Links(Virtual):
    """The connections that the fault names; clients that come later are hindered too."""

    def connections(self) -> list[Connection]:
        """All of them, as of now."""
        links = links_of(cast(OfLinks, self.fault), self.aim, self.world.case.experiment.cluster)
        network = self.world.network
        clients = [number for number in network.hosts if number < 0]
        return [
            network.between(opener, target)
            for source, target in links
            for opener in (clients if source == CLIENTS else [source])
        ]

    def inject(self) -> str:
        """Hinder them."""
        self.mine = self.connections()
        for connection in self.mine:
            self.hinder(connection)
            connection.plain = False
        self.world.control.look()
        return f"{self.fault.kind} of {len(self.mine)} connections"

    def heal(self) -> str:
        """Mend them."""
        for connection in self.mine:
            self.mend(connection)
            hindered = connection.delays or connection.losses or connection.rates or connection.limits
            connection.plain = not hindered and not any(connection.stuck)
        self.world.control.look()
        return f"mended {len(self.mine)} connections"

    def hinder(self, connection: Connection) -> None:
        """What it does to one of them."""
        raise NotImplementedError

    def mend(self, connection: Connection) -> None:
        """The end of it."""
        raise NotImplementedError


@does(CutFault)
class CutRun(_Links):
    """Closed, and refused."""

    def hinder(self, connection: Connection) -> None:
        """Close it."""
        connection.cuts += 1
        self.world.network.reset(connection)

    def mend(self, connection: Connection) -> None:
        """Let new ones in."""
        connection.cuts -= 1


@does(ResetFault)
class ResetRun(CutRun):
    """Reset as soon as it carries something, which is at once: to who uses it the same as a cut."""


@does(BlackHoleFault, Detach)
class SilenceRun(_Links):
    """Nothing arrives; what waits comes through at the mending."""

    def hinder(self, connection: Connection) -> None:
        """Hold everything."""
        connection.holds += 1

    def mend(self, connection: Connection) -> None:
        """Let it through."""
        connection.holds -= 1
        self.world.network.release(connection)


@does(IsolateFault, SplitFault, BridgeFault)
class ApartRun(_Links):
    """Nodes apart: refused, or in silence."""

    @property
    def _silent(self) -> bool:
        assert isinstance(self.fault, (IsolateFault, SplitFault, BridgeFault))
        return self.fault.silent

    def hinder(self, connection: Connection) -> None:
        """Close it, or hold everything."""
        if self._silent:
            connection.holds += 1
        else:
            connection.cuts += 1
            self.world.network.reset(connection)

    def mend(self, connection: Connection) -> None:
        """As before."""
        if self._silent:
            connection.holds -= 1
            self.world.network.release(connection)
        else:
            connection.cuts -= 1


class _Burdens(_Links, Generic[Burden]):
    """A burden on the connection, beside others of its kind."""

    def burden(self, connection: Connection) -> tuple[list[Burden], Burden]:
        """What the connection bears of that kind, and this one."""
        raise NotImplementedError

    def hinder(self, connection: Connection) -> None:
        """Lay it on."""
        borne, one = self.burden(connection)
        borne.append(one)

    def mend(self, connection: Connection) -> None:
        """Take it off."""
        borne, one = self.burden(connection)
        borne.remove(one)


@does(DelayFault)
class DelayRun(_Burdens[tuple[int, int]]):
    """Everything arrives later."""

    def burden(self, connection: Connection) -> tuple[list[tuple[int, int]], tuple[int, int]]:
        """A longer line."""
        assert isinstance(self.fault, DelayFault)
        return connection.delays, (seconds(self.fault.latency), seconds(self.fault.jitter))


@does(LossFault)
class LossRun(_Burdens[float]):
    """Packets are lost, and sent again."""

    def burden(self, connection: Connection) -> tuple[list[float], float]:
        """A share of them."""
        assert isinstance(self.fault, LossFault)
        return connection.losses, self.fault.share


@does(ThrottleFault)
class ThrottleRun(_Burdens[int]):
    """A thin line."""

    def burden(self, connection: Connection) -> tuple[list[int], int]:
        """How thin."""
        assert isinstance(self.fault, ThrottleFault)
        return connection.rates, int(self.fault.rate)


@does(DropLargeFault)
class DropLargeRun(_Burdens[int]):
    """A large packet never arrives, and all behind it waits for it; TCP tries it again, later and later."""

    def burden(self, connection: Connection) -> tuple[list[int], int]:
        """What is large."""
        assert isinstance(self.fault, DropLargeFault)
        return connection.limits, int(self.fault.above)

    def mend(self, connection: Connection) -> None:
        """And what is stuck may go."""
        super().mend(connection)
        self.world.network.widen(connection)


@does(SlowCloseFault)
class SlowCloseRun(_Burdens[int]):
    """Who has lost a connection learns of it late, and sends into it meanwhile."""

    def burden(self, connection: Connection) -> tuple[list[int], int]:
        """From the next end on."""
        assert isinstance(self.fault, SlowCloseFault)
        return connection.slow_closes, seconds(self.fault.delay)


@does(FlapFault)
class FlapRun(CutRun):
    """Down and up, again and again."""

    def inject(self) -> str:
        """Down for the first time."""
        self.over = False
        did = super().inject()
        self.is_down = True
        assert isinstance(self.fault, FlapFault)
        self.later(self.fault.down, self._turn)
        return did

    def _turn(self) -> None:
        assert isinstance(self.fault, FlapFault)
        if self.over:
            return
        if self.is_down:
            super().heal()
        else:
            super().inject()
        self.is_down = not self.is_down
        self.later(self.fault.down if self.is_down else self.fault.up, self._turn)

    def heal(self) -> str:
        """It stays up."""
        self.over = True
        return super().heal() if self.is_down else "it was up"
