"""The nodes of a cluster at one moment, from which `experiment.roles` finds the holders of a role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Members:
    """The nodes of a cluster, and the holders of roles at one moment. -1: there is no such node, or it is unknown.
    `leader`, `replicas` and `isr` are those of the partition that the role names."""

    brokers: tuple[int, ...]
    controllers: tuple[int, ...] = ()
    active_controller: int = -1
    leader: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    racks: Mapping[int, str] = field(default_factory=dict)
    """Rack of each node that has one."""

    @classmethod
    def in_racks(
        cls, brokers: Sequence[int], controllers: Sequence[int], racks: Sequence[str], own: Sequence[str]
    ) -> Members:
        """Return members with these ids of `brokers` and `controllers`. `racks` are assigned to them round-robin.
        `own`: racks of the controllers; empty: the same as brokers.
        """
        by_node: dict[int, str] = {}
        # A combined node gets its rack as a broker.
        for nodes, names in ((controllers, own or racks), (brokers, racks)):
            by_node |= {node: names[at % len(names)] for at, node in enumerate(nodes) if names}
        return cls(tuple(brokers), tuple(controllers), racks=by_node)

    @property
    def nodes_by_rack(self) -> dict[str, tuple[int, ...]]:
        """The nodes of each rack, brokers first."""
        found: dict[str, tuple[int, ...]] = {}
        for node, rack in sorted(self.racks.items()):
            found[rack] = (*found.get(rack, ()), node)
        return found

    @property
    def rack_text(self) -> str:
        """The racks with their nodes in words, such as `a: 1, 3; b: 2`; '' without racks."""
        return "; ".join(
            f"{rack}: {', '.join(map(str, nodes))}" for rack, nodes in self.nodes_by_rack.items()
        )
