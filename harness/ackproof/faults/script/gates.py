"""What is held of each broker at the proxy of requests, and let through one by one."""

from __future__ import annotations

from collections.abc import Iterable

from ackproof.experiment.spec import ClusterSpec
from ackproof.faults.script.steps import Gate
from ackproof.network.mesh import Link
from ackproof.network.requests.links import RequestLinks
from ackproof.network.requests.rules import Kind, Rule, Side


class Gates:
    """The gates of one script. All raise `LinkError` where the proxy does not do as it is told."""

    def __init__(self, laid: RequestLinks, cluster: ClusterSpec, number: int) -> None:
        self._laid = laid
        self._cluster = cluster
        self._number = number
        self._shut: dict[tuple[Gate, int, Side], Rule] = {}

    def shut(self, gate: Gate, broker: int, side: Side) -> None:
        """Hold it from the next frame on; nothing happens where it is held already."""
        if (gate, broker, side) in self._shut:
            return
        links = (Link(broker, target) for target in self._targets(gate, broker))
        ways = tuple(way for link in links for way in self._laid.ways(link, gate.api))
        name = f"script-{self._number}-{gate}-{broker}-{side}"
        rule = Rule(name, Kind.HOLD, side, gate.api.key, ways)
        self._laid.lay(rule)
        self._shut[gate, broker, side] = rule

    def open(self, gate: Gate, broker: int) -> None:
        """Let all pass, what is held first."""
        for side in Side:
            if (rule := self._shut.pop((gate, broker, side), None)) is not None:
                self._laid.lift(rule.name)

    def open_all(self) -> None:
        """Open every gate."""
        for gate, broker, _ in list(self._shut):
            self.open(gate, broker)

    def is_shut(self, gate: Gate, broker: int) -> bool:
        """Whether its requests are held."""
        return (gate, broker, Side.REQUEST) in self._shut

    def held(self, gate: Gate, broker: int, side: Side) -> int:
        """How many of its frames wait here."""
        return sum(self._held(gate, broker, side).values())

    def release(self, gate: Gate, broker: int, side: Side) -> bool:
        """Let one frame go; whether there was one."""
        rule = self._shut[gate, broker, side]
        return any(
            self._laid.proxy.release(rule.name, way)
            for way, held in self._held(gate, broker, side).items()
            if held
        )

    def _held(self, gate: Gate, broker: int, side: Side) -> dict[str, int]:
        rule = self._shut.get((gate, broker, side))
        return {} if rule is None else dict(self._laid.proxy.held().get(rule.name, {}))

    def _targets(self, gate: Gate, broker: int) -> Iterable[int]:
        if gate is Gate.FETCHES:
            return [other for other in self._cluster.broker_ids if other != broker]
        return self._cluster.controller_ids
