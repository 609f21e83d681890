"""What can be done with a node: all of it with one of ours, nothing to its process with somebody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.backends.attach.cluster import AttachedNode
from ackproof.cluster.node import NodeFiles, ProcessNode
from ackproof.cluster.protocol import Node, clock_of, local
from ackproof.network.addresses import Address
from ackproof.network.wire import Connection

THEIRS: Node = AttachedNode(1, Address("127.0.0.1", 9), Connection(Address("127.0.0.1", 9)))
UNUSED: Any = None


def ours() -> ProcessNode:
    return ProcessNode(
        1,
        "broker-1",
        is_broker=True,
        is_controller=False,
        files=NodeFiles(Path("nodes/1")),
        disk=UNUSED,
        launch=UNUSED,
        watcher=UNUSED,
        on_event=UNUSED,
        ready=UNUSED,
    )


def test_a_node_of_ours_is_on_this_machine() -> None:
    node = ours()
    assert local([node]) == (node,)


def test_the_process_of_somebody_elses_node_is_out_of_reach() -> None:
    with pytest.raises(FaultNotConfirmed, match="broker-1 belongs to a cluster that someone else runs"):
        local([ours(), THEIRS])


@pytest.mark.parametrize("node", [THEIRS, ours()])
def test_a_clock_that_was_not_prepared_cannot_be_set(node: Node) -> None:
    with pytest.raises(FaultNotConfirmed, match="the cluster was not made for it"):
        clock_of(node)
