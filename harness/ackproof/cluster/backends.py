"""From the name of a backend to its cluster."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

from ackproof.cluster.launch import Installation
from ackproof.cluster.process import ProcessCluster
from ackproof.cluster.protocol import OnNodeEvent, RunningCluster
from ackproof.errors import BadInput
from ackproof.plan.ground import Need
from ackproof.plan.spec import ClusterSpec
from ackproof.processes import RunTag


def make_cluster(
    backend: str,
    spec: ClusterSpec,
    nodes_dir: Path,
    tag: RunTag,
    on_event: OnNodeEvent,
    *,
    installed: Installation | None = None,
    needs: Set[Need] = frozenset(),
) -> RunningCluster:
    """A cluster that is not yet started. `needs` is what its faults need of the ground.

    Raises `BadInput` for settings that cannot be, and for a need that this backend or machine cannot lay.
    """
    if backend != "process":
        raise BadInput(f"there is no backend '{backend}'")
    if needs:
        raise BadInput(f"not possible here yet: {', '.join(sorted(needs))}")
    return ProcessCluster(spec, nodes_dir, tag, on_event, installed=installed)
