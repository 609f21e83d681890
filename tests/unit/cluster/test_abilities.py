"""Tests of `local` and `clock_of`: nodes that ackproof started are in reach, attached nodes are not."""

from __future__ import annotations

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.backends.attach.cluster import AttachedNode
from ackproof.cluster.node import ProcessNode
from ackproof.cluster.protocol import Node, clock_of, local
from ackproof.network.addresses import Address
from ackproof.network.wire import Connection

THEIRS: Node = AttachedNode(1, Address("127.0.0.1", 9), Connection(Address("127.0.0.1", 9)))


def ours() -> ProcessNode:
    unused = dict.fromkeys(("files", "disk", "launch", "watcher", "on_event", "ready"))
    return ProcessNode(1, "broker-1", is_broker=True, is_controller=False, **unused)


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
