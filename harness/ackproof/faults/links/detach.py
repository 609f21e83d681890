"""detach: the network card of nodes is gone, as if its cable were pulled out.

All links at once, to and from brokers, controllers and clients, in silence: nobody is told, connections stay open.
Witnessed on every link, as `isolate … silent` is.
"""

from __future__ import annotations

from collections.abc import Iterator

from ackproof.experiment.exposure import Exposure, Incidents
from ackproof.experiment.fault import NodeFault
from ackproof.experiment.spec import ClusterSpec
from ackproof.faults.links.groups import apart
from ackproof.faults.links.of_links import Holders, OfLinks
from ackproof.network.mesh import BlackHole, Effect, Link


class Detach(OfLinks, NodeFault):
    """The network card of each node that holds the role is gone: nothing comes or goes, and nobody is told."""

    KIND = "detach"
    DONE = "detached from the network"
    SUMMARY = "Take a node's network card away: all its links and clients at once, in silence."
    HEALING = "attach again"

    def effect(self) -> Effect:
        return BlackHole()

    def links(self, holders: Holders, spec: ClusterSpec) -> Iterator[Link]:
        return apart(holders[self.target], "all", spec)

    def planned(self, exposure: Exposure) -> Incidents:
        return exposure.noticed(self.hold, exposure.aimed_at(self.targets))
