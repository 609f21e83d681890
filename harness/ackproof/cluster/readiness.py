"""Whether a node that was started takes part in its cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ackproof.base.errors import WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster import queries
from ackproof.cluster.backends.process.node import ProcessNode
from ackproof.cluster.metadata.protocol import ASK_S, MetadataQuorum
from ackproof.cluster.protocol import Node
from ackproof.cluster.wire import Connection, WireError

_HEAD_START_S: Final = 1.0


@dataclass(frozen=True)
class Readiness:
    """`links`: to each broker, `running`: to those that run now."""

    quorum: MetadataQuorum
    links: Mapping[int, Connection]
    running: Callable[[], Mapping[int, Connection]]

    def sees(self, node: Node, brokers: Collection[int]) -> bool:
        """Whether the node answers and, if it is a broker, sees all of these unfenced."""
        try:
            return self._serves(node) and (not node.is_broker or self._view(node.id) >= set(brokers))
        except WireError:
            return False

    def takes_part(self, node: Node) -> bool:
        """Whether the node answers and, if it is a broker, is seen unfenced by itself and by another."""
        try:
            return self._serves(node) and (
                not node.is_broker or (node.id in self._view(node.id) and self._peers_see(node.id))
            )
        except WireError:
            return False

    def _serves(self, node: Node) -> bool:
        return not node.is_controller or self.quorum.serves(node.id)

    def _view(self, broker: int) -> frozenset[int]:
        return queries.brokers(self.links[broker], ASK_S / 2)

    def _peers_see(self, broker: int) -> bool:
        """Whether the first other broker that answers sees it unfenced: its own view may be as old as its pause."""
        for peer in self.running():
            if peer != broker:
                with contextlib.suppress(WireError):
                    return broker in self._view(peer)
        return True


def give_head_start(controllers: Sequence[ProcessNode]) -> None:
    """Let controllers reach their first log line (0.3 s) before brokers compete with them for cores.

    Brokers that find no quorum back off and come later than they would have: worth 0.1 to 0.3 s on two cores.
    """
    with contextlib.suppress(WaitTimeout):
        wait_until(
            lambda: all(node.files.log.exists() or not node.alive for node in controllers),
            what="controllers to log",
            timeout_s=_HEAD_START_S,
            interval_s=0.005,
        )
